"""Whole answers: the verdict on them, usage, and how our own errors look."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.responses_wire import is_response, is_response_stream
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.responses_answer import error_frame, read_answer, read_usage, write_usage
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def body(*output: Any, status: str | None = "completed", **fields: Any) -> bytes:
    return json.dumps({"id": "r", "status": status, "output": list(output), **fields}).encode()


@pytest.mark.parametrize(
    ("output", "finish"), [([message("hi")], "stop"), ([message("hi"), CALL], "tool_calls"), ([CALL], "tool_calls")]
)
def test_complete_answer_has_output_and_a_finish(output: list[Any], finish: str) -> None:
    answer = read_answer(body(*output))
    assert (answer.has_output, answer.finish_reasons, answer.empty, answer.error) == (True, (finish,), False, None)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("novelty", "unknown"), (None, "unknown")],
)
def test_incomplete_answer_says_why(reason: str | None, finish: str) -> None:
    answer = read_answer(body(status="incomplete", incomplete_details={"reason": reason}))
    assert answer.finish_reasons == (finish,)
    assert answer.filtered is (finish == "content_filter")
    assert not answer.empty


@pytest.mark.parametrize(
    "item", [message(""), {"type": "reasoning", "summary": []}, {"type": "message", "content": None}]
)
def test_answer_without_a_word_is_empty(item: Any) -> None:
    assert read_answer(body(item)).empty


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "web_search_call"},
    ],
)
def test_what_else_a_model_puts_out_is_output(item: Any) -> None:
    assert read_answer(body(item)).has_output


def test_answer_made_in_the_background_is_not_over() -> None:
    answer = read_answer(body(status="queued"))
    assert (answer.empty, answer.finish_reasons) == (False, ())


@pytest.mark.parametrize(
    "failed", [body(status="failed", error={"code": "server_error"}), body(status="failed"), b'{"error":{"code":"x"}}']
)
def test_failed_answer_is_an_error(failed: bytes) -> None:
    assert read_answer(failed).error == failed


@pytest.mark.parametrize("odd", [b"", b"[]", b"{}", b'{"output":3}', b'{"output":null}', b"\xff"])
def test_what_is_no_response_is_malformed(odd: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_answer(odd)
    assert caught.value.kind is Kind.MALFORMED


def test_text_is_measured_where_no_usage_is_reported() -> None:
    assert read_answer(body(message("four"))).output_bytes == 4
    assert read_answer(body(message("four"), usage={"input_tokens": 1, "output_tokens": 1})).output_bytes == 0


def test_usage_is_read_and_written_alike() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 17,
    }
    read = read_usage(usage)
    assert read == Usage(10, 7, cached=4, cache_write=2, reasoning=5, origin="reported")
    assert write_usage(read) == usage


def test_usage_that_is_none_is_none() -> None:
    assert read_usage("much") is read_usage({}) is None
    assert write_usage(None) is None


def test_estimated_usage_is_marked() -> None:
    written = write_usage(Usage(1, 2, origin="estimated"))
    assert written is not None
    assert written["estimated"] is True


def test_error_ends_a_stream_with_the_next_number() -> None:
    name, data = error_frame("LM-3001", "it broke\ud800", "upstream", 7).split(b"\n", 1)
    assert name == b"event: error"
    told = json.loads(data.removeprefix(b"data: "))
    assert told == {
        "type": "error",
        "code": "LM-3001",
        "message": "it broke?",
        "param": None,
        "error": {"type": "upstream", "code": "LM-3001", "message": "it broke?", "param": None},
        "sequence_number": 7,
    }


@pytest.mark.parametrize("recording", recorded(lambda entry: is_response(entry) and not is_response_stream(entry)))
def test_recorded_answers_are_read(recording: Recording) -> None:
    answer = read_answer(recording.body)
    assert answer.has_output
    assert answer.error is None
    assert answer.usage is not None
