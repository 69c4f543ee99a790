"""What a document with faults in its shape still says, so that one run of a check reports the rest of its faults too.

Broken optional values are left out, broken required ones replaced by something of the right type in the same place, so
that every path stays true. A fault found afterwards may come of the mending rather than of the document: `Damage` knows
which.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect

from lumen_gateway.config.check import bare, built_words, fields_of
from lumen_gateway.config.schema import Config, Fault

Path = tuple[str | int, ...]

_HOLD_IDS = frozenset({"providers", "models", "virtual_models"})


def salvage(document: dict[str, Any], faults: Iterable[Fault]) -> Config:
    """Mend the document where its faults point, in place, and convert it."""
    for fault in faults:
        _mend(document, fault.path)
    return msgspec.convert(document, Config, builtin_types=(Decimal,))


def _mend(document: dict[str, Any], path: Path) -> None:
    holder: Any = document
    node: inspect.Type = inspect.type_info(Config)
    for step in path[:-1]:
        holder = holder[step]
        node = bare(_inside(node, step))
    last = path[-1]
    if isinstance(last, int) or _is_required(node, last):
        holder[last] = _stand_in(_inside(node, last))
    else:
        holder.pop(last, None)


def _inside(node: inspect.Type, step: str | int) -> inspect.Type:
    if isinstance(node, inspect.ListType):
        return node.item_type
    assert isinstance(node, inspect.StructType)
    return fields_of(node.cls)[str(step)].type


def _is_required(node: inspect.Type, key: str) -> bool:
    assert isinstance(node, inspect.StructType)
    field = fields_of(node.cls).get(key)
    return field is not None and field.required


def _stand_in(node: inspect.Type) -> Any:
    match bare(node):
        case inspect.StructType(cls=table):
            return {key: _stand_in(field.type) for key, field in fields_of(table).items() if field.required}
        case inspect.ListType(item_type=item, min_length=length):
            return [_stand_in(item)] * (length or 0)
        case inspect.LiteralType():
            return built_words(node)[0]
        case _:
            return "unknown"  # every required value that is left is text or an id


class Damage:
    """Where a document was mended. A document in one piece has none and hides nothing."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        paths = [fault.path for fault in faults]
        self._around = {path[:end] for path in paths for end in range(len(path) + 1)}
        self._tables = {path[:-1] for path in paths}
        self._lost = {lost for path in paths for lost in _lost(path)}
        self._ids_lost = any(_holds_ids(path) for path in paths)

    def hides(self, fault: Fault) -> bool:
        """Tell whether a later fault may be of our own making: too close to the damage, or about an id that it took."""
        path = fault.path
        return (
            path in self._around
            or path[:-1] in self._tables
            or (self._ids_lost and path[-1:] == ("model",))
            or any(path[:end] in self._lost for end in range(1, len(path)))
        )


def _lost(path: Path) -> tuple[Path, ...]:
    """What says nothing any more: the value itself, and the whole table if the value ruled it."""
    return (path, path[:-1]) if path[-1] in ("strategy", "capability", "kind") else (path,)


def _holds_ids(path: Path) -> bool:
    last = path[-2] if isinstance(path[-1], int) else path[-1]
    return last == "id" or last in _HOLD_IDS
