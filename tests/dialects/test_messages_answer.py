"""Answers: the verdict on a body, its usage, and the envelope of our own errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.anthropic_wire import is_message
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.chat_answer import Answer, Identity
from lumen_gateway.dialects.messages_answer import (
    Counts,
    error_body,
    error_frame,
    finish_word,
    read_answer,
    read_identity,
    read_usage,
)
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

TEXT = {"type": "text", "text": "hello"}


def read(**fields: Any) -> Answer:
    return read_answer(json.dumps({"type": "message", "content": [], **fields}).encode())


def test_answer_with_text_has_output_and_usage() -> None:
    seen = read(content=[TEXT], stop_reason="end_turn", usage={"input_tokens": 3, "output_tokens": 2})
    assert (seen.has_output, seen.filtered, seen.empty, seen.error) == (True, False, False, None)
    assert (seen.finish_reasons, seen.output_bytes) == (("stop",), 0)
    assert seen.usage == Usage(3, 2, origin="reported")


@pytest.mark.parametrize(
    "block",
    [
        TEXT,
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {}},
        {"type": "server_tool_use"},
        {"type": "a block of next year"},
    ],
)
def test_each_kind_of_block_is_output(block: dict[str, Any]) -> None:
    assert read(content=[block]).has_output


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}], [{"type": "thinking", "thinking": ""}]])
@pytest.mark.parametrize(
    ("stop_reason", "filtered", "empty"),
    [("end_turn", False, True), (None, False, True), ("max_tokens", False, False), ("refusal", True, False)],
)
def test_answer_without_output_is_filtered_empty_or_cut(
    content: list[Any], stop_reason: str | None, filtered: bool, empty: bool
) -> None:
    seen = read(content=content, stop_reason=stop_reason)
    assert (seen.has_output, seen.filtered, seen.empty) == (False, filtered, empty)


def test_size_of_the_text_is_told_where_usage_is_not() -> None:
    assert read(content=[{"type": "text", "text": "über"}, {"type": "thinking", "thinking": "hm"}]).output_bytes == 7


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}',
        b'{"type":"error"}',
        b'{"error":{"message":"x"},"content":[]}',
    ],
)
def test_error_under_a_200_is_one(body: bytes) -> None:
    assert read_answer(body).error == body


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"<html>", b'{"content":"x"}', b'{"content":[5]}', b"[" * 5000])
def test_what_is_no_message_is_malformed(body: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_answer(body)
    assert caught.value.kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("stop_reason", "word"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        (5, "unknown"),
    ],
)
def test_stop_reasons_are_told_in_the_words_of_chat(stop_reason: object, word: str) -> None:
    assert finish_word(stop_reason) == word


def test_tokens_of_the_cache_are_input() -> None:
    usage = {"input_tokens": 20, "cache_creation_input_tokens": 4000, "cache_read_input_tokens": 6000}
    details = {"output_tokens": 100, "output_tokens_details": {"thinking_tokens": 30}}
    assert read_usage(usage | details) == Usage(10_020, 100, 6000, 4000, 30, "reported")


@pytest.mark.parametrize("usage", [None, {}, [], "x", {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": -1}])
def test_usage_that_says_nothing_is_none(usage: object) -> None:
    assert read_usage(usage) is None


def test_what_is_not_reported_stays_unknown() -> None:
    usage = read_usage({"input_tokens": 1, "output_tokens": "2", "output_tokens_details": 5})
    assert usage == Usage(1, 0, None, None, None, "reported")


def test_later_numbers_count_but_a_zero_takes_nothing_back() -> None:
    counts = Counts()
    counts.take({"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1})
    counts.take({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7})
    assert counts.usage() == Usage(15, 7, 5, None, None, "reported")
    counts.take({"input_tokens": 12})
    assert counts.usage() == Usage(17, 7, 5, None, None, "reported")


def test_names_are_found_in_an_answer_and_in_a_streams_first_frame() -> None:
    assert read_identity(b'{"id":"a","model":"m","content":[]}') == Identity("a", "m")
    assert read_identity(b'{"type":"message_start","message":{"id":"a","model":"m"}}') == Identity("a", "m")
    assert read_identity(b'{"id":5}') == read_identity(b"") == Identity()


@pytest.mark.parametrize(
    ("ours", "status", "theirs"),
    [
        ("invalid_request", 400, "invalid_request_error"),
        ("invalid_request", 401, "authentication_error"),
        ("invalid_request", 403, "permission_error"),
        ("invalid_request", 404, "not_found_error"),
        ("invalid_request", 413, "request_too_large"),
        ("invalid_request", 415, "invalid_request_error"),
        ("invalid_request", 0, "invalid_request_error"),
        ("upstream_error", 429, "rate_limit_error"),
        ("upstream_error", 502, "api_error"),
        ("upstream_error", 503, "overloaded_error"),
        ("upstream_error", 504, "timeout_error"),
        ("upstream_error", 0, "api_error"),
        ("internal", 500, "api_error"),
    ],
)
def test_errors_have_the_apis_own_type_beside_our_code(ours: str, status: int, theirs: str) -> None:
    told = json.loads(error_body("LM-1", "what to do", ours, status))
    assert told == {"type": "error", "error": {"type": theirs, "message": "what to do", "code": "LM-1"}}


def test_error_frame_is_named_and_ends() -> None:
    body = error_body("LM-1", "x", "internal")
    assert error_frame("LM-1", "x", "internal") == b"event: error\ndata: " + body + b"\n\n"


def test_message_no_json_can_carry_is_still_told() -> None:
    assert json.loads(error_body("LM-1", "x\ud800", "internal"))["error"]["message"] == "x?"


@pytest.mark.parametrize("recording", recorded(lambda entry: is_message(entry) and not entry["stream"]))
def test_recorded_answers_have_output_usage_and_a_reason(recording: Recording) -> None:
    seen = read_answer(recording.body)
    assert seen.has_output
    assert seen.usage is not None
    assert seen.finish_reasons[0] in {"stop", "length", "tool_calls"}
    assert read_identity(recording.body).id is not None
