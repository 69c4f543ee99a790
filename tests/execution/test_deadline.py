"""Which clock ends a wait."""

from __future__ import annotations

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.deadline import earliest, ended_by_total


def test_a_wait_ends_at_its_own_timeout_or_at_the_total_deadline_whichever_is_first() -> None:
    assert earliest(100.0, 30.0, 700.0) == 130.0
    assert earliest(100.0, 30.0, 110.0) == 110.0


def test_a_timeout_at_the_total_deadline_is_told_from_one_before_it() -> None:
    timeout = Failure(Kind.READ_TIMEOUT, "silent")
    assert not ended_by_total(timeout, 99.9, 100.0)
    assert ended_by_total(timeout, 100.0, 100.0)


def test_other_failures_are_never_the_total_deadlines_doing() -> None:
    assert not ended_by_total(Failure(Kind.UPSTREAM_ERROR, "broken"), 200.0, 100.0)


def test_a_wait_that_the_loops_clock_ends_a_moment_early_is_still_the_total_deadlines() -> None:
    assert ended_by_total(Failure(Kind.CONNECT_TIMEOUT, "silent"), 99.9985, 100.0)
