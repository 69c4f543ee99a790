"""Streams: what each frame does to the state, what is forwarded, and that a relay changes no byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage

DONE = b"data: [DONE]\n\n"


def frame(delta: Any = None, finish: Any = None, *, index: Any = 0, **top: Any) -> bytes:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice], **top}).encode() + b"\n\n"


def bare(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


TEXT = frame({"content": "hello"})
STOP = frame(finish="stop")
USAGE = bare(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2})


def read(*pieces: bytes, repair: bool = False, include_usage: bool = False) -> tuple[ChatStream, bytes]:
    """Return the reader after the whole stream, and what it forwarded."""
    reader, splitter = ChatStream(repair=repair, include_usage=include_usage), Splitter(1 << 22)
    frames = [frame for piece in pieces for frame in splitter.feed(piece)]
    last = splitter.end()
    forwarded = [reader.read(frame) for frame in (frames if last is None else [*frames, last])]
    return reader, b"".join(piece for piece in forwarded if piece is not None)


def state_of(reader: ChatStream) -> tuple[object, ...]:
    return (
        reader.output,
        reader.output_frames,
        reader.error,
        reader.done,
        reader.finished,
        reader.finish_reasons,
        reader.dropped,
        reader.usage,
        reader.filtered,
        reader.empty,
    )


def test_ordinary_stream_is_forwarded_as_it_came() -> None:
    stream = frame({"role": "assistant", "content": ""}) + b": ping\n\n" + TEXT + TEXT + STOP + DONE
    reader, forwarded = read(stream)
    assert forwarded == stream
    assert (reader.output, reader.output_frames, reader.done, reader.finished, reader.error) == (
        True,
        2,
        True,
        True,
        None,
    )
    assert reader.finish_reasons == ("stop",)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"reasoning": "x"},
        {"reasoning_content": "x"},
        {"reasoning_details": [{"type": "reasoning.encrypted"}]},
        {"content": [{"type": "thinking"}]},
        {"tool_calls": [{"index": 0}]},
        {"function_call": {"name": "f"}},
        {"refusal": "no"},
        {"audio": {"id": "a"}},
    ],
)
def test_each_kind_of_output_is_output(delta: dict[str, Any]) -> None:
    assert read(frame(delta))[0].output


@pytest.mark.parametrize(
    "piece",
    [
        frame({"role": "assistant"}),
        frame({"role": "assistant", "content": "", "refusal": None, "tool_calls": []}),
        frame(finish="stop"),
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": None}]}).encode() + b"\n\n",
        b": keep-alive\n\n",
        b"event: ping\n\n",
        bare(choices=[], prompt_filter_results=[{}]),
        USAGE,
    ],
)
def test_what_precedes_an_answer_is_no_output(piece: bytes) -> None:
    assert not read(piece)[0].output


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (b'data: {"error":{"code":500}}\n\n', {"error": {"code": 500}}),
        (b'data: {"error":"text"}\n\n', {"error": "text"}),
        (b'event: error\ndata: {"message":"x"}\n\n', {"message": "x"}),
        (b'event: response.failed\ndata: {"response":{}}\n\n', {"response": {}}),
        (b'data: {"code":"c","error":"t","choices":5}\n\n', {"code": "c", "error": "t", "choices": 5}),
        (b'data: {"choices":[{"index":0,"delta":{"content":"x"},"error":{"code":1}}]}\n\n', {"error": {"code": 1}}),
    ],
)
def test_error_is_found_in_every_form_and_forwarded(piece: bytes, error: Any) -> None:
    reader, forwarded = read(piece)
    assert reader.error is not None
    assert json.loads(reader.error) == error
    assert forwarded == piece


def test_error_in_a_field_of_that_name_is_forwarded_where_clients_look() -> None:
    reader, forwarded = read(b'error: {"message":"data: x"}\n\n')
    assert reader.error == b'{"message":"data: x"}'
    assert forwarded == b'data: {"error":{"message":"data: x"}}\n\n'
    assert reader.error_shown


def test_error_in_a_field_of_that_name_is_wrapped_once() -> None:
    assert read(b'error: {"error":"x"}\n\n')[1] == b'data: {"error":"x"}\n\n'


@pytest.mark.parametrize(
    ("data", "shown"),
    [('{"error":{"message":"x"}}', True), ('{"message":"x"}', False), ('{"error":null}', False), ('"x"', False)],
)
def test_error_event_is_shown_to_clients_only_by_what_it_holds(data: str, shown: bool) -> None:
    piece = f"event: error\ndata: {data}\n\n".encode()
    reader, forwarded = read(piece)
    assert (reader.error, reader.error_shown) == (data.encode(), shown)
    assert forwarded == piece


@pytest.mark.parametrize("piece", [b"event: error\ndata: broken pipe\n\n", b"error: broken pipe\n\n"])
def test_error_event_that_is_no_json_is_an_error_and_withheld(piece: bytes) -> None:
    reader, forwarded = read(piece)
    assert (reader.error, reader.error_shown, reader.dropped) == (b"broken pipe", False, 1)
    assert forwarded == b""


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
def test_finish_reason_of_an_upstream_that_gave_up_is_an_error(finish: str) -> None:
    error = read(TEXT + frame(finish=finish) + DONE)[0].error
    assert error is not None
    assert json.loads(error)["error"]["code"] == finish


def test_first_error_is_kept() -> None:
    assert read(b'data: {"error":"one"}\n\ndata: {"error":"two"}\n\n')[0].error == b'{"error":"one"}'


def test_error_after_a_finish_reason_is_an_error() -> None:
    reader, _ = read(TEXT + frame(finish="length") + frame({"content": ""}, error={"code": 400}) + DONE)
    assert reader.finished
    assert reader.error is not None


@pytest.mark.parametrize("value", ["null", '""', "{}", "false"])
def test_empty_error_is_none(value: str) -> None:
    assert read(f'data: {{"choices":[],"error":{value}}}\n\n'.encode())[0].error is None


def test_text_that_speaks_of_errors_and_ends_is_text() -> None:
    reader, _ = read(frame({"content": 'data: [DONE]\n\n{"error":{"code":1},"usage":{"prompt_tokens":9}}'}))
    assert (reader.error, reader.done, reader.usage, reader.output) == (None, False, None, True)


def test_frames_that_are_not_json_are_dropped_and_counted() -> None:
    for broken in (
        b"data: {\n\n",
        b"data: \n\n",
        b"data: {'a':1}\n\n",
        b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n',
    ):
        reader, forwarded = read(TEXT + broken + STOP)
        assert (reader.dropped, forwarded) == (1, TEXT + STOP)
    reader, forwarded = read(b'data: {"choices":' + b"[" * 5000 + b"\n\n")
    assert (reader.dropped, forwarded) == (1, b"")


@pytest.mark.parametrize(
    "odd",
    [
        b"data: 1\n\n",
        b"data: []\n\n",
        b'data: {"choices":{}}\n\n',
        b'data: {"choices":[{"index":"a"}]}\n\n',
        b"data: {}\n\n",
    ],
)
def test_json_of_unknown_shape_goes_on(odd: bytes) -> None:
    reader, forwarded = read(odd + TEXT)
    assert (reader.dropped, reader.error, forwarded) == (0, None, odd + TEXT)


def test_nothing_after_done_is_read_or_forwarded() -> None:
    reader, forwarded = read(TEXT + STOP + DONE + TEXT + b'data: {"error":"late"}\n\n' + b": x\n\n" + DONE)
    assert forwarded == TEXT + STOP + DONE
    assert (reader.error, reader.output_frames) == (None, 1)


def test_done_is_known_with_space_around_it_and_only_alone() -> None:
    assert read(b"data:  [DONE] \n\n")[0].done
    assert not read(b"data: [DONE]x\n\n")[0].done
    assert not read(b'data: "[DONE]"\n\n')[0].done


def test_last_frame_without_blank_line_counts_and_is_completed() -> None:
    reader, forwarded = read(TEXT + STOP + DONE[:-2])
    assert reader.done
    assert forwarded == TEXT + STOP + DONE


def test_stream_is_finished_when_every_choice_that_started_is() -> None:
    first, second = frame({"content": "a"}, index=0), frame({"content": "b"}, index=1)
    assert not read(first + second + frame(finish="stop", index=0))[0].finished
    reader, _ = read(first + second + frame(finish="stop", index=0) + frame(finish="length", index=1))
    assert reader.finished
    assert reader.finish_reasons == ("stop", "length")
    assert not read(b": nothing\n\n")[0].finished


def test_frames_after_a_finish_reason_do_not_reopen_the_choice() -> None:
    assert read(TEXT + STOP + frame({"content": ""}))[0].finished


def test_finish_reason_that_is_empty_does_not_finish() -> None:
    assert not read(frame({"content": "a"}, ""))[0].finished


def test_usage_chunk_reaches_only_clients_that_asked() -> None:
    for asked in (False, True):
        reader, forwarded = read(TEXT + STOP + USAGE + DONE, include_usage=asked)
        assert reader.usage == Usage(3, 2, origin="reported")
        assert forwarded == TEXT + STOP + (USAGE if asked else b"") + DONE


def test_usage_beside_choices_is_forwarded_to_everybody() -> None:
    last = frame(finish="stop", usage={"prompt_tokens": 3, "completion_tokens": 2})
    reader, forwarded = read(TEXT + last + DONE)
    assert forwarded == TEXT + last + DONE
    assert reader.usage is not None


def test_usage_beside_an_error_does_not_hide_the_error() -> None:
    piece = bare(error={"code": 1}, usage={"prompt_tokens": 3})
    assert read(piece)[1] == piece


def test_last_usage_counts_and_null_does_not_erase_it() -> None:
    pieces = [frame({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": n}) for n in (1, 2)]
    reader, _ = read(*pieces, frame({"content": "b"}, usage=None), bare(choices=[], usage={}))
    assert reader.usage == Usage(3, 2, origin="reported")


def test_empty_and_filtered_streams() -> None:
    assert read(frame({"role": "assistant"}) + STOP + DONE)[0].empty
    assert read(DONE)[0].empty
    assert not read(TEXT + STOP + DONE)[0].empty
    assert not read(frame(finish="length") + DONE)[0].empty
    assert not read(frame({"role": "assistant"}))[0].empty
    filtered = read(frame(finish="content_filter") + DONE)[0]
    assert (filtered.filtered, filtered.empty) == (True, False)
    assert not read(TEXT + frame(finish="content_filter") + DONE)[0].filtered


def test_repair_changes_only_frames_that_deviate() -> None:
    call = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a"}]},"finish_reason":""}]}\n\n'
    fixed = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","index":0}]},"finish_reason":null}]}\n\n'
    null = b'data: {"id":"x","choices":null}\n\n'
    assert read(TEXT + call + null + STOP, repair=True)[1] == TEXT + fixed + b'data: {"id":"x","choices":[]}\n\n' + STOP
    assert read(TEXT + call + null + STOP)[1] == TEXT + call + null + STOP


PIECES = st.sampled_from(
    [
        TEXT,
        STOP,
        DONE,
        USAGE,
        b": c\n\n",
        b"data: {\n\n",
        b'data: {"error":"e"}\n\n',
        b"error: x\n\n",
        b"event: error\ndata: y\n\n",
    ]
)


@given(st.lists(PIECES, max_size=12), st.booleans(), st.data())
def test_splitting_changes_neither_state_nor_bytes(pieces: list[bytes], asked: bool, data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cut = data.draw(st.integers(0, len(stream)))
    whole, forwarded = read(stream, include_usage=asked)
    halves, again = read(stream[:cut], stream[cut:], include_usage=asked)
    assert (state_of(whole), forwarded) == (state_of(halves), again)


def read_in_blocks(pieces: list[bytes], *, include_usage: bool) -> tuple[ChatStream, bytes]:
    """Read as a relay does: a block at once where that is possible, else frame by frame."""
    reader, forwarded = ChatStream(repair=False, include_usage=include_usage), b""
    for piece in pieces:
        block = reader.read_block(piece)
        if block is None:
            block = b"".join(reader.read(frame) or b"" for frame in Splitter(1 << 22).feed(piece))
        forwarded += block
    return reader, forwarded


TWO = bare(choices=[{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {}, "finish_reason": "length"}])
MIXED = bare(choices=[{"index": 0, "delta": {}, "error": {"code": 502}}])
GAVE_UP = frame(finish="error")
BLOCKS = st.lists(PIECES | st.sampled_from([TWO, MIXED, GAVE_UP, frame({"role": "assistant"})]), max_size=8)


@given(st.lists(BLOCKS, max_size=5), st.booleans())
def test_a_block_read_at_once_is_read_as_its_frames_are(blocks: list[list[bytes]], asked: bool) -> None:
    pieces = [b"".join(block) for block in blocks]
    whole, forwarded = read(b"".join(pieces), include_usage=asked)
    again, in_blocks = read_in_blocks(pieces, include_usage=asked)
    assert (state_of(whole), forwarded) == (state_of(again), in_blocks)


def test_a_block_of_plain_frames_is_read_at_once() -> None:
    reader = ChatStream(repair=False, include_usage=False)
    assert reader.read_block(TEXT + TEXT + STOP) == TEXT + TEXT + STOP
    assert reader.read_block(USAGE + DONE) == DONE
    assert reader.usage == Usage(3, 2, origin="reported")
    assert (reader.output_frames, reader.done, reader.finished) == (2, True, True)


@pytest.mark.parametrize(
    "odd",
    [
        b'data: {"choices":[{"index":0}]}{"choices":[{"index":0}]}\n\n',
        b'data: {"choices":[{"index":0}]},\n\ndata: {"choices":[]}\n\n',
        b'data: {"a":{"b":1}\n\ndata: {"c":2}}\n\n',
        b'data: {"choices":[{"index":0}]}\n\ndata:{"choices":[{"index":0}]}\n\n',
        b'event: x\ndata: {"choices":[{"index":0}]}\n\n',
        b'data: {"choices":[{"index":0}]}\r\n\r\n',
        b'data: {"choices":[{"index":0}]}\n',
        USAGE + TEXT,
    ],
)
def test_what_is_not_plain_is_left_to_reading_frame_by_frame(odd: bytes) -> None:
    reader = ChatStream(repair=False, include_usage=False)
    assert reader.read_block(odd) is None
    assert reader.read_block(TEXT + odd) is None
    assert state_of(reader) == state_of(ChatStream(repair=False, include_usage=False)) or not reader.output


def is_streamed(entry: dict[str, Any]) -> bool:
    return is_chat_answer(entry) and bool(entry["stream"])


def is_small(entry: dict[str, Any]) -> bool:
    return is_streamed(entry) and entry["provider"] in {"perplexity", "mistral", "gpustack"}


@pytest.mark.parametrize("recording", recorded(is_streamed))
def test_recorded_stream_is_understood_and_forwarded_unchanged(recording: Recording) -> None:
    reader, forwarded = read(recording.body, include_usage=True)
    assert reader.output
    assert reader.output_frames
    assert reader.dropped == 0
    if "in_stream_error" in recording.features:
        assert reader.error is not None
    else:
        assert forwarded.startswith(recording.body.rstrip(b"\n"))
        assert reader.error is None
        assert reader.finished or reader.done
    if "include_usage" in recording.features and reader.error is None:
        assert reader.usage is not None


@pytest.mark.parametrize("recording", recorded(is_streamed))
def test_recorded_stream_byte_by_byte_is_the_same(recording: Recording) -> None:
    whole, forwarded = read(recording.body)
    pieces, again = read(*(recording.body[index : index + 1] for index in range(len(recording.body))))
    assert (state_of(whole), forwarded) == (state_of(pieces), again)


@pytest.mark.parametrize("recording", recorded(is_small))
def test_recorded_stream_at_every_split_is_the_same(recording: Recording) -> None:
    stream = recording.body[-3000:].partition(b"\n\n")[2]  # the end, where finish, usage and terminator stand
    whole, forwarded = read(stream)
    for cut in range(len(stream)):
        halves, again = read(stream[:cut], stream[cut:])
        assert (state_of(whole), forwarded) == (state_of(halves), again)


@pytest.mark.parametrize("recording", recorded(is_streamed))
def test_repair_touches_only_recorded_frames_without_tool_index(recording: Recording) -> None:
    if recording.file == "mistral/chat-stream-tool-call-01.json":
        assert b'"index":0}]},"finish_reason":"tool_calls"' in read(recording.body, repair=True)[1]
    else:
        assert read(recording.body, repair=True)[1] == read(recording.body)[1]


def test_opening_is_the_first_frame_with_choices() -> None:
    early = bare(id="", model="", choices=[], prompt_filter_results=[])
    named = frame({"role": "assistant"}, id="c-1", model="m")
    reader, _ = read(b": hello\n\n", early, named, TEXT, STOP, DONE)
    assert reader.opening == named[6:-2]
    block = ChatStream(repair=False, include_usage=False)
    assert block.read_block(named + TEXT + STOP + DONE) is not None
    assert block.opening == named[6:-2]


def test_stream_without_choices_has_no_opening() -> None:
    reader, _ = read(b": hello\n\n", USAGE, DONE)
    assert reader.opening == b""
