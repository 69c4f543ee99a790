"""The lock files pin what `pyproject.toml` asks for, by hash, and agree with each other. `make lock` writes them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = [requirement for extra in PROJECT["project"]["optional-dependencies"].values() for requirement in extra]
PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)==(\S+).*((?:\\\n    --hash=sha256:[0-9a-f]{64} ?)+)$")


def pins(name: str) -> dict[str, str]:
    """Return package -> version of one lock file."""
    return {match[1]: match[2] for match in PIN.finditer((ROOT / "requirements" / name).read_text())}


def package(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


@pytest.mark.parametrize("name", ["dev.txt", "runtime.txt"])
def test_every_line_of_a_lock_is_a_pin_or_its_hash(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert PIN.sub("", text).strip() == ""
    assert pins(name)


def test_runtime_lock_holds_every_dependency() -> None:
    assert {package(requirement) for requirement in PROJECT["project"]["dependencies"]} <= pins("runtime.txt").keys()


def test_development_lock_holds_every_tool() -> None:
    assert {package(requirement) for requirement in PROJECT["dependency-groups"]["dev"]} <= pins("dev.txt").keys()


def test_development_lock_holds_every_extra() -> None:
    assert {package(requirement) for requirement in EXTRAS} <= pins("dev.txt").keys()


def test_what_is_tested_is_what_is_run() -> None:
    assert pins("runtime.txt").items() <= pins("dev.txt").items()


def test_every_dependency_has_its_reason() -> None:
    record = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
    wanted = [
        *PROJECT["project"]["dependencies"],
        *EXTRAS,
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["build-system"]["requires"],
    ]
    assert [package(requirement) for requirement in wanted if f"`{package(requirement)}`" not in record] == []
