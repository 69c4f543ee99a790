"""Retries: how long, how often, and when not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.retry import RetryPolicy, backoff_delay, retry_delay

POLICY = RetryPolicy(max_tries=3, base_s=0.2, max_s=5.0)


def failure(kind: Kind, retry_after_s: float | None = None) -> Failure:
    return Failure(kind, "broken", retry_after_s=retry_after_s)


def test_backoff_doubles_from_the_base_up_to_the_cap() -> None:
    ceilings = [2 * backoff_delay(POLICY, tries, 0.0) for tries in range(1, 8)]
    assert ceilings == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_backoff_stays_between_half_its_ceiling_and_the_ceiling(
    tries: int, rand: float, base_s: float, max_s: float
) -> None:
    policy = RetryPolicy(base_s=base_s, max_s=max_s)
    ceiling = min(base_s * 2.0 ** min(tries - 1, 62), max_s)
    assert ceiling / 2 <= backoff_delay(policy, tries, rand) <= ceiling


def test_a_retryable_failure_is_tried_again_until_the_tries_are_spent() -> None:
    assert retry_delay(POLICY, failure(Kind.UPSTREAM_ERROR), 1, 0.5, has_escape=True) is not None
    assert retry_delay(POLICY, failure(Kind.UPSTREAM_ERROR), 2, 0.5, has_escape=True) is not None
    assert retry_delay(POLICY, failure(Kind.UPSTREAM_ERROR), 3, 0.5, has_escape=True) is None


def test_only_kinds_marked_retryable_are_tried_again() -> None:
    for kind in Kind:
        delay = retry_delay(POLICY, failure(kind), 1, 0.5, has_escape=False)
        assert (delay is not None) == kind.row.retryable, kind


def test_a_timeout_is_not_repeated_where_the_chain_has_a_way_out() -> None:
    for kind in (Kind.FIRST_TOKEN_TIMEOUT, Kind.READ_TIMEOUT, Kind.CONNECT_TIMEOUT):
        assert retry_delay(POLICY, failure(kind), 1, 0.5, has_escape=True) is None
        assert retry_delay(POLICY, failure(kind), 1, 0.5, has_escape=False) is not None


def test_retry_after_is_the_least_that_is_waited() -> None:
    assert retry_delay(POLICY, failure(Kind.RATE_LIMITED, 4.0), 1, 0.0, has_escape=False) == 4.0
    assert retry_delay(POLICY, failure(Kind.RATE_LIMITED, 0.0), 1, 0.0, has_escape=False) == 0.1


def test_a_retry_after_beyond_the_cap_is_not_waited_for() -> None:
    assert retry_delay(POLICY, failure(Kind.RATE_LIMITED, 5.1), 1, 0.0, has_escape=False) is None
