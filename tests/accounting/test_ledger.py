"""Admission without keys and budgets: everything passes, nothing is kept."""

from __future__ import annotations

from lumen_gateway.accounting.ledger import Admission, Ledger, Unlimited
from lumen_gateway.records import ANONYMOUS


def test_everything_is_admitted_and_topped_up() -> None:
    ledger: Ledger = Unlimited()
    admission: Admission = ledger.admit(ANONYMOUS, "gpt-4o")
    assert admission.top_up("claude-sonnet")
    admission.settle(10**18, 10**9)


def test_nothing_is_remembered_between_requests() -> None:
    ledger = Unlimited()
    ledger.admit(ANONYMOUS, "gpt-4o").settle(10**18, 10**9)
    ledger.admit(ANONYMOUS, "gpt-4o").release()
    assert ledger.admit(ANONYMOUS, "gpt-4o").top_up("gpt-4o")
    assert vars(ledger) == {}
