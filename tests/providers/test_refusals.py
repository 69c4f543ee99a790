"""Refusals mean what the body says first and what the status says second."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.errors import Kind, Trigger
from lumen_gateway.providers.refusals import MAX_COOL_S, Refusal, classify, classify_in_stream

NOW_S = 1_754_667_650.0
NO_HEADERS: dict[bytes, bytes] = {}


def refused(status: int, document: Any = None, **headers: str) -> Refusal:
    body = b"" if document is None else json.dumps(document).encode()
    lookup = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return classify(status, lookup.get, body, NOW_S)


def said(status: int, message: str) -> Kind:
    return refused(status, {"error": {"message": message}}).kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, Kind.UPSTREAM_REFUSED),
        (400, Kind.UPSTREAM_REFUSED),
        (401, Kind.AUTH_FAILED),
        (402, Kind.QUOTA_EXHAUSTED),
        (403, Kind.AUTH_FAILED),
        (404, Kind.UPSTREAM_NOT_FOUND),
        (405, Kind.UPSTREAM_NOT_FOUND),
        (408, Kind.READ_TIMEOUT),
        (409, Kind.UPSTREAM_REFUSED),
        (410, Kind.UPSTREAM_NOT_FOUND),
        (413, Kind.UPSTREAM_REFUSED),
        (422, Kind.UPSTREAM_REFUSED),
        (429, Kind.RATE_LIMITED),
        (500, Kind.UPSTREAM_ERROR),
        (501, Kind.UPSTREAM_ERROR),
        (503, Kind.UPSTREAM_ERROR),
        (529, Kind.UPSTREAM_ERROR),
        (599, Kind.UPSTREAM_ERROR),
    ],
)
def test_status_decides_where_the_body_says_nothing(status: int, kind: Kind) -> None:
    assert refused(status).kind is kind
    assert refused(status, {"error": {"message": "something went wrong"}}).kind is kind
    assert classify(status, NO_HEADERS.get, b"<html>\xff", NOW_S).kind is kind


@pytest.mark.parametrize("status", [400, 403, 413, 422])
@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000",
        "prompt is too long: 200021 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        "request (9 tokens) exceeds the available context size (5 tokens)",
        "prompt too long; exceeded max context length by 5 tokens",
        "The input (9 tokens) is longer than the model's context length (5 tokens).",
        "Please reduce the length of the messages or completion.",
        "`inputs` tokens + `max_new_tokens` must be <= 4097",
        "Current length is 9 while limit is 8",
    ],
)
def test_prompt_that_is_too_long_is_told_from_other_refusals(status: int, message: str) -> None:
    assert said(status, message) is Kind.CONTEXT_LENGTH


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_context_phrases_count_only_where_a_prompt_is_refused(status: int) -> None:
    assert said(status, "maximum context length") is not Kind.CONTEXT_LENGTH


@pytest.mark.parametrize("key", ["code", "type", "reason", "status", "error_type"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("context_length_exceeded", Kind.CONTEXT_LENGTH),
        ("TOO_MANY_TOKENS", Kind.CONTEXT_LENGTH),
        ("content_filter", Kind.CONTENT_FILTER),
        ("data_inspection_failed", Kind.CONTENT_FILTER),
    ],
)
def test_code_is_found_at_any_depth_under_each_key(key: str, code: str, kind: Kind) -> None:
    assert refused(400, {"error": {"innererror": [{key: code}]}}).kind is kind


def test_code_counts_only_as_the_whole_value_of_such_a_key() -> None:
    for document in ({"param": "content_filter"}, {"message": "content_filter"}, {"code": "no_content_filter_here"}):
        assert refused(400, {"error": document}).kind is Kind.UPSTREAM_REFUSED


def test_code_decides_in_a_body_that_was_cut() -> None:
    body = b'{"error":{"code":"context_length_exceeded","message":"Your in'
    assert classify(400, NO_HEADERS.get, body, NOW_S).kind is Kind.CONTEXT_LENGTH


def test_context_length_comes_before_policy() -> None:
    assert said(400, "context window; content management policy") is Kind.CONTEXT_LENGTH


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "the prompt triggering Azure OpenAI\u2019s content management policy"),
        (400, "Output blocked by content filtering policy"),
        (403, "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_X"),
        (400, "Content Exists Risk"),
        (403, "This model requires moderation on OpenRouter"),
    ],
)
def test_policy_is_told_from_a_missing_right(status: int, message: str) -> None:
    assert said(status, message) is Kind.CONTENT_FILTER


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (429, {"error": {"code": "insufficient_quota"}}, Kind.QUOTA_LIMITED),
        (429, {"error": "used all available credits or reached its monthly spending limit"}, Kind.QUOTA_LIMITED),
        (429, {"error": {"message": "Rate limit reached on tokens per day (TPD): Limit 5"}}, Kind.QUOTA_LIMITED),
        (429, {"error": {"details": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}}, Kind.QUOTA_LIMITED),
        (400, {"error": {"message": "Your credit balance is too low to access"}}, Kind.QUOTA_EXHAUSTED),
        (402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}, Kind.QUOTA_EXHAUSTED),
        (403, {"error": "your team doesn't have any credits or licenses yet"}, Kind.QUOTA_EXHAUSTED),
        (
            412,
            {"error": {"message": "suspended, possibly due to reaching the monthly spending limit"}},
            Kind.QUOTA_EXHAUSTED,
        ),
    ],
)
def test_bill_that_is_not_paid_is_a_quota_whatever_the_status(status: int, document: Any, kind: Kind) -> None:
    seen = refused(status, document)
    assert (seen.kind, seen.cool_s) == (kind, MAX_COOL_S)


@pytest.mark.parametrize(
    "document",
    [
        {
            "code": "request_quota_exceeded",
            "message": "Requests per second limit exceeded",
            "type": "too_many_requests_error",
        },
        {
            "error": {
                "message": "You have been rate limited. Your rate limit is 60 queries per minute",
                "type": "credit_limit",
            }
        },
        {"error": {"message": "Resource has been exhausted (e.g. check quota).", "status": "RESOURCE_EXHAUSTED"}},
        {"error": {"message": "You exceeded your current quota", "details": [{"quotaId": "TokensPerModelPerMinute"}]}},
        {"error": {"code": "1305", "message": "temporarily overloaded"}},
    ],
)
def test_limit_that_a_minute_cures_is_no_quota(document: Any) -> None:
    assert refused(429, document).kind is Kind.RATE_LIMITED


def test_every_429_matches_rate_limited() -> None:
    for document in (
        None,
        {"error": {"code": "insufficient_quota"}},
        {"error": {"message": "Request too large for m"}},
    ):
        assert refused(429, document).kind.row.triggers & Trigger.RATE_LIMITED


def test_request_larger_than_the_minute_s_budget_is_not_retried_and_is_no_context_length() -> None:
    document = {
        "error": {"code": "rate_limit_exceeded", "message": "Request too large for model `m` on tokens per minute"}
    }
    assert refused(429, document).kind is Kind.RATE_TOO_SMALL
    assert refused(413, document).kind is Kind.RATE_TOO_SMALL
    assert said(413, "Request too large for us") is Kind.UPSTREAM_REFUSED


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (
            {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: in***ey"},
            Kind.AUTH_FAILED,
        ),
        ({"error": {"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}, Kind.AUTH_FAILED),
        ({"code": "invalid-argument", "error": "Model not found: grok-9"}, Kind.UPSTREAM_NOT_FOUND),
        ({"type": "invalid_model", "code": "1500"}, Kind.UPSTREAM_NOT_FOUND),
        ({"error": {"message": "openai/x is not a valid model ID"}}, Kind.UPSTREAM_NOT_FOUND),
        (
            {"error": {"message": "The supported API model names are a or b, but you passed c."}},
            Kind.UPSTREAM_NOT_FOUND,
        ),
        ({"error": {"message": "The model 'dall-e-3' does not exist."}}, Kind.UPSTREAM_NOT_FOUND),
        ({"error": {"message": "the file does not exist"}}, Kind.UPSTREAM_REFUSED),
    ],
)
def test_400_may_be_a_bad_key_or_an_unknown_model(document: Any, kind: Kind) -> None:
    assert refused(400, document).kind is kind


def test_wait_is_read_where_waiting_helps() -> None:
    assert refused(429, retry_after="7").retry_after_s == 7
    assert refused(503, retry_after="7").retry_after_s == 7
    assert refused(408, retry_after_ms="250").retry_after_s == 0.25
    assert refused(429, {"error": {"message": "try again in 2.5s"}}).retry_after_s == 2.5
    assert refused(400, retry_after="7").retry_after_s is None
    assert refused(404, retry_after="7").retry_after_s is None


def test_quota_cools_for_the_stated_reset_at_most_five_minutes() -> None:
    quota = {"error": {"code": "insufficient_quota"}}
    assert refused(429, quota, retry_after="20").cool_s == 20
    assert refused(429, quota, retry_after="86400") == Refusal(Kind.QUOTA_LIMITED, 86400, MAX_COOL_S)
    assert refused(429, quota, retry_after="0").cool_s == MAX_COOL_S
    assert refused(402).cool_s == MAX_COOL_S


def test_rate_limit_leaves_cooling_to_the_retry_budget() -> None:
    assert refused(429, retry_after="86400").cool_s is None


def in_stream(payload: Any) -> Kind:
    return classify_in_stream(payload if isinstance(payload, bytes) else json.dumps(payload).encode(), NOW_S).kind


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"code": 429, "message": "x"}}, Kind.RATE_LIMITED),
        ({"error": {"code": "429"}}, Kind.RATE_LIMITED),
        ({"error": {"type": "rate_limit_error"}}, Kind.RATE_LIMITED),
        ({"error": {"status": "RESOURCE_EXHAUSTED"}}, Kind.RATE_LIMITED),
        ({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}, Kind.QUOTA_LIMITED),
        ({"error": {"message": "Insufficient credits"}}, Kind.QUOTA_EXHAUSTED),
        ({"error": {"type": "overloaded_error"}}, Kind.UPSTREAM_ERROR),
        ({"error": {"code": 502}}, Kind.UPSTREAM_ERROR),
        ({"error": {"code": 400, "message": "maximum context length is 5"}}, Kind.CONTEXT_LENGTH),
        ({"error": {"message": "maximum context length is 5"}}, Kind.CONTEXT_LENGTH),
        ({"error": {"code": "content_filter"}}, Kind.CONTENT_FILTER),
        ({"error": {"http_status_code": 422}}, Kind.UPSTREAM_REFUSED),
        ({"error": {"type": "invalid_request_error", "message": "bad field"}}, Kind.UPSTREAM_REFUSED),
        ({"error": {"type": "authentication_error"}}, Kind.AUTH_FAILED),
        ({"error": {"type": "BadRequestError", "code": 400, "message": "x"}}, Kind.UPSTREAM_REFUSED),
        ({"error": {"message": "The model `x` does not exist", "code": 404}}, Kind.UPSTREAM_NOT_FOUND),
        ({"error": "something"}, Kind.UPSTREAM_ERROR),
        ({"error": {"code": "abort"}}, Kind.UPSTREAM_ERROR),
        (b"plain text", Kind.UPSTREAM_ERROR),
        (b"", Kind.UPSTREAM_ERROR),
    ],
)
def test_error_inside_a_200_means_what_its_status_would(payload: Any, kind: Kind) -> None:
    assert in_stream(payload) is kind


def test_wait_is_read_from_an_error_inside_a_stream() -> None:
    payload = b'{"error":{"code":429,"message":"Please try again in 3s"}}'
    assert classify_in_stream(payload, NOW_S) == Refusal(Kind.RATE_LIMITED, 3.0)


RECORDED_KINDS = {
    "auth": Kind.AUTH_FAILED,
    "permission": Kind.AUTH_FAILED,
    "content_filter": Kind.CONTENT_FILTER,
    "context_length": Kind.CONTEXT_LENGTH,
    "invalid_request": Kind.UPSTREAM_REFUSED,
    "unprocessable": Kind.UPSTREAM_REFUSED,
    "too_large": Kind.UPSTREAM_REFUSED,
    "unknown_model": Kind.UPSTREAM_NOT_FOUND,
    "rate_limit": Kind.RATE_LIMITED,
    "timeout": Kind.READ_TIMEOUT,
    "overloaded": Kind.UPSTREAM_ERROR,
    "unavailable": Kind.UPSTREAM_ERROR,
    "server_error": Kind.UPSTREAM_ERROR,
}
RECORDED_EXCEPTIONS = {
    "llamacpp/embed-error-500-context-length-01.json": Kind.UPSTREAM_ERROR,  # bodies of 5xx are not read
    "openai/chat-error-429-rate-limit-02.json": Kind.RATE_TOO_SMALL,
    "openai/responses-error-429-quota-01.json": Kind.QUOTA_LIMITED,
    "anthropic/messages-error-400-quota-01.json": Kind.QUOTA_EXHAUSTED,
    "gemini/generate-content-error-429-quota-01.json": Kind.RATE_LIMITED,  # a quota per minute
}


@pytest.mark.parametrize("recording", recorded(lambda entry: entry["status"] >= 400))
def test_recorded_refusal_is_what_it_was_filed_as(recording: Recording) -> None:
    (filed,) = (feature.removeprefix("error:") for feature in recording.features if feature.startswith("error:"))
    expected = RECORDED_EXCEPTIONS.get(recording.file) or RECORDED_KINDS[filed]
    assert classify(recording.status, recording.headers.get, recording.body, NOW_S).kind is expected


@pytest.mark.parametrize("recording", recorded(lambda entry: entry["status"] == 429))
def test_recorded_wait_is_found_wherever_it_is_told(recording: Recording) -> None:
    wait = classify(recording.status, recording.headers.get, recording.body, NOW_S).retry_after_s
    told = any(mark in recording.body for mark in (b"try again in ", b"retryDelay", b"X-RateLimit-Reset"))
    assert (wait is not None) is (told or any(name.startswith(b"retry-after") for name in recording.headers))


@pytest.mark.parametrize(
    "recording", recorded(lambda entry: entry["status"] >= 400 and entry["api"] == "chat" and entry["status"] < 500)
)
def test_recorded_refusal_means_nearly_the_same_inside_a_stream(recording: Recording) -> None:
    alone = classify_in_stream(recording.body, NOW_S).kind
    expected = classify(recording.status, recording.headers.get, recording.body, NOW_S).kind
    if expected in (Kind.CONTEXT_LENGTH, Kind.CONTENT_FILTER):
        assert alone is expected
    else:
        assert alone not in (Kind.CONTEXT_LENGTH, Kind.CONTENT_FILTER)


@pytest.mark.parametrize("recording", recorded(lambda entry: is_chat_answer(entry) and not entry["stream"]))
def test_recorded_answer_would_never_pass_for_a_refused_prompt(recording: Recording) -> None:
    assert classify_in_stream(recording.body, NOW_S).kind is Kind.UPSTREAM_ERROR
