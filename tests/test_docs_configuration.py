"""`docs/configuration.md` and the schema say the same: every table, field, type and default, in both directions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from msgspec import NODEFAULT, inspect

from lumen_gateway.config.check import bare, default_of, fields_of, tables, unbuilt
from lumen_gateway.config.load import read_document
from lumen_gateway.config.rules import NEEDS_BASE_URL
from lumen_gateway.config.schema import PATTERNS, Provider, TriggerName
from lumen_gateway.routing.compile import compile_plan

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
LATER = "ot in this version"

SECTIONS = dict(re.findall(r"^#{2,3} (.*)\n((?:(?!#{2,3} ).*\n)*)", PAGE, re.MULTILINE))
HEADINGS = {"The top of the document": "", **{title: title.strip("`") for title in SECTIONS if title.startswith("`[")}}
BY_HEADER = {header: SECTIONS[title] for title, header in HEADINGS.items()}
SAME_AS = {"[virtual_models.preset.overrides]": "[virtual_models.targets.overrides]"}
TABLES = {header: table for header, table in tables().items() if header not in SAME_AS}


class Row(NamedTuple):
    """One field of the page."""

    type: str
    default: str
    meaning: str


def rows(body: str) -> dict[str, Row]:
    cells = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", body, re.MULTILINE)
    return {name: Row(*rest) for name, *rest in cells}


def words(node: inspect.Type) -> list[str]:
    literal = bare(node)
    assert isinstance(literal, inspect.LiteralType)
    return sorted(f'"{word}"' for word in literal.values if word != "systemone")


def said_type(node: inspect.Type) -> str:
    match bare(node):
        case inspect.StructType() | inspect.DictType():
            return "table"
        case inspect.ListType() as array:
            inner = bare(array.item_type)
            match inner:
                case inspect.StructType() | inspect.DictType():
                    return "array of tables"
                case inspect.LiteralType():
                    return "array of words"
                case _:
                    return "array of strings"
        case inspect.IntType() as number if number.le is not None:
            return f"integer, {number.ge} to {number.le}"
        case inspect.IntType() as number:
            return "integer" if number.ge is None else f"integer, at least {number.ge}"
        case inspect.DecimalType():
            return "number, at least 0"
        case inspect.BoolType():
            return "boolean"
        case inspect.LiteralType():
            return "word"
        case _:
            return "string"


def said_default(field: inspect.Field) -> str:
    default: Any = default_of(field)
    if default is NODEFAULT:
        return "required"
    if isinstance(default, msgspec.Struct):
        return "its defaults"
    node = bare(field.type)
    repeated = isinstance(node, inspect.ListType) and isinstance(bare(node.item_type), inspect.StructType)
    return "none" if default is None or repeated else f"`{json.dumps(default)}`"


def fields() -> list[Any]:
    return [
        pytest.param(header, field, id=f"{header or 'top'}.{name}")
        for header, table in TABLES.items()
        for name, field in fields_of(table).items()
    ]


def test_every_table_has_a_section_and_every_section_a_table() -> None:
    assert set(BY_HEADER) == set(TABLES)
    for twin, header in SAME_AS.items():
        assert tables()[twin] is tables()[header]
        assert twin in BY_HEADER[header]


@pytest.mark.parametrize("header", TABLES)
def test_section_lists_the_fields_of_the_schema_in_its_order(header: str) -> None:
    assert list(rows(BY_HEADER[header])) == list(fields_of(TABLES[header]))


@pytest.mark.parametrize(("header", "field"), fields())
def test_field_has_the_default_of_the_schema(header: str, field: inspect.Field) -> None:
    assert rows(BY_HEADER[header])[field.name].default == said_default(field)


@pytest.mark.parametrize(("header", "field"), fields())
def test_field_has_the_type_of_the_schema(header: str, field: inspect.Field) -> None:
    shown = rows(BY_HEADER[header])[field.name].type
    expected = said_type(field.type)
    if expected in ("word", "array of words"):
        node = bare(field.type)
        spelled = re.findall(r'`("\w+")`', shown)
        assert (
            sorted(spelled) == words(node.item_type if isinstance(node, inspect.ListType) else node) or "](#" in shown
        )
        assert shown.startswith("array of") == (expected == "array of words")
    elif expected == "string":
        assert shown.startswith("string")
    else:
        assert shown == expected


@pytest.mark.parametrize(("header", "field"), fields())
def test_field_says_whether_it_waits_for_a_later_version(header: str, field: inspect.Field) -> None:
    meaning = rows(BY_HEADER[header])[field.name].meaning
    assert meaning.endswith(f"N{LATER}.") == unbuilt(field)
    if not unbuilt(field) and field.name != "kind":  # the kinds have a table of their own
        assert (LATER in meaning) == bool(later_values(field.type))


def later_values(node: inspect.Type) -> tuple[str, ...]:
    if isinstance(node, inspect.Metadata):
        return tuple((node.extra or {}).get("unbuilt_values", ()))
    if isinstance(node, inspect.UnionType):
        return next((found for branch in node.types if (found := later_values(branch))), ())
    return later_values(node.item_type) if isinstance(node, inspect.ListType) else ()


def test_every_kind_stands_in_the_row_it_belongs_to() -> None:
    kind = fields_of(Provider)["kind"].type
    everything = {word.strip('"') for word in words(kind)}
    later = set(later_values(kind))
    lines = {cells[1]: set(re.findall(r"`([a-z_0-9]+)`", cells[0])) for cells in kind_rows()}
    assert lines["required"] - {"base_url"} == NEEDS_BASE_URL
    assert lines["optional"] == everything - later - NEEDS_BASE_URL
    assert lines[f"N{LATER}."] == later


def kind_rows() -> list[tuple[str, str]]:
    return re.findall(r"^\| (`.*?) \| (optional|required|Not in this version\.) \|$", SECTIONS["Kinds"], re.MULTILINE)


def test_every_trigger_is_explained() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS["Triggers"], re.MULTILINE) == list(get_args(TriggerName))


def test_every_pattern_of_the_schema_can_be_said() -> None:
    used = {
        inner.pattern
        for table in tables().values()
        for field in fields_of(table).values()
        for node in [bare(field.type)]
        for inner in [bare(node.item_type) if isinstance(node, inspect.ListType) else node]
        if isinstance(inner, inspect.StrType) and inner.pattern is not None
    }
    assert used == set(PATTERNS)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_example_can_be_served_and_warns_of_nothing(path: Path) -> None:
    document = read_document(path, {})
    assert [document.locate(fault) for fault in document.faults] == []
    assert document.config is not None
    compiled = compile_plan(document.config)
    assert [document.locate(fault) for fault in compiled.faults] == []
    assert compiled.plan is not None
