"""Writing: the request an Anthropic upstream gets, the answer a Messages client gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.anthropic_wire import check_request

from lumen_gateway.dialects.messages import parse_request
from lumen_gateway.dialects.messages_from_neutral import (
    stop_reason,
    uncarried,
    write_answer,
    write_request,
    write_usage,
)
from lumen_gateway.dialects.messages_to_neutral import read_answer, read_request
from lumen_gateway.dialects.neutral import (
    Answer,
    Format,
    Image,
    Native,
    Part,
    Raw,
    Reasoning,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from lumen_gateway.records import Usage

MODEL = Raw(b'"claude-sonnet-4-5"')
CACHE = Raw(b'{"type":"ephemeral"}')
FOREIGN = Raw(b'{"type":"file_search"}')


def turn(role: Role, *parts: Part | str) -> Turn:
    return Turn(role, [Text(text=part) if isinstance(part, str) else part for part in parts])


SAID = turn("user", "hi")


def write(*turns: Turn, **fields: Any) -> dict[str, Any]:
    """Return the body, having held it to the API's rules."""
    body: dict[str, Any] = json.loads(write_request(Request(turns=turns, **fields), MODEL))
    check_request(body)
    return body


def test_smallest_request() -> None:
    assert write(SAID) == {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4096,
    }


def test_system_turns_wherever_they_stand_are_the_system_prompt() -> None:
    body = write(turn("system", "First."), SAID, turn("system", "", "Second."), turn("user", "more"))
    assert body["system"] == "First.\n\nSecond."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "more"}]}
    ]
    assert "system" not in write(turn("system", " "), SAID)


def test_marked_system_prompt_goes_out_as_blocks() -> None:
    body = write(turn("system", Text(text="S", cache=CACHE), "", "T"), SAID)
    assert body["system"] == [
        {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "T"},
    ]


def test_system_prompt_alone_is_what_the_user_says() -> None:
    body = write(turn("system", "Tell me a joke."))
    assert (body["messages"], "system" in body) == (
        [{"role": "user", "content": [{"type": "text", "text": "Tell me a joke."}]}],
        False,
    )


def test_parallel_results_become_one_user_turn_before_the_text() -> None:
    body = write(
        SAID,
        turn("assistant", ToolCall(id="c1", name="w", arguments='{"a":1}'), ToolCall(id="c2", name="w")),
        turn("tool", ToolResult(call_id="c1", parts=[Text(text="20")])),
        turn("user", "Wait."),
        turn("tool", ToolResult(call_id="c2", parts=[Text(text="10")])),
        turn("user", "So?"),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block.get("tool_use_id", block.get("text")) for block in body["messages"][2]["content"]] == [
        "c1",
        "c2",
        "Wait.",
        "So?",
    ]


def test_blank_texts_and_empty_turns_vanish() -> None:
    body = write(
        turn("user", "", "Weather?"),
        turn("assistant", ""),
        turn("user", " "),
        turn("assistant", "", ToolCall(id="c1", name="w", arguments="")),
        turn("tool", ToolResult(call_id="c1", parts=[Text(text="")])),
    )
    assert body["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "w", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
    ]


def test_signed_thinking_stays_before_the_call_it_led_to() -> None:
    body = write(
        SAID,
        turn("assistant", Thinking(text="hm", signature="s"), Thinking(text="unsigned"), ToolCall(id="c", name="w")),
        turn("tool", ToolResult(call_id="c", parts=[])),
        reasoning=Reasoning("low"),
        max_tokens=2048,
    )
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "tool_use"]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}


def test_ids_of_other_vendors_are_made_to_fit_on_both_sides() -> None:
    body = write(
        SAID,
        turn("assistant", ToolCall(id="functions.w:0", name="w")),
        turn("tool", ToolResult(call_id="functions.w:0")),
    )
    assert body["messages"][2]["content"][0]["tool_use_id"] == "functions_w_0"


def test_tools_are_written_with_schema_and_marker() -> None:
    native = Raw(b'{"type":"web_search_20250305","name":"web_search"}')
    body = write(
        SAID,
        tools=[
            Tool("a", "d", Raw(b'{"type":"object","properties":{}}'), True, CACHE),
            Tool("b"),
            Tool("web_search", native=native, dialect="messages"),
            Tool("file_search", native=FOREIGN, dialect="responses"),
        ],
    )
    assert body["tools"] == [
        {
            "name": "a",
            "description": "d",
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "b", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("auto"), True, {"type": "auto"}),
        (ToolChoice("required"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("tool", "a"), None, {"type": "tool", "name": "a"}),
    ],
)
def test_tool_choice_and_parallel_calls(choice: ToolChoice | None, parallel: bool | None, expected: object) -> None:
    asked = {"tool_choice": choice, "parallel_tool_calls": parallel}
    assert write(SAID, tools=[Tool("a")], **asked).get("tool_choice") == expected
    assert "tool_choice" not in write(SAID, **asked)


def test_no_tools_are_sent_where_none_can_be() -> None:
    body = write(SAID, tools=[Tool("x", native=FOREIGN, dialect="responses")], tool_choice=ToolChoice("auto"))
    assert not {"tools", "tool_choice"} & body.keys()


def test_values_are_written_under_their_names_here() -> None:
    body = write(SAID, max_tokens=5, temperature=0.5, top_k=3, stop=["A", " "], user="u", stream=True)
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (5, 0.5, 3)
    assert (body["stop_sequences"], body["metadata"], body["stream"]) == (["A"], {"user_id": "u"}, True)
    assert "stop_sequences" not in write(SAID, stop=[""])


def test_schema_of_the_answer_stands_beside_the_effort() -> None:
    form = Format("json_schema", "n", Raw(b'{"type":"object"}'))
    wanted = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert write(SAID, format=form)["output_config"] == wanted
    newer = write_request(Request(turns=[SAID], format=form, reasoning=Reasoning("low")), Raw(b'"claude-opus-4-7"'))
    assert json.loads(newer)["output_config"] == wanted | {"effort": "low"}
    assert "output_config" not in write(SAID, format=Format("json_object"))


def test_what_has_no_place_here_is_named() -> None:
    assert uncarried(Request(turns=[SAID], temperature=1.0, top_k=1, presence_penalty=0.0)) == []
    lost = Request(
        turns=[turn("user", Native(dialect="chat", block=Raw(b"{}")), Native(dialect="messages", block=Raw(b"{}")))],
        seed=0,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        temperature=1.1,
        format=Format("json_object"),
        tools=[Tool("a", strict=True), Tool("b", native=FOREIGN, dialect="responses")],
    )
    assert uncarried(lost) == [
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "response_format",
        "tools",
        "tools.strict",
        "temperature",
        "messages.content",
    ]
    assert uncarried(Request(turns=[SAID], top_k=1), Raw(b'"claude-opus-4-7"')) == ["top_k"]


def test_parts_in_a_turn_that_may_not_hold_them_are_left_out_and_named() -> None:
    image = Image(url="u")
    call, result = ToolCall(id="t", name="f"), ToolResult(call_id="t")
    turns = (
        turn("system", "S", image),
        turn("user", "hi", image, call, result, Refusal(text="no")),
        turn("assistant", "a", image, Refusal(text="no")),
        turn("user", "b"),
    )
    body = write(*turns)
    assert body["system"] == "S"
    assert [block["type"] for block in body["messages"][0]["content"]] == ["text", "image"]
    assert [block["text"] for block in body["messages"][1]["content"]] == ["a", "no"]
    assert uncarried(Request(turns=turns)) == [
        "messages.content.image",
        "messages.content.toolcall",
        "messages.content.toolresult",
        "messages.content.refusal",
    ]


def answer(*parts: Part, **fields: Any) -> dict[str, Any]:
    fields.setdefault("finish", "stop")
    body: dict[str, Any] = json.loads(write_answer(Answer(id="x", model="m", parts=parts, **fields)))
    return body


def test_answer_is_a_whole_message() -> None:
    body = answer(Thinking(text="hm"), Text(text="a"), usage=Usage(3, 2, origin="reported"))
    assert body == {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }


def test_only_what_is_empty_is_left_out_of_an_answer() -> None:
    parts = (Thinking(), Thinking(signature="s"), Text(text=""), Text(text="\n"), Refusal(text="no"), Refusal(text=""))
    assert answer(*parts)["content"] == [
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "text", "text": "\n"},
        {"type": "text", "text": "no"},
    ]


def test_call_keeps_its_id_in_an_answer() -> None:
    body = answer(ToolCall(id="functions.w:0", name="w", arguments='{"a":1}'), finish="tool_calls")
    assert body["content"] == [{"type": "tool_use", "id": "functions.w:0", "name": "w", "input": {"a": 1}}]
    assert body["stop_reason"] == "tool_use"
    assert answer(ToolCall(id="a", name="w"))["stop_reason"] == "tool_use"


def test_stop_sequence_is_told_as_such() -> None:
    body = answer(Text(text="a"), stop_sequence="END")
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("refusal", "refusal"),
        ("pause", "pause_turn"),
        ("stop", "end_turn"),
    ],
)
def test_finish_is_told_in_this_dialects_words(finish: Any, reason: str) -> None:
    assert stop_reason(finish, "", calls=False) == reason


def test_tokens_of_the_cache_stand_beside_the_input() -> None:
    assert write_usage(Usage(10_020, 100, 6000, 4000, 30)) == {
        "input_tokens": 20,
        "cache_creation_input_tokens": 4000,
        "cache_read_input_tokens": 6000,
        "output_tokens": 100,
        "output_tokens_details": {"thinking_tokens": 30},
    }
    assert write_usage(Usage(5, 1, cached=9))["input_tokens"] == 0
    assert write_usage(None) == {"input_tokens": 0, "output_tokens": 0}


WORDS = st.text(min_size=1, max_size=5).filter(str.strip)
OBJECTS = st.dictionaries(WORDS, st.integers(0, 9) | st.text(max_size=3), max_size=2).map(json.dumps)
IMAGES = st.builds(Image, media_type=st.just("image/png"), data=st.just("aaaa")) | st.builds(Image, url=WORDS)
SPOKEN = st.lists(st.builds(Text, text=WORDS) | IMAGES, min_size=1, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    turns = [Turn("system", [Text(text=draw(WORDS))])] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 3))):
        turns.append(Turn("user", draw(SPOKEN)))
        if draw(st.booleans()):
            turns.append(Turn("assistant", [Text(text=draw(WORDS))]))
            continue
        calls = [
            ToolCall(id=f"t{number}_{call}", name="f", arguments=draw(OBJECTS))
            for call in range(draw(st.integers(1, 3)))
        ]
        turns.append(Turn("assistant", [Thinking(text=draw(WORDS), signature="s"), *calls]))
        results: Sequence[Part] = [ToolResult(call_id=call.id, name="f", parts=draw(SPOKEN)) for call in calls]
        turns.append(Turn("tool", results))
        turns.append(Turn("assistant", [Text(text=draw(WORDS))]))
    return turns


CHOICES = st.sampled_from(
    [None, ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f")]
)


@given(conversations(), CHOICES, st.sampled_from([None, False]), st.none() | st.integers(1, 9), st.lists(WORDS))
def test_request_comes_back_as_it_was(
    turns: list[Turn], choice: ToolChoice | None, parallel: bool | None, top_k: int | None, stop: list[str]
) -> None:
    asked = Request(
        turns=turns,
        tools=[Tool("f", "d", Raw(b'{"type":"object"}'))],
        tool_choice=choice or (ToolChoice("auto") if parallel is False else None),
        parallel_tool_calls=None if choice == ToolChoice("none") else parallel,
        max_tokens=9,
        temperature=0.5,
        top_k=top_k,
        stop=stop,
        user="u",
        stream=True,
        unmapped=[],
    )
    body = write_request(asked, MODEL)
    check_request(json.loads(body))
    back = read_request(parse_request(body))
    assert msgspec.json.encode(back) == msgspec.json.encode(asked)


@given(
    st.lists(
        st.builds(Text, text=WORDS)
        | st.builds(Thinking, text=WORDS, signature=WORDS)
        | st.builds(Thinking, redacted=WORDS)
        | st.builds(ToolCall, id=WORDS, name=WORDS, arguments=OBJECTS)
    ),
    st.sampled_from(["length", "tool_calls", "refusal", "pause"]),
    st.builds(Usage, st.just(30), st.integers(1, 9), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
)
def test_answer_comes_back_as_it_was(parts: list[Part], finish: Any, usage: Usage) -> None:
    told = msgspec.structs.replace(usage, origin="reported")
    said = Answer(id="i", model="m", parts=parts, finish=finish, usage=told)
    assert read_answer(write_answer(said)) == said
