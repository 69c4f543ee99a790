"""An upstream's stream as steps of the neutral form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.responses_wire import frames, is_response_stream
from tests.recordings import Recording, recorded

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
from lumen_gateway.dialects.responses_deltas import ResponsesDeltas
from lumen_gateway.records import Usage

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}


def event(kind: str, index: int = 0, **fields: Any) -> bytes:
    payload = {"type": f"response.{kind}", "output_index": index, **fields}
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def steps(*pieces: bytes, **names: str) -> list[Delta]:
    reader = ResponsesDeltas(names)
    return [delta for frame in frames(b"".join(pieces)) for delta in reader.read(frame)]


def test_stream_begins_with_its_names_and_ends_with_its_usage() -> None:
    response = {"id": "r", "model": "m", "status": "completed", "usage": {"input_tokens": 1, "output_tokens": 2}}
    assert steps(event("created", response=response), event("completed", response=response)) == [
        Start("r", "m"),
        Finished("stop"),
        Used(Usage(1, 2, origin="reported")),
    ]


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("output_text.delta", TextDelta("x")),
        ("refusal.delta", RefusalDelta("x")),
        ("reasoning_text.delta", ThinkingDelta("x")),
        ("reasoning_summary_text.delta", ThinkingDelta("x")),
    ],
)
def test_piece_is_a_step(kind: str, step: Delta) -> None:
    assert steps(event(kind, delta="x")) == [step]
    assert steps(event(kind, delta="")) == []


def test_parts_of_a_summary_are_paragraphs() -> None:
    first, second = (event("reasoning_summary_part.added", summary_index=index) for index in (0, 1))
    assert steps(first, second) == [ThinkingDelta("\n\n")]


def test_calls_are_numbered_in_the_order_they_open_and_named_as_the_client_did() -> None:
    told = steps(
        event("output_item.added", 3, item=CALL),
        event("output_item.added", 5, item=CALL | {"call_id": "d"}),
        event("function_call_arguments.delta", 5, delta="{}"),
        event("function_call_arguments.delta", 3, delta="{"),
        event("function_call_arguments.delta", 9, delta="lost"),
        event("output_item.done", 5, item=CALL | {"arguments": "{}"}),
        f="long",
    )
    assert told == [
        CallDelta(0, "c", "long"),
        CallDelta(1, "d", "long"),
        CallDelta(1, arguments="{}"),
        CallDelta(0, arguments="{"),
    ]


def test_what_came_whole_is_told_when_it_is_done() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "y"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "z"}]}
    assert steps(
        event("output_item.done", 0, item=said),
        event("output_item.done", 1, item=thought),
        event("output_item.added", 2, item=CALL),
        event("output_item.done", 2, item=CALL),
        event("output_item.done", 3, item=CALL | {"arguments": "[]"}),
        event("output_item.done", 4, item={"type": "novelty"}),
        event("output_item.done", 5, item={"type": "message", "content": 3}),
    ) == [
        TextDelta("x"),
        RefusalDelta("y"),
        ThinkingDelta("z"),
        CallDelta(0, "c", "f"),
        CallDelta(0, arguments="{}"),
        CallDelta(1, "c", "f", "[]"),
        NativeDelta("responses", Raw(b'{"type": "novelty"}')),
    ]


def test_incomplete_answer_ends_for_its_reason() -> None:
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert steps(event("incomplete", response=response)) == [Finished("length")]


def test_errors_and_what_is_no_event_are_no_steps() -> None:
    assert steps(b"data: [DONE]\n\n", b'data: {"type":"error","message":"x"}\n\n', event("queued")) == []


@pytest.mark.parametrize("recording", recorded(is_response_stream))
def test_recorded_streams_keep_their_meaning(recording: Recording) -> None:
    told = steps(recording.body)
    payloads = [json.loads(frame.data) for frame in frames(recording.body) if frame.data and frame.data != b"[DONE]"]
    output = payloads[-1]["response"]["output"]
    texts = [part.get("text", "") for item in output if item["type"] == "message" for part in item["content"]]
    assert "".join(step.text for step in told if isinstance(step, TextDelta)) == "".join(texts)
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    assert [step.id for step in told if isinstance(step, CallDelta) and step.id] == calls
    assert isinstance(told[-1], Used)
