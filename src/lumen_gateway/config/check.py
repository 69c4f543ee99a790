"""Shape of a document: unknown keys, missing keys, types, ranges, spellings. Every fault at once.

A walk over the types that `msgspec.inspect` reads out of `schema.py`, side by side with the parsed TOML. msgspec's own
conversion stops at the first fault, names no near miss and knows nothing of what is not built yet; a document in which
this walk finds nothing always converts. What fields mean to each other is left to `rules.py`, where ids lead to is left
to `routing/compile.py`.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from msgspec import NODEFAULT, inspect

from lumen_gateway.config.legacy import check_legacy
from lumen_gateway.config.schema import PATTERNS, Config, Fault
from lumen_gateway.config.wording import nearest, one_of, quoted

Path = tuple[str | int, ...]

_LEAST, _MOST = -(2**63), 2**63 - 1  # TOML's own range for integers


def check_shape(document: dict[str, Any]) -> list[Fault]:
    """Return everything wrong with the document's keys and values.

    Shape:  empty only if the document converts to `Config` and nothing in it waits for a later version.
    Raises: nothing.
    """
    legacy, faults = check_legacy(document), list[Fault]()
    _table(document, _root(), (), faults)
    told = {fault.path for fault in legacy}
    return legacy + [fault for fault in faults if fault.path not in told]


# --- the types --------------------------------------------------------------------------------------------------------


@functools.cache
def _root() -> inspect.StructType:
    return _inspected(Config)


def _inspected(table: type) -> inspect.StructType:
    node = inspect.type_info(table)
    assert isinstance(node, inspect.StructType)
    return node


@functools.cache
def fields_of(table: type) -> dict[str, inspect.Field]:
    """Return a table's fields by key."""
    return {field.name: field for field in _inspected(table).fields}


@functools.cache
def _required_of(table: type) -> tuple[str, ...]:
    return tuple(name for name, field in fields_of(table).items() if field.required)


@functools.cache
def tables() -> dict[str, type]:
    """Return every table by its TOML header, outer ones first; the document itself has the empty header."""
    found: dict[str, type] = {}
    queue: list[tuple[str, bool, type]] = [("", False, Config)]
    for name, repeats, table in queue:
        found[f"[[{name}]]" if repeats else f"[{name}]" if name else ""] = table
        for key, field in fields_of(table).items():
            node = bare(field.type)
            inner = bare(node.item_type) if isinstance(node, inspect.ListType) else node
            if isinstance(inner, inspect.StructType):
                queue.append((f"{name}.{key}".lstrip("."), inner is not node, inner.cls))
    return found


def bare(node: inspect.Type) -> inspect.Type:
    """Strip marks and "or absent" from a type: TOML has no null. Of a price, the decimal stands for the integer too."""
    if isinstance(node, inspect.Metadata):
        return bare(node.type)
    if isinstance(node, inspect.UnionType):
        return bare(next(branch for branch in node.types if not isinstance(branch, inspect.NoneType)))
    return node


def default_of(field: inspect.Field) -> Any:
    """Return what an absent key means; NODEFAULT where the key must be there."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def unbuilt(field: inspect.Field) -> bool:
    """Tell whether a field waits for a later version."""
    return isinstance(field.type, inspect.Metadata) and bool((field.type.extra or {}).get("unbuilt"))


# --- the walk ---------------------------------------------------------------------------------------------------------


def _check(value: Any, node: inspect.Type, path: Path, faults: list[Fault]) -> None:
    expected = _PYTHON.get(type(node))
    if expected is not None and type(value) is not expected:
        faults.append(Fault(path, f"expected {_wanted(node)}, got {_got(value)}", _retyped(value, node, path)))
        return
    check = _CHECKS.get(type(node))
    if check is not None:
        check(value, node, path, faults)


def _table(value: dict[str, Any], node: inspect.StructType, path: Path, faults: list[Fault]) -> None:
    fields = fields_of(node.cls)
    for key, item in value.items():
        field = fields.get(key)
        if field is None:
            faults.append(Fault((*path, key), "is an unknown key", _elsewhere(key, node.cls)))
        elif not unbuilt(field):
            _check(item, field.type, (*path, key), faults)
        elif item != default_of(field) or type(item) is not type(default_of(field)):
            faults.append(Fault((*path, key), "is not in this version", "remove it"))
    faults.extend(_missing(key, node.cls, path) for key in _required_of(node.cls) if key not in value)


def _marked(value: Any, node: inspect.Metadata, path: Path, faults: list[Fault]) -> None:
    if isinstance(node.type, inspect.LiteralType) and isinstance(value, str):
        _word(value, node, path, faults)
    else:
        _check(value, node.type, path, faults)


def _optional(value: Any, node: inspect.UnionType, path: Path, faults: list[Fault]) -> None:
    branches = [branch for branch in node.types if not isinstance(branch, inspect.NoneType)]
    fitting = (branch for branch in branches if type(value) is _PYTHON.get(type(bare(branch))))
    _check(value, next(fitting, branches[0]), path, faults)


def _array(value: list[Any], node: inspect.ListType, path: Path, faults: list[Fault]) -> None:
    if len(value) < (node.min_length or 0):
        faults.append(Fault(path, "is empty", f"write {_example(str(path[-1]), node)}"))
    for index, item in enumerate(value):
        _check(item, node.item_type, (*path, index), faults)


def _integer(value: int, node: inspect.IntType, path: Path, faults: list[Fault]) -> None:
    low = _LEAST if node.ge is None else int(node.ge)
    high = _MOST if node.le is None else int(node.le)
    if not low <= value <= high:
        bounds = f"of at least {low}" if node.le is None and value < low else f"from {low} to {high}"
        faults.append(Fault(path, "is out of range", f"write an integer {bounds}"))


def _decimal(value: Decimal, _node: inspect.DecimalType, path: Path, faults: list[Fault]) -> None:
    if not value.is_finite() or value < 0:
        faults.append(Fault(path, "is out of range", "write a finite number of at least 0"))


def _text(value: str, node: inspect.StrType, path: Path, faults: list[Fault]) -> None:
    if node.pattern is None or _search(node.pattern)(value):
        return
    wrong = f"{quoted(value)} is not allowed" if value.strip() else "is blank"
    faults.append(Fault(path, wrong, f"write {PATTERNS[node.pattern]}"))


@functools.cache
def _search(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).search


def _word(value: str, node: inspect.Type, path: Path, faults: list[Fault]) -> None:
    """Hold a word against an enumeration. What to write instead is never a word that would be refused next."""
    built = built_words(node)
    if value in _unbuilt_words(node):
        faults.append(Fault(path, f"{quoted(value)} is not in this version", f"write {one_of(built)}"))
    elif value not in built:
        near = nearest(value, built)
        faults.append(Fault(path, f"{quoted(value)} is unknown", f"write {one_of([near] if near else built)}"))


def _words(node: inspect.Type) -> list[str]:
    literal = bare(node)
    assert isinstance(literal, inspect.LiteralType)
    return [str(word) for word in literal.values]


def _unbuilt_words(node: inspect.Type) -> Sequence[str]:
    return (node.extra or {}).get("unbuilt_values", ()) if isinstance(node, inspect.Metadata) else ()


def built_words(node: inspect.Type) -> list[str]:
    """Return the words of an enumeration that this version takes."""
    return [word for word in _words(node) if word not in _unbuilt_words(node)]


_PYTHON: dict[type, type] = {
    inspect.StructType: dict,
    inspect.DictType: dict,
    inspect.ListType: list,
    inspect.IntType: int,
    inspect.DecimalType: Decimal,
    inspect.StrType: str,
    inspect.LiteralType: str,
    inspect.BoolType: bool,
}
_CHECKS: dict[type, Callable[[Any, Any, Path, list[Fault]], None]] = {
    inspect.StructType: _table,
    inspect.Metadata: _marked,
    inspect.UnionType: _optional,
    inspect.ListType: _array,
    inspect.IntType: _integer,
    inspect.DecimalType: _decimal,
    inspect.StrType: _text,
    inspect.LiteralType: _word,
}


# --- what to say ------------------------------------------------------------------------------------------------------


def _missing(key: str, cls: type, path: Path) -> Fault:
    return Fault((*path, key), "is missing", f"add it: {_example(key, fields_of(cls)[key].type)}")


def _elsewhere(key: str, cls: type) -> str:
    """Say where a key belongs: a near miss here first, then the same word in another table."""
    near = nearest(key, fields_of(cls))
    if near is not None:
        return f"write {near}"
    homes = [header for header, table in tables().items() if key in fields_of(table)]
    if not homes:
        return f"known here: {', '.join(fields_of(cls))}"
    if "" in homes:
        return "move it to the top of the document, before the first table header"
    return f"it belongs in {' or '.join(homes)}"


def _wanted(node: inspect.Type) -> str:
    match bare(node):
        case inspect.StructType() | inspect.DictType():
            return "a table"
        case inspect.ListType() as array if isinstance(bare(array.item_type), inspect.StructType):
            return "an array of tables"
        case inspect.ListType():
            return "an array"
        case inspect.IntType():
            return "an integer"
        case inspect.DecimalType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case _:
            return "a string"


_NAMES: Sequence[tuple[type, str]] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (Decimal, "a float"),
    (str, "a string"),
    (list, "an array"),
    (dict, "a table"),
    (datetime.date, "a date"),
    (datetime.time, "a time"),
)


def _got(value: Any) -> str:
    return next(name for kind, name in _NAMES if isinstance(value, kind))


def _retyped(value: Any, node: inspect.Type, path: Path) -> str:
    """Say how to write the value that was probably meant. The value itself is not repeated: it may be a secret."""
    bareword = isinstance(node, inspect.IntType | inspect.DecimalType | inspect.BoolType)
    if bareword and isinstance(value, str) and re.fullmatch(r"[0-9.]+|true|false", value):
        return "write it without quotes"
    if isinstance(node, inspect.StrType | inspect.LiteralType) and not isinstance(value, list | dict):
        return "put it in quotes"
    if isinstance(value, dict) and isinstance(node, inspect.ListType):
        return f"write [[{'.'.join(str(step) for step in path if isinstance(step, str))}]]"
    if isinstance(node, inspect.ListType):
        return "put it in [ ]"
    return f"write {_wanted(node)}"


def _example(key: str, node: inspect.Type) -> str:
    match bare(node):
        case inspect.LiteralType():
            return f"{key} = {one_of(built_words(node))}"
        case inspect.ListType() as array if isinstance(bare(array.item_type), inspect.LiteralType):
            return f"{key} = [{quoted(built_words(array.item_type)[0])}]"
        case inspect.ListType():
            return f'{key} = [{{ model = "..." }}]'
        case _:
            return f'{key} = "..."'
