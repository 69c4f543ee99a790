"""Where things stand: every module has its test, every test its module, and no file grows out of sight.

A module is tested in the file of its own name: `execution/retry.py` in `tests/execution/test_retry.py`. A second file
may take one aspect of a large module, named after it: `test_retry_backoff.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lumen_gateway"
TESTS = ROOT / "tests"

OF_THE_PROJECT = re.compile(r"test_(imports|layout|tree|requirements|docs_\w+)\.py")
"""Tests of the project itself, which mirror no module."""

OF_THE_PROGRAM = frozenset({"process", "faults", "recordings"})
"""Folders of tests that run many modules together, or the real program."""

UNCOVERED: frozenset[str] = frozenset()
"""Modules that have no test of their own yet. This list only shrinks."""

MAX_LINES = 550  # "about 500": beyond this a file is two files
NAMES_THAT_SAY_NOTHING = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc", "data", "info"})


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def has_code(path: Path) -> bool:
    """A package's `__init__` may hold its docstring, its version and re-exports; anything else is code, and tested."""
    if path.name != "__init__.py":
        return True
    body = ast.parse(path.read_text()).body
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in body)


def module_of(path: Path) -> Path:
    """Return a source file's module as a path: a package is named by its folder."""
    relative = path.relative_to(SOURCE)
    return relative.parent if path.name == "__init__.py" else relative.with_suffix("")


MODULES = {module_of(path): path for path in python_files(SOURCE) if has_code(path)}


def mirror_of(module: Path) -> Path:
    return TESTS / module.parent / f"test_{module.name}.py"


def module_behind(path: Path) -> Path | None:
    """Return the module a test file stands for: the longest whose name it carries, after `test_`."""
    folder, name = path.parent.relative_to(TESTS), path.stem.removeprefix("test_")
    named = [module for module in MODULES if module.parent == folder and f"{name}_".startswith(f"{module.name}_")]
    return max(named, key=lambda module: len(module.name), default=None)


def mirroring_tests() -> list[Path]:
    tests = [path for path in python_files(TESTS) if path.name.startswith("test_")]
    mirrors = [path for path in tests if path.relative_to(TESTS).parts[0] not in OF_THE_PROGRAM]
    return [path for path in mirrors if path.parent != TESTS or not OF_THE_PROJECT.fullmatch(path.name)]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_module_has_its_own_test_file_or_waits_on_the_list(module: Path) -> None:
    waiting = MODULES[module].relative_to(SOURCE).as_posix() in UNCOVERED
    assert mirror_of(module).exists() or waiting, f"{mirror_of(module).relative_to(ROOT)} is missing"
    assert not (mirror_of(module).exists() and waiting), f"{module} has its test: take it off UNCOVERED"


def test_waiting_list_names_only_modules_that_exist() -> None:
    assert [name for name in UNCOVERED if not (SOURCE / name).is_file()] == []


@pytest.mark.parametrize("path", mirroring_tests(), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_test_file_stands_for_a_module(path: Path) -> None:
    assert module_behind(path) is not None, "name it after the module it tests, in the same folder"


@pytest.mark.parametrize(
    "path", python_files(SOURCE, TESTS, ROOT / "bench"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_file_is_short_enough_to_read_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text)), "open the file with what it is for"


@pytest.mark.parametrize("path", python_files(SOURCE), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_name_says_what_is_inside(path: Path) -> None:
    words = {word for part in path.relative_to(SOURCE).with_suffix("").parts for word in part.split("_")}
    assert not words & NAMES_THAT_SAY_NOTHING


def test_tests_are_no_packages() -> None:
    assert [path for path in python_files(TESTS) if path.name == "__init__.py"] == []
