"""Whether the same leaf is asked again, and after how long. Pure: randomness and time are arguments.

Source: docs/resilience.md, "Retries".
"""

from __future__ import annotations

import msgspec

from lumen_gateway.errors import Failure, Trigger


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how patiently one leaf is asked. `max_tries` includes the first."""

    max_tries: int = 3
    base_s: float = 0.2
    max_s: float = 5.0


def backoff_delay(policy: RetryPolicy, failed_tries: int, rand: float) -> float:
    """Return the wait in seconds before the next try.

    Shape:  in [e/2, e) with e = base * 2^(failed_tries - 1), at most `max_s` (equal jitter).
    Units:  failed_tries >= 1; rand in [0, 1).
    """
    exponent = min(failed_tries - 1, 62)
    ceiling: float = min(policy.base_s * 2**exponent, policy.max_s)
    return ceiling / 2 + ceiling / 2 * rand


def retry_delay(policy: RetryPolicy, failure: Failure, tries: int, rand: float, *, has_escape: bool) -> float | None:
    """Return how long to wait before the same leaf is tried again, or None: move on.

    A timeout is not repeated where the chain has a way out for it: a silent upstream costs one wait. What the upstream
    asks for (`Retry-After`) is the least that is waited, and more than `max_s` is not waited for at all.
    """
    row = failure.kind.row
    if not row.retryable or tries >= policy.max_tries:
        return None
    if has_escape and row.triggers & Trigger.TIMEOUT:
        return None
    asked = failure.retry_after_s or 0.0
    if asked > policy.max_s:
        return None
    return max(asked, backoff_delay(policy, tries, rand))
