"""Error bodies of any envelope, whole or cut: codes and text are found, echoes of the request are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.providers.refusal_body import ErrorBody, before_echo, read


def read_json(document: Any) -> ErrorBody:
    return read(json.dumps(document).encode())


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "Boom", "code": "The_Code"}},
        [{"error": {"message": "Boom", "code": "The_Code"}}],
        {"message": "Boom", "type": "the_code"},
        {"code": "the_code", "error": "Boom"},
        {"detail": {"error_type": "the_code", "message": "Boom"}},
        {"detail": [{"type": "the_code", "msg": "Boom"}]},
        {"errors": [{"code": 5007, "message": "Boom", "reason": "the_code"}]},
        {"error": {"message": "x", "metadata": {"raw": '{"error":{"message":"Boom","code":"the_code"}}'}}},
        {"choices": [{"delta": {"content": "text"}}], "error": {"message": "Boom", "code": "the_code"}},
    ],
)
def test_code_and_text_are_found_in_every_envelope(document: Any) -> None:
    seen = read_json(document)
    assert "the_code" in seen.codes
    assert "boom" in seen.text


def test_code_is_also_text_and_other_keys_are_no_codes() -> None:
    seen = read_json({"error": {"code": "Some resource has been exhausted", "param": "content_filter"}})
    assert seen.codes == {"some resource has been exhausted"}
    assert "resource has been exhausted" in seen.text


@pytest.mark.parametrize(
    "body", [b"", b"  ", b"<html>Bad Gateway</html>", b"upstream request timeout", b"\xff\xfe", b"[" * 9999]
)
def test_body_that_is_no_json_is_text(body: bytes) -> None:
    seen = read(body)
    assert (seen.codes, seen.status) == (frozenset(), None)


def test_cut_body_still_shows_its_codes() -> None:
    body = b'{"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"This model\'s max'
    assert read(body).codes == {"context_length_exceeded", "invalid_request_error"}


def test_what_the_client_sent_is_not_read() -> None:
    echo = {"type": "content_filter", "text": "context window"}
    for document in (
        {"detail": [{"type": "list_type", "input": echo}]},
        {"error": {"code": "list_type", "failed_generation": "context window"}},
        {"error": {"code": "list_type", "metadata": {"flagged_input": "context window"}}},
        {"code": "list_type", "message": "[{'type': 'x', 'input': 'context window'}]"},
    ):
        for body in (json.dumps(document).encode(), json.dumps(document).encode()[:-2]):
            seen = read(body)
            assert "list_type" in seen.codes
            assert "content_filter" not in seen.codes
            assert "context window" not in seen.text


def test_answer_s_text_beside_an_error_is_not_read() -> None:
    document = {"choices": [{"delta": {"content": "context window"}}], "error": {"code": 502, "message": "boom"}}
    assert "context window" not in read_json(document).text


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"error": {"code": 429}}, 429),
        ({"error": {"code": "503"}}, 503),
        ({"error": {"http_status_code": 422}}, 422),
        ({"error": {"code": "tool_use_failed", "status_code": 400}}, 400),
        ({"error": {"code": 1305}}, None),
        ({"error": {"code": "1305"}}, None),
        ({"error": {"code": True, "status": 200}}, None),
        ({"error": {"code": 429, "metadata": {"code": 500}}}, 429),
    ],
)
def test_status_told_in_the_body(document: Any, status: int | None) -> None:
    assert read_json(document).status == status


def test_waits_told_in_the_body() -> None:
    seen = read_json(
        {"error": {"details": [{"retryDelay": "48s"}], "metadata": {"headers": {"X-RateLimit-Reset": "1754667660000"}}}}
    )
    assert (seen.retry_delay, seen.reset_ms) == ("48s", 1754667660000)


def test_text_before_an_echo() -> None:
    assert before_echo("bad value, 'input': secret") == "bad value, "
    assert before_echo("type=x, input_value=secret") == "type=x, "
    assert before_echo("the input is bad") == "the input is bad"


@given(st.binary(max_size=100))
def test_any_bytes_are_read(body: bytes) -> None:
    assert isinstance(read(body), ErrorBody)
