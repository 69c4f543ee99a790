"""What every answer carries, who served it, and errors in their envelope."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from lumen_gateway import respond
from lumen_gateway.dialects.wire import CHAT, MESSAGES, RESPONSES, Dialect
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import AttemptRecord, RequestRecord
from lumen_gateway.routing.plan import Attempt

ATTEMPTS = (Attempt("a/m", "a", route="smart>a/m"), Attempt("b/m", "b", route="smart>b/m"))


def served_by(index: int, virtual: str | None = "smart", provider: str = "b") -> RequestRecord:
    attempt = ATTEMPTS[index]
    record = RequestRecord("id", virtual_model=virtual)
    route = None if virtual is None else attempt.route
    record.attempts = [AttemptRecord(index, attempt.leaf, provider, route=route)]
    return record


def fields(lines: bytes) -> dict[str, str]:
    assert lines.endswith(b"\r\n")
    pairs = (line.partition(": ") for line in lines.decode("ascii").split("\r\n")[:-1])
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("sent", [b"x", b"mine", b"a" * 128, b"!~"])
def test_printable_request_id_is_kept(sent: bytes) -> None:
    assert respond.request_id(sent) == sent.decode()


@pytest.mark.parametrize("sent", [None, b"", b"a" * 129, b"a b", b"a\tb", b"\xc3\xa9", b"a\r\nb"])
def test_any_other_is_replaced_by_a_uuid(sent: bytes | None) -> None:
    made = respond.request_id(sent)
    assert uuid.UUID(made).version == 4
    assert str(uuid.UUID(made)) == made
    assert respond.request_id(sent) != made


@pytest.mark.parametrize(("status", "line"), [(200, "200 OK"), (404, "404 Not Found"), (529, "529 "), (599, "599 ")])
def test_head_has_the_id_and_what_keeps_browsers_safe(status: int, line: str) -> None:
    first, _, rest = respond.head(status, "id-1", respond.JSON).partition(b"\r\n")
    assert first.decode().startswith(f"HTTP/1.1 {line}")
    assert fields(rest) == {
        "x-request-id": "id-1",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "content-type": "application/json",
    }


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_head_has_the_id_where_anthropics_sdks_look_for_it(path: str) -> None:
    lines = fields(respond.head(200, "id-1", b"", path).partition(b"\r\n")[2])
    assert (lines["x-request-id"], lines["request-id"]) == ("id-1", "id-1")


def test_direct_answer_names_model_and_provider() -> None:
    lines = fields(respond.served(served_by(0, virtual=None, provider="a"), ATTEMPTS))
    assert lines == {"x-lumen-model-used": "a/m", "x-lumen-provider": "a", "x-lumen-reason": "direct"}


def test_virtual_answer_names_its_route() -> None:
    assert fields(respond.served(served_by(0, provider="a"), ATTEMPTS)) == {
        "x-lumen-model-used": "a/m",
        "x-lumen-provider": "a",
        "x-lumen-route": "smart>a/m",
        "x-lumen-virtual-model": "smart",
        "x-lumen-reason": "virtual-model",
    }


def test_fallback_names_where_it_came_from() -> None:
    lines = fields(respond.served(served_by(1), ATTEMPTS))
    assert (lines["x-lumen-model-used"], lines["x-lumen-fallback-from"]) == ("b/m", "a/m")
    assert lines["x-lumen-fallback-index"] == "0"


def test_comment_says_the_same_in_one_line() -> None:
    record = served_by(1)
    comment = respond.served_comment(record, ATTEMPTS)
    assert comment.startswith(b": ")
    assert comment.count(b"\n") == 1
    pairs = [f"{name}={value}" for name, value in fields(respond.served(record, ATTEMPTS)).items()]
    assert comment.decode() == ": " + " ".join(pairs) + "\n"


@pytest.mark.parametrize("provider", ["prövider", "a\r\nx-evil: 1", "日本", "a\x00b", "a\u2028b"])
def test_name_that_no_header_can_carry_is_escaped(provider: str) -> None:
    lines = respond.served(served_by(0, provider=provider), ATTEMPTS)
    assert lines.isascii()
    assert lines.decode().replace("\r\n", "").isprintable()
    assert set(fields(lines)) >= {"x-lumen-provider"}
    assert "x-evil" not in fields(lines)


def test_error_is_code_message_and_type() -> None:
    failure = Failure(Kind.UNKNOWN_MODEL, 'no "model"\n', headers=(("allow", "GET"),))
    status, headers, body = respond.failure_answer(failure)
    assert status == 404
    assert fields(headers) == {"content-type": "application/json", "allow": "GET"}
    assert msgspec.json.decode(body) == {
        "error": {"code": "LM-2001", "message": 'no "model"\n', "type": "invalid_request"}
    }


@pytest.mark.parametrize(
    ("kind", "wait_s", "expected"),
    [
        (Kind.RATE_LIMITED, 12.9, "12"),
        (Kind.RATE_LIMITED, 0.4, "0"),
        (Kind.RATE_LIMITED, -3.0, "0"),
        (Kind.CIRCUIT_OPEN, 30.0, "30"),
        (Kind.RATE_LIMITED, None, None),
        (Kind.UPSTREAM_ERROR, 30.0, None),
    ],
)
def test_wait_is_whole_seconds_where_waiting_helps(kind: Kind, wait_s: float | None, expected: str | None) -> None:
    _, headers, _ = respond.failure_answer(Failure(kind, "later", retry_after_s=wait_s))
    assert fields(headers).get("retry-after") == expected


def test_status_of_a_refused_prompt_is_the_upstreams_own() -> None:
    assert respond.failure_answer(Failure(Kind.CONTEXT_LENGTH, "long", upstream_status=413))[0] == 413
    assert respond.failure_answer(Failure(Kind.CONTEXT_LENGTH, "long"))[0] == 400


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/responses", RESPONSES),
        ("/v1/chat/completions", CHAT),
        ("/", CHAT),
    ],
)
def test_path_tells_errors_in_its_own_dialect(path: str, dialect: Dialect) -> None:
    assert respond.dialect_of(path) is dialect
