"""The compiled plan: what a requested id leads to. Frozen, printable, no I/O.

A request asks once, `Plan.find(id)` then `Entry.decide(facts, draw)`, and gets the attempts it may make, first to try
first. Everything about a target that can be known at load is already inside its `Attempt`.

**Escapes.** Each fallback or split on the way to a leaf is a *level* (0 is the outermost). An attempt carries its
escapes innermost first: a trigger mask and the level it leads out to. `starts` says at which levels the attempt opens a
new target (bit n for level n; 0 for the attempt that opens the whole list). The escape of level n leads to the next
attempt whose `starts` holds n, unless an outer target begins before it. Levels rather than indexes make segments
position-free: the compiled functions glue prebuilt tuples together and never copy an attempt, whatever length a switch
in between gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lumen_gateway.errors import Trigger
from lumen_gateway.routing.overrides import NO_EDITS, Edits

if TYPE_CHECKING:
    from lumen_gateway.config.schema import Preset
    from lumen_gateway.routing.facts import Facts

MAX_ATTEMPTS = 64
MAX_DEPTH = 8


def canonical(capability: str) -> str:
    """Return the name a capability goes by everywhere behind the document: `systemone` is an old spelling."""
    return "decisions" if capability == "systemone" else capability


class Escape(NamedTuple):
    """A way out: failures in `triggers` lead to the next target of `level`."""

    triggers: Trigger
    level: int


class Attempt(msgspec.Struct, frozen=True):
    """One leaf the request may be sent to, with everything its path through the tree gave it."""

    leaf: str  # foundation model id
    provider: str
    key: str | None = None  # pinned key label
    edits: Edits = NO_EDITS  # effective overrides, folded over all levels
    route: str | None = None  # "outer>inner>leaf"; None for a direct call
    escapes: tuple[Escape, ...] = ()
    starts: int = 0


def next_attempt(attempts: Sequence[Attempt], index: int, triggers: Trigger) -> int | None:
    """Return the index where a failure of attempt `index` goes on, or None: it is the answer.

    Shape:  the result is greater than `index`, so a walk over the list ends.
    Source: docs/virtual-models.md, "What a failure does".
    """
    for escape in attempts[index].escapes:
        if not escape.triggers & triggers:
            continue
        found = _opening(attempts, index, escape.level)
        if found is not None:
            return found
    return None


def _opening(attempts: Sequence[Attempt], index: int, level: int) -> int | None:
    wanted, outer = 1 << level, (1 << level) - 1
    for position in range(index + 1, len(attempts)):
        starts = attempts[position].starts
        if starts & wanted:
            return position
        if starts & outer:
            return None
    return None


def lists(attempts: Sequence[Attempt], index: int, triggers: Trigger) -> bool:
    """Say whether a target list around an attempt names one of the triggers, be the attempt its last or not."""
    outermost = MAX_DEPTH
    for position in range(index, -1, -1):
        if any(escape.triggers & triggers and escape.level <= outermost for escape in attempts[position].escapes):
            return True
        opened = _outermost(attempts[position].starts)
        if opened:
            outermost = min(outermost, opened.bit_length() - 1)
    return False


def without(attempts: Sequence[Attempt], dropped: Callable[[Attempt], bool]) -> tuple[Attempt, ...]:
    """Return the attempts that stay, with every escape into a dropped one leading to the next that stays.

    Shape: may be empty.
    """
    kept: list[Attempt] = []
    inherited = 0
    for attempt in attempts:
        starts = _inherit(inherited, attempt.starts)
        if dropped(attempt):
            inherited = starts
            continue
        inherited = 0
        kept.append(attempt if starts == attempt.starts else msgspec.structs.replace(attempt, starts=starts))
    return tuple(kept)


def _inherit(dropped: int, own: int) -> int:
    """Levels an attempt opens once its dropped predecessor's fall to it.

    Whoever led to the predecessor now leads here. Of the attempt's own levels those outside of the predecessor's count
    too; those inside of them lie in a target that the predecessor had opened, and nobody before it leads there.
    """
    return dropped | own & _outermost(dropped) - 1 if dropped else own


def _outermost(starts: int) -> int:
    return starts & -starts


class Entry(msgspec.Struct, frozen=True):
    """What one id of the namespace answers to.

    `fixed` holds the attempts when nothing depends on the request; else `choose` is the generated function.
    """

    id: str
    capabilities: frozenset[str]
    virtual: bool
    fixed: tuple[Attempt, ...] | None = None
    choose: Callable[[Facts, Callable[[], float]], tuple[Attempt, ...]] | None = None
    source: str = ""  # generated Python, for `lumen plan --source`
    preset: Preset | None = None
    commit: str = "first_output"

    def decide(self, facts: Facts, draw: Callable[[], float]) -> tuple[Attempt, ...]:
        """Order the attempts this request may make, first to try first.

        Shape:  1..64 attempts; the same leaf may appear twice; escapes point forward only.
        Units:  draw() in [0, 1), called once per split walked, in the order of the tree, nested ones included.
        Raises: nothing; a plan that compiled always yields an attempt.
        Source: docs/virtual-models.md, "How a request is routed".
        """
        if self.fixed is not None:
            return self.fixed
        assert self.choose is not None
        return self.choose(facts, draw)


class Plan(msgspec.Struct, frozen=True):
    """Every callable id of one document. Swapped whole on reload."""

    entries: dict[str, Entry]

    def find(self, model_id: str) -> Entry | None:
        """Return what the id answers to: foundation and virtual models share one namespace, names match exactly."""
        return self.entries.get(model_id)
