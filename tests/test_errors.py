"""The registry's own rules; what it says about each failure is compared with the docs in `test_docs_errors.py`."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from lumen_gateway.config.schema import TriggerName
from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Failure, Kind, Trigger, invalid, trigger_name


def test_document_and_registry_know_the_same_triggers() -> None:
    assert list(TRIGGERS) == list(get_args(TriggerName))


def test_any_error_holds_every_trigger_there_is() -> None:
    assert TRIGGERS["any_error"] == ~Trigger.NONE


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_code_has_its_form_and_its_status_is_an_error(kind: Kind) -> None:
    assert re.fullmatch(r"LM-[1-6]\d{3}", kind.row.code)
    assert kind.row.status == 0 or 400 <= kind.row.status <= 599


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.row.retryable], ids=lambda kind: kind.name)
def test_what_is_retried_is_the_providers_fault_and_can_lead_on(kind: Kind) -> None:
    assert kind.row.provider_fault
    assert kind.row.triggers & DEFAULT_TRIGGERS


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.row.status == 429], ids=lambda kind: kind.name)
def test_every_429_is_rate_limited_whatever_else_it_is(kind: Kind) -> None:
    assert kind.row.triggers & Trigger.RATE_LIMITED


def test_the_finest_trigger_gives_the_name() -> None:
    assert trigger_name(Trigger.RATE_LIMITED | Trigger.QUOTA_EXHAUSTED) == "quota_exhausted"
    assert trigger_name(Trigger.OTHER_STATUS) == ""
    assert Kind.QUOTA_LIMITED.outcome == "quota_exhausted"
    assert Kind.UPSTREAM_REFUSED.outcome == "upstream_refused"


def test_a_refusal_keeps_the_upstreams_status_and_has_one_without() -> None:
    assert Failure(Kind.CONTEXT_LENGTH, "too long", upstream_status=413).status == 413
    assert Failure(Kind.CONTENT_FILTER, "refused").status == 400


def test_a_status_of_our_own_is_not_the_upstreams() -> None:
    assert Failure(Kind.UPSTREAM_ERROR, "failed", upstream_status=529).status == 502


def test_a_failure_leads_where_its_cause_would_have() -> None:
    failure = Failure(Kind.COOLING_DOWN, "later", cause=Trigger.RATE_LIMITED)
    assert failure.triggers == Trigger.CIRCUIT_OPEN | Trigger.RATE_LIMITED


def test_provider_that_failed_is_said_once_and_is_the_first_one_named() -> None:
    failure = Failure(Kind.UPSTREAM_ERROR, "the upstream failed")
    failure.blame("north")
    failure.blame("south")
    assert (failure.provider, failure.message) == ("north", 'provider "north": the upstream failed')


def test_an_invalid_request_says_why() -> None:
    failure = invalid("`n` must be a number.")
    assert (failure.kind, failure.status, str(failure)) == (Kind.INVALID_REQUEST, 400, "`n` must be a number.")
