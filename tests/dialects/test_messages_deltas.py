"""Reading a stream: every event as the neutral step it is, however the upstream numbers its blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.anthropic_wire import frames, is_whole_stream, message_of
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.messages_deltas import MessagesDeltas
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


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def opening(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def closing(index: int) -> bytes:
    return event("content_block_stop", index=index)


def stopping(reason: str | None, **fields: Any) -> bytes:
    return event("message_delta", delta={"stop_reason": reason, **fields}, usage={"output_tokens": 5})


START = event("message_start", message={"id": "msg_1", "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}})


def read(*pieces: bytes) -> list[Delta]:
    reader = MessagesDeltas()
    return [step for frame in frames(b"".join(pieces)) for step in reader.read(frame)]


def test_start_tells_names_and_input() -> None:
    assert read(START) == [Start("msg_1", "m", Usage(10, 1, origin="reported"))]
    assert read(event("message_start", message={"id": 5})) == [Start("", "")]
    assert read(event("message_start")) == [Start("", "")]


def test_text_and_thinking_come_piece_by_piece() -> None:
    steps = read(
        opening(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="s"),
        closing(0),
        opening(1, "redacted_thinking", data="x"),
        closing(1),
        opening(2, "text", text=""),
        delta(2, "text_delta", text="a"),
        delta(2, "text_delta", text=""),
        closing(2),
    )
    assert steps == [ThinkingDelta("hm"), ThinkingDelta(signature="s"), ThinkingDelta(redacted="x"), TextDelta("a")]


def test_what_comes_with_the_opening_of_a_block_is_not_lost() -> None:
    steps = read(opening(0, "text", text="all"), opening(1, "thinking", thinking="hm", signature="s"))
    assert steps == [TextDelta("all"), ThinkingDelta("hm", "s")]


def test_calls_are_numbered_by_order_not_by_block() -> None:
    steps = read(
        opening(0, "text", text=""),
        opening(1, "tool_use", id="t1", name="add", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(1, "input_json_delta", partial_json='{"a"'),
        delta(1, "input_json_delta", partial_json=":1}"),
        closing(1),
        opening(7, "tool_use", id="t2", name="now", input={}),
        closing(7),
    )
    assert steps == [
        CallDelta(0, "t1", "add"),
        CallDelta(0, arguments='{"a"'),
        CallDelta(0, arguments=":1}"),
        CallDelta(1, "t2", "now"),
        CallDelta(1, arguments="{}"),
    ]


def test_call_that_opens_with_its_arguments_keeps_them() -> None:
    steps = read(opening(0, "tool_use", id="t", name="add", input={"a": 1}), closing(0))
    assert steps == [CallDelta(0, "t", "add"), CallDelta(0, arguments='{"a": 1}')]


def test_interleaved_calls_keep_their_arguments_apart() -> None:
    steps = read(
        opening(0, "tool_use", id="a", name="x"),
        opening(1, "tool_use", id="b", name="y"),
        delta(1, "input_json_delta", partial_json='{"b":1}'),
        delta(0, "input_json_delta", partial_json='{"a":1}'),
    )
    assert steps[2:] == [CallDelta(1, arguments='{"b":1}'), CallDelta(0, arguments='{"a":1}')]


def test_block_only_this_dialect_has_comes_whole() -> None:
    call = {"type": "server_tool_use", "id": "s", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    steps = read(
        opening(0, kind="server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":'),
        delta(0, "input_json_delta", partial_json='"x"}'),
        closing(0),
        opening(1, kind="web_search_tool_result", tool_use_id="s", content=[]),
        closing(1),
    )
    blocks = [json.loads(bytes(step.block)) for step in steps if isinstance(step, NativeDelta)]
    assert blocks == [call | {"input": {"query": "x"}}, result]
    assert len(steps) == 2


def test_end_tells_why_and_what_it_used() -> None:
    assert read(START, stopping("stop_sequence", stop_sequence="END"))[1:] == [
        Finished("stop", "END"),
        Used(Usage(10, 5, origin="reported")),
    ]
    assert read(event("message_delta", delta={"stop_reason": None})) == []


def test_refusal_is_explained() -> None:
    steps = read(stopping("refusal", stop_details={"type": "refusal", "explanation": "no"}))
    assert steps[:2] == [RefusalDelta("no"), Finished("refusal")]


@pytest.mark.parametrize(
    "piece",
    [
        event("ping"),
        b": comment\n\n",
        event("message_stop"),
        event("an event of next year"),
        event("error", error={}),
        b"data: {\n\n",
        b"data: 5\n\n",
        closing(3),
        delta(0, "citations_delta", citation={}),
        delta(0, "text_delta", text=5),
        delta(3, "input_json_delta", partial_json="{}"),
        event("content_block_delta", index=0),
        opening(0, "text", text=5),
    ],
)
def test_what_says_nothing_brings_nothing(piece: bytes) -> None:
    assert read(piece) == []


def test_nothing_is_read_after_the_end() -> None:
    assert read(event("message_stop"), delta(0, "text_delta", text="late")) == []


def test_state_is_that_of_the_pass_through_reader() -> None:
    reader = MessagesDeltas()
    for frame in frames(START + delta(0, "text_delta", text="a") + stopping("end_turn") + event("message_stop")):
        reader.read(frame)
    assert (reader.state.output, reader.state.done, reader.state.finish_reasons) == (True, True, ("stop",))


@pytest.mark.parametrize("recording", recorded(is_whole_stream))
def test_recorded_stream_says_what_it_adds_up_to(recording: Recording) -> None:
    steps = read(recording.body)
    message = message_of(recording.body)
    blocks = message["content"]
    assert isinstance(steps[0], Start)
    assert (steps[0].id, steps[0].model) == (message["id"], message["model"])
    texts = "".join(step.text for step in steps if isinstance(step, TextDelta))
    assert texts == "".join(block["text"] for block in blocks if block["type"] == "text")
    arguments: dict[int, str] = {}
    for step in steps:
        if isinstance(step, CallDelta):
            arguments[step.index] = arguments.get(step.index, "") + step.arguments
    calls = [block["input"] for block in blocks if block["type"] == "tool_use"]
    assert [json.loads(text) for text in arguments.values()] == calls
    natives = [bytes(step.block) for step in steps if isinstance(step, NativeDelta)]
    known = {"text", "thinking", "redacted_thinking", "tool_use"}
    assert list(map(json.loads, natives)) == [block for block in blocks if block["type"] not in known]
    assert isinstance(steps[-1], Used)


def test_raw_block_is_not_touched_where_nothing_was_added() -> None:
    block = b'{"type":"odd",  "x":1.0}'
    piece = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":' + block
    assert read(piece + b"}\n\n", closing(0)) == [NativeDelta("messages", Raw(block))]
