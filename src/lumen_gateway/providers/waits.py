"""How long an upstream asks to be left alone: from its headers, else from its error body.

Source: RFC 9110 10.2.3 (Retry-After: seconds or a date); `retry-after-ms` of OpenAI, Azure, Cerebras; RetryInfo of
Google; prose such as "try again in 6m0s" of OpenAI, Groq, Azure; OpenRouter's reset time. Nonsense is no wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from lumen_gateway.providers.refusal_body import ErrorBody

Lookup = Callable[[bytes], bytes | None]
"""A response header's value by its lower-case name."""

_NUMBER = re.compile(rb"[0-9]{1,12}(\.[0-9]{1,6})?")
_PROSE = re.compile(r"(?:try again|retry) (?:in|after) ((?:[0-9][0-9.]* ?[a-z]+ ?)+)")
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(ms|milli|h|m|s)[a-z]*")
_UNIT_S = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def wait_s(header: Lookup, body: ErrorBody, wall_s: float) -> float | None:
    """Return the wait asked for, at least 0, None if none was.

    Units: seconds; `wall_s` is the time now, since the epoch. Of two headers the longer wait counts.
    """
    waits = [wait for wait in (_milliseconds(header), _retry_after(header, wall_s)) if wait is not None]
    if waits:
        return max(waits)
    if body.retry_delay is not None and (delay := _duration(body.retry_delay)) is not None:
        return delay
    if body.reset_ms is not None:
        return max(0.0, body.reset_ms / 1000 - wall_s)
    prose = _PROSE.search(body.text)
    return _duration(prose[1]) if prose else None


def _milliseconds(header: Lookup) -> float | None:
    value = (header(b"retry-after-ms") or b"").strip()
    return float(value) / 1000 if _NUMBER.fullmatch(value) else None


def _retry_after(header: Lookup, wall_s: float) -> float | None:
    value = (header(b"retry-after") or b"").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - wall_s)
    except (ValueError, OverflowError):  # no date, or one no calendar holds
        return None


def _duration(text: str) -> float | None:
    """Add up "1h2m3.5s", "120ms", "60 seconds"."""
    parts = _DURATION.findall(text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts) if parts else None
