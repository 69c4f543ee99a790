"""The fields of a client's request that are read here: decoded, or named with what they must be, never repeated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from lumen_gateway.errors import Failure, invalid

Typed = TypeVar("Typed")

_FIELD_AT_FAULT = re.compile(r"at `\$\.(\w+)")


def read(decode: Callable[[bytes], Typed], body: bytes, wanted: Mapping[str, str], main: str) -> Typed:
    """Return the fields of a body that is known to be one JSON object.

    Shape:  `wanted` says what a field must be, in words; one it does not list is a count. `main` takes the blame where
            none is named.
    Raises: Failure `LM-1001` naming the field at fault.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as exc:
        at_fault = _FIELD_AT_FAULT.search(str(exc))
    raise wrong(at_fault[1] if at_fault else main, wanted)


def wrong(field: str, wanted: Mapping[str, str]) -> Failure:
    """Return the failure of a field that is not what it must be."""
    return invalid(f"`{field}` must be {wanted.get(field, 'a whole number, 0 or more')}.")


class Taken:
    """The fields of a request, taken one by one. `asked` is what they say, `unmapped` names what could not be read."""

    def __init__(self, left: dict[str, msgspec.Raw]) -> None:
        self.unmapped: list[str] = []
        self.asked: dict[str, Any] = {}
        self._left = left

    def _ask(self, name: str, value: object) -> None:
        if value is not None:
            self.asked[name] = value

    def _take(self, name: str, decode: Callable[[msgspec.Raw], Typed]) -> Typed | None:
        raw = self._left.pop(name, None)
        if raw is None:
            return None
        try:
            return decode(raw)
        except msgspec.ValidationError:
            self.unmapped.append(name)
            return None
