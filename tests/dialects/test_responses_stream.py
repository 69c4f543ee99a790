"""Streams: what each event does to the state, what is forwarded, and that a relay changes no byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.responses_wire import frames, is_response_stream
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.responses_stream import ResponsesStream
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def added(kind: str, **fields: Any) -> bytes:
    return event("response.output_item.added", output_index=0, item={"type": kind, **fields})


def ended(status: str = "completed", **fields: Any) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 2}
    response = {"id": "r", "status": status, "output": [], "usage": usage, **fields}
    return event(f"response.{status}", response=response)


START = event("response.created", sequence_number=0, response={"id": "r", "model": "m", "status": "in_progress"})
TEXT = event("response.output_text.delta", sequence_number=5, delta="hi")


def read(*pieces: bytes) -> tuple[ResponsesStream, bytes]:
    """Return the reader after the whole stream, and what it forwarded."""
    reader = ResponsesStream()
    return reader, b"".join(reader.read(frame) or b"" for frame in frames(b"".join(pieces)))


def test_stream_is_relayed_and_read_along() -> None:
    whole = START + added("message") + TEXT + TEXT + ended()
    reader, forwarded = read(whole)
    assert forwarded == whole
    assert (reader.done, reader.finished, reader.output, reader.output_frames) == (True, True, True, 2)
    assert reader.finish_reasons == ("stop",)
    assert reader.usage == Usage(3, 2, origin="reported")
    assert json.loads(reader.opening) == {"id": "r", "model": "m"}
    assert reader.end() == b""
    assert reader.read_block(TEXT) is None


def test_nothing_is_output_before_a_model_says_something() -> None:
    reader, _ = read(START, event("response.in_progress"), added("message"), added("reasoning"))
    assert not reader.output
    assert reader.usage is None
    assert reader.finish_reasons == ()


@pytest.mark.parametrize(
    "piece",
    [
        TEXT,
        event("response.refusal.delta", delta="no"),
        event("response.reasoning_summary_text.delta", delta="hm"),
        event("response.novelty.delta", delta={"x": 1}),
        added("function_call"),
        event("response.output_item.done", item={"type": "reasoning", "encrypted_content": "x"}),
        ended(output=[{"type": "message", "content": [{"type": "output_text", "text": "all"}]}]),
    ],
)
def test_what_a_model_says_is_output(piece: bytes) -> None:
    assert read(START, piece)[0].output


def test_nothing_after_the_last_event_is_forwarded() -> None:
    assert read(ended(), b"data: [DONE]\n\n", TEXT)[1] == ended()


def test_stream_that_says_nothing_is_empty() -> None:
    assert read(START, ended())[0].empty
    assert not read(START)[0].empty


def test_content_filter_without_output_is_told() -> None:
    reader, _ = read(START, ended("incomplete", incomplete_details={"reason": "content_filter"}))
    assert reader.filtered
    assert not reader.empty


def test_failed_response_is_an_error_shown_once() -> None:
    failed = ended("failed", error={"code": "server_error", "message": "x"})
    reader, forwarded = read(START, failed)
    assert forwarded == START + failed
    assert reader.error is not None
    assert json.loads(reader.error) == {"error": {"code": "server_error", "message": "x"}}
    assert (reader.error_shown, reader.done) == (True, False)
    assert reader.usage == Usage(3, 2, origin="reported")


@pytest.mark.parametrize(
    "fields",
    [{"code": "rate_limit_exceeded", "message": "x"}, {"error": {"code": "rate_limit_exceeded", "message": "x"}}],
)
def test_error_event_is_one_in_either_form(fields: dict[str, Any]) -> None:
    reader, forwarded = read(event("error", **fields))
    assert forwarded == event("error", **fields)
    assert reader.error is not None
    assert json.loads(reader.error)["error"] == {"code": "rate_limit_exceeded", "message": "x"}


@pytest.mark.parametrize("data", [b'{"error":{"message":"x"}}', b'event: error\ndata: {"delta":3,"type":1}'])
def test_error_in_another_form_is_shown_in_one_that_clients_see(data: bytes) -> None:
    reader, forwarded = read((data if data.startswith(b"event") else b"data: " + data) + b"\n\n")
    assert reader.error is not None
    assert forwarded.startswith(b"event: error\n")


def test_frame_that_is_not_json_is_dropped_and_counted() -> None:
    reader, forwarded = read(b"data: {oops\n\n", TEXT)
    assert (reader.dropped, forwarded) == (1, TEXT)


@pytest.mark.parametrize("odd", [b": ping\n\n", b"data: 3\n\n", b'data: {"type":7}\n\n'])
def test_what_is_no_event_goes_on_as_it_came(odd: bytes) -> None:
    assert read(odd)[1] == odd


def test_broken_error_is_an_error_all_the_same() -> None:
    assert read(b"event: error\ndata: oops\n\n")[0].error == b"oops"


def test_next_number_follows_the_last() -> None:
    assert read(START)[0].sequence == 1
    assert read(START, TEXT)[0].sequence == 6


@pytest.mark.parametrize("recording", recorded(is_response_stream))
def test_recorded_stream_is_read_the_same_byte_by_byte(recording: Recording) -> None:
    reader, forwarded = read(recording.body)
    slow, splitter, out = ResponsesStream(), Splitter(1 << 24), b""
    for index in range(len(recording.body)):
        out += b"".join(slow.read(frame) or b"" for frame in splitter.feed(recording.body[index : index + 1]))
    last = splitter.end()
    out += b"" if last is None else slow.read(last) or b""
    assert out == forwarded
    assert (slow.usage, slow.output_frames, slow.sequence) == (reader.usage, reader.output_frames, reader.sequence)
    assert reader.done
    assert reader.output
    assert reader.usage is not None
    assert recording.body.startswith(forwarded) or recording.body.startswith(b":")
