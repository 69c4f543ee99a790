"""`when` tables: what is read, and what is refused where and with which words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lumen_gateway.config.schema import Fault
from lumen_gateway.routing.conditions import AllOf, AnyOf, Comparison, Condition, Matcher
from lumen_gateway.routing.when import ATTRIBUTES, parse_when


def read(when: dict[str, Any], capability: str = "chat") -> Condition:
    condition, faults = parse_when(when, capability, ())
    assert faults == []
    assert condition is not None
    return condition


def refused(when: dict[str, Any], capability: str = "chat") -> Fault:
    condition, faults = parse_when(when, capability, ("when",))
    assert condition is None
    [fault] = faults
    return fault


def test_bare_value_means_equal() -> None:
    assert read({"stream": True}) == Comparison("stream", None, "eq", True)


def test_numbers_are_read_as_floats_whatever_toml_calls_them() -> None:
    for number in (2, 2.0, Decimal("2.0")):
        assert read({"input_tokens": {"gt": number}}) == Comparison("input_tokens", None, "gt", 2.0)


def test_keys_of_one_table_must_all_hold_and_items_of_any_need_not() -> None:
    stream, tools = Comparison("stream", None, "eq", True), Comparison("has_tools", None, "eq", False)
    assert read({"stream": True, "has_tools": False}) == AllOf((stream, tools))
    assert read({"any": [{"stream": True}, {"has_tools": False}]}) == AnyOf((stream, tools))


def test_key_behind_metadata_may_hold_dots_and_header_names_are_lower_cased() -> None:
    assert read({"metadata.a.b": "x"}) == Comparison("metadata", "a.b", "eq", "x")
    assert read({"header.X-Team": "x"}) == Comparison("header", "x-team", "eq", "x")


def test_regex_is_compiled_and_keeps_its_text() -> None:
    condition = read({"group": {"regex": "^a"}})
    assert isinstance(condition, Comparison)
    assert isinstance(condition.operand, Matcher)
    assert condition.pattern == "^a"


@pytest.mark.parametrize("capability", ["chat", "embed", "rerank", "decisions"])
def test_attribute_is_known_exactly_where_it_exists(capability: str) -> None:
    for name, attribute in ATTRIBUTES.items():
        value: Any = {"string": "x", "number": 1, "bool": True}[attribute.types[0]]
        _, faults = parse_when({name: value}, capability, ())
        assert bool(faults) == (capability not in attribute.capabilities)


REFUSED: list[tuple[dict[str, Any], tuple[str | int, ...], str]] = [
    ({}, (), "empty"),
    ({"any": [{}]}, ("any", 0), "empty"),
    ({"any": []}, ("any",), "list"),
    ({"any": {"stream": True}}, ("any",), "list"),
    ({"any": [True]}, ("any",), "list"),
    ({"any": [{"stream": True}, {"strem": True}]}, ("any", 1, "strem"), 'unknown condition "strem"'),
    ({"key_id": "x"}, ("key_id",), "unknown condition"),
    ({"documents": 3}, ("documents",), "not available for chat"),
    ({"stream": "true"}, ("stream",), "wrong type"),
    ({"stream": 1}, ("stream",), "wrong type"),
    ({"input_tokens": True}, ("input_tokens",), "wrong type"),
    ({"input_tokens": Decimal("nan")}, ("input_tokens",), "wrong type"),
    ({"input_tokens": 10**400}, ("input_tokens",), "wrong type"),
    ({"group": ["a", "b"]}, ("group",), "wrong type"),
    ({"group": {"in": []}}, ("group", "in"), "not empty"),
    ({"group": {"in": "a"}}, ("group", "in"), "not empty"),
    ({"group": {"in": ["a", 1]}}, ("group", "in", 1), "wrong type"),
    ({"group": {"gt": "a"}}, ("group", "gt"), "not an operator here"),
    ({"stream": {"regex": "x"}}, ("stream", "regex"), "not an operator here"),
    ({"metadata.n": {"gt": "1"}}, ("metadata.n", "gt"), "wrong type"),
    ({"metadata.n": {"regex": 1}}, ("metadata.n", "regex"), "takes a string"),
    ({"metadata.n": {"regex": "("}}, ("metadata.n", "regex"), "does not compile"),
    ({"metadata.n": {"regex": "(?=x)"}}, ("metadata.n", "regex"), "does not compile"),
    ({"metadata.n": {}}, ("metadata.n",), "exactly one key"),
    ({"metadata.n": {"gt": 1, "lt": 3}}, ("metadata.n",), "exactly one key"),
    ({"metadata.": "x"}, ("metadata.",), "unknown condition"),
    ({"header.": "x"}, ("header.",), "unknown condition"),
    ({"header.a b": "x"}, ("header.a b",), "not a header name"),
    ({"header.x-n": 1}, ("header.x-n",), "wrong type"),
]


@pytest.mark.parametrize(("when", "place", "words"), REFUSED)
def test_wrong_condition_is_refused_at_its_place(
    when: dict[str, Any], place: tuple[str | int, ...], words: str
) -> None:
    fault = refused(when)
    assert fault.path == ("when", *place)
    assert words in fault.message
    assert fault.fix


@pytest.mark.parametrize("name", ["Authorization", "cookie", "set-cookie", "proxy-authorization", "X-API-Key"])
def test_header_that_carries_credentials_is_refused(name: str) -> None:
    assert "credentials" in refused({f"header.{name}": "x"}).message


def test_near_misses_are_named() -> None:
    assert 'did you mean "has_tools"?' in refused({"has_tool": True}).fix
    assert 'did you mean "regex"?' in refused({"group": {"regexp": "x"}}).fix
    assert "{ in = [...] }" in refused({"group": ["a"]}).fix


def test_unquoted_dotted_key_is_told_to_be_quoted() -> None:
    fault = refused({"metadata": {"plan": "pro"}})
    assert fault.path == ("when", "metadata")
    assert '"metadata.plan" = ' in fault.fix


def test_all_faults_of_a_table_are_reported() -> None:
    _, faults = parse_when({"strem": True, "group": 1, "any": [{"x": 1}, {"metadata.n": {"regex": "("}}]}, "chat", ())
    assert [fault.path for fault in faults] == [
        ("strem",), ("group",), ("any", 0, "x"), ("any", 1, "metadata.n", "regex"),
    ]  # fmt: skip


def test_any_nests_to_a_limit() -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"stream": True} if depth == 0 else {"any": [nested(depth - 1)]}

    read(nested(16))
    assert "deep" in refused(nested(17)).message
    assert "deep" in refused(nested(900)).message
