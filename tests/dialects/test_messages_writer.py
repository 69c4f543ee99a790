"""Writing a stream: one block after the other, whatever order the steps come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.anthropic_wire import events, frames, is_whole_stream, message_of
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.messages_deltas import MessagesDeltas
from lumen_gateway.dialects.messages_writer import MessagesWriter
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    NativeDelta,
    Raw,
    RefusalDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    Used,
)
from lumen_gateway.records import Usage

START = Start("x", "m", Usage(10, 0, origin="reported"))


def write(*steps: Delta) -> bytes:
    writer = MessagesWriter()
    return b"".join([writer.write(step) for step in (START, *steps)]) + writer.end()


def message(*steps: Delta) -> dict[str, Any]:
    return message_of(write(*steps))


def content(*steps: Delta) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = message(*steps)["content"]
    return blocks


def call(id_: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_plain_stream_byte_for_byte() -> None:
    assert write(TextDelta("hi"), Finished("stop"), Used(Usage(10, 2, origin="reported"))).decode() == (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"x","type":"message","role":"assistant",'
        '"model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
        '"usage":{"input_tokens":10,"output_tokens":0}}}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"hi"}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
        '"usage":{"input_tokens":10,"output_tokens":2}}\n\n'
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_text_goes_out_as_it_comes() -> None:
    writer = MessagesWriter()
    writer.write(START)
    for words in ("a", "b"):
        assert json.dumps(words).encode() in writer.write(TextDelta(words))
    assert writer.write(TextDelta("")) == writer.write(Finished("stop")) == writer.write(Used(Usage())) == b""


def test_each_change_of_kind_opens_a_block() -> None:
    blocks = content(
        ThinkingDelta("hm"),
        ThinkingDelta("m"),
        ThinkingDelta(signature="s"),
        TextDelta("a"),
        RefusalDelta("b"),
        CallDelta(0, "t", "add", '{"a":1}'),
        TextDelta("late"),
        ThinkingDelta("later"),
    )
    assert blocks == [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        text("ab"),
        call("t", "add", {"a": 1}),
        text("late"),
        {"type": "thinking", "thinking": "later", "signature": ""},
    ]


def test_signature_ends_its_block_and_may_stand_alone() -> None:
    assert content(ThinkingDelta("a", "s1"), ThinkingDelta("b"), ThinkingDelta(signature="s2")) == [
        {"type": "thinking", "thinking": "a", "signature": "s1"},
        {"type": "thinking", "thinking": "b", "signature": "s2"},
    ]
    assert content(ThinkingDelta(signature="s"), TextDelta("hi")) == [
        {"type": "thinking", "thinking": "", "signature": "s"},
        text("hi"),
    ]


def test_redacted_thinking_and_native_blocks_come_whole() -> None:
    native = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    blocks = content(
        ThinkingDelta(redacted="x"),
        NativeDelta("messages", Raw(json.dumps(native).encode())),
        NativeDelta("responses", Raw(b'{"type":"odd"}')),
        TextDelta("a"),
    )
    assert blocks == [{"type": "redacted_thinking", "data": "x"}, native, text("a")]


def test_call_without_arguments_has_an_empty_object() -> None:
    stream = write(CallDelta(0, "t", "now"), Finished("tool_calls"))
    assert message_of(stream)["content"] == [call("t", "now", {})]
    assert b'"partial_json":"{}"' in stream


def test_arguments_go_out_as_they_come() -> None:
    writer = MessagesWriter()
    writer.write(START)
    assert b'"tool_use"' in writer.write(CallDelta(0, "t", "add"))
    assert b'"partial_json":"{\\"a\\""' in writer.write(CallDelta(0, arguments='{"a"'))


def test_calls_one_after_the_other_each_go_out_live() -> None:
    writer = MessagesWriter()
    out = [writer.write(step) for step in (START, CallDelta(0, "a", "x", '{"a":1}'), CallDelta(1, "b", "y"))]
    assert b"content_block_stop" in out[-1]
    assert b'"id":"b"' in out[-1]
    assert b'"partial_json"' in writer.write(CallDelta(1, arguments="{}"))


def test_interleaved_calls_are_put_one_after_the_other() -> None:
    steps = (
        CallDelta(0, "a", "add"),
        CallDelta(1, "b", "weather"),
        CallDelta(0, arguments='{"a"'),
        CallDelta(1, arguments='{"city"'),
        CallDelta(0, arguments=":1}"),
        CallDelta(1, arguments=':"Rome"}'),
        Finished("tool_calls"),
    )
    assert message(*steps)["content"] == [call("a", "add", {"a": 1}), call("b", "weather", {"city": "Rome"})]
    assert message(*steps)["stop_reason"] == "tool_use"


def test_waiting_call_goes_out_as_soon_as_the_one_before_is_whole() -> None:
    writer = MessagesWriter()
    for step in (START, CallDelta(0, "a", "x"), CallDelta(1, "b", "y", '{"b":1}')):
        writer.write(step)
    assert b'"id":"b"' not in writer.write(CallDelta(0, arguments='{"a":{}'))
    assert b'"id":"b"' in writer.write(CallDelta(0, arguments="} "))


def test_text_behind_a_call_that_is_not_whole_waits_for_it() -> None:
    blocks = content(CallDelta(0, "a", "x", "{"), TextDelta("late"), CallDelta(0, arguments="}"), TextDelta("r"))
    assert blocks == [call("a", "x", {}), text("later")]


def test_arguments_behind_a_whole_call_are_dropped() -> None:
    assert content(CallDelta(0, "a", "x", "{}"), TextDelta("t"), CallDelta(0, arguments="\n")) == [
        call("a", "x", {}),
        text("t"),
    ]


def test_broken_arguments_are_passed_on_as_they_came() -> None:
    stream = write(CallDelta(0, "a", "x", '{"cut":'), Finished("length"))
    deltas = [event["delta"] for event in events(stream) if event["type"] == "content_block_delta"]
    assert deltas == [{"type": "input_json_delta", "partial_json": '{"cut":'}]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "end_turn"),
        ([Finished("stop")], "end_turn"),
        ([Finished("stop", "END")], "stop_sequence"),
        ([Finished("length")], "max_tokens"),
        ([Finished("content_filter")], "refusal"),
        ([CallDelta(0, "a", "x")], "tool_use"),
        ([CallDelta(0, "a", "x"), Finished("stop")], "tool_use"),
        ([CallDelta(0, "a", "x"), Finished("length")], "max_tokens"),
    ],
)
def test_reason_is_the_one_told_or_the_one_that_shows(steps: list[Delta], reason: str) -> None:
    stream = write(*steps)
    assert [event["delta"]["stop_reason"] for event in events(stream) if event["type"] == "message_delta"] == [reason]


def test_usage_is_the_latest_told_without_the_cache() -> None:
    told = Usage(10_020, 100, 6000, 4000, 30)
    assert message(Used(Usage(1, 1)), Finished("stop"), Used(told))["usage"] == {
        "input_tokens": 20,
        "cache_creation_input_tokens": 4000,
        "cache_read_input_tokens": 6000,
        "output_tokens": 100,
        "output_tokens_details": {"thinking_tokens": 30},
    }
    assert message()["usage"] == {"input_tokens": 10, "output_tokens": 0}


def test_stream_starts_once_whatever_comes_first() -> None:
    writer = MessagesWriter()
    stream = writer.write(TextDelta("a")) + writer.write(START) + writer.write(START) + writer.end()
    assert message_of(stream)["content"] == [text("a")]
    assert message_of(MessagesWriter().end())["content"] == []
    unopened = MessagesWriter()
    assert unopened.write(Used(Usage(5, 1))) == b""
    assert message_of(unopened.end())["usage"]["input_tokens"] == 5


WORDS = st.text(min_size=1, max_size=4)
STEPS = st.lists(
    st.builds(TextDelta, WORDS)
    | st.builds(ThinkingDelta, WORDS)
    | st.builds(ThinkingDelta, signature=WORDS)
    | st.builds(ThinkingDelta, redacted=WORDS)
    | st.tuples(st.integers(0, 3), st.sampled_from(['{"a":', "1", "}", '{"b":"}"}', " "])),
    max_size=20,
)


@given(STEPS)
def test_any_row_of_steps_obeys_the_protocol_and_keeps_every_word(steps: list[Any]) -> None:
    texts, calls, deltas = "", dict[int, str](), list[Delta]()
    for step in steps:
        if isinstance(step, tuple):
            index, arguments = step
            opened = {} if index in calls else {"id": f"t{index}", "name": "f"}
            calls[index] = calls.get(index, "") + arguments
            deltas.append(CallDelta(index, arguments=arguments, **opened))
            continue
        texts += step.text if isinstance(step, TextDelta) else ""
        deltas.append(step)
    stream = write(*deltas)
    found = events(stream)
    assert "".join(_pieces(found, "text")) == texts
    opened_ids = [event["content_block"]["id"] for event in found if "id" in event.get("content_block", {})]
    assert sorted(opened_ids) == sorted(f"t{index}" for index in calls)
    if all(_is_object(arguments) for arguments in calls.values()):
        inputs = {block["id"]: block["input"] for block in message_of(stream)["content"] if "id" in block}
        assert inputs == {f"t{index}": json.loads(arguments) for index, arguments in calls.items()}


def _pieces(found: list[dict[str, Any]], name: str) -> list[str]:
    return [event["delta"][name] for event in found if name in event.get("delta", {})]


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("recording", recorded(is_whole_stream))
def test_recorded_stream_survives_the_way_there_and_back(recording: Recording) -> None:
    reader, writer = MessagesDeltas(), MessagesWriter()
    stream = b"".join(writer.write(step) for frame in frames(recording.body) for step in reader.read(frame))
    there, back = message_of(recording.body), message_of(stream + writer.end())
    assert _meaning(back) == _meaning(there)


def _meaning(whole: dict[str, Any]) -> dict[str, Any]:
    """Return what must survive: neighbouring texts are one, citations have no neutral step."""
    blocks: list[dict[str, Any]] = []
    for block in whole["content"]:
        kept = {name: value for name, value in block.items() if name not in {"citations", "caller"}}
        if blocks and kept["type"] == blocks[-1]["type"] == "text":
            blocks[-1]["text"] += kept["text"]
        else:
            blocks.append(kept)
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return {
        "content": blocks,
        **{name: whole[name] for name in ("id", "model", "stop_reason", "stop_sequence")},
        **{name: whole["usage"].get(name) for name in names},
    }
