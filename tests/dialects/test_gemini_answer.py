"""Whole answers: the verdict on each, what it says, and what its usage means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.gemini_wire import body, is_body
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.gemini_answer import FAILED_FINISHES, judge, read_answer, read_finish, read_usage
from lumen_gateway.dialects.neutral import Native, Text, Thinking, ToolCall
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.providers.refusals import classify_in_stream
from lumen_gateway.records import Usage

CALL = {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "sig"}
BLOCKED = json.dumps({"promptFeedback": {"blockReason": "OTHER"}, "responseId": "r1"}).encode()


def test_text_thought_and_calls_are_told_in_their_order() -> None:
    told = read_answer(
        body({"text": "hm", "thought": True}, {"text": "yes"}, {"text": "", "thoughtSignature": "s"}, CALL, CALL), {}
    )
    assert told.parts == [
        Thinking(text="hm"),
        Text(text="yes"),
        ToolCall(id="call_r1_0", name="f", arguments='{"a": 1}', signature="sig"),
        ToolCall(id="call_r1_1", name="f", arguments='{"a": 1}', signature="sig"),
    ]
    assert (told.id, told.model, told.finish) == ("r1", "gem", "tool_calls")


def test_call_keeps_an_id_of_its_own_and_gets_the_clients_name_and_arguments() -> None:
    call = {"functionCall": {"id": "x7", "name": "_short", "args": None}}
    assert read_answer(body(call), {"_short": "1 long"}).parts == [ToolCall(id="x7", name="1 long")]
    assert read_answer(body({"functionCall": {"name": "f"}}), {}).parts == [ToolCall(id="call_r1_0", name="f")]


def test_answers_without_an_id_get_one_that_tells_them_apart() -> None:
    ids = {
        read_answer(body({"text": "x"}, responseId=None, usageMetadata={"promptTokenCount": count}), {}).id
        for count in (1, 2)
    }
    assert len(ids) == 2
    assert all(ids)


def test_part_that_only_this_dialect_has_is_kept_whole() -> None:
    raw = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}
    (part,) = read_answer(body(raw), {}).parts
    assert isinstance(part, Native)
    assert (part.dialect, json.loads(bytes(part.block))) == ("gemini", raw)


@pytest.mark.parametrize(
    ("reason", "calls", "finish"),
    [
        ("STOP", False, "stop"),
        ("STOP", True, "tool_calls"),
        ("", False, "stop"),
        ("MAX_TOKENS", True, "length"),
        ("SAFETY", False, "content_filter"),
        ("MODEL_ARMOR", False, "content_filter"),
        ("UNHEARD_OF", False, "stop"),
    ],
)
def test_finish_is_told_in_the_words_of_all(reason: str, calls: bool, finish: str) -> None:
    assert read_finish(reason, calls=calls) == finish


def test_verdict_on_an_answer_holds_its_output() -> None:
    verdict = judge(body({"text": "née"}))
    assert (verdict.has_output, verdict.finish_reasons, verdict.output_bytes) == (True, ("stop",), 4)
    assert (verdict.filtered, verdict.empty) == (False, False)


@pytest.mark.parametrize("answer", [BLOCKED, b'{"candidates":[{"content":{},"finishReason":"SAFETY"}]}'])
def test_blocked_prompt_and_withheld_answer_are_filtered(answer: bytes) -> None:
    verdict = judge(answer)
    assert verdict.filtered
    assert verdict.error is None
    assert read_answer(answer, {}).finish == "content_filter"


def test_filter_behind_output_is_an_answer() -> None:
    assert not judge(body({"text": "x"}, reason="SAFETY")).filtered


def test_answer_with_nothing_in_it_is_empty() -> None:
    assert judge(body({"text": ""})).empty
    assert judge(b'{"candidates":[{}]}').empty
    assert not judge(body(reason="MAX_TOKENS")).empty


@pytest.mark.parametrize("reason", sorted(FAILED_FINISHES))
def test_model_that_gave_up_is_an_upstream_that_failed(reason: str) -> None:
    verdict = judge(body(reason=reason, usageMetadata={"promptTokenCount": 5}))
    assert verdict.error is not None
    assert verdict.usage == Usage(5, 0, origin="reported")
    assert classify_in_stream(verdict.error, 0.0).kind is Kind.UPSTREAM_ERROR


def test_error_under_a_good_status_is_one() -> None:
    error = b'{"error":{"code":429,"message":"no","status":"RESOURCE_EXHAUSTED"}}'
    assert judge(error).error == error


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"candidates":[]}', b'{"candidates":[{"content":5}]}', b"\xff"]
)
def test_what_is_no_answer_is_malformed(answer: bytes) -> None:
    with pytest.raises(Failure) as caught:
        judge(answer)
    assert caught.value.kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"promptTokenCount": 0}, None),
        ({"promptTokenCount": -1, "candidatesTokenCount": True}, None),
        ({"promptTokenCount": 5, "candidatesTokenCount": 2}, Usage(5, 2, origin="reported")),
        (
            {"promptTokenCount": 50, "candidatesTokenCount": 20, "thoughtsTokenCount": 100},
            Usage(50, 120, reasoning=100, origin="reported"),
        ),
        (
            {"promptTokenCount": 10, "cachedContentTokenCount": 8, "toolUsePromptTokenCount": 3},
            Usage(13, 0, cached=8, origin="reported"),
        ),
    ],
)
def test_usage_counts_thoughts_as_output_and_cached_tokens_once(usage: Any, expected: Usage | None) -> None:
    assert read_usage(usage) == expected


@pytest.mark.parametrize("recording", recorded(is_body))
def test_recorded_answer_is_read_whole(recording: Recording) -> None:
    verdict, told = judge(recording.body), read_answer(recording.body, {})
    assert verdict.error is None
    assert verdict.has_output == bool(told.parts)
    assert told.finish in verdict.finish_reasons or told.finish == "tool_calls"
    wire = json.loads(recording.body)
    reported = wire["usageMetadata"]
    if verdict.usage is not None:
        assert verdict.usage.input + verdict.usage.output == reported["totalTokenCount"]
    texts = [
        part["text"]
        for part in wire.get("candidates", [{}])[0].get("content", {}).get("parts", ())
        if part.get("text") and not part.get("thought")
    ]
    assert [part.text for part in told.parts if isinstance(part, Text)] == texts
