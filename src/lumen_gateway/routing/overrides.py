"""Overrides: what a virtual model sets, fills in or drops in the request of one attempt.

`check_overrides` holds a table against the fields its capability allows, `fold` turns the tables of every level on the
way to a leaf into one `Edits`, `apply` puts those into one attempt's copy of the request. Values are encoded once, at
load, and never shown afterwards: they are the operator's text.

Leaves to others: which levels there are (`tree.py`), and cutting a body into spans (`dialects`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from lumen_gateway.config.schema import Fault, Overrides
from lumen_gateway.config.wording import nearest, quoted

Path = tuple[str | int, ...]

_MAX_NESTING = 64  # of a value; bodies themselves may nest 256 deep
_encoder = msgspec.json.Encoder(decimal_format="number")


class Edits(msgspec.Struct, frozen=True):
    """The overrides of all levels, folded: what happens to each field in the end.

    Shape: no field stands in two of the three.
    """

    set: dict[str, msgspec.Raw] = {}
    default: dict[str, msgspec.Raw] = {}
    drop: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Field names only: values are operator text."""
        return f"Edits(set={sorted(self.set)}, default={sorted(self.default)}, drop={sorted(self.drop)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Field names only, for rich too."""
        return [("set", sorted(self.set)), ("default", sorted(self.default)), ("drop", sorted(self.drop))]


NO_EDITS = Edits()

_TYPED = frozenset({"temperature", "top_p", "max_tokens", "stop", "dimensions", "encoding_format", "top_n"})
"""Fields the gateway itself understands: null there means not sent. Any other is sent once its key is there."""


def fold(levels: Sequence[Overrides]) -> Edits:
    """Return what the tables of all levels, outermost first, come to.

    A client's value beats every default, and the innermost default wins. Then `set` and `drop` act level by level from
    the outside in, `drop` last within a level; so the last word on a field decides, and it also beats every default.

    Source: docs/virtual-models.md, "Overrides".
    """
    if not levels:
        return NO_EDITS
    last_word: dict[str, msgspec.Raw | None] = {}
    defaults: dict[str, msgspec.Raw] = {}
    for level in levels:
        defaults |= {field: _raw(value) for field, value in level.default.items()}
        last_word |= {field: _raw(value) for field, value in level.set.items()}
        last_word |= dict.fromkeys(level.drop)
    return Edits(
        set={field: value for field, value in last_word.items() if value is not None},
        default={field: value for field, value in defaults.items() if field not in last_word},
        drop=frozenset(field for field, value in last_word.items() if value is None),
    )


def apply(edits: Edits, fields: dict[str, msgspec.Raw]) -> None:
    """Change one attempt's fields (name -> raw JSON) in place."""
    for field, value in edits.default.items():
        if not _is_sent(field, fields):
            fields[field] = value
    fields.update(edits.set)
    for field in edits.drop:
        fields.pop(field, None)


def _is_sent(field: str, fields: dict[str, msgspec.Raw]) -> bool:
    value = fields.get(field)
    if value is None:
        return False
    return field not in _TYPED or bytes(value) != b"null"


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(value))


def _is_number(value: object) -> bool:
    if isinstance(value, Decimal | float):
        return Decimal(value).is_finite()
    return _is_integer(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_stop(value: object) -> bool:
    return _is_text(value) or (isinstance(value, list) and bool(value) and all(map(_is_text, value)))


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and _is_json(value, _MAX_NESTING)


def _is_json(value: object, depth: int) -> bool:
    """Whether JSON can carry it: TOML also has dates, times, inf and nan."""
    if depth == 0:
        return False
    if isinstance(value, dict):
        return all(_is_json(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return all(_is_json(item, depth - 1) for item in value)
    return isinstance(value, str | bool) or _is_number(value)


class _Kind(NamedTuple):
    """What a field takes: in words, and as a test."""

    words: str
    accepts: Callable[[object], bool]


_NUMBER = _Kind("a finite number", _is_number)
_COUNT = _Kind("a whole number from 0 to 4294967295", _is_count)
_TEXT = _Kind("a string", _is_text)

FIELDS: dict[str, dict[str, _Kind]] = {
    "chat": {
        "temperature": _NUMBER,
        "top_p": _NUMBER,
        "max_tokens": _COUNT,
        "max_completion_tokens": _COUNT,
        "stop": _Kind("a string or a list of strings", _is_stop),
        "seed": _Kind("a 64-bit whole number", _is_integer),
        "presence_penalty": _NUMBER,
        "frequency_penalty": _NUMBER,
        "response_format": _Kind("a table of JSON values", _is_object),
        "reasoning_effort": _TEXT,
        "parallel_tool_calls": _Kind("true or false", _is_flag),
    },
    "embed": {"dimensions": _COUNT, "encoding_format": _TEXT},
    "rerank": {"top_n": _COUNT},
    "decisions": {},
}
"""Capability -> the fields its overrides may name."""


def check_overrides(overrides: Overrides, capability: str, path: Path) -> list[Fault]:
    """Return everything wrong with one `overrides` table, found at `path`."""
    allowed = FIELDS[capability]
    if not allowed:
        return [Fault(path, f'"overrides" is not available for {capability}', "remove it")]
    if not (overrides.set or overrides.default or overrides.drop):
        return [Fault(path, '"overrides" is empty', "give it set, default or drop, or remove it")]
    faults: list[Fault] = []
    for part, values in (("set", overrides.set), ("default", overrides.default)):
        for field, value in values.items():
            faults += _check_value(allowed, field, value, (*path, part, field))
    for index, field in enumerate(overrides.drop):
        if field not in allowed:
            faults.append(_unknown(field, allowed, (*path, "drop", index)))
    return faults


def _check_value(allowed: dict[str, _Kind], field: str, value: object, path: Path) -> list[Fault]:
    kind = allowed.get(field)
    if kind is None:
        return [_unknown(field, allowed, path)]
    if not kind.accepts(value):
        return [Fault(path, f'override of "{field}" has the wrong type', f"write {kind.words}")]
    return []


def _unknown(field: str, allowed: dict[str, _Kind], path: Path) -> Fault:
    near = nearest(field, allowed)
    meant = f"did you mean {quoted(near)}? " if near else ""
    return Fault(path, f"{quoted(field)} cannot be overridden", f"{meant}allowed: {', '.join(allowed)}")
