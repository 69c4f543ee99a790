"""The error registry: what each failure is called, answers, and sets in motion.

One row per failure. The retry loop, the breaker, the escapes between targets and the answer to the client read these
rows; nothing else decides. Four situations stay apart: the client is wrong (4xx), an upstream failed (429/502/503/504,
named), we failed (500, opaque), the client left (499).

`docs/errors.md` explains every code to operators; a test compares the two.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

PUBLIC_NAMES = (
    "provider_error",
    "rate_limited",
    "timeout",
    "circuit_open",
    "context_length",
    "content_filter",
    "auth_error",
    "quota_exhausted",
    "not_found",
    "malformed",
    "empty_answer",
)


class Trigger(enum.IntFlag):
    """Failure classes that `fallback_on` names; one bit each, so an escape is a mask."""

    NONE = 0
    PROVIDER_ERROR = 1
    RATE_LIMITED = 2
    TIMEOUT = 4
    CIRCUIT_OPEN = 8
    CONTEXT_LENGTH = 16
    CONTENT_FILTER = 32
    AUTH_ERROR = 64
    QUOTA_EXHAUSTED = 128
    NOT_FOUND = 256
    MALFORMED = 512
    EMPTY_ANSWER = 1024
    OTHER_STATUS = 2048  # an upstream status >= 400 of no finer class: only `any_error` holds it


TRIGGERS: dict[str, Trigger] = {name: Trigger[name.upper()] for name in PUBLIC_NAMES} | {"any_error": Trigger(4095)}
"""Name in the document -> mask, in canonical order."""


def trigger_name(triggers: Trigger) -> str:
    """Return the document's name of the finest trigger in a mask, or "" when none has a name."""
    for name in reversed(PUBLIC_NAMES):
        if triggers & TRIGGERS[name]:
            return name
    return ""


DEFAULT_TRIGGERS = Trigger.PROVIDER_ERROR | Trigger.RATE_LIMITED | Trigger.TIMEOUT | Trigger.CIRCUIT_OPEN


class Row(NamedTuple):
    """What one failure means. `status` is what the client gets; 0 means the upstream's own status (400 without one)."""

    code: str
    status: int
    type: str
    retryable: bool = False
    provider_fault: bool = False
    triggers: Trigger = Trigger.NONE


_REQUEST, _UPSTREAM = "invalid_request", "upstream_error"


class Kind(enum.Enum):
    """Every failure this gateway can report. The value is its `Row`; the name goes to metrics and logs."""

    row: Row

    def __new__(cls, number: int, row: Row) -> Kind:
        member = object.__new__(cls)
        member._value_ = number
        member.row = row
        return member

    @property
    def outcome(self) -> str:
        """What records and metrics call it: its finest trigger, else its own name."""
        return trigger_name(self.row.triggers) or self.name.lower()

    # The client is wrong.
    INVALID_REQUEST = 1, Row("LM-1001", 400, _REQUEST)
    REQUEST_TIMEOUT = 2, Row("LM-1001", 408, _REQUEST)
    UNSUPPORTED_ENCODING = 3, Row("LM-1001", 415, _REQUEST)
    HEADERS_TOO_LARGE = 4, Row("LM-1001", 431, _REQUEST)
    BODY_TOO_LARGE = 5, Row("LM-1002", 413, _REQUEST)
    NO_SUCH_ROUTE = 6, Row("LM-1003", 404, _REQUEST)
    WRONG_METHOD = 7, Row("LM-1003", 405, _REQUEST)
    UNKNOWN_MODEL = 10, Row("LM-2001", 404, _REQUEST)
    WRONG_CAPABILITY = 11, Row("LM-2002", 400, _REQUEST)
    IMAGE_UNSUPPORTED = 12, Row("LM-2003", 400, _REQUEST)
    IMAGE_NOT_INLINE = 16, Row("LM-2004", 400, _REQUEST)
    CONTEXT_LENGTH = 13, Row("LM-2012", 0, _REQUEST, triggers=Trigger.CONTEXT_LENGTH)
    CONTENT_FILTER = 14, Row("LM-2013", 0, _REQUEST, triggers=Trigger.CONTENT_FILTER)
    UNAUTHENTICATED = 15, Row("LM-4004", 401, _REQUEST)
    # An upstream failed.
    RATE_LIMITED = 20, Row("LM-3001", 429, _UPSTREAM, True, True, Trigger.RATE_LIMITED)
    QUOTA_LIMITED = 21, Row("LM-3001", 429, _UPSTREAM, False, True, Trigger.RATE_LIMITED | Trigger.QUOTA_EXHAUSTED)
    RATE_TOO_SMALL = 22, Row("LM-3001", 429, _UPSTREAM, False, True, Trigger.RATE_LIMITED)
    MALFORMED = 23, Row("LM-3002", 502, _UPSTREAM, triggers=Trigger.MALFORMED)
    EMPTY_ANSWER = 24, Row("LM-3002", 502, _UPSTREAM, triggers=Trigger.EMPTY_ANSWER)
    UPSTREAM_ERROR = 25, Row("LM-3003", 502, _UPSTREAM, True, True, Trigger.PROVIDER_ERROR)
    UPSTREAM_REFUSED = 26, Row("LM-3003", 502, _UPSTREAM, triggers=Trigger.OTHER_STATUS)
    AUTH_FAILED = 27, Row("LM-3003", 502, _UPSTREAM, triggers=Trigger.AUTH_ERROR)
    QUOTA_EXHAUSTED = 28, Row("LM-3003", 502, _UPSTREAM, triggers=Trigger.QUOTA_EXHAUSTED)
    UPSTREAM_NOT_FOUND = 29, Row("LM-3003", 502, _UPSTREAM, triggers=Trigger.NOT_FOUND)
    UNREACHABLE = 30, Row("LM-3004", 503, _UPSTREAM, True, True, Trigger.PROVIDER_ERROR)
    READ_TIMEOUT = 31, Row("LM-3005", 504, _UPSTREAM, True, True, Trigger.TIMEOUT)
    ENDED_EARLY = 32, Row("LM-3010", 502, _UPSTREAM, True, True, Trigger.PROVIDER_ERROR)
    FIRST_TOKEN_TIMEOUT = 33, Row("LM-3011", 504, _UPSTREAM, True, True, Trigger.TIMEOUT)
    CONNECT_TIMEOUT = 34, Row("LM-3012", 504, _UPSTREAM, True, True, Trigger.TIMEOUT)
    TOTAL_TIMEOUT = 35, Row("LM-3013", 504, _UPSTREAM)
    CIRCUIT_OPEN = 36, Row("LM-3020", 503, _UPSTREAM, triggers=Trigger.CIRCUIT_OPEN)
    COOLING_DOWN = 37, Row("LM-3020", 503, _UPSTREAM, triggers=Trigger.CIRCUIT_OPEN)
    # We failed, or the client left.
    INTERNAL = 40, Row("LM-5001", 500, "internal")
    CLIENT_LEFT = 41, Row("LM-6001", 499, "client_cancelled")
    SHUTTING_DOWN = 42, Row("LM-5001", 503, "internal")


class Failure(Exception):  # noqa: N818 - the domain's word, see docs/architecture.md
    """One failure on its way to a decision: retry, escape, or an answer.

    `message` is shown to the client: what was wrong and what to do, never a key, a header value, a prompt or an
    upstream's body. `retry_after_s` is what the upstream or the breaker asked for; `cool_s` how long the leaf is to be
    left alone, when the failure itself says so; `cause` adds the triggers of an earlier failure that this one stands
    for.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        provider: str | None = None,
        upstream_status: int | None = None,
        retry_after_s: float | None = None,
        cool_s: float | None = None,
        cause: Trigger = Trigger.NONE,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.provider = provider
        self.upstream_status = upstream_status
        self.retry_after_s = retry_after_s
        self.cool_s = cool_s
        self.cause = cause
        self.headers = headers  # further answer headers, such as Allow

    @property
    def triggers(self) -> Trigger:
        """What an escape must name one of to lead on."""
        return self.kind.row.triggers | self.cause

    @property
    def status(self) -> int:
        """Status the client gets."""
        return self.kind.row.status or self.upstream_status or 400

    def blame(self, provider: str) -> None:
        """Say which provider failed, where that is not said yet."""
        if self.provider is None:
            self.provider = provider
            self.message = f'provider "{provider}": {self.message}'


def invalid(message: str) -> Failure:
    """The client's request is at fault: 400 `LM-1001`."""
    return Failure(Kind.INVALID_REQUEST, message)
