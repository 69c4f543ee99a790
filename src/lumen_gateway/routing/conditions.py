"""Conditions: the `when` tables of a switch.

`parse` turns a table into a small typed tree and reports everything wrong with it. The tree can be asked directly
(`holds`, what the reference interpreter and `lumen plan` do) or written as a Python expression (`emit`, what the
compiler does); both say the same, and property tests hold them to it.

The rules of the language: an absent attribute fails every operator, `ne` included; values of different types are never
equal; there is no NOT. Regular expressions run on RE2, in linear time, because clients choose the text they run over.

Source: docs/virtual-models.md, "when".
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec
import re2

from lumen_gateway.config.schema import Fault
from lumen_gateway.config.wording import nearest, quoted
from lumen_gateway.routing.facts import Facts

Path = tuple[str | int, ...]
Operator = Literal["eq", "in", "ne", "gt", "gte", "lt", "lte", "regex"]
ValueType = Literal["string", "number", "bool"]

_MAX_NESTING = 16  # `any` inside `any`; far below what a compiler can take (100)
_MAX_SHOWN = 5  # values of a list in a description

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


class Matcher(dict[object, bool]):
    """A regular expression as a mapping value -> found, so that a value seen before costs one lookup.

    RE2 costs 2 us a search from Python, a lookup 0.03 us. What clients send is bounded: values up to 256 characters are
    remembered, 512 of them, then it starts over.
    """

    max_length = 256
    max_entries = 512

    def __init__(self, pattern: str) -> None:
        super().__init__()
        options = re2.Options()
        options.log_errors = False  # they go to the fault, not to stderr
        options.max_mem = 1 << 20  # bytes for one pattern with its automaton; RE2's own default is 8 MiB
        self._search = re2.compile(pattern, options).search

    def __missing__(self, value: object) -> bool:
        if not isinstance(value, str):
            return False
        found = self._search(value.encode("utf-8", "surrogatepass")) is not None
        if len(value) <= self.max_length:
            if len(self) >= self.max_entries:
                self.clear()
            self[value] = found
        return found


class Comparison(msgspec.Struct, frozen=True):
    """One operator on one attribute. `key` is the part behind `metadata.` or `header.`."""

    attribute: str
    key: str | None
    operator: Operator
    operand: Any  # str, float or bool; a tuple of them for `in`; a Matcher for `regex`
    pattern: str = ""  # the text of a regex


class AllOf(msgspec.Struct, frozen=True):
    """Holds when every part does."""

    parts: tuple[Condition, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """Holds when at least one part does."""

    parts: tuple[Condition, ...]


Condition = Comparison | AllOf | AnyOf


# --- asking -----------------------------------------------------------------------------------------------------------


def same(value: object, operand: object) -> bool:
    """Whether two values are equal: never across types; numbers within the machine epsilon."""
    if _is_number(value) and _is_number(operand):
        return value == operand or abs(value - operand) < sys.float_info.epsilon  # type: ignore[operator]  # just checked
    return type(value) is type(operand) and value == operand


def one_of(value: object, operands: Iterable[object]) -> bool:
    """Whether the value equals any operand."""
    return any(same(value, operand) for operand in operands)


def differs(value: object, operand: object) -> bool:
    """Whether the value is there and not equal."""
    return value is not None and not same(value, operand)


def above(value: Any, operand: float) -> bool:
    """`gt`; false if the value is not a number, like its three siblings."""
    return _is_number(value) and value > operand


def at_least(value: Any, operand: float) -> bool:
    """`gte`."""
    return _is_number(value) and value >= operand


def below(value: Any, operand: float) -> bool:
    """`lt`."""
    return _is_number(value) and value < operand


def at_most(value: Any, operand: float) -> bool:
    """`lte`."""
    return _is_number(value) and value <= operand


def _is_number(value: object) -> bool:
    return type(value) is float or type(value) is int


def _found(value: object, matcher: Matcher) -> bool:
    return matcher[value]


_OPERATIONS: dict[Operator, Callable[[Any, Any], bool]] = {
    "eq": same,
    "in": one_of,
    "ne": differs,
    "gt": above,
    "gte": at_least,
    "lt": below,
    "lte": at_most,
    "regex": _found,
}


def holds(condition: Condition, facts: Facts) -> bool:
    """Whether the condition holds for a request."""
    match condition:
        case AllOf(parts):
            return all(holds(part, facts) for part in parts)
        case AnyOf(parts):
            return any(holds(part, facts) for part in parts)
        case Comparison(attribute="group"):
            return _holds_for_group(condition, facts.group_names)
        case Comparison():
            return _OPERATIONS[condition.operator](_value(condition, facts), condition.operand)


def _holds_for_group(test: Comparison, names: tuple[str, ...]) -> bool:
    """A group has two names, its id and its own: any may match, and `ne` needs both to differ."""
    operation = _OPERATIONS[test.operator]
    results = [operation(name, test.operand) for name in names]
    return bool(results) and (all(results) if test.operator == "ne" else any(results))


def _value(test: Comparison, facts: Facts) -> object:
    match test.attribute:
        case "metadata":
            return facts.metadata.get(test.key or "")
        case "header":
            return facts.headers.get(test.key or "")
        case attribute:
            return getattr(facts, attribute)


# --- writing ----------------------------------------------------------------------------------------------------------


def emit(condition: Condition, bind: Callable[[object], str]) -> str:
    """Return the condition as a Python expression over `facts`.

    `bind` takes a constant and returns the name it will have there: nothing of the document is ever written into code.
    """
    match condition:
        case AllOf(parts):
            return " and ".join(emit(part, bind) for part in parts)
        case AnyOf(parts):
            return "(" + " or ".join(emit(part, bind) for part in parts) + ")"
        case Comparison(attribute="group"):
            return _emit_group(condition, bind)
        case Comparison():
            return _emit_test(condition, bind)


def _emit_group(test: Comparison, bind: Callable[[object], str]) -> str:
    operand = bind(test.operand)
    match test.operator:
        case "eq":
            return f"{operand} in facts.group_names"
        case "ne":
            return f"(facts.group_names and {operand} not in facts.group_names)"
        case "regex":
            return f"any(map({operand}.__getitem__, facts.group_names))"
        case _:
            return f"any(map({operand}.__contains__, facts.group_names))"


def _emit_test(test: Comparison, bind: Callable[[object], str]) -> str:
    value = _emit_value(test, bind)
    match test.operator, test.operand:
        case "eq", bool():
            return f"{value} is {test.operand}"
        case "eq", str():
            return f"{value} == {bind(test.operand)}"
        case "regex", _:
            return f"{bind(test.operand)}[{value}]"
        case operator, operand:
            return f"{bind(_OPERATIONS[operator])}({value}, {bind(operand)})"


def _emit_value(test: Comparison, bind: Callable[[object], str]) -> str:
    match test.attribute:
        case "metadata":
            return f"facts.metadata.get({bind(test.key)})"
        case "header":
            return f"facts.headers.get({bind(test.key)})"
        case attribute:
            return f"facts.{attribute}"


def describe(condition: Condition) -> str:
    """Return the condition in words an operator knows from the document."""
    match condition:
        case AllOf(parts):
            return " and ".join(describe(part) for part in parts)
        case AnyOf(parts):
            return "(" + " or ".join(describe(part) for part in parts) + ")"
        case Comparison():
            operator = "=" if condition.operator == "eq" else condition.operator
            return f"{_name(condition)} {operator} {_shown(condition)}"


def why_not(condition: Condition, facts: Facts) -> str:
    """Return what keeps a condition from holding: the facts that decided against it."""
    match condition:
        case AllOf(parts):
            return next(why_not(part, facts) for part in parts if not holds(part, facts))
        case AnyOf(parts):
            return " and ".join(dict.fromkeys(why_not(part, facts) for part in parts))
        case Comparison():
            value = facts.group_names or None if condition.attribute == "group" else _value(condition, facts)
            return f"{_name(condition)} is {_word(value)}"


def _name(test: Comparison) -> str:
    return test.attribute if test.key is None else f"{test.attribute}.{test.key}"


def _shown(test: Comparison) -> str:
    return quoted(test.pattern) if test.operator == "regex" else _word(test.operand)


def _word(value: object) -> str:
    """Write a value the way the document does, the far end of a long list cut."""
    match value:
        case None:
            return "absent"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case tuple():
            more = ", ..." if len(value) > _MAX_SHOWN else ""
            return f"[{', '.join(_word(each) for each in value[:_MAX_SHOWN])}{more}]"
        case _:
            return f"{value:g}"


# --- parsing ----------------------------------------------------------------------------------------------------------


class _RefusedError(Exception):
    """One entry of a table is wrong; the entries beside it are still read."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _refuse(path: Path, message: str, fix: str) -> NoReturn:
    raise _RefusedError(Fault(path, message, fix))


def parse(when: dict[str, Any], capability: str, path: Path) -> tuple[Condition | None, list[Fault]]:
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
