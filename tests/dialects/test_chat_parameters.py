"""What is asked beside the messages: read where the neutral form has a place for it, named where it has none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lumen_gateway.dialects import spans
from lumen_gateway.dialects.chat_parameters import Parameters
from lumen_gateway.dialects.neutral import Format, Raw, Reasoning, Tool, ToolChoice

SCHEMA = {"type": "object"}
RAW_SCHEMA = Raw(b'{"type": "object"}')


def read(**fields: Any) -> Parameters:
    parameters = Parameters(spans.split(json.dumps({"model": "m", "messages": [], **fields}).encode()))
    parameters.read()
    return parameters


def asked(**fields: Any) -> dict[str, Any]:
    parameters = read(**fields)
    assert parameters.unmapped == []
    return parameters.asked


def test_a_client_that_asks_for_nothing_is_given_nothing() -> None:
    assert asked() == {}
    assert asked(tools=None, stop=None, temperature=None, user=None, logprobs=False, metadata={}, store=False) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5),
        ("temperature", 1),
        ("top_p", 0.9),
        ("top_k", 40),
        ("seed", 7),
        ("presence_penalty", -1.5),
        ("frequency_penalty", 0),
        ("parallel_tool_calls", False),
        ("user", "u1"),
    ],
)
def test_plain_values_are_carried_as_they_are(name: str, value: Any) -> None:
    assert asked(**{name: value}) == {name: value}


@pytest.mark.parametrize(
    "name", ["seed", "parallel_tool_calls", "user", "stop", "tool_choice", "response_format", "reasoning_effort"]
)
def test_a_value_of_the_wrong_type_is_left_out_and_named(name: str) -> None:
    parameters = read(**{name: 7.5})
    assert parameters.asked == {}
    assert parameters.unmapped == [name]


def test_what_has_no_neutral_counterpart_is_named() -> None:
    fields = {"logprobs": True, "logit_bias": {"5": 1}, "audio": {"voice": "a"}, "unheard_of": "x"}
    assert read(**fields).unmapped == list(fields)


def test_what_the_request_itself_knows_is_not_named() -> None:
    assert asked(stream=True, stream_options={"include_usage": True}, max_tokens=1, max_completion_tokens=2, n=3) == {}


def test_tools_keep_their_schemas_as_they_were_spelled() -> None:
    function = {"name": "f", "description": "does f", "parameters": SCHEMA, "strict": True}
    assert asked(
        tools=[{"type": "function", "function": function}, {"type": "function", "function": {"name": "g"}}]
    ) == {"tools": [Tool("f", "does f", RAW_SCHEMA, strict=True), Tool("g")]}


def test_old_functions_are_tools() -> None:
    assert asked(functions=[{"name": "f", "parameters": SCHEMA}], function_call={"name": "f"}) == {
        "tools": [Tool("f", schema=RAW_SCHEMA)],
        "tool_choice": ToolChoice("tool", "f"),
    }


def test_the_cache_marker_of_a_tool_is_kept_wherever_it_stands() -> None:
    marker = {"type": "ephemeral"}
    outside = asked(tools=[{"type": "function", "function": {"name": "f"}, "cache_control": marker}])
    inside = asked(tools=[{"type": "function", "function": {"name": "f", "cache_control": marker}}])
    assert outside == inside == {"tools": [Tool("f", cache=Raw(b'{"type": "ephemeral"}'))]}


def test_a_tool_of_another_kind_is_kept_whole() -> None:
    tool = {"type": "custom", "custom": {"name": "f"}}
    (kept,) = asked(tools=[tool])["tools"]
    assert (kept.name, kept.dialect, json.loads(bytes(kept.native))) == ("custom", "chat", tool)


@pytest.mark.parametrize("tools", [{}, "f", [5], [{"type": "function", "function": {}}]])
def test_tools_that_are_none_are_an_error_and_not_left_out(tools: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(tools=tools)


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("tool", "f")),
    ],
)
def test_tool_choices_are_read(choice: Any, meant: ToolChoice) -> None:
    assert asked(tool_choice=choice) == {"tool_choice": meant}


@pytest.mark.parametrize("choice", ["perhaps", {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}])
def test_a_tool_choice_nobody_else_has_is_named(choice: Any) -> None:
    assert read(tool_choice=choice).unmapped == ["tool_choice"]


def test_an_old_choice_that_says_nothing_known_is_named_by_its_own_name() -> None:
    assert asked(function_call="auto") == {"tool_choice": ToolChoice("auto")}
    assert read(function_call="perhaps").unmapped == ["function_call"]


def test_one_stop_or_many_are_a_list() -> None:
    assert asked(stop="END") == asked(stop=["END"]) == {"stop": ["END"]}
    assert asked(stop=[]) == {}


def test_stops_that_are_no_text_are_left_out_and_named() -> None:
    parameters = read(stop=["a", 5])
    assert (parameters.asked, parameters.unmapped) == ({"stop": ["a"]}, ["stop"])


def test_formats_are_read() -> None:
    assert asked(response_format={"type": "text"}) == {}
    assert asked(response_format={"type": "json_object"}) == {"format": Format("json_object")}
    schema = {"name": "n", "schema": SCHEMA, "strict": False, "description": "d"}
    assert asked(response_format={"type": "json_schema", "json_schema": schema}) == {
        "format": Format("json_schema", "n", RAW_SCHEMA, strict=False, description="d")
    }


def test_a_format_nobody_else_has_is_named() -> None:
    assert read(response_format={"type": "grammar"}).unmapped == ["response_format"]


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_effort": "high"}, Reasoning("high")),
        ({"reasoning_effort": "none"}, Reasoning("none", enabled=False)),
        ({"reasoning": {"effort": "low"}}, Reasoning("low")),
        ({"reasoning": {"max_tokens": 2000}}, Reasoning(budget_tokens=2000)),
        ({"reasoning": {"enabled": False}}, Reasoning(enabled=False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, Reasoning(budget_tokens=5000)),
        ({"thinking": {"type": "disabled"}}, Reasoning(enabled=False)),
        ({"reasoning_effort": "high", "thinking": {"type": "disabled"}}, Reasoning("high")),
    ],
)
def test_the_first_word_about_reasoning_counts(fields: dict[str, Any], reasoning: Reasoning) -> None:
    assert asked(**fields) == {"reasoning": reasoning}
