"""The house holds its shape: who may import whom, read from the source itself.

`docs/architecture.md` explains the order; this file is where it is enforced. Imports inside functions and under
`TYPE_CHECKING` count as well: a late import is still a dependency.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "lumen_gateway"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# Bottom first. A module imports from its own line and from the lines above it here, never from below.
ORDER = (
    "errors",
    "records",
    "clock",
    "redact",
    "dialects",  # wire shapes, both directions
    "providers",  # what differs between upstreams
    "config",  # the document
    "accounting.tokens",
    "accounting.prices",
    "routing",  # the document, compiled
    "accounting.ledger",
    "accounting.usage",
    "execution",  # what happens to one request
    "transport",  # outward sockets
    "telemetry",
    "respond",
    "framing",  # what a client's request must be
    "patience",  # and how long it may take
    "call",  # one request, and the way to answer it
    "fastlane",  # a client's connection
    "elsewhere",  # what is not the data plane: relayed to the keeper
    "gateway",  # the life of a request, in order
    "control",  # frames between the processes
    "serving",  # a server's life and end, for both kinds of process
    "worker",  # the data-plane process
    "storage",
    "supervise",  # the keeper's end of one worker
    "tally",  # what all workers counted
    "documents",  # the document while it runs
    "admin",  # the keeper's own site
    "keeper",  # the parent process
    "app",  # wiring; also where a worker process starts
    "simulator",  # fakes, for the tests and the demo
    "cli",
)

PURE = (
    "errors",
    "records",
    "dialects",
    "providers",
    "accounting.tokens",
    "accounting.prices",
    "routing",
    "execution.retry",
    "execution.breaker",
    "execution.deadline",
)
"""Neither these nor anything they import wait, open, look at the clock or throw dice."""

IMPURE = frozenset(
    {"asyncio", "random", "secrets", "selectors", "socket", "ssl", "subprocess", "threading", "time", "uvloop"}
)

SOCKET_ROOMS = ("transport", "serving", "worker", "supervise", "keeper", "app", "simulator", "cli")
"""The only ones that touch sockets themselves; the others speak through what these hand them."""

NO_SOCKET = frozenset({("config.rules", "ssl")})
"""Imports that open none: `lumen check` tries whether a certificate and its key are a pair."""

WORKER_STARTS = ("app", "worker")
"""What a worker process begins with."""

KEEPER_ONLY = ("storage", "admin", "keeper", "supervise", "tally", "documents", "config.sources")
"""What it must never load, directly or through anything else."""

KEEPER_LIBRARIES = frozenset({"alembic", "sqlalchemy", "starlette", "tomlkit", "watchfiles"})


class Import(NamedTuple):
    """One import statement, seen from the package: `target` is a dotted name below it, or a foreign top-level name."""

    module: str
    target: str
    line: int
    own: bool
    typing_only: bool


def imports_of(module: str, source: str, modules: frozenset[str]) -> Iterator[Import]:
    """Yield every import of one module's source, those inside functions and conditions included."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _names(node, module, modules):
                own = name == PACKAGE or name.startswith(f"{PACKAGE}.")
                target = name.removeprefix(PACKAGE).removeprefix(".") if own else name.partition(".")[0]
                yield Import(module, target, node.lineno, own, id(node) in typing_only)


def _names(node: ast.Import | ast.ImportFrom, module: str, modules: frozenset[str]) -> Iterator[str]:
    """Yield the full name of every module a statement loads: `from a import b` means a.b where that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, (
        f"{module}:{node.lineno}: write the import out from {PACKAGE}, so that it can be searched for"
    )
    base = node.module or ""
    for alias in node.names:
        longer = f"{base}.{alias.name}"
        yield longer if longer.removeprefix(f"{PACKAGE}.") in modules else base


def read_house() -> dict[str, list[Import]]:
    """Return the imports of every module: dotted name below the package -> its imports."""
    sources = {_module_name(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    names = frozenset(sources)
    return {module: list(imports_of(module, source, names)) for module, source in sources.items()}


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str, order: Sequence[str] = ORDER) -> str | None:
    """Return the line of the order a module stands on: the longest that is the module or a folder above it."""
    fits = [room for room in order if _inside(module, (room,))]
    return max(fits, key=len, default=None)


def _inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def upward(imports: list[Import], order: Sequence[str] = ORDER) -> list[str]:
    """Return the imports that reach for something above their own line, as sentences."""
    rank = {room: position for position, room in enumerate(order)}
    found = []
    for entry in imports:
        here, there = room_of(entry.module, order), room_of(entry.target, order)
        if entry.own and here and there and rank[there] > rank[here]:
            found.append(f"{entry.module}:{entry.line} imports {entry.target}, but {here} stands below {there}")
    return found


def closure(house: Mapping[str, list[Import]], start: str, *, typing_too: bool) -> dict[str, str]:
    """Return every own module that loading `start` loads, each with the module that asked for it."""
    reached, waiting = {start: start}, [start]
    while waiting:
        module = waiting.pop()
        for entry in house.get(module, []):
            if entry.own and (typing_too or not entry.typing_only) and entry.target not in reached:
                reached[entry.target] = module
                waiting.append(entry.target)
    return reached


def find_cycle(house: Mapping[str, list[Import]]) -> list[str] | None:
    """Return one chain of modules that leads back to its start, or None; imports for types alone never run."""
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return None
        for entry in house.get(module, []):
            if entry.own and not entry.typing_only and (found := visit(entry.target, [*path, module])):
                return found
        finished.add(module)
        return None

    return next((found for module in house if (found := visit(module, []))), None)


HOUSE = read_house()


def pure_modules() -> list[str]:
    return [module for module in HOUSE if _inside(module, PURE)]


def test_every_module_has_a_place_in_the_order() -> None:
    folders = {room.partition(".")[0] for room in ORDER} | {""}
    homeless = [module for module in HOUSE if room_of(module) is None and (module not in folders or HOUSE[module])]
    assert not homeless, f"say in ORDER where these stand, or let the folder's __init__ import nothing: {homeless}"


def test_imports_run_one_way() -> None:
    assert upward([entry for imports in HOUSE.values() for entry in imports]) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_cycle(HOUSE) is None


@pytest.mark.parametrize("module", pure_modules())
def test_pure_module_takes_time_chance_and_network_as_arguments(module: str) -> None:
    loads = closure(HOUSE, module, typing_too=False)
    impure = [
        f"{entry.module}:{entry.line} imports {entry.target}"
        for loaded in loads
        for entry in HOUSE.get(loaded, [])
        if not entry.own and not entry.typing_only and entry.target in IMPURE
    ]
    assert impure == []


def test_only_the_processes_and_the_transport_touch_sockets() -> None:
    outside = [
        f"{entry.module}:{entry.line}"
        for module, imports in HOUSE.items()
        for entry in imports
        if entry.target in {"socket", "ssl"} and not entry.own and not _inside(module, SOCKET_ROOMS)
        if (module, entry.target) not in NO_SOCKET
    ]
    assert outside == []


@pytest.mark.parametrize("start", WORKER_STARTS)
def test_nothing_a_worker_imports_belongs_to_the_keeper(start: str) -> None:
    loads = closure(HOUSE, start, typing_too=True)
    rooms = [f"{asker} imports {module}" for module, asker in loads.items() if _inside(module, KEEPER_ONLY)]
    libraries = [
        f"{entry.module}:{entry.line} imports {entry.target}"
        for module in loads
        for entry in HOUSE.get(module, [])
        if entry.target in KEEPER_LIBRARIES
    ]
    assert rooms + libraries == []


# The rules above pass on a clean house. These show that each would see a breach.


def imported(module: str, source: str) -> list[Import]:
    return list(imports_of(module, source, frozenset({"errors", "gateway", "routing.plan", "worker", "storage.rows"})))


def test_an_import_upward_is_seen() -> None:
    (complaint,) = upward(imported("routing.plan", "def late():\n    from lumen_gateway import gateway\n"))
    assert complaint == "routing.plan:2 imports gateway, but routing stands below gateway"


def test_an_import_downward_is_allowed() -> None:
    assert (
        upward(imported("gateway", "from lumen_gateway.routing.plan import Plan\nimport lumen_gateway.errors\n")) == []
    )


def test_an_import_of_a_name_is_an_import_of_its_module() -> None:
    (entry,) = imported("gateway", "from lumen_gateway.routing.plan import Plan")
    assert (entry.target, entry.own) == ("routing.plan", True)


def test_a_circle_is_seen_and_a_circle_of_types_is_not() -> None:
    there = imported("routing.plan", "import lumen_gateway.errors")
    back = imported("errors", "import lumen_gateway.routing.plan")
    types = imported("errors", "if TYPE_CHECKING:\n    import lumen_gateway.routing.plan")
    assert find_cycle({"routing.plan": there, "errors": back}) == ["routing.plan", "errors", "routing.plan"]
    assert find_cycle({"routing.plan": there, "errors": types}) is None


def test_what_a_worker_loads_is_followed_through_others() -> None:
    house = {
        "worker": imported("worker", "from lumen_gateway import gateway"),
        "gateway": imported("gateway", "from lumen_gateway.storage.rows import Rows"),
    }
    assert closure(house, "worker", typing_too=True) == {
        "worker": "worker",
        "gateway": "worker",
        "storage.rows": "gateway",
    }
