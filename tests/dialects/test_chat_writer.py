"""Streams for chat clients, from upstreams of other dialects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.chat_protocol import chunks_of, faults_of_stream

from lumen_gateway.dialects.chat_deltas import ChatDeltas
from lumen_gateway.dialects.chat_writer import ChatWriter
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
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage

START = Start("x1", 'm "1"')
USAGE = Usage(3, 2, origin="reported")


def write(*deltas: Delta, include_usage: bool = False) -> bytes:
    writer = ChatWriter(1700, include_usage)
    stream = b"".join([writer.write(START), *map(writer.write, deltas), writer.end()])
    assert faults_of_stream(stream) == []
    return stream


def said(*deltas: Delta) -> list[Any]:
    """Return the deltas between the first chunk and the one that ends the answer."""
    chunks = chunks_of(write(*deltas, Finished("stop")))
    return [chunk["choices"][0]["delta"] for chunk in chunks[1:-2]]


def finish_of(*deltas: Delta) -> str:
    reason: str = chunks_of(write(*deltas))[-2]["choices"][0]["finish_reason"]
    return reason


def test_a_stream_opens_with_the_role_and_ends_with_a_reason_and_done() -> None:
    first, text, last, done = chunks_of(write(TextDelta("hi"), Finished("stop")))
    named = {"id": "x1", "object": "chat.completion.chunk", "created": 1700, "model": 'm "1"'}
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    assert first == {**named, "choices": [opening]}
    assert text == {**named, "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
    assert last == {**named, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert done == "[DONE]"


def test_usage_goes_to_the_client_that_asked_for_it_and_once_at_the_end() -> None:
    stream = write(Used(Usage(3, 1)), TextDelta("a"), Finished("stop"), Used(USAGE), include_usage=True)
    *chunks, counted, _ = chunks_of(stream)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert counted["choices"] == []
    assert counted["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_usage_stays_from_the_client_that_did_not_ask_for_it() -> None:
    assert b"usage" not in write(TextDelta("a"), Finished("stop"), Used(USAGE))


def test_without_usage_there_is_no_chunk_for_it() -> None:
    assert all(chunk["choices"] for chunk in chunks_of(write(Finished("stop"), include_usage=True))[:-1])


def test_usage_known_from_the_start_counts_until_there_is_a_later_word() -> None:
    writer = ChatWriter(1, include_usage=True)
    writer.write(Start("x1", "m", USAGE))
    assert b'"prompt_tokens":3' in writer.end()


def test_a_call_opens_with_id_and_name_and_goes_on_by_its_number() -> None:
    deltas = said(CallDelta(0, "c1", "f"), CallDelta(0, arguments="{}"), CallDelta(1, "c2", "g", "{}"))
    assert [delta["tool_calls"] for delta in deltas] == [
        [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "{}"}}],
        [{"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
    ]


def test_a_thought_signature_of_a_call_reaches_the_client() -> None:
    (delta,) = said(CallDelta(0, "c1", "f", "{}", "s"))
    assert delta["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}


def test_thinking_is_shown_as_it_comes_and_given_whole_with_its_proof() -> None:
    deltas = said(ThinkingDelta("h"), ThinkingDelta("m"), ThinkingDelta(signature="s1"), ThinkingDelta("so", "s2"))
    assert deltas == [
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s1"}]},
        {
            "reasoning_content": "so",
            "thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "s2"}],
        },
    ]


def test_redacted_thinking_is_given_and_not_shown() -> None:
    (delta,) = said(ThinkingDelta(redacted="d1"))
    assert delta == {"thinking_blocks": [{"type": "redacted_thinking", "data": "d1"}]}


def test_blocks_of_other_dialects_are_left_out() -> None:
    assert said(NativeDelta("messages", Raw(b"{}")), TextDelta("a")) == [{"content": "a"}]


def test_an_answer_with_calls_in_it_ends_for_them_and_a_refusal_is_a_stop() -> None:
    assert finish_of(CallDelta(0, "c1", "f", "{}"), Finished("stop")) == "tool_calls"
    assert said(RefusalDelta("no")) == [{"refusal": "no"}]
    assert finish_of(RefusalDelta("no"), Finished("refusal")) == "stop"
    assert finish_of(Finished("length")) == "length"


def test_a_stream_that_nobody_opened_opens_all_the_same() -> None:
    for deltas in ((TextDelta("hi"), Finished("stop"), Used(USAGE)), (Used(USAGE),)):
        writer = ChatWriter(1700, include_usage=True)
        stream = b"".join([*map(writer.write, deltas), writer.end()])
        assert faults_of_stream(stream) == []
        first, *_, last, _ = chunks_of(stream)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert last["usage"]["total_tokens"] == 5


def test_an_end_that_was_not_told_is_written_all_the_same() -> None:
    assert finish_of(TextDelta("a")) == "stop"
    assert finish_of(CallDelta(0, "c1", "f", "{}")) == "tool_calls"


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def streams(draw: st.DrawFn) -> list[Delta]:
    """What a model may say: it thinks, talks, refuses and calls, in pieces."""
    deltas: list[Delta] = []
    for _ in range(draw(st.integers(0, 2))):
        deltas += [ThinkingDelta(text) for text in draw(st.lists(WORDS, max_size=3))]
        deltas.append(ThinkingDelta(signature=draw(WORDS)))
    deltas += [TextDelta(text) for text in draw(st.lists(WORDS, max_size=4))]
    refusals = draw(st.lists(WORDS, max_size=1))
    deltas += map(RefusalDelta, refusals)
    count = draw(st.integers(0, 3))
    deltas += [CallDelta(index, f"c{index}", "f") for index in range(count)]
    deltas += [CallDelta(index, arguments=piece) for piece in ("{", "}") for index in range(count)]
    deltas.append(Finished("tool_calls" if count else "refusal" if refusals else "stop"))
    return deltas


@given(streams())
def test_what_is_written_reads_the_same_again(deltas: list[Delta]) -> None:
    reader = ChatDeltas()
    stream = write(*deltas, Used(USAGE), include_usage=True)
    again = [delta for frame in Splitter(1 << 22).feed(stream) for delta in reader.read(frame)]
    assert again == [START, *deltas, Used(USAGE)]
    assert json.loads(reader.state.opening)["id"] == "x1"
