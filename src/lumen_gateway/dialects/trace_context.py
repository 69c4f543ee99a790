"""W3C Trace Context: the two header fields that carry a trace from one process to the next.

Only what decides whether a client's context may travel on. Where we trace ourselves, `telemetry/trace.py` reads and
writes the fields.

Source: W3C Trace Context, 3.2 and 3.3: fields in lower-case hex, no id of zeros alone, version ff never, nothing behind
version 00; without a usable `traceparent`, `tracestate` means nothing and is not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAMES = frozenset({b"traceparent", b"tracestate"})

Fields = list[tuple[bytes, bytes]]

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def read_context(headers: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Return the fields that continue a client's trace; none if it has no parent, a malformed one, or several."""
    fields = [field for field in headers if field[0] in NAMES]
    parents = [value for name, value in fields if name == b"traceparent"]
    return fields if len(parents) == 1 and is_parent(parents[0]) else []


def is_parent(value: bytes) -> bool:
    """Say whether this is a well-formed `traceparent`. A version we do not know may have more behind the flags."""
    match = _PARENT.fullmatch(value)
    return match is not None and (len(value) == 55 or not value.startswith(b"00"))


def without_context(headers: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Return the other header fields."""
    return [field for field in headers if field[0] not in NAMES]
