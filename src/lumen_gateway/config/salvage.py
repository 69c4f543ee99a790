"""What a document with faults in its shape still says, so that one run of a check reports the rest of its faults too.

Broken optional values are left out, broken required ones replaced by something of the right type in the same place, so
that every path stays true. A fault found afterwards may come of the mending rather than of the document: `Damage` knows
which, and no other is kept back.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect

from lumen_gateway.config.check import bare, built_words, fields_of
from lumen_gateway.config.schema import Config, Fault
from lumen_gateway.config.wording import nearest

Path = tuple[str | int, ...]

_HOLD_IDS = frozenset({"providers", "models", "virtual_models"})
_HOLD_LABELS = frozenset({"keys", "label"})
_RULED = {
    "kind": frozenset({"base_url", "api_version"}),
    "strategy": frozenset({"targets", "fallback_on", "weight", "when"}),
}
"""Values that decide whether others beside or below them may be there at all -> those others."""


def salvage(document: dict[str, Any], faults: Iterable[Fault]) -> tuple[Config, Damage]:
    """Mend the document where its faults point, in place, and convert it."""
    damage = Damage()
    for fault in faults:
        _mend(document, fault.path, damage)
    damage.find_references(document)
    return msgspec.convert(document, Config, builtin_types=(Decimal,)), damage


def _mend(document: dict[str, Any], path: Path, damage: Damage) -> None:
    holder: Any = document
    node: inspect.Type = inspect.type_info(Config)
    for step in path[:-1]:
        holder = holder[step]
        node = bare(_inside(node, step))
    last = path[-1]
    if isinstance(last, str) and last not in _fields(node):
        holder.pop(last, None)  # an unknown key means nothing to the rest
        return
    damage.add(path, holder[last] if isinstance(last, int) else holder.get(last))
    if isinstance(last, int) or _fields(node)[last].required:
        holder[last] = _stand_in(_inside(node, last))
    else:
        holder.pop(last, None)


def _inside(node: inspect.Type, step: str | int) -> inspect.Type:
    return node.item_type if isinstance(node, inspect.ListType) else _fields(node)[str(step)].type


def _fields(node: inspect.Type) -> dict[str, inspect.Field]:
    assert isinstance(node, inspect.StructType)
    return fields_of(node.cls)


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

    def __init__(self) -> None:
        self._hidden: set[Path] = set()  # what stands there, and all inside it, is of our own making
        self._emptied: set[Path] = set()  # tables that lost a value
        self._ruled: set[tuple[Path, str]] = set()  # keys anywhere in a table whose ruling value is lost
        self._ids: set[str] = set()
        self._ids_unknown = self._labels_unknown = False

    def add(self, path: Path, value: object) -> None:
        """Note a value that is about to be left out or replaced."""
        last, table = path[-1], path[:-1]
        name = table[-1] if isinstance(last, int) else last
        self._hidden.add(path)
        if isinstance(last, str):
            self._emptied.add(table)
        if last == "capability":
            self._hidden |= {(*table, "targets"), (*table, "preset")}
        self._ruled |= {(table, key) for key in _RULED.get(str(last), ())}
        self._labels_unknown = self._labels_unknown or name in _HOLD_LABELS
        if last == "id" and isinstance(value, str):
            self._ids.add(value)
        elif last == "id" or name in _HOLD_IDS:
            self._ids_unknown = True

    def find_references(self, document: dict[str, Any]) -> None:
        """Look for targets that mean a model whose id was replaced, as it stood or as it should; all is mended now."""
        for outer, model in enumerate(document.get("virtual_models", ()) if self._ids else ()):
            for inner, target in enumerate(model["targets"]):
                if target["model"] in self._ids or nearest(target["model"], self._ids) is not None:
                    self._hidden.add(("virtual_models", outer, "targets", inner, "model"))

    def hides(self, fault: Fault) -> bool:
        """Tell whether a later fault may be of our own making."""
        path = fault.path
        last = path[-1] if path else None
        return (
            path in self._emptied
            or any(path[:end] in self._hidden for end in range(1, len(path) + 1))
            or any((path[:end], last) in self._ruled for end in range(1, len(path)))
            or (self._ids_unknown and last == "model")
            or (self._labels_unknown and last == "key")
        )
