"""Reading: what a Messages client asks and what an Anthropic upstream answers, in the neutral form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.anthropic_wire import is_message
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.messages import parse_request
from lumen_gateway.dialects.messages_to_neutral import read_answer, read_finish, read_request
from lumen_gateway.dialects.neutral import (
    Document,
    Format,
    Image,
    Native,
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
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

TURNS = [{"role": "user", "content": "hi"}]
SAID = Turn("user", [Text(text="hi")])
SECRET = "my-private-prompt"
CACHE = {"type": "ephemeral"}


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def read(**fields: Any) -> Request:
    return read_request(parse_request(json.dumps({"model": "m", "messages": TURNS, **fields}).encode()))


def test_request_without_anything_asks_for_nothing() -> None:
    assert read(max_tokens=None, tools=[], metadata={}, stream=False) == Request(turns=[SAID], unmapped=[])


def test_values_are_carried_under_their_neutral_names() -> None:
    seen = read(stream=True, max_tokens=5, temperature=0.5, top_p=1, top_k=3, stop_sequences=["A"])
    assert (seen.stream, seen.max_tokens, seen.temperature, seen.top_p, seen.top_k, seen.stop) == (
        True,
        5,
        0.5,
        1.0,
        3,
        ["A"],
    )
    assert read(metadata={"user_id": "u"}).user == "u"


def test_system_prompt_is_the_first_turn_with_its_markers() -> None:
    assert read(system="S").turns[0] == Turn("system", [Text(text="S")])
    marked = read(system=[{"type": "text", "text": "S", "cache_control": CACHE}, {"type": "text", "text": "T"}])
    assert marked.turns[0] == Turn("system", [Text(text="S", cache=raw(CACHE)), Text(text="T")])
    assert read(system="").turns == [SAID]


def test_turns_keep_their_order_and_all_their_blocks() -> None:
    turns = read(
        messages=[
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                ],
            },
            {"role": "system", "content": "mind"},
        ]
    ).turns
    assert turns == [
        Turn("user", [Image(url="u")]),
        Turn(
            "assistant",
            [
                Thinking(text="hm", signature="s"),
                Text(text="a"),
                ToolCall(id="t1", name="add", arguments='{"a": 1}'),
            ],
        ),
        Turn("system", [Text(text="mind")]),
    ]


def test_results_stand_in_a_turn_of_their_own_before_what_else_is_said() -> None:
    calls = [{"type": "tool_use", "id": id_, "name": name, "input": {}} for id_, name in (("a", "x"), ("b", "y"))]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "text", "text": "So?"},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True},
    ]
    turns = read(messages=[{"role": "assistant", "content": calls}, {"role": "user", "content": results}]).turns
    assert turns[1:] == [
        Turn(
            "tool",
            [
                ToolResult(call_id="a", name="x", parts=[Text(text="1")]),
                ToolResult(call_id="b", name="y", parts=[], is_error=True),
            ],
        ),
        Turn("user", [Text(text="So?")]),
    ]
    alone = read(messages=[{"role": "user", "content": results[:1]}]).turns
    assert alone == [Turn("tool", [ToolResult(call_id="a", parts=[Text(text="1")])])]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": {"a": SECRET}}]}]}, "messages[0].content"),
        ({"messages": [*TURNS, {"role": "user", "content": [SECRET]}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"text": SECRET}]}]}, "messages[0].content"),
        ({"system": [{"type": "text", "text": 5}]}, "system"),
        ({"tools": SECRET}, "tools"),
        ({"tools": [{"name": 5}]}, "tools"),
    ],
)
def test_what_is_no_block_or_no_tool_is_the_clients_fault(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Failure) as caught:
        read(**fields)
    assert caught.value.kind is Kind.INVALID_REQUEST
    assert caught.value.message.startswith(f"`{named}` ")
    assert SECRET not in caught.value.message


def test_tools_are_functions_or_kept_whole() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    schema = {"type": "object", "properties": {}}
    tools = read(
        tools=[
            {"name": "a", "description": "d", "input_schema": schema, "strict": True, "cache_control": CACHE},
            {"type": "custom", "name": "b"},
            search,
        ]
    ).tools
    assert tools == [
        Tool("a", "d", raw(schema), True, raw(CACHE)),
        Tool("b"),
        Tool("web_search", native=raw(search), dialect="messages"),
    ]


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "t", "disable_parallel_tool_use": False}, ToolChoice("tool", "t"), True),
    ],
)
def test_tool_choice_and_parallel_calls(choice: object, expected: ToolChoice, parallel: bool | None) -> None:
    seen = read(tool_choice=choice)
    assert (seen.tool_choice, seen.parallel_tool_calls) == (expected, parallel)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, Reasoning(budget_tokens=2000)),
        ({"thinking": {"type": "adaptive"}}, Reasoning()),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, Reasoning("low")),
        ({"output_config": {"effort": "low"}}, Reasoning("low")),
        ({"thinking": {"type": "disabled"}}, Reasoning(enabled=False)),
    ],
)
def test_thinking_and_effort_are_one_wish(fields: dict[str, Any], expected: Reasoning | None) -> None:
    assert read(**fields).reasoning == expected


def test_schema_of_the_answer_is_carried() -> None:
    schema = {"type": "object"}
    seen = read(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert (seen.format, seen.reasoning) == (Format("json_schema", schema=raw(schema)), None)


def test_what_has_no_place_is_named() -> None:
    seen = read(
        service_tier="auto",
        container={"id": "x"},
        tool_choice={"type": "odd"},
        thinking="much",
        output_config={"effort": "low", "task_budget": {}},
        metadata={"user_id": "u", "team": "t"},
        cache_control=CACHE,
        mcp_servers=[],
        inference_geo=None,
    )
    assert set(seen.unmapped) == {
        "service_tier",
        "container",
        "tool_choice",
        "thinking",
        "output_config",
        "metadata",
    }
    assert (seen.tool_choice, seen.reasoning, seen.user) == (None, None, "")


def answer(**fields: Any) -> bytes:
    return json.dumps({"id": "msg_1", "type": "message", "model": "m", "content": [], **fields}).encode()


def test_answer_is_read_whole() -> None:
    body = answer(
        content=[
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "a"},
            {"type": "server_tool_use", "id": "x"},
            {"type": "tool_use", "id": "t", "name": "add", "input": {}},
        ],
        stop_reason="stop_sequence",
        stop_sequence="END",
        usage={"input_tokens": 3, "output_tokens": 2},
    )
    seen = read_answer(body)
    assert (seen.id, seen.model, seen.finish, seen.stop_sequence) == ("msg_1", "m", "stop", "END")
    assert seen.usage == Usage(3, 2, origin="reported")
    assert seen.parts == [
        Thinking(text="hm", signature="s"),
        Text(text="a"),
        Native(dialect="messages", block=raw({"type": "server_tool_use", "id": "x"})),
        ToolCall(id="t", name="add"),
    ]


def test_explanation_of_a_refusal_is_part_of_the_answer() -> None:
    seen = read_answer(answer(stop_reason="refusal", stop_details={"type": "refusal", "explanation": "no"}))
    assert (seen.finish, seen.parts) == ("refusal", [Refusal(text="no")])


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_tokens", "length"), ("tool_use", "tool_calls"), ("pause_turn", "pause"), ("odd", "stop"), (None, "stop")],
)
def test_reason_is_told_in_neutral_words(reason: str | None, finish: str) -> None:
    assert read_finish(reason) == finish


@pytest.mark.parametrize("body", [b"", b"[]", b'{"content":5}', answer(content=["x"]), answer(stop_details=5)])
def test_what_is_no_message_is_malformed(body: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_answer(body)
    assert caught.value.kind is Kind.MALFORMED


@pytest.mark.parametrize("recording", recorded(lambda entry: is_message(entry) and not entry["stream"]))
def test_recorded_answers_are_read_without_loss(recording: Recording) -> None:
    seen, wire = read_answer(recording.body), json.loads(recording.body)
    assert len(seen.parts) == len(wire["content"])
    texts = [part.text for part in seen.parts if isinstance(part, Text)]
    assert texts == [block["text"] for block in wire["content"] if block["type"] == "text"]
    calls = [json.loads(part.arguments) for part in seen.parts if isinstance(part, ToolCall)]
    assert calls == [block["input"] for block in wire["content"] if block["type"] == "tool_use"]


def test_document_in_a_turn_is_a_document() -> None:
    block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    assert read(messages=[{"role": "user", "content": [block]}]).turns == [
        Turn("user", [Document(media_type="text/plain", text="words")])
    ]


def test_what_is_asked_about_documents_is_named_once() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}

    def unmapped(*documents: dict[str, Any]) -> list[str]:
        blocks = [{"type": "document", "source": source, **document} for document in documents]
        turns = [*TURNS, {"role": "user", "content": [{"type": "text", "text": "a", "context": "b"}, *blocks]}]
        return list(read(messages=turns).unmapped)

    asked = {"citations": {"enabled": True}, "context": "c"}
    assert unmapped(asked, asked) == ["messages.content.citations", "messages.content.context"]
    assert unmapped({"citations": {"enabled": False}, "context": None}, {"citations": None}) == []
