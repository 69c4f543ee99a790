"""What a Responses upstream is sent for clients of other dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.neutral import (
    Document,
    Format,
    Image,
    Native,
    Part,
    Raw,
    Reasoning,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from lumen_gateway.dialects.responses import parse_request
from lumen_gateway.dialects.responses_from_neutral import uncarried, write_request
from lumen_gateway.dialects.responses_to_neutral import read_request

HI = Turn("user", [Text(text="hi")])
LONG = "x" * 100


def sent(*turns: Turn, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(write_request(Request(turns=turns or [HI], **fields), Raw(b'"theirs"')))
    assert body.pop("model") == "theirs"
    assert body.pop("store") is False
    return body


def beside(**fields: Any) -> dict[str, Any]:
    body = sent(**fields)
    assert body.pop("input") == [{"type": "message", "role": "user", "content": "hi"}]
    return body


def test_system_turns_are_the_instructions() -> None:
    system = Turn("system", [Text(text="a")])
    assert sent(system, HI, system)["instructions"] == "a\n\na"
    assert sent(system) == {"input": "a"}


def test_assistant_turn_becomes_its_items_in_order() -> None:
    parts: list[Part] = [
        Thinking(text="hm", signature="s"),
        Text(text="wait"),
        ToolCall(id="c", name="f", arguments='{"a":1}'),
        Refusal(text="no"),
    ]
    assert sent(HI, Turn("assistant", parts))["input"][1:] == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]


def test_pictures_in_results_stay_there() -> None:
    results = [ToolResult(call_id="c", parts=[Text(text="see"), Image(url="https://x/y.png")])]
    assert sent(HI, Turn("tool", results))["input"][1] == {
        "type": "function_call_output",
        "call_id": "c",
        "output": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"},
        ],
    }


def test_turn_that_says_nothing_is_left_out() -> None:
    assert len(sent(HI, Turn("user", []), Turn("assistant", []))["input"]) == 1


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {}),
        ({"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"temperature": 0.5, "top_p": 0.1}, {"temperature": 0.5, "top_p": 0.1}),
        ({"user": "u", "stream": True}, {"user": "u", "stream": True}),
        ({"reasoning": Reasoning("low")}, {"reasoning": {"effort": "low"}}),
        ({"reasoning": Reasoning(enabled=False)}, {}),
        ({"format": Format("json_object")}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"format": Format("json_schema", "", Raw(b"{}"), strict=True, description="d")},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "answer",
                        "schema": {},
                        "description": "d",
                        "strict": True,
                    }
                }
            },
        ),
        ({"tool_choice": ToolChoice("auto"), "parallel_tool_calls": False}, {}),
    ],
)
def test_what_is_asked_beside_the_conversation(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert beside(**fields) == wanted


def test_tools_are_flat_and_as_lenient_as_they_were() -> None:
    body = beside(
        tools=[Tool(LONG, "does", Raw(b'{"type":"object"}'))],
        tool_choice=ToolChoice("tool", LONG),
        parallel_tool_calls=False,
    )
    (tool,) = body["tools"]
    assert len(tool["name"]) <= 64
    assert body["tool_choice"] == {"type": "function", "name": tool["name"]}
    assert body["parallel_tool_calls"] is False
    assert (tool["description"], tool["parameters"], tool["strict"]) == ("does", {"type": "object"}, False)


def test_tools_of_other_vendors_are_left_out() -> None:
    theirs, ours = (Tool("t", native=Raw(b'{"type":"t"}'), dialect=dialect) for dialect in ("messages", "responses"))
    assert beside(tools=[theirs, ours])["tools"] == [{"type": "t"}]
    assert beside(tools=[theirs], tool_choice=ToolChoice("auto")) == {}


@pytest.mark.parametrize(
    ("turn", "fields", "names"),
    [
        (HI, {"top_k": 1, "stop": ["x"], "seed": 1}, ["top_k", "stop", "seed"]),
        (HI, {"presence_penalty": 1.0, "frequency_penalty": 1.0}, ["presence_penalty", "frequency_penalty"]),
        (HI, {"presence_penalty": 0.0, "tools": [Tool("t", native=Raw(b"1"), dialect="chat")]}, ["tools"]),
        (Turn("tool", [ToolResult(call_id="c", is_error=True)]), {}, ["messages.content.is_error"]),
        (Turn("tool", [ToolResult(call_id="c", parts=[Image()])]), {}, ["messages.content.image"]),
        (Turn("assistant", [Thinking(text="x"), ToolCall(id="c", name="f")]), {}, []),
        (Turn("assistant", [Thinking(text="x", signature="s")]), {}, ["messages.content.thinking"]),
        (Turn("user", [Native(dialect="messages", block=Raw(b"1")), Document(data="x")]), {}, ["messages.content"]),
        (Turn("user", [Native(dialect="responses", block=Raw(b"1"))]), {}, []),
    ],
)
def test_what_has_no_place_is_named(turn: Turn, fields: dict[str, Any], names: list[str]) -> None:
    assert uncarried(Request(turns=[turn], **fields)) == names


words = st.text(min_size=1, max_size=8)
texts = words.map(lambda text: Text(text=text))
images = st.builds(Image, url=words.map("https://x/".__add__), detail=st.sampled_from(["low", "auto"]))
calls = st.builds(ToolCall, id=words, name=st.from_regex(r"[a-z]{1,9}", fullmatch=True), arguments=st.just('{"a":1}'))
users = st.lists(texts | images, min_size=1, max_size=3).map(lambda parts: Turn("user", parts))
assistants = st.lists(texts | calls, min_size=1, max_size=4).map(lambda parts: Turn("assistant", parts))


@given(st.lists(st.tuples(users, assistants), min_size=1, max_size=3))
def test_conversation_survives_there_and_back(pairs: list[tuple[Turn, Turn]]) -> None:
    turns = [turn for pair in pairs for turn in pair]
    body = write_request(Request(turns=turns), Raw(b'"m"'))
    assert list(read_request(parse_request(body)).turns) == turns
