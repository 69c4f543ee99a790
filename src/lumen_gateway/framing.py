"""What a request's head and body must be before anything acts on them. Pure checks; the connection is `fastlane.py`.

Two readers of one byte stream must never disagree about where a request ends: that is what request smuggling is made
of. llhttp refuses most of what can be read two ways (bare CR and LF, NUL, folded lines, names that are no tokens, a
length beside a transfer coding, signs and lists in a length, broken chunks). What it lets through is refused here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lumen_gateway.errors import Failure, Kind, invalid

MAX_HEAD_BYTES = 16 * 1024  # h11's own limit for a whole head
MAX_FIELDS = 100

Field = tuple[bytes, bytes]

_ONCE = (b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"expect")
_HOST_BYTES = bytes(range(0x21, 0x7F)).translate(None, b'"#/<>?@\\^`{|}')  # RFC 3986 3.2.2 and 3.2.3


class Framing(NamedTuple):
    """What the head says about its body."""

    length: int  # as stated; 0 for a chunked body and for none
    encoding: bytes  # content coding, b"" for none
    expects_continue: bool


def head_bytes(target: bytes, headers: Sequence[Field]) -> int:
    """Return the size of a head, give or take its request line's own words."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def read_framing(version: str, target: bytes, headers: Sequence[Field], fields: Mapping[bytes, bytes]) -> Framing:
    """Return how a request's body is framed, when its head can be read one way only.

    `fields` holds the headers by lower-case name.

    Raises: Failure `LM-1001` naming the rule that is broken, never a value.
    Source: RFC 9112 2.3, 3.2, 6.1 and 6.3; RFC 9110 10.1.1. Stricter: `chunked` alone, a length without spaces, no
        absolute-form, no second Content-Encoding.
    """
    if version not in {"1.1", "1.0"}:
        raise invalid("this server speaks HTTP/1.1; it answers HTTP/1.0 too")
    if not target.startswith(b"/"):
        raise invalid("the request target must be a path that begins with /")
    if len(fields) != len(headers):
        _refuse_repeated([name for name, _ in headers])
    _check_host(version, fields.get(b"host"))
    coding = fields.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
        raise invalid("the only transfer encoding accepted is chunked, on HTTP/1.1")
    length = fields.get(b"content-length")
    if length is not None and not length.isdigit():
        raise invalid("content-length must be plain digits")
    expectation = fields.get(b"expect")
    if expectation is not None and expectation.lower() != b"100-continue":
        raise invalid("the only expectation accepted is 100-continue")
    return Framing(
        0 if length is None else int(length),
        fields.get(b"content-encoding", b"").lower(),
        expectation is not None and version == "1.1",
    )


def _refuse_repeated(names: Sequence[bytes]) -> None:
    for name in _ONCE:
        if names.count(name) > 1:
            raise invalid(f"the header {name.decode()} may be sent only once")


def _check_host(version: str, host: bytes | None) -> None:
    if host is None:
        if version == "1.1":
            raise invalid("HTTP/1.1 requires a host header")
    elif host.translate(None, _HOST_BYTES):
        raise invalid("the host header must be a name or address, with a port or without")


def head_too_large() -> Failure:
    """Return the refusal of a head over one of its limits."""
    return Failure(
        Kind.HEADERS_TOO_LARGE, f"the request's headers exceed {MAX_FIELDS} fields or {MAX_HEAD_BYTES} bytes"
    )


def too_large(limit_bytes: int) -> Failure:
    """Return the refusal of a body over the limit."""
    return Failure(
        Kind.BODY_TOO_LARGE, f"the request body exceeds the limit of {limit_bytes} bytes (server.body_limit)"
    )


def decode_body(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """Return a body without its content coding, within the limit after decoding.

    Raises: Failure UNSUPPORTED_ENCODING, BODY_TOO_LARGE, or INVALID_REQUEST for what is not one whole gzip member.
    """
    if encoding in {b"", b"identity"}:
        return body
    if encoding != b"gzip":
        raise Failure(
            Kind.UNSUPPORTED_ENCODING,
            "request bodies may be sent plain or with content-encoding: gzip only",
            headers=(("accept-encoding", "gzip"),),
        )
    decoder = zlib.decompressobj(wbits=31)
    try:
        decoded = decoder.decompress(body, limit_bytes + 1)
    except zlib.error as exc:
        raise invalid("the body is not valid gzip") from exc
    if len(decoded) > limit_bytes:
        raise too_large(limit_bytes)
    if not decoder.eof or decoder.unused_data:
        raise invalid("the gzip body is cut short or followed by other bytes")
    return decoded
