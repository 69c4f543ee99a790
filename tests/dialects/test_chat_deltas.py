"""Streams of chat upstreams: what each frame says, whatever the server makes of the format."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects.chat_deltas import ChatDeltas
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    RefusalDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    Used,
)
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.records import Usage

DONE = b"data: [DONE]\n\n"
START = Start("x1", "m")


def frame(delta: Any = None, finish: Any = None, **top: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x1", "model": "m", "choices": [choice], **top}).encode() + b"\n\n"


def bare(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def read_whole(*pieces: bytes) -> tuple[ChatDeltas, list[Delta]]:
    reader, splitter = ChatDeltas(), Splitter(1 << 22)
    frames = [frame for piece in pieces for frame in splitter.feed(piece)]
    last = splitter.end()
    return reader, [delta for frame in (frames if last is None else [*frames, last]) for delta in reader.read(frame)]


def read(*pieces: bytes) -> list[Delta]:
    return read_whole(*pieces)[1]


def told(*deltas: Any) -> list[Delta]:
    """Return what the deltas of a message say, without the start."""
    start, *rest = read(*map(frame, deltas))
    assert start == START
    return rest


def piece(index: Any = 0, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"function": function, **({} if index is None else {"index": index}), **fields}


def calls(*pieces: Any) -> list[Delta]:
    return told({"tool_calls": list(pieces)})


def test_an_ordinary_stream_starts_speaks_ends_and_counts() -> None:
    reader, deltas = read_whole(
        frame({"role": "assistant", "content": ""}),
        frame({"content": "hel"}),
        b": ping\n\n",
        frame({"content": "lo"}),
        frame({}, "stop"),
        bare(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2}),
        DONE,
    )
    usage = Usage(3, 2, origin="reported")
    assert deltas == [START, TextDelta("hel"), TextDelta("lo"), Finished("stop"), Used(usage)]
    assert (reader.state.done, reader.state.finished, reader.state.usage, reader.state.output) == (
        True,
        True,
        usage,
        True,
    )


def test_it_starts_with_the_first_choice_and_not_with_what_comes_before() -> None:
    before = bare(id="", choices=[], prompt_filter_results=[])
    assert read(before, frame({"role": "assistant"})) == [START]


def test_an_answer_whose_names_are_no_text_is_told_all_the_same() -> None:
    assert read(bare(id=5, choices=[{"delta": {"content": "a"}}])) == [Start("", ""), TextDelta("a")]


def test_reasoning_is_told_before_the_text_beside_it() -> None:
    assert told({"content": "a", "reasoning_content": "hm"}) == [ThinkingDelta("hm"), TextDelta("a")]
    assert told({"reasoning": "hm", "content": None}) == [ThinkingDelta("hm")]


def test_a_block_that_repeats_shown_reasoning_only_adds_its_proof() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "s1"}
    other = {"type": "thinking", "thinking": "so", "signature": "s2"}
    assert told({"reasoning_content": "hm"}, {"thinking_blocks": [block]}, {"thinking_blocks": [other]}) == [
        ThinkingDelta("hm"),
        ThinkingDelta(signature="s1"),
        ThinkingDelta("so", "s2"),
    ]


def test_thinking_may_stand_in_the_content() -> None:
    chunks = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]
    assert told({"content": chunks}) == [ThinkingDelta("hm"), TextDelta("a")]


def test_redacted_thinking_is_told_whole() -> None:
    assert told({"thinking_blocks": [{"type": "redacted_thinking", "data": "d1"}]}) == [ThinkingDelta(redacted="d1")]


def test_a_refusal_is_told_and_ends_the_answer_as_one() -> None:
    assert read(frame({"refusal": "no"}), frame({}, "stop"))[1:] == [RefusalDelta("no"), Finished("refusal")]


def test_calls_are_numbered_as_they_appear_whatever_their_numbers() -> None:
    deltas = calls(piece(3, "", id="c1", name="f"), piece(1, "", id="c2", name="g"), piece(3, "{}"), piece(1, "{}"))
    assert deltas == [
        CallDelta(0, "c1", "f"),
        CallDelta(1, "c2", "g"),
        CallDelta(0, arguments="{}"),
        CallDelta(1, arguments="{}"),
    ]


def test_calls_without_numbers_are_told_apart_by_their_ids() -> None:
    assert calls(piece(None, "{}", id="c1", name="f"), piece(None, '{"a":1}', id="c2", name="g")) == [
        CallDelta(0, "c1", "f", "{}"),
        CallDelta(1, "c2", "g", '{"a":1}'),
    ]
    assert told({"tool_calls": [piece(None, "{", id="c1", name="f")]}, {"tool_calls": [piece(None, "}")]}) == [
        CallDelta(0, "c1", "f", "{"),
        CallDelta(0, arguments="}"),
    ]


def test_calls_that_all_have_one_number_are_told_apart_by_their_ids() -> None:
    deltas = calls(piece(0, "{}", id="c1", name="f"), piece(0, "{}", id="c2", name="f"))
    assert deltas == [CallDelta(0, "c1", "f", "{}"), CallDelta(1, "c2", "f", "{}")]


def test_calls_without_numbers_may_take_turns_by_their_ids() -> None:
    opening = [piece(None, "{", id="c1", name="f"), piece(None, "{", id="c2", name="g")]
    assert calls(*opening, piece(None, "}", id="c1"), piece(None, "}", id="c2"))[2:] == [
        CallDelta(0, arguments="}"),
        CallDelta(1, arguments="}"),
    ]


def test_calls_without_numbers_and_ids_are_told_apart_by_their_names() -> None:
    assert calls(piece(None, "{}", name="f"), piece(None, "{", name="f"), piece(None, "}")) == [
        CallDelta(0, "call_x1_0", "f", "{}"),
        CallDelta(1, "call_x1_1", "f", "{"),
        CallDelta(1, arguments="}"),
    ]


def test_an_id_that_every_piece_repeats_opens_one_call() -> None:
    deltas = calls(piece(0, "{", id="c1", name="f"), piece(0, "}", id="c1", name="f"))
    assert deltas == [CallDelta(0, "c1", "f", "{"), CallDelta(0, arguments="}")]


def test_a_call_opens_when_its_name_is_known_with_all_that_came_before() -> None:
    assert calls(piece(0, "{", id="c1"), piece(0, "}", name="f")) == [CallDelta(0, "c1", "f", "{}")]


def test_a_call_without_an_id_gets_one() -> None:
    assert calls(piece(0, "{}", name="f")) == [CallDelta(0, "call_x1_0", "f", "{}")]


def test_a_function_call_of_old_is_a_call() -> None:
    assert told({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}) == [
        CallDelta(0, "call_x1_0", "f"),
        CallDelta(0, arguments="{}"),
    ]


def test_a_thought_signature_comes_with_its_call() -> None:
    google = {"google": {"thought_signature": "s"}}
    deltas = calls(piece(0, "{}", id="c1", name="f", extra_content=google))
    assert deltas == [CallDelta(0, "c1", "f", "{}", "s")]


def test_calls_that_end_without_arguments_get_an_empty_object() -> None:
    call = frame({"tool_calls": [piece(0, "", id="c1", name="f"), piece(1, '{"a":1}', id="c2", name="f")]})
    assert read(call, frame(None, "stop"))[3:] == [CallDelta(0, arguments="{}"), Finished("tool_calls")]


def test_tools_are_given_the_names_the_client_knows() -> None:
    reader = ChatDeltas({"short": "the long one"})
    (whole,) = Splitter(1 << 22).feed(frame({"tool_calls": [piece(0, "{}", id="c1", name="short")]}))
    assert reader.read(whole)[1] == CallDelta(0, "c1", "the long one", "{}")


def test_nothing_but_usage_is_told_after_the_end() -> None:
    late = frame({"content": "late"}, "length", usage={"prompt_tokens": 3, "completion_tokens": 2})
    assert read(frame({}, "stop"), late) == [START, Finished("stop"), Used(Usage(3, 2, origin="reported"))]


def test_usage_that_grows_with_every_chunk_is_told_each_time() -> None:
    usages = [{"prompt_tokens": 3, "completion_tokens": count} for count in (1, 2)]
    deltas = read(*(frame({"content": "a"}, usage=usage) for usage in usages))
    assert [delta.usage.output for delta in deltas if isinstance(delta, Used)] == [1, 2]


def test_usage_beside_no_choices_at_all_is_told() -> None:
    counted = bare(choices=None, usage={"prompt_tokens": 3, "completion_tokens": 2})
    assert read(counted) == [Used(Usage(3, 2, origin="reported"))]


def test_only_the_first_choice_is_told() -> None:
    second = bare(id="x1", model="m", choices=[{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}])
    assert read(second, frame({"content": "a"})) == [START, TextDelta("a")]


@pytest.mark.parametrize("error", [bare(error={"message": "m"}), b"event: error\ndata: oh\n\n", frame({}, "error")])
def test_an_error_is_the_state_s_to_tell_and_ends_the_deltas(error: bytes) -> None:
    reader, deltas = read_whole(frame({"content": "a"}), error, frame({"content": "b"}))
    assert deltas == [START, TextDelta("a")]
    assert reader.state.error is not None


@pytest.mark.parametrize(
    "odd",
    [
        b"data: {\n\n",
        b"data: 5\n\n",
        b'data: {"model":"\xff"}\n\n',
        bare(choices=None),
        bare(choices="x"),
        bare(choices=[{"delta": {"content": 5}}]),
    ],
)
def test_a_frame_that_is_no_chunk_says_nothing(odd: bytes) -> None:
    assert read(frame({"content": "a"}), odd, frame({"content": "b"})) == [START, TextDelta("a"), TextDelta("b")]


STREAM = (
    frame({"role": "assistant", "content": ""})
    + frame({"reasoning_content": "hm é"})
    + frame({"tool_calls": [piece(0, '{"a":', id="c1", name="f")]})
    + frame({"tool_calls": [piece(0, "1}")]})
    + frame({}, "tool_calls")
    + DONE
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_says_the_same_however_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[start:end] for start, end in pairwise(edges))) == read(STREAM)


def text_of(stream: bytes) -> str:
    """Return the text of the first choice, as the client of the recorded upstream would have put it together."""
    frames = [frame.data for frame in Splitter(1 << 22).feed(stream) if frame.data and frame.data.startswith(b"{")]
    choices = [choice for data in frames for choice in json.loads(data).get("choices") or () if not choice.get("index")]
    contents = [(choice.get("delta") or {}).get("content") or "" for choice in choices]
    parts = [[{"text": content}] if isinstance(content, str) else content for content in contents]
    return "".join(part.get("text", "") for part in chain(*parts))


@pytest.mark.parametrize("recording", recorded(lambda entry: is_chat_answer(entry) and entry["stream"]))
def test_recorded_streams_say_the_same_byte_by_byte_and_all_that_they_said(recording: Recording) -> None:
    reader, deltas = read_whole(recording.body)
    again, bytewise = read_whole(*(recording.body[place : place + 1] for place in range(len(recording.body))))
    assert bytewise == deltas
    assert again.state.usage == reader.state.usage
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text_of(recording.body)
    assert sum(isinstance(delta, Start) for delta in deltas) == 1
    finishes = [delta.finish for delta in deltas if isinstance(delta, Finished)]
    assert len(finishes) == reader.state.finished or reader.state.error is not None
    if finishes not in ([], ["length"]):
        arguments: dict[int, str] = {}
        for delta in deltas:
            if isinstance(delta, CallDelta):
                arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
        assert sorted(arguments) == list(range(len(arguments)))
        assert all(isinstance(json.loads(text), dict) for text in arguments.values())
