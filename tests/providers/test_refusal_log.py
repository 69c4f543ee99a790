"""A vendor's message in the log: one line, bounded, without keys and without the request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.recordings import Recording, recorded

from lumen_gateway.providers.refusal_log import MAX_CHARACTERS, log_text


def logged(message: str) -> str | None:
    return log_text(json.dumps({"error": {"message": message}}).encode())


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "Boom"}},
        {"message": "Boom"},
        {"error_description": "Boom"},
        {"error": "Boom"},
        {"code": "c", "error": "Boom"},
        {"detail": "Boom"},
        [{"error": {"message": "Boom"}}, {}],
        {"error": {"message": "Boom"}, "message": "other", "detail": "other"},
    ],
)
def test_message_is_found_where_vendors_put_it(document: Any) -> None:
    assert log_text(json.dumps(document).encode()) == "Boom"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"1",
        b"{}",
        b'{"detail":[{"msg":"x"}]}',
        b'{"error":{"message":""}}',
        b"\xff",
        b"[" * 9999,
    ],
)
def test_nothing_is_logged_where_there_is_no_message(body: bytes) -> None:
    assert log_text(body) is None


@pytest.mark.parametrize(
    "key",
    [
        "sk-abc",
        "sk_live",
        "pk-abc",
        "rk-abc",
        "AIzaSyA",
        "ya29.a0Af",
        "AKIAIOSFODNN",
        "ASIAX",
        "gsk_abc",
        "xai-abc",
        "hf_abc",
        "pcsk_abc",
        "a1b2c3d4e5f6a7b8c9d0e1",
        "prefix-a1b2c3d4e5f6a7b8c9d0e1",
    ],
)
def test_what_looks_like_a_credential_is_blanked(key: str) -> None:
    for message in (f"bad {key} here", f"bad '{key}'.", f"Authorization: Bearer {key}", f"({key})"):
        line = logged(message)
        assert line is not None
        assert key not in line
        assert "***" in line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("Incorrect API key provided: in***ey. You can", "Incorrect API key provided: *** You can"),
        ("Your api key: ****-key is invalid", "Your api key: *** is invalid"),
        ("token=abc, next", "token=***, next"),
        ('"password": "hunter2"', '"password": "***"'),
        ("secret is: x", "secret is: ***"),
        ("token expired or incorrect", "token expired or incorrect"),
        ("maximum is 4096 tokens: 5000 given", "maximum is 4096 tokens: 5000 given"),
        ("see request req_011CSHoEeqs5C35K2UUqR7Fy", "see request req_011CSHoEeqs5C35K2UUqR7Fy"),
        ("ref 00000000-0000-0000-0000-000000000000", "ref 00000000-0000-0000-0000-000000000000"),
        ("the model gpt-3.5-turbo-instruct-0914", "the model gpt-3.5-turbo-instruct-0914"),
    ],
)
def test_values_after_credential_words_are_blanked_and_ids_kept(message: str, line: str) -> None:
    assert logged(message) == line


def test_echo_of_the_request_is_cut() -> None:
    assert logged("Input should be a string, 'input': 'my prompt'") == "Input should be a string,"
    assert logged("1 error [type=x, input_value='my prompt']") == "1 error [type=x,"


def test_line_is_one_line_of_printable_text() -> None:
    assert logged("a\n\tb\r\n  c\x1b[31m d\u2028e") == "a b c [31m d e"


def test_long_message_is_cut() -> None:
    line = logged("word " * 500)
    assert line is not None
    assert len(line) == MAX_CHARACTERS + 1
    assert line.endswith("…")


@pytest.mark.parametrize("recording", recorded(lambda entry: entry["status"] >= 400))
def test_recorded_refusal_gives_a_line_or_none(recording: Recording) -> None:
    line = log_text(recording.body)
    assert line is None or (line.isprintable() and 0 < len(line) <= MAX_CHARACTERS + 1)
