"""`when` tables: read into conditions, with everything wrong with them said at once.

Knows which attributes there are, for which capability, and which operators and operands they take. What a condition
then means is `conditions.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NoReturn

import re2

from lumen_gateway.config.schema import Fault
from lumen_gateway.config.wording import nearest, quoted
from lumen_gateway.routing.conditions import AllOf, AnyOf, Comparison, Condition, Matcher

Path = tuple[str | int, ...]
ValueType = Literal["string", "number", "bool"]

_MAX_NESTING = 16  # `any` inside `any`; far below what a compiler can take (100)
_ALL = frozenset({"chat", "embed", "rerank", "decisions"})
_TEXT_OPERATORS = ("in", "ne", "regex")
_NUMBER_OPERATORS = ("in", "ne", "gt", "gte", "lt", "lte")


class _Attribute(NamedTuple):
    """What a rule may ask: the types its value can have, and for which capabilities it exists."""

    types: tuple[ValueType, ...]
    operators: tuple[str, ...]
    capabilities: frozenset[str] = _ALL


_GROUP = _Attribute(("string",), _TEXT_OPERATORS)
_METADATA = _Attribute(("string", "number", "bool"), (*_NUMBER_OPERATORS, "regex"))
_HEADER = _Attribute(("string",), _TEXT_OPERATORS)

ATTRIBUTES: dict[str, _Attribute] = {
    "group": _GROUP,
    "has_images": _Attribute(("bool",), ("in", "ne"), frozenset({"chat", "embed"})),
    "has_tools": _Attribute(("bool",), ("in", "ne"), frozenset({"chat"})),
    "stream": _Attribute(("bool",), ("in", "ne"), frozenset({"chat"})),
    "input_tokens": _Attribute(("number",), _NUMBER_OPERATORS, frozenset({"chat", "embed", "rerank"})),
    "documents": _Attribute(("number",), _NUMBER_OPERATORS, frozenset({"rerank"})),
}
"""Attributes with a fixed name; `metadata.<key>` and `header.<name>` stand beside them."""

_SECRET_HEADERS = frozenset({"authorization", "cookie", "set-cookie", "proxy-authorization", "x-api-key"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2: token


class _RefusedError(Exception):
    """One entry of a table is wrong; the entries beside it are still read."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _refuse(path: Path, message: str, fix: str) -> NoReturn:
    raise _RefusedError(Fault(path, message, fix))


def parse_when(when: dict[str, Any], capability: str, path: Path) -> tuple[Condition | None, list[Fault]]:
    """Return the condition of one `when` table found at `path`, or everything wrong with it."""
    parser = _Parser(capability)
    try:
        condition = parser.table(when, path, _MAX_NESTING)
    except _RefusedError as refused:
        return None, [refused.fault]
    return (None if parser.faults else condition), parser.faults


class _Parser:
    """Reads one `when` table for one capability and collects faults on the way."""

    def __init__(self, capability: str) -> None:
        self.faults: list[Fault] = []
        self._capability = capability

    def table(self, when: dict[str, Any], path: Path, nesting: int) -> Condition:
        if not when:
            _refuse(path, 'an empty "when" decides nothing', "name a condition, such as { stream = true }")
        parts: list[Condition] = []
        for name, value in when.items():
            try:
                parts.append(self._entry(name, value, (*path, name), nesting))
            except _RefusedError as refused:
                self.faults.append(refused.fault)
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _entry(self, name: str, value: object, path: Path, nesting: int) -> Condition:
        kind, _, key = name.partition(".")
        match kind:
            case "any" if not key:
                return self._any(value, path, nesting)
            case "metadata" | "header":
                return _keyed(kind, key, value, path)
            case _:
                return _comparison(name, None, self._attribute(name, path), value, path)

    def _any(self, value: object, path: Path, nesting: int) -> Condition:
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            _refuse(path, '"any" takes a list of condition tables', "any = [{ stream = true }, { has_tools = true }]")
        if nesting == 0:
            _refuse(path, f'"any" is nested more than {_MAX_NESTING} deep', "flatten it")
        return AnyOf(tuple(self.table(item, (*path, index), nesting - 1) for index, item in enumerate(value)))

    def _attribute(self, name: str, path: Path) -> _Attribute:
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            known = [known for known, other in ATTRIBUTES.items() if self._capability in other.capabilities]
            listed = f'{", ".join(known)}, "metadata.<key>", "header.<name>", any'
            _refuse(path, f"unknown condition {quoted(name)}", f"{_meant(name, known)}known: {listed}")
        if self._capability not in attribute.capabilities:
            served = ", ".join(sorted(attribute.capabilities))
            _refuse(
                path, f"condition {quoted(name)} is not available for {self._capability}", f"it exists for {served}"
            )
        return attribute


def _keyed(kind: str, key: str, value: object, path: Path) -> Condition:
    if not key:
        inner = next(iter(value), "name") if isinstance(value, dict) else "name"
        _refuse(path, f'unknown condition "{kind}"', f"quote the whole key: {quoted(f'{kind}.{inner}')} = ...")
    if kind == "metadata":
        return _comparison(kind, key, _METADATA, value, path)
    name = key.lower()
    if not _HEADER_NAME.fullmatch(name):
        _refuse(path, f"{quoted(key)} is not a header name", 'write "header.x-my-header" = ...')
    if name in _SECRET_HEADERS:
        _refuse(path, f"header {quoted(name)} carries credentials and cannot be a condition", "use another header")
    return _comparison(kind, name, _HEADER, value, path)


def _comparison(name: str, key: str | None, attribute: _Attribute, value: object, path: Path) -> Comparison:
    if not isinstance(value, dict):
        return Comparison(name, key, "eq", _scalar(value, attribute.types, path))
    if len(value) != 1:
        _refuse(path, "an operator table has exactly one key", f"one of {', '.join(attribute.operators)}")
    [(operator, operand)] = value.items()
    path = (*path, operator)
    if operator not in attribute.operators:
        meant = _meant(operator, attribute.operators)
        _refuse(path, f"{quoted(operator)} is not an operator here", f"{meant}known: {', '.join(attribute.operators)}")
    pattern = operand if operator == "regex" and isinstance(operand, str) else ""
    return Comparison(name, key, operator, _operand(operator, operand, attribute.types, path), pattern)


def _operand(operator: str, operand: object, types: tuple[ValueType, ...], path: Path) -> object:
    match operator, operand:
        case "in", [_, *_]:
            return tuple(_scalar(item, types, (*path, index)) for index, item in enumerate(operand))
        case "in", _:
            _refuse(path, '"in" takes a list that is not empty', 'write in = ["a", "b"]')
        case "regex", str():
            return _matcher(operand, path)
        case "regex", _:
            _refuse(path, '"regex" takes a string', 'write regex = "^pro"')
        case "ne", _:
            return _scalar(operand, types, path)
        case _:
            return _scalar(operand, ("number",), path)


def _matcher(pattern: str, path: Path) -> Matcher:
    try:
        return Matcher(pattern)
    except re2.error as exc:
        reason = exc.args[0].decode(errors="replace")
        _refuse(
            path, f"the regular expression does not compile: {reason}", "RE2 syntax: no look-around, no back-references"
        )


def _scalar(value: object, types: tuple[ValueType, ...], path: Path) -> str | float | bool:
    scalar = _normal(value)
    if scalar is None or _type_of(scalar) not in types:
        hint = ", or { in = [...] }" if isinstance(value, list) else ""
        _refuse(path, "the value has the wrong type", f"write a {' or '.join(types)}{hint}")
    return scalar


def _normal(value: object) -> str | float | bool | None:
    """Return the value as facts have it: every number a finite float. None: it is of no type a rule can compare."""
    if isinstance(value, str | bool):
        return value
    if not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _type_of(scalar: str | float | bool) -> ValueType:
    if isinstance(scalar, bool):
        return "bool"
    return "string" if isinstance(scalar, str) else "number"


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {quoted(near)}? " if near else ""
