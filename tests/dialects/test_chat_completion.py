"""Whole answers: what servers of this dialect answer, and what their clients are given by others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects import chat_answer
from lumen_gateway.dialects.chat_completion import (
    made_up_id,
    read_answer,
    read_finish,
    write_answer,
    write_finish,
    write_usage,
)
from lumen_gateway.dialects.neutral import Answer, Native, Part, Raw, Refusal, Text, Thinking, ToolCall
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage


def completion(message: Any, finish: Any = "stop", **fields: Any) -> bytes:
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return json.dumps({"id": "x1", "model": "m", "choices": choices, **fields}).encode()


def parts(message: Any) -> list[Part]:
    return list(read_answer(completion(message)).parts)


def answer(*said: Part, **fields: Any) -> Answer:
    return Answer(**{"id": "x1", "model": "m", "parts": list(said), "finish": "stop", **fields})


def written(*said: Part, **fields: Any) -> Any:
    return json.loads(write_answer(answer(*said, **fields), 1700))


def message(*said: Part, **fields: Any) -> Any:
    return written(*said, **fields)["choices"][0]["message"]


def test_an_answer_is_read_with_its_names_its_end_and_its_usage() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    body = completion({"content": "hi"}, "length", usage=usage)
    expected = answer(Text(text="hi"), finish="length", usage=Usage(3, 2, origin="reported"))
    assert read_answer(body) == expected


def test_an_answer_whose_names_are_no_text_is_read_all_the_same() -> None:
    assert read_answer(completion({"content": "hi"}, id=5, model=None)) == answer(Text(text="hi"), id="", model="")


def test_reasoning_comes_first_then_text_then_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    said = parts({"content": "a", "reasoning": "hm", "tool_calls": [call]})
    assert said == [Thinking(text="hm"), Text(text="a"), ToolCall(id="c1", name="f")]


def test_calls_without_ids_get_some_that_no_other_answer_has() -> None:
    calls = [{"function": {"name": "f"}}, {"id": "", "function": {"name": "g"}}]
    said = parts({"tool_calls": calls})
    assert said == [ToolCall(id="call_x1_0", name="f"), ToolCall(id="call_x1_1", name="g")]
    assert made_up_id("x1", 0) != made_up_id("x2", 0)


def test_a_function_call_of_old_is_a_call() -> None:
    (said,) = parts({"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}})
    assert said == ToolCall(id="call_x1_0", name="f", arguments='{"a":1}')


def test_tools_are_given_the_names_the_client_knows() -> None:
    call = {"id": "c1", "function": {"name": "short", "arguments": "{}"}}
    said = read_answer(completion({"tool_calls": [call]}), {"short": "the long one"}).parts
    assert said == [ToolCall(id="c1", name="the long one")]


def test_content_that_is_an_object_is_the_json_that_was_asked_for() -> None:
    (said,) = parts({"content": {"a": ["é", 1]}})
    assert isinstance(said, Text)
    assert json.loads(said.text) == {"a": ["é", 1]}


@pytest.mark.parametrize("choices", [[], [{}], [{"message": None}], [{"message": {}}]])
def test_an_answer_with_nothing_in_it_has_no_parts(choices: Any) -> None:
    said = read_answer(json.dumps({"choices": choices}).encode())
    assert said == Answer(id="", model="", parts=[], finish="stop")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b'{"choices":5}',
        b'{"choices":[{"message":{"content":[{"type":"text","text":1}]}}]}',
        b'{"choices":[{"message":{"content":[{"type":"image_url","image_url":"data:x"}]}}]}',
        b'{"choices":[{"message":{"content":"\xff"}}]}',
    ],
)
def test_what_is_no_completion_is_the_upstream_s_fault(body: bytes) -> None:
    with pytest.raises(Failure) as raised:
        read_answer(body)
    assert raised.value.kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("reason", "has", "finish"),
    [
        ("stop", {}, "stop"),
        ("eos", {}, "stop"),
        (None, {}, "stop"),
        (7, {}, "stop"),
        ("length", {"calls": True}, "length"),
        ("max_tokens", {}, "length"),
        ("content_filter", {"refused": True}, "content_filter"),
        ("stop", {"calls": True}, "tool_calls"),
        ("function_call", {"calls": True}, "tool_calls"),
        ("tool_calls", {}, "stop"),
        ("stop", {"refused": True}, "refusal"),
    ],
)
def test_an_end_is_told_by_the_reason_and_by_what_is_in_the_answer(
    reason: object, has: dict[str, bool], finish: str
) -> None:
    assert read_finish(reason, **{"calls": False, "refused": False, **has}) == finish


@pytest.mark.parametrize(
    ("finish", "has", "reason"),
    [
        ("stop", {}, "stop"),
        ("stop", {"calls": True}, "tool_calls"),
        ("tool_calls", {"calls": True}, "tool_calls"),
        ("length", {"calls": True}, "length"),
        ("content_filter", {}, "content_filter"),
        ("refusal", {}, "content_filter"),
        ("refusal", {"refused": True}, "stop"),
        ("pause", {}, "stop"),
        ("error", {}, "error"),
    ],
)
def test_an_end_is_told_in_the_words_of_this_dialect(finish: Any, has: dict[str, bool], reason: str) -> None:
    assert write_finish(finish, **{"calls": False, "refused": False, **has}) == reason


def test_a_completion_is_written_whole() -> None:
    assert written(Text(text="hi"), usage=Usage(3, 2)) == {
        "id": "x1",
        "object": "chat.completion",
        "created": 1700,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    assert "usage" not in written(Text(text="hi"))


def test_an_answer_of_calls_alone_has_null_for_content_and_one_of_nothing_an_empty_text() -> None:
    assert message(ToolCall(id="c", name="f"))["content"] is None
    assert message(Refusal(text="no"))["content"] is None
    assert message()["content"] == ""


def test_texts_are_put_together_and_blocks_of_other_dialects_left_out() -> None:
    said = message(Text(text="a"), Native(dialect="messages", block=Raw(b'{"type":"server_tool_use"}')), Text(text="b"))
    assert said["content"] == "ab"


def test_signed_thinking_can_be_sent_back_by_the_client() -> None:
    said = message(Thinking(text="so", signature="s1"), Thinking(redacted="d1"), Text(text="a"))
    assert said["reasoning_content"] == "so"
    assert said["thinking_blocks"] == [
        {"type": "thinking", "thinking": "so", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d1"},
    ]


def test_usage_shows_details_where_they_are_known_and_says_what_is_an_estimate() -> None:
    assert write_usage(Usage(10, 5, cached=4, cache_write=0, reasoning=2, origin="reported")) == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_creation_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert write_usage(Usage(1, 1, origin="estimated"))["estimated"] is True


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
COUNT = st.integers(0, 1_000_000)
DETAIL = st.none() | COUNT
SAID = st.tuples(
    st.lists(st.builds(Thinking, text=WORDS, signature=WORDS) | st.builds(Thinking, redacted=WORDS), max_size=2),
    st.lists(st.builds(Text, text=WORDS), max_size=1),
    st.lists(st.builds(Refusal, text=WORDS), max_size=1),
    st.lists(st.builds(ToolCall, id=WORDS, name=WORDS, signature=st.just("") | WORDS), max_size=3),
).map(lambda groups: [part for group in groups for part in group])


@given(
    SAID,
    st.builds(
        Usage,
        input=st.integers(1, 1_000_000),
        output=COUNT,
        cached=DETAIL,
        cache_write=DETAIL,
        reasoning=st.none(),
        origin=st.just("reported"),
    ),
)
def test_what_this_dialect_holds_reads_the_same_again(said: list[Part], usage: Usage) -> None:
    kinds = {type(part) for part in said}
    finish = "tool_calls" if ToolCall in kinds else "refusal" if Refusal in kinds else "stop"
    whole = answer(*said, finish=finish, usage=usage)
    assert read_answer(write_answer(whole, 1)) == whole


def text_of(said: Any) -> str:
    content = said.get("content") or ""
    if isinstance(content, dict):
        return json.dumps(content)
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def functions_of(said: Any) -> list[Any]:
    functions = [call["function"] for call in said.get("tool_calls") or ()]
    return [*functions, said["function_call"]] if said.get("function_call") else functions


@pytest.mark.parametrize("recording", recorded(lambda entry: is_chat_answer(entry) and not entry["stream"]))
def test_recorded_answers_keep_text_calls_usage_and_end(recording: Recording) -> None:
    original = json.loads(recording.body)
    choice = original["choices"][0]
    source = choice.get("message") or {}
    read = read_answer(recording.body)
    again = json.loads(write_answer(read, 1))
    said = again["choices"][0]["message"]
    if isinstance(source.get("content"), dict):
        assert json.loads(said["content"]) == source["content"]
    else:
        assert (said["content"] or "") == text_of(source)
    assert functions_of(said) == functions_of(source)
    for call, recorded_call in zip(said.get("tool_calls", ()), source.get("tool_calls") or (), strict=False):
        assert call["id"] == recorded_call["id"] or not recorded_call["id"]
    assert read.usage == chat_answer.read_answer(recording.body).usage
    assert read_answer(write_answer(read, 1)) == read
