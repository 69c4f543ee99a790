"""From a file and the environment to a `Document`: the config if it is right, and every fault with its place if not.

Nothing here raises for bad input; the caller decides what a fault means (exit, a refused reload, a 400). What ids lead
to is left to `routing/compile.py`, whose faults `Document.locate` places too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from lumen_gateway.config.check import check_shape
from lumen_gateway.config.master_key import check_master_key
from lumen_gateway.config.overlay import overlay
from lumen_gateway.config.positions import line_of, lines_of
from lumen_gateway.config.rules import MASTER_KEY, check_rules
from lumen_gateway.config.salvage import Damage, salvage
from lumen_gateway.config.schema import Config, Fault
from lumen_gateway.config.wording import dotted, owner

DEFAULT_NAMES = ("lumen.toml", "config.toml")  # in the working directory, first found


class Document(msgspec.Struct, frozen=True, dict=True):
    """One document as it was read. `config` is None if any fault is more than a warning.

    `draft` is what could be made of the document for further checks, never for serving; None if it could not be read.
    """

    path: Path
    text: str = ""
    config: Config | None = None
    faults: tuple[Fault, ...] = ()
    variables: dict[tuple[str | int, ...], str] = {}  # what the environment set, and under which name
    broken_line: int | None = None  # where the text stops being TOML
    draft: Config | None = None
    damage: Damage = Damage()

    def with_faults(self, found: Iterable[Fault]) -> Document:
        """Add what a further check found in `draft`, apart from what only its mending explains."""
        faults = (*self.faults, *(fault for fault in found if not self.damage.hides(fault)))
        return msgspec.structs.replace(self, faults=faults, config=self.config if _pass(faults) else None)

    def locate(self, fault: Fault) -> str:
        """Say one fault with its place: file and line, or the environment variable it came from."""
        said = f"{fault.message}; {fault.fix}" if fault.fix else fault.message
        path = "" if self.variables.get(fault.path) in fault.path else dotted(fault.path)
        named = owner(self._values, fault.path) if fault.path else ""
        parts = [self._place(fault), "warning" if fault.warning else "", path, named, said]
        return ": ".join(part for part in parts if part)

    def line(self, fault: Fault) -> int:
        """Return the line of a fault, for sorting: 0 for one of the whole document or of the environment."""
        if self._variable(fault) is not None:
            return 0
        return self.broken_line or line_of(self._lines, fault.path) or 0

    def _place(self, fault: Fault) -> str:
        variable = self._variable(fault)
        if variable is not None:
            return variable
        line = self.line(fault)
        return f"{self.path}:{line}" if line else str(self.path)

    def _variable(self, fault: Fault) -> str | None:
        """Return the variable that set what is at fault, or something around it, or a table that the file has not."""
        path = fault.path
        around = (path[:end] for end in range(len(path), 0, -1))
        name = next((self.variables[each] for each in around if each in self.variables), None)
        if name is not None or not path or path in self._lines:
            return name
        return next((name for below, name in self.variables.items() if below[: len(path)] == path), None)

    @cached_property
    def _values(self) -> dict[str, Any]:
        return tomllib.loads(self.text)

    @cached_property
    def _lines(self) -> dict[tuple[str | int, ...], int]:
        return lines_of(self.text)


def read_document(path: Path | None, environ: Mapping[str, str]) -> Document:
    """Read, overlay and check one document; without a path the default one of the working directory.

    Raises: nothing. Cross-references between models are not looked at.
    """
    chosen = path or next((Path(name) for name in DEFAULT_NAMES if Path(name).exists()), None)
    if chosen is None:
        first, second = DEFAULT_NAMES
        return _unread(Path(first), f"not found, nor is {second}", "name the document with -c FILE")
    try:
        raw = chosen.read_bytes()
    except OSError as exc:
        return _unread(chosen, f"cannot be read: {exc.strerror or exc}", "name the document with -c FILE")
    return parse_document(chosen, raw, environ)


def parse_document(path: Path, raw: bytes, environ: Mapping[str, str]) -> Document:
    """Do the same for bytes that are at hand; `path` only names them."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        return _unread(path, "is not UTF-8", "save it as UTF-8", line=line)
    try:
        values = tomllib.loads(text, parse_float=Decimal)
    except RecursionError:
        return _unread(path, "is nested too deeply", "no table of the document is deeper than a few levels", text)
    except (ValueError, ArithmeticError) as exc:  # ArithmeticError: an exponent beyond what Decimal can hold
        return _not_toml(path, text, exc)
    return _checked(path, text, values, environ)


def _checked(path: Path, text: str, values: dict[str, Any], environ: Mapping[str, str]) -> Document:
    variables, faults = overlay(values, environ)
    guard = check_master_key(values, environ)
    variables[MASTER_KEY,] = MASTER_KEY
    misshapen = check_shape(values)
    if "virtual_models" in values:
        values["virtual_models"] = _floats(values["virtual_models"])
    draft, damage = salvage(values, misshapen)
    document = Document(path, text, draft, (*faults, *misshapen, *guard), variables, draft=draft, damage=damage)
    return document.with_faults(check_rules(draft))


def _pass(faults: Iterable[Fault]) -> bool:
    return all(fault.warning for fault in faults)


def _floats(value: Any) -> Any:
    """Return a tree with plain floats: only prices need decimals, and what virtual models hold goes into JSON."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    return [_floats(item) for item in value] if isinstance(value, list) else value


def _unread(path: Path, message: str, fix: str, text: str = "", *, line: int | None = None) -> Document:
    return Document(path, text, faults=(Fault((), message, fix),), broken_line=line)


_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")

_TOML_FIXES = {"Invalid value": "put text in quotes; only numbers, dates, true and false go without"}
"""What tomllib says of the usual slip -> what to write instead."""


def _not_toml(path: Path, text: str, exc: Exception) -> Document:
    said = str(exc) if isinstance(exc, ValueError) else "a number is beyond any range"
    place = _PLACE.search(said)
    line = None if place is None else int(place[1]) if place[1] else text.rstrip().count("\n") + 1
    said = _PLACE.sub("", said)
    return _unread(path, f"is not valid TOML: {said}", _TOML_FIXES.get(said, ""), text, line=line)
