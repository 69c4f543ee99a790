"""Streams: every event as the steps it brings, and what the executor asks of the stream meanwhile."""

from __future__ import annotations

import json

import pytest
from tests.dialects.chat_protocol import faults_of_stream
from tests.dialects.gemini_wire import body, frames, is_stream
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.chat_writer import ChatWriter
from lumen_gateway.dialects.gemini_stream import GeminiDeltas
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    NativeDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    Used,
)
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage

CALL = {"functionCall": {"name": "_s", "args": {}}, "thoughtSignature": "sig"}
COUNTS = {"promptTokenCount": 5, "candidatesTokenCount": 2}


def read(reader: GeminiDeltas, *payloads: bytes) -> list[Delta]:
    return [step for frame in frames(*payloads) for step in reader.read(frame)]


def test_pieces_are_told_in_their_order_and_calls_counted_over_the_stream() -> None:
    reader = GeminiDeltas({"_s": "1 s"})
    steps = read(
        reader,
        body({"text": "hm", "thought": True}, reason=None),
        body({"text": "yes"}, CALL, reason=None),
        body({"text": ""}, CALL, {"executableCode": {}}, usageMetadata=COUNTS),
    )
    block = steps[5]
    assert isinstance(block, NativeDelta)
    assert steps[:5] == [
        Start("r1", "gem"),
        ThinkingDelta("hm"),
        TextDelta("yes"),
        CallDelta(0, "call_r1_0", "1 s", "{}", "sig"),
        CallDelta(1, "call_r1_1", "1 s", "{}", "sig"),
    ]
    assert steps[6:] == [Finished("tool_calls"), Used(Usage(5, 2, origin="reported"))]
    state = reader.state
    assert (state.output, state.output_frames, state.finish_reasons) == (True, 3, ("tool_calls",))
    assert (state.finished, state.done, state.filtered, state.empty) == (True, False, False, False)


def test_behind_the_end_only_usage_is_read() -> None:
    reader = GeminiDeltas()
    read(reader, body({"text": "x"}))
    assert read(reader, body({"text": "y"}, usageMetadata=COUNTS)) == [Used(Usage(5, 2, origin="reported"))]
    assert reader.state.output_frames == 1


def test_usage_of_a_stream_that_goes_on_is_known_but_not_told() -> None:
    reader = GeminiDeltas()
    steps = read(reader, body({"text": "x"}, reason=None, usageMetadata=COUNTS))
    assert steps == [Start("r1", "gem", Usage(5, 2, origin="reported")), TextDelta("x")]
    assert reader.state.usage == Usage(5, 2, origin="reported")
    assert not reader.state.finished


def test_blocked_prompt_ends_filtered() -> None:
    reader = GeminiDeltas()
    steps = read(reader, b'{"promptFeedback":{"blockReason":"SAFETY"},"responseId":"r2"}')
    assert steps == [Start("r2", ""), Finished("content_filter")]
    assert reader.state.filtered


def test_end_without_output_is_empty() -> None:
    reader = GeminiDeltas()
    read(reader, body())
    assert reader.state.empty


@pytest.mark.parametrize(
    "payload",
    [b'{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}', body(reason="MALFORMED_FUNCTION_CALL")],
)
def test_error_and_model_that_gave_up_end_the_reading(payload: bytes) -> None:
    reader = GeminiDeltas()
    read(reader, body({"text": "x"}, reason=None), payload)
    assert reader.state.error is not None
    assert not reader.state.finished
    assert read(reader, body({"text": "y"})) == []


def test_stream_begins_with_its_first_sound_event() -> None:
    reader = GeminiDeltas()
    assert read(reader, b'{"candidates":[{"content":{"parts":[5]}}]}', body({"text": "x"}, reason=None)) == [
        Start("r1", "gem"),
        TextDelta("x"),
    ]


def test_frames_that_say_nothing_leave_the_stream_alone() -> None:
    reader = GeminiDeltas()
    assert read(reader, b"{broken", b"[1]", b'{"candidates":[{"content":{"parts":[5]}}]}') == []
    assert reader.state.dropped == 3
    assert [step for frame in Splitter(99).feed(b": hi\n\n") for step in reader.read(frame)] == []
    assert not reader.state.output


@pytest.mark.parametrize("step", [1, 4096])
@pytest.mark.parametrize("recording", recorded(is_stream))
def test_recorded_stream_is_a_whole_chat_stream_however_it_is_cut(recording: Recording, step: int) -> None:
    reader, writer, splitter = GeminiDeltas(), ChatWriter(0, include_usage=True), Splitter(1 << 24)
    steps: list[Delta] = []
    for start in range(0, len(recording.body), step):
        for frame in splitter.feed(recording.body[start : start + step]):
            steps += reader.read(frame)
    last = splitter.end()
    steps += [] if last is None else reader.read(last)
    assert faults_of_stream(b"".join(map(writer.write, steps)) + writer.end()) == []
    state = reader.state
    assert (state.error, state.dropped, state.finished) == (None, 0, True)
    wire = [json.loads(line[5:]) for line in recording.body.splitlines() if line.startswith(b"data:")]
    parts = [part for piece in wire for part in piece["candidates"][0].get("content", {}).get("parts", ())]
    said = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    assert "".join(delta.text for delta in steps if isinstance(delta, TextDelta)) == said
    assert state.usage is not None
    assert state.usage.input + state.usage.output == wire[-1]["usageMetadata"]["totalTokenCount"]
