"""Which clock ends a wait: the attempt's own timeout or the request's total deadline.

A *deadline* is a point on the monotonic clock, a *timeout* a length of time; both in seconds.
"""

from __future__ import annotations

from lumen_gateway.errors import Failure, Kind


def earliest(now_s: float, timeout_s: float, total_at_s: float) -> float:
    """Return the deadline of a wait that starts now: its own timeout, never later than the total deadline."""
    own = now_s + timeout_s
    return own if own < total_at_s else total_at_s


def ended_by_total(failure: Failure, now_s: float, total_at_s: float) -> bool:
    """Whether a timed-out wait really ran into the total deadline."""
    return failure.kind in _WAITS and now_s + _GRAIN_S >= total_at_s


_GRAIN_S = 0.002  # the loop's timers and clock count whole milliseconds, so a wait may end a little early
_WAITS = frozenset({Kind.FIRST_TOKEN_TIMEOUT, Kind.READ_TIMEOUT, Kind.CONNECT_TIMEOUT})
