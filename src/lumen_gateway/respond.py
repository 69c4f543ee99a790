"""The one place where an answer or an error becomes bytes: status line, headers, ids, envelopes.

What is written here is the same on every route and every path out of the gateway. Header values come from checked
configuration, from this module, or from a client's request id that passed `request_id`.
"""

from __future__ import annotations

import functools
import http
import math
import random
import re
from collections.abc import Sequence

import msgspec

from lumen_gateway import __version__
from lumen_gateway.dialects.wire import CHAT, MESSAGES, RESPONSES, Dialect
from lumen_gateway.errors import Failure
from lumen_gateway.records import RequestRecord
from lumen_gateway.routing.plan import Attempt

SECURITY_HEADERS = (
    b"x-content-type-options: nosniff\r\n"
    b"x-frame-options: DENY\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n"
)
JSON = b"content-type: application/json\r\n"
EVENT_STREAM = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
HEALTH = msgspec.json.encode({"status": "ok", "version": __version__})


def _start(status: int, phrase: str) -> bytes:
    """Write an answer's first lines, up to the value of its request id."""
    return b"HTTP/1.1 %d %b\r\n%bx-request-id: " % (status, phrase.encode(), SECURITY_HEADERS)


_STARTS = {status.value: _start(status, status.phrase) for status in http.HTTPStatus}

_MESSAGES_PATH = "/v1/messages"
_RESPONSES_PATH = "/v1/responses"
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def request_id(sent: bytes | None) -> str:
    """Return the client's request id if it is one to keep, else a new one in UUID form."""
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent.decode("ascii")
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def head(status: int, request_id: str, headers: bytes, path: str = "") -> bytes:
    """Return everything of an answer's head but its framing: the caller adds length or encoding, and the blank line."""
    start, named = _STARTS.get(status) or _start(status, ""), request_id.encode()
    if path.startswith(_MESSAGES_PATH):
        headers = b"request-id: %b\r\n%b" % (named, headers)  # where Anthropic's SDKs look for it
    return b"%b%b\r\n%b" % (start, named, headers)


@functools.lru_cache(maxsize=1024)  # answers are served in few ways: what the document's names allow
def header_lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return header lines. Values with characters a header cannot carry are escaped, never passed on."""
    return b"".join(b"%b: %b\r\n" % (name.encode(), _header_value(value)) for name, value in headers)


def _header_value(value: str) -> bytes:
    return value.encode("ascii", "backslashreplace") if value.isprintable() else ascii(value)[1:-1].encode()


def dialect_of(path: str) -> Dialect:
    """Return the dialect in which a path tells its errors."""
    if path.startswith(_MESSAGES_PATH):
        return MESSAGES
    return RESPONSES if path.startswith(_RESPONSES_PATH) else CHAT


def failure_answer(failure: Failure, dialect: Dialect = CHAT) -> tuple[int, bytes, bytes]:
    """Return status, header lines and body of an error answer, in the envelope of the dialect."""
    row = failure.kind.row
    headers = JSON + header_lines(failure.headers)
    if failure.retry_after_s is not None and failure.status in {429, 503}:
        headers += b"retry-after: %d\r\n" % math.floor(max(failure.retry_after_s, 0.0))
    return failure.status, headers, dialect.error_body(row.code, failure.message, row.type, failure.status)


def served(record: RequestRecord, attempts: Sequence[Attempt]) -> bytes:
    """Return the header lines that say who answered, on success."""
    return header_lines(_served(record, attempts))


def served_comment(record: RequestRecord, attempts: Sequence[Attempt]) -> bytes:
    """Return the same as one comment line, for a stream whose head went out before anyone had answered."""
    return b": %b\n" % b" ".join(b"%b=%b" % (name.encode(), _header_value(v)) for name, v in _served(record, attempts))


def _served(record: RequestRecord, attempts: Sequence[Attempt]) -> tuple[tuple[str, str], ...]:
    last = record.attempts[-1]
    served = (("x-lumen-model-used", last.leaf), ("x-lumen-provider", last.provider))
    if record.virtual_model is None:
        return (*served, ("x-lumen-reason", "direct"))
    lines = (
        ("x-lumen-route", last.route or last.leaf),  # first, as readers of the comment expect it
        *served,
        ("x-lumen-virtual-model", record.virtual_model),
        ("x-lumen-reason", "virtual-model"),
    )
    if last.index == 0:
        return lines
    return (*lines, ("x-lumen-fallback-from", attempts[0].leaf), ("x-lumen-fallback-index", str(last.index - 1)))
