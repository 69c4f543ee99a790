"""Frames are the same however the bytes arrive, and together they are the bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.sse import EventTooLarge, Frame, Splitter

LIMIT = 1 << 20

TRANSCRIPT = (
    b": hello\n\n"
    b'data: {"a":1}\n\n'
    b"event: note\r\ndata: one\r\ndata:two\r\nid: 7\r\n\r\n"
    b"data\r\r"
    b"data:  spaced\n\r\n"
    b"retry: 10\n\n"
    b"error: broken\n\n"
    b"\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [
    (b"", b'{"a":1}'),
    (b"note", b"one\ntwo"),
    (b"", b""),
    (b"", b" spaced"),
    (b"error", b"broken"),
    (b"", b"[DONE]"),
]


def frames_of(*chunks: bytes) -> list[Frame]:
    splitter = Splitter(LIMIT)
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    last = splitter.end()
    return frames if last is None else [*frames, last]


def events_of(frames: list[Frame]) -> list[tuple[bytes, bytes]]:
    return [(frame.event, frame.data) for frame in frames if frame.data is not None]


def raw_of(frames: list[Frame]) -> bytes:
    return b"".join(frame.raw for frame in frames)


def byte_by_byte(text: bytes) -> list[bytes]:
    return [text[index : index + 1] for index in range(len(text))]


def test_whole_transcript_gives_its_events() -> None:
    frames = frames_of(TRANSCRIPT)
    assert events_of(frames) == EVENTS
    assert raw_of(frames) == TRANSCRIPT


def test_byte_by_byte_gives_the_same_events_and_bytes() -> None:
    frames = frames_of(*byte_by_byte(TRANSCRIPT))
    assert events_of(frames) == EVENTS
    assert raw_of(frames) == TRANSCRIPT


@pytest.mark.parametrize("cut", range(1, len(TRANSCRIPT)))
def test_every_split_gives_the_same_events_and_bytes(cut: int) -> None:
    frames = frames_of(TRANSCRIPT[:cut], TRANSCRIPT[cut:])
    assert events_of(frames) == EVENTS
    assert raw_of(frames) == TRANSCRIPT


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r", b"\n\r"])
def test_frame_is_out_as_soon_as_its_blank_line_is(end: bytes) -> None:
    splitter = Splitter(LIMIT)
    assert splitter.feed(b"data: a" + end[:-1]) == []
    assert events_of(splitter.feed(end[-1:])) == [(b"", b"a")]


def test_second_half_of_a_line_end_opens_no_event_of_its_own() -> None:
    splitter = Splitter(LIMIT)
    assert events_of(splitter.feed(b"data: a\r\n\r")) == [(b"", b"a")]
    assert events_of(splitter.feed(b"\ndata: b\r\n\r\n")) == [(b"", b"b")]


def test_crlf_alone_is_one_line_end() -> None:
    assert events_of(frames_of(b"data: a\r\ndata: b\r\n\r\n")) == [(b"", b"a\nb")]


def test_leading_byte_order_mark_is_dropped() -> None:
    text = b"data: a\n\ndata: b\n\n"
    for frames in (frames_of(b"\xef\xbb\xbf" + text), frames_of(*byte_by_byte(b"\xef\xbb\xbf" + text))):
        assert events_of(frames) == [(b"", b"a"), (b"", b"b")]
        assert raw_of(frames) == text


def test_later_byte_order_mark_is_no_field() -> None:
    assert events_of(frames_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n")) == [(b"", b"a")]


def test_comment_and_unknown_fields_carry_no_data() -> None:
    assert [frame.data for frame in frames_of(b": ping\n\nid: 1\nfoo: bar\n\n")] == [None, None]


def test_event_name_without_data_is_kept() -> None:
    assert frames_of(b"event: ping\n\n") == [Frame(b"event: ping\n\n", b"ping", None)]


@pytest.mark.parametrize("rest", [b"data: last", b"data: last\n", b"data: last\r\n", b"data: last\r"])
def test_last_frame_without_blank_line_counts_and_gets_it(rest: bytes) -> None:
    *_, last = frames_of(b"data: a\n\n" + rest)
    assert last.data == b"last"
    assert last.raw.startswith(rest)
    assert events_of(frames_of(last.raw + b"data: next\n\n")) == [(b"", b"last"), (b"", b"next")]


def test_line_end_left_over_is_kept_as_it_is() -> None:
    assert raw_of(frames_of(b"data: a\r\n\r", b"\n")) == b"data: a\r\n\r\n"


def test_end_after_whole_frames_gives_nothing() -> None:
    splitter = Splitter(LIMIT)
    splitter.feed(b"data: a\n\n")
    assert splitter.end() is None


@pytest.mark.parametrize("chunks", [[b"data: " + b"x" * 100 + b"\n\n"], [b"data: "] + [b"x" * 10] * 10, [b"x" * 65]])
def test_event_past_the_limit_is_refused(chunks: list[bytes]) -> None:
    splitter = Splitter(64)
    with pytest.raises(EventTooLarge, match="64 bytes"):
        all(splitter.feed(chunk) is not None for chunk in chunks)


def test_limit_is_for_one_event_not_for_the_stream() -> None:
    assert len(Splitter(64).feed(b"data: 12345\n\n" * 1000)) == 1000


def test_large_event_in_small_pieces_takes_linear_time() -> None:
    splitter = Splitter(8 << 20)
    piece = b"x" * 64
    for _ in range(40_000):  # 2.5 MB; a copy of what is pending for each piece would move 50 GB
        assert splitter.feed(piece) == []
    assert len(splitter.feed(b"\n\n")) == 1


LINES = st.sampled_from(
    [b"data: a", b"data:", b"event: e", b": c", b"id: 1", b"", b"data: [DONE]", b"error: no", b"junk"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=20), st.data())
def test_any_stream_in_any_pieces_gives_the_same(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    text = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert events_of(frames_of(*chunks)) == events_of(frames_of(text))
    assert raw_of(frames_of(*chunks)).startswith(text)


@example(b"\xef\xbb\xbf")
@example(b"\xef\xbb\xbf\xef\xbb\xbfdata: a")
@given(st.binary(max_size=80))
def test_any_bytes_but_a_byte_order_mark_are_kept(text: bytes) -> None:
    kept = text.removeprefix(b"\xef\xbb\xbf")
    assert raw_of(frames_of(text)).startswith(kept)
    assert raw_of(frames_of(*byte_by_byte(text))).startswith(kept)


@pytest.mark.parametrize("recording", recorded(lambda entry: entry["stream"] and entry["status"] < 400))
def test_recorded_stream_is_kept_byte_for_byte(recording: Recording) -> None:
    whole = frames_of(recording.body)
    assert raw_of(whole).startswith(recording.body)
    assert events_of(frames_of(*byte_by_byte(recording.body))) == events_of(whole)


@given(
    st.lists(st.sampled_from([b"data: a\n\n", b": c\n\n", b"data: b", b"\n", b"\r\n\r\n", b"x"]), max_size=12),
    st.booleans(),
)
def test_taking_whole_frames_uncut_leaves_the_rest_as_cutting_them_does(chunks: list[bytes], skips: bool) -> None:
    cutting, taking = Splitter(1 << 20), Splitter(1 << 20)
    for chunk in chunks:
        expected = b"".join(frame.raw for frame in cutting.feed(chunk))
        block, rest = taking.whole(chunk)
        if block and skips:
            taking.skip_to(rest)
            assert block == expected
        else:
            assert b"".join(frame.raw for frame in taking.feed(chunk)) == expected
    assert cutting.end() == taking.end()


def test_frames_that_must_be_looked_at_are_not_taken_uncut() -> None:
    assert Splitter(1 << 20).whole(b"data: a\r\n\r\ndata: b\n\n")[0] == b""
    assert Splitter(8).whole(b"data: a\n\ndata: b\n\n")[0] == b""
    assert Splitter(1 << 20).whole(b"data: a\n\ndata: b") == (b"data: a\n\n", b"data: b")
