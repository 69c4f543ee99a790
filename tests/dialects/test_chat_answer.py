"""Buffered answers: usage, output, errors under a status of 200, and our own error envelope."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects.chat_answer import (
    Answer,
    Identity,
    error_body,
    error_frame,
    read_answer,
    read_identity,
    read_usage,
)
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage


def answer(message: Any = None, finish: Any = "stop", **top: Any) -> Answer:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return read_answer(json.dumps({"id": "x", "choices": [choice], **top}).encode())


def test_answer_with_text() -> None:
    seen = answer({"role": "assistant", "content": "héllo"}, usage={"prompt_tokens": 3, "completion_tokens": 2})
    reported = Usage(input=3, output=2, origin="reported")
    assert seen == Answer(usage=reported, finish_reasons=("stop",), has_output=True)


def test_text_is_measured_only_where_no_usage_is_reported() -> None:
    message = {"role": "assistant", "content": "h\u00e9llo"}
    assert answer(message).output_bytes == 6
    assert answer(message, usage={"prompt_tokens": 3}).output_bytes == 0


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x"},
        {"content": [{"type": "text", "text": "x"}]},
        {"content": None, "tool_calls": [{"id": "1"}]},
        {"content": "", "reasoning": "hm"},
        {"content": "", "reasoning_content": "hm"},
        {"content": None, "refusal": "no"},
        {"content": None, "audio": {"id": "a"}},
        {"content": None, "function_call": {"name": "f"}},
    ],
)
def test_each_kind_of_output_is_output(message: dict[str, Any]) -> None:
    seen = answer(message)
    assert seen.has_output
    assert not seen.empty


@pytest.mark.parametrize("finish", ["stop", None, ""])
@pytest.mark.parametrize(
    "message", [None, {}, {"role": "assistant", "content": ""}, {"content": None, "tool_calls": []}]
)
def test_answer_with_nothing_in_it_is_empty(message: Any, finish: Any) -> None:
    seen = answer(message, finish)
    assert seen.empty
    assert not seen.filtered


def test_answer_without_choices_is_empty() -> None:
    assert read_answer(b'{"choices":[]}').empty


def test_nothing_at_the_length_limit_is_no_empty_answer() -> None:
    assert not answer({"content": ""}, "length").empty


def test_filter_counts_only_without_output() -> None:
    assert answer(None, "content_filter").filtered
    assert not answer(None, "content_filter").empty
    assert not answer({"content": "some"}, "content_filter").filtered


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":null}',
        b'{"choices":{}}',
        b'{"choices":[1]}',
        b'{"choices":[',
        b"\xff",
        b"[" * 9999,
    ],
)
def test_other_body_is_malformed(body: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_answer(body)
    assert caught.value.kind is Kind.MALFORMED


def test_only_choices_is_required_and_unknown_fields_do_no_harm() -> None:
    assert read_answer(b'{"choices":[{"message":{"content":"x"}}],"choices2":5,"usage":[]}').has_output


@pytest.mark.parametrize("error", [{"message": "no"}, "no", {"code": 502}])
def test_error_on_top_is_the_answer(error: Any) -> None:
    body = json.dumps({"error": error}).encode()
    assert read_answer(body).error == body


@pytest.mark.parametrize("error", [None, False, "", {}, []])
def test_empty_error_is_none(error: Any) -> None:
    assert answer({"content": "x"}, error=error).error is None


def test_error_of_a_choice_is_told_without_the_text_beside_it() -> None:
    body = b'{"choices":[{"message":{"content":"context window"},"error":{"code":429}}]}'
    assert read_answer(body).error == b'{"error":{"code":429}}'


@pytest.mark.parametrize("finish", ["error", "insufficient_system_resource", "abort"])
def test_finish_reason_of_an_upstream_that_gave_up_is_an_error(finish: str) -> None:
    seen = answer({"content": ""}, finish)
    assert seen.error is not None
    assert json.loads(seen.error)["error"]["code"] == finish


def test_usage_names_its_parts() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 8,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_creation_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    assert read_usage(usage) == Usage(10, 8, cached=4, cache_write=3, reasoning=5, origin="reported")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, Usage(5, 1, 4, origin="reported")),
        ({"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": 0}, Usage(5, 1, 0, origin="reported")),
        ({"prompt_tokens": 5}, Usage(5, 0, origin="reported")),
        ({"completion_tokens": 5, "prompt_tokens": None}, Usage(0, 5, origin="reported")),
        ({"prompt_tokens": 5, "prompt_tokens_details": None}, Usage(5, 0, origin="reported")),
        ({"prompt_tokens": True, "completion_tokens": -1}, None),
        ({"prompt_tokens": 10**9, "completion_tokens": 10**9}, Usage(10**9, 10**9, origin="reported")),
        ({"prompt_tokens": 10**9 + 1, "completion_tokens": 10**300}, None),
        (
            {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2**64}, "cached_tokens": 4},
            Usage(5, 0, 4, origin="reported"),
        ),
        ({"total_tokens": 5}, None),
        ({}, None),
        ("5", None),
        (None, None),
    ],
)
def test_usage_reports_only_what_is_there(usage: Any, expected: Usage | None) -> None:
    assert read_usage(usage) == expected


def test_reasoning_beside_the_completion_is_added_to_the_output() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 100}}
    beside = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115, **details}
    inside = {"prompt_tokens": 10, "completion_tokens": 105, "total_tokens": 115, **details}
    assert read_usage(beside) == read_usage(inside) == Usage(10, 105, reasoning=100, origin="reported")


def test_error_envelope() -> None:
    assert json.loads(error_body("LM-3003", 'a "b"', "upstream_error")) == {
        "error": {"code": "LM-3003", "message": 'a "b"', "type": "upstream_error"}
    }
    frame = error_frame("LM-3010", "line\nbreak", "upstream_error")
    assert frame.startswith(b'data: {"error":')
    assert frame.count(b"\n") == 2


def test_error_envelope_survives_text_that_no_json_can_carry() -> None:
    assert json.loads(error_body("LM-1001", "half \ud800 pair", "x"))["error"]["message"] == "half ? pair"


def is_buffered(entry: dict[str, Any]) -> bool:
    return is_chat_answer(entry) and not entry["stream"]


@pytest.mark.parametrize("recording", recorded(is_buffered))
def test_recorded_answer_is_understood(recording: Recording) -> None:
    seen = read_answer(recording.body)
    document = msgspec.json.decode(recording.body)
    assert seen.error is None
    assert seen.finish_reasons
    assert seen.has_output or "content_filter" in seen.finish_reasons or "length" in seen.finish_reasons
    assert seen.has_output != (seen.empty or seen.filtered) or "length" in seen.finish_reasons
    reported = document.get("usage")
    if reported is not None:
        assert seen.usage is not None
        assert seen.usage.input == reported["prompt_tokens"]
        assert seen.usage.output >= reported["completion_tokens"]
        if "reasoning_tokens" in recording.features:
            assert seen.usage.reasoning
        if "cached_read" in recording.features:
            assert seen.usage.cached


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        (b'{"id":"c-1","model":"m","choices":[]}', Identity("c-1", "m")),
        (b'{"choices":[]}', Identity()),
        (b'{"id":null,"model":"m"}', Identity(None, "m")),
        (b'{"id":7,"model":"m"}', Identity()),
        (b"[1]", Identity()),
        (b'{"id":"c', Identity()),
        (b"", Identity()),
        (b'{"id":"\xff"}', Identity()),
    ],
)
def test_answer_is_called_what_it_says_if_that_is_text(body: bytes, identity: Identity) -> None:
    assert read_identity(body) == identity
