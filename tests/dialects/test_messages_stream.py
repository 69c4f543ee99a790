"""Streams: what each frame does to the state, what is forwarded, and that a relay changes no byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.anthropic_wire import frames, is_message_stream, is_whole_stream
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.messages_stream import MessagesStream
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=0, delta={"type": kind, **fields})


def opening(kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=0, content_block={"type": kind, **fields})


def stopping(reason: str | None, **usage: Any) -> bytes:
    return event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)


START = event("message_start", message={"id": "msg_1", "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}})
TEXT = delta("text_delta", text="hello")
CLOSE = event("content_block_stop", index=0)
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
STOP = event("message_stop")
WHOLE = START + opening("text", text="") + PING + TEXT + TEXT + CLOSE + stopping("end_turn", output_tokens=5) + STOP


def read(*pieces: bytes) -> tuple[MessagesStream, bytes]:
    """Return the reader after the whole stream, and what it forwarded."""
    reader = MessagesStream()
    forwarded = [reader.read(frame) for frame in frames(b"".join(pieces))]
    return reader, b"".join(piece for piece in forwarded if piece is not None)


def read_in_blocks(stream: bytes, cuts: list[int]) -> tuple[MessagesStream, bytes]:
    """The same through `read_block`, as an executor reads chunks."""
    reader, splitter, out = MessagesStream(), Splitter(1 << 24), b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        block, rest = splitter.whole(stream[start:end])
        forward = reader.read_block(block) if block else None
        if forward is not None:
            splitter.skip_to(rest)
            out += forward
            continue
        out += b"".join(reader.read(frame) or b"" for frame in splitter.feed(stream[start:end]))
    last = splitter.end()
    return reader, out if last is None else out + (reader.read(last) or b"")


def state_of(reader: MessagesStream) -> tuple[object, ...]:
    return (
        reader.output,
        reader.output_frames,
        reader.error,
        reader.error_shown,
        reader.done,
        reader.finished,
        reader.finish_reasons,
        reader.dropped,
        reader.usage,
        reader.filtered,
        reader.empty,
        reader.opening,
    )


def test_ordinary_stream_is_forwarded_as_it_came() -> None:
    reader, forwarded = read(b": hi\n\n", WHOLE)
    assert forwarded == b": hi\n\n" + WHOLE
    assert (reader.output, reader.output_frames, reader.done, reader.finished) == (True, 2, True, True)
    assert reader.finish_reasons == ("stop",)
    assert reader.usage == Usage(10, 5, origin="reported")
    assert json.loads(reader.opening)["message"]["id"] == "msg_1"


@pytest.mark.parametrize(
    "piece",
    [
        TEXT,
        delta("thinking_delta", thinking="hm"),
        delta("signature_delta", signature="c2ln"),
        delta("input_json_delta", partial_json="{"),
        delta("citations_delta", citation={}),
        delta("a delta of next year"),
        opening("tool_use", id="t", name="n", input={}),
        opening("server_tool_use", id="t", name="n", input={}),
        opening("redacted_thinking", data="x"),
        opening("text", text="all at once"),
        opening("thinking", thinking="hm"),
    ],
)
def test_each_kind_of_output_is_output(piece: bytes) -> None:
    assert read(START, piece)[0].output


@pytest.mark.parametrize(
    "piece",
    [
        START,
        PING,
        b": keep-alive\n\n",
        opening("text", text=""),
        opening("thinking", thinking="", signature=""),
        delta("text_delta", text=""),
        delta("input_json_delta", partial_json=""),
        event("content_block_delta", index=0),
        event("content_block_start", index=0),
        event("content_block_start", index=0, content_block=5),
        CLOSE,
        stopping("end_turn"),
        event("an event of next year"),
        event("message_start"),
    ],
)
def test_what_precedes_an_answer_is_no_output_and_goes_on(piece: bytes) -> None:
    reader, forwarded = read(piece)
    assert not reader.output
    assert forwarded == piece


@pytest.mark.parametrize(
    "piece",
    [
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
        b'event: error\ndata: {"error":"text"}\n\n',
        b'event: error\ndata: ["odd"]\n\n',
        b"event: error\ndata: upstream died\n\n",
        b'event: error\ndata: {"type":5}\n\n',
    ],
)
def test_error_event_is_found_and_forwarded_once(piece: bytes) -> None:
    reader, forwarded = read(START, piece)
    assert reader.error == frames(piece)[0].data
    assert reader.error_shown
    assert forwarded == START + piece
    assert not reader.finished


@pytest.mark.parametrize(
    "piece",
    [
        b'data: {"type":"error","error":{}}\n\n',
        b'data: {"error":{"code":500}}\n\n',
        b'event: message_delta\ndata: {"type":5,"error":"x"}\n\n',
        b'error: {"message":"x"}\n\n',
    ],
)
def test_error_in_a_form_no_sdk_sees_is_given_the_form_they_see(piece: bytes) -> None:
    reader, forwarded = read(piece)
    data = frames(piece)[0].data
    assert data is not None
    assert forwarded == b"event: error\ndata: " + data + b"\n\n"
    assert (reader.error, reader.error_shown) == (data, True)


def test_first_error_is_the_one_that_counts() -> None:
    assert read(event("error", error={"type": "a"}), event("error", error={"type": "b"}))[0].error == (
        b'{"type": "error", "error": {"type": "a"}}'
    )


@pytest.mark.parametrize("data", [b'{"type":"content_block_de', b"{", b"[DONE]", b"", b"\xff", b"[" * 5000])
def test_frame_that_is_not_json_is_withheld_and_counted(data: bytes) -> None:
    reader, forwarded = read(START, b"event: content_block_delta\ndata: " + data + b"\n\n", TEXT)
    assert (reader.dropped, reader.output_frames) == (1, 1)
    assert forwarded == START + TEXT


@pytest.mark.parametrize("data", [b"5", b'"x"', b"[]", b'{"type":5}', b'{"index":"x"}', b'{"delta":[]}'])
def test_json_that_is_no_event_is_the_clients_to_judge(data: bytes) -> None:
    piece = b"data: " + data + b"\n\n"
    reader, forwarded = read(piece)
    assert forwarded == piece
    assert (reader.output, reader.error, reader.dropped, reader.event) == (False, None, 0, None)


def test_nothing_is_read_or_forwarded_after_the_end() -> None:
    reader, forwarded = read(WHOLE, TEXT, PING, event("error", error={}))
    assert forwarded == WHOLE
    assert (reader.error, reader.output_frames) == (None, 2)


def test_stop_reason_alone_finishes_but_is_not_the_end() -> None:
    reader, _ = read(START, TEXT, stopping("tool_use", output_tokens=3))
    assert (reader.finished, reader.done, reader.finish_reasons) == (True, False, ("tool_calls",))
    reader, _ = read(START, TEXT, stopping(None))
    assert (reader.finished, reader.finish_reasons) == (False, ())


def test_stream_without_output_is_filtered_empty_or_neither() -> None:
    verdicts = {reason: read(START, stopping(reason), STOP)[0] for reason in ("end_turn", "refusal", "max_tokens")}
    assert {reason: (reader.filtered, reader.empty) for reason, reader in verdicts.items()} == {
        "end_turn": (False, True),
        "refusal": (True, False),
        "max_tokens": (False, False),
    }
    assert read(START, STOP)[0].empty
    assert not read(START)[0].empty
    refused = read(START, TEXT, stopping("refusal"))[0]
    assert not refused.filtered


def test_usage_is_put_together_from_both_ends() -> None:
    cached = event("message_start", message={"usage": {"input_tokens": 11, "cache_read_input_tokens": 1000}})
    reader, _ = read(cached, TEXT, stopping("end_turn", output_tokens=100))
    assert reader.usage == Usage(1011, 100, 1000, origin="reported")


def test_usage_told_only_at_the_end_counts() -> None:
    start = event("message_start", message={"usage": {"input_tokens": 0, "output_tokens": 0}})
    told = {"input_tokens": 4522, "cache_creation_input_tokens": 4511, "output_tokens": 5}
    reader, _ = read(start, TEXT, stopping("end_turn", **told))
    assert reader.usage == Usage(9033, 5, None, 4511, origin="reported")


def test_cut_stream_is_booked_by_its_frames() -> None:
    assert read(START)[0].usage == Usage(10, 1, origin="reported")
    assert read(START, TEXT, TEXT, TEXT)[0].usage == Usage(10, 3, origin="estimated")
    assert read(TEXT)[0].usage is None


def test_row_of_pieces_is_taken_at_once() -> None:
    reader = MessagesStream()
    assert reader.read_block(TEXT * 3) == TEXT * 3
    assert (reader.output, reader.output_frames) == (True, 3)


@pytest.mark.parametrize(
    "block",
    [
        TEXT + PING,
        PING + TEXT,
        TEXT + CLOSE,
        TEXT + stopping("end_turn"),
        TEXT + TEXT[:-3] + b"\n\n",
        TEXT + b": comment\n\n",
        TEXT[:-1] + b"data: {}\n\n",
        TEXT[:-1] + b"id: 5\n\n" + TEXT,
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}, error={"type": "x"}),
        event("content_block_delta", index=0),
        b'event: content_block_delta\ndata: {"type":"error"}\n\n',
        b'event: content_block_delta\ndata: {"type":5}\n\n',
    ],
)
def test_block_with_anything_else_in_it_is_left_to_be_read_frame_by_frame(block: bytes) -> None:
    reader = MessagesStream()
    before = state_of(reader)
    assert reader.read_block(block) is None
    assert state_of(reader) == before


def test_no_block_is_taken_after_an_error_or_the_end() -> None:
    for ending in (STOP, event("error", error={})):
        reader, _ = read(START, ending)
        assert reader.read_block(TEXT) is None


PIECES = st.sampled_from(
    [
        START, TEXT, PING, CLOSE, STOP, opening("text", text=""), opening("tool_use", id="t", name="n", input={}),
        delta("input_json_delta", partial_json='{"a":"b\\n"}'), delta("text_delta", text="\u2028é"),
        stopping("end_turn"), b": c\n\n", b"data: {\n\n", b"\n", b"data: 5\n\n", event("error", error={}),
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12), st.data())
def test_any_stream_reads_the_same_however_it_is_cut(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=4)))
    whole, forwarded = read(stream)
    cut, forwarded_cut = read_in_blocks(stream, cuts)
    if whole.error is None:  # an executor reads no further than an error
        assert (state_of(whole), forwarded) == (state_of(cut), forwarded_cut)


@pytest.mark.parametrize("recording", recorded(is_message_stream))
def test_recorded_stream_passes_unchanged(recording: Recording) -> None:
    reader, forwarded = read(recording.body)
    assert forwarded == recording.body
    assert reader.dropped == 0
    assert (reader.error is not None) is ("in_stream_error" in recording.features)


@pytest.mark.parametrize("recording", recorded(is_whole_stream))
def test_recorded_stream_ends_well(recording: Recording) -> None:
    reader, _ = read(recording.body)
    assert (reader.output, reader.done, reader.finished) == (True, True, True)
    assert reader.usage is not None
    assert reader.usage.origin == "reported"


@pytest.mark.parametrize("recording", recorded(is_message_stream))
def test_recorded_stream_reads_the_same_byte_by_byte(recording: Recording) -> None:
    whole, forwarded = read(recording.body)
    for step in (1, 1000):
        cut, forwarded_cut = read_in_blocks(recording.body, list(range(step, len(recording.body), step)))
        assert (state_of(cut), forwarded_cut) == (state_of(whole), forwarded)
