"""Schemas: keywords that Gemini refuses go, in schema positions only; what they say otherwise stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lumen_gateway.dialects.gemini_schema import cleaned
from lumen_gateway.dialects.neutral import Raw


def clean(schema: Any) -> Any:
    return cleaned(Raw(json.dumps(schema).encode()))


@pytest.mark.parametrize(
    "place",
    [
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"$defs": {"a": inner}},
        lambda inner: {"items": inner},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"anyOf": [inner, {"type": "null"}]},
        lambda inner: {"prefixItems": [{"items": inner}]},
    ],
)
def test_refused_keywords_go_wherever_a_schema_stands(place: Any) -> None:
    assert clean(place({"type": "string", "$schema": "s", "default": "x"})) == place({"type": "string"})


def test_what_the_schema_demands_stays() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["a"],
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": ["integer", "null"]}},
        "$defs": {"A": {"enum": [1, 2]}},
    }
    assert clean(schema) == schema


def test_names_of_properties_are_no_keywords() -> None:
    schema = {
        "properties": {"default": {"type": "string"}, "const": {"type": "number"}, "items": {"enum": ["default"]}}
    }
    assert clean(schema) == schema


def test_constant_becomes_an_enumeration_of_one() -> None:
    assert clean({"const": None}) == {"enum": [None]}


@pytest.mark.parametrize("schema", [True, {"items": False}, {"anyOf": "odd", "properties": 3}])
def test_what_is_no_schema_is_left_to_the_upstream(schema: Any) -> None:
    assert clean(schema) == schema
