"""Records are filled in for one request and never leak into the next; the values in them are frozen."""

from __future__ import annotations

import pytest

from lumen_gateway.records import ANONYMOUS, NO_USAGE, AttemptRecord, RequestRecord, Usage, added


def test_requests_do_not_share_their_attempts() -> None:
    first, second = RequestRecord("a"), RequestRecord("b")
    first.attempts.append(AttemptRecord(0, "leaf", "provider"))
    assert second.attempts == []


def test_an_attempt_that_reports_nothing_used_nothing_known() -> None:
    usage = AttemptRecord(0, "leaf", "provider").usage
    assert (usage.input, usage.output, usage.cached, usage.origin) == (0, 0, None, "unknown")


@pytest.mark.parametrize(("value", "field"), [(ANONYMOUS, "key_id"), (NO_USAGE, "input")])
def test_shared_values_cannot_be_changed(value: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, field, 1)


def test_usage_of_several_tries_adds_up_and_what_none_reports_stays_unknown() -> None:
    first = Usage(7, 5, cached=2, origin="reported")
    second = Usage(1, 1, reasoning=1, origin="reported")
    assert added(first, second) == Usage(8, 6, cached=2, reasoning=1, origin="reported")


def test_sum_with_an_estimate_in_it_is_an_estimate() -> None:
    reported, estimated = Usage(7, 5, origin="reported"), Usage(1, 1, origin="estimated")
    assert added(reported, estimated).origin == added(estimated, reported).origin == "estimated"


def test_nothing_known_adds_nothing() -> None:
    reported = Usage(7, 5, origin="reported")
    assert added(NO_USAGE, reported) is reported
