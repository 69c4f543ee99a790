"""Records are filled in for one request and never leak into the next; the values in them are frozen."""

from __future__ import annotations

import pytest

from lumen_gateway.records import ANONYMOUS, NO_USAGE, AttemptRecord, RequestRecord


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
