"""Conditions: what a rule of a switch asks of a request.

A condition is a small typed tree, read from the document by `when.py`. It can be asked directly (`holds`, what the
reference interpreter and `lumen plan` do) or written as a Python expression (`emit`, what the compiler does); both say
the same, and property tests hold them to it.

The rules of the language: an absent attribute fails every operator, `ne` included; values of different types are never
equal; there is no NOT. Regular expressions run on RE2, in linear time, because clients choose the text they run over.

Source: docs/virtual-models.md, "when".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import re2

from lumen_gateway.config.wording import quoted
from lumen_gateway.routing.facts import Facts

Operator = Literal["eq", "in", "ne", "gt", "gte", "lt", "lte", "regex"]

_MAX_SHOWN = 5  # values of a list in a description


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
