"""The breaker's states, with the time turned by hand."""

from __future__ import annotations

from lumen_gateway.execution.breaker import Breaker, BreakerPolicy, State

POLICY = BreakerPolicy(threshold=3, cooldown_s=30.0)


def opened(at_s: float = 100.0) -> Breaker:
    breaker = Breaker()
    for _ in range(3):
        breaker.fault(POLICY, at_s)
    return breaker


def test_it_opens_at_exactly_the_threshold() -> None:
    breaker = Breaker()
    breaker.fault(POLICY, 1.0)
    breaker.fault(POLICY, 2.0)
    assert breaker.admit(POLICY, 3.0) == 0.0
    breaker.fault(POLICY, 3.0)
    assert breaker.state is State.OPEN
    assert breaker.admit(POLICY, 3.0) == 30.0


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker.fault(POLICY, 1.0)
        breaker.fault(POLICY, 1.0)
        breaker.success()
    assert breaker.state is State.CLOSED


def test_an_open_breaker_refuses_with_the_rest_of_its_cooldown() -> None:
    breaker = opened(100.0)
    assert breaker.admit(POLICY, 110.0) == 20.0
    assert breaker.state is State.OPEN


def test_after_the_cooldown_exactly_one_probe_goes_through() -> None:
    breaker = opened(100.0)
    assert breaker.admit(POLICY, 130.0) == 0.0
    assert breaker.state is State.HALF_OPEN
    assert breaker.admit(POLICY, 131.0) == 29.0


def test_a_probe_that_succeeds_closes_it_and_one_that_fails_opens_it_for_a_full_cooldown() -> None:
    breaker = opened(100.0)
    breaker.admit(POLICY, 130.0)
    breaker.success()
    assert breaker.admit(POLICY, 131.0) == 0.0
    breaker = opened(100.0)
    breaker.admit(POLICY, 130.0)
    breaker.fault(POLICY, 135.0)
    assert breaker.state is State.OPEN
    assert breaker.admit(POLICY, 136.0) == 29.0


def test_a_lost_probe_is_replaced_after_one_more_cooldown() -> None:
    breaker = opened(100.0)
    breaker.admit(POLICY, 130.0)
    assert breaker.admit(POLICY, 159.9) > 0.0
    assert breaker.admit(POLICY, 160.0) == 0.0


def test_faults_of_stragglers_do_not_prolong_an_open_breaker() -> None:
    breaker = opened(100.0)
    breaker.fault(POLICY, 125.0)
    assert breaker.admit(POLICY, 130.0) == 0.0


def test_looking_at_the_wait_admits_nobody() -> None:
    breaker = opened(100.0)
    assert breaker.wait(POLICY, 130.0) == 0.0
    assert breaker.state is State.OPEN


def test_a_new_policy_takes_effect_at_once() -> None:
    breaker = opened(100.0)
    assert breaker.admit(BreakerPolicy(threshold=3, cooldown_s=5.0), 106.0) == 0.0
