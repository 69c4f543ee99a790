"""Following escapes through a list of attempts, and through what is left of it."""

from __future__ import annotations

import pytest
from tests.routing.documents import entry_of

from lumen_gateway.errors import Trigger
from lumen_gateway.routing.plan import Attempt, Entry, Escape, Plan, canonical, next_attempt, without

LIMITED, BROKEN, FILTERED = Trigger.RATE_LIMITED, Trigger.PROVIDER_ERROR, Trigger.CONTENT_FILTER


def attempts_of(virtual_models: str, model_id: str) -> tuple[Attempt, ...]:
    fixed = entry_of(virtual_models, model_id).fixed
    assert fixed is not None
    return fixed


TWO_PAIRS = """
[[virtual_models]]
id = "v"
capability = "chat"
strategy = "fallback"
targets = [{ model = "left" }, { model = "right" }]
fallback_on = ["provider_error"]

[[virtual_models]]
id = "left"
capability = "chat"
strategy = "fallback"
targets = [{ model = "a" }, { model = "b" }]
fallback_on = ["rate_limited"]

[[virtual_models]]
id = "right"
capability = "chat"
strategy = "fallback"
targets = [{ model = "c" }, { model = "d" }]
fallback_on = ["rate_limited"]
"""


@pytest.mark.parametrize(
    ("index", "trigger", "expected"),
    [
        (0, LIMITED, 1),  # a to b, inside the left pair
        (0, BROKEN, 2),  # a to c, past b
        (1, LIMITED, None),  # b is the last of its pair, and the outer level does not take this
        (1, BROKEN, 2),
        (2, LIMITED, 3),
        (2, BROKEN, None),  # the right pair is the last target
        (3, LIMITED, None),
        (0, FILTERED, None),
        (0, LIMITED | FILTERED, 1),  # one matching trigger is enough
        (0, Trigger.NONE, None),
    ],
)
def test_failure_follows_the_first_escape_that_takes_it(index: int, trigger: Trigger, expected: int | None) -> None:
    assert next_attempt(attempts_of(TWO_PAIRS, "v"), index, trigger) == expected


def test_inner_escape_with_nothing_left_falls_to_the_outer_one() -> None:
    attempts = (
        Attempt("a", "p", escapes=(Escape(LIMITED, 1), Escape(LIMITED, 0))),
        Attempt("b", "p", starts=0b01),
    )
    assert next_attempt(attempts, 0, LIMITED) == 1


def test_escape_into_a_dropped_attempt_leads_to_the_next_that_stays() -> None:
    attempts = attempts_of(TWO_PAIRS, "v")
    left = without(attempts, lambda attempt: attempt.leaf == "b")
    assert [attempt.leaf for attempt in left] == ["a", "c", "d"]
    assert next_attempt(left, 0, LIMITED) == 1
    assert next_attempt(left, 0, BROKEN) == 1
    assert next_attempt(left, 1, LIMITED) == 2


def test_dropped_opening_of_an_outer_target_hands_only_that_on() -> None:
    left = without(attempts_of(TWO_PAIRS, "v"), lambda attempt: attempt.leaf == "c")
    assert next_attempt(left, 0, BROKEN) == 2
    assert next_attempt(left, 1, LIMITED) is None


def test_dropping_one_after_the_other_leads_where_dropping_at_once_does() -> None:
    attempts = (
        Attempt("a", "p", escapes=(Escape(LIMITED, 2),)),
        Attempt("b", "p", starts=0b001),
        Attempt("c", "p", starts=0b100),
        Attempt("d", "p", starts=0b001),
    )
    left = without(without(attempts, lambda attempt: attempt.leaf == "c"), lambda attempt: attempt.leaf == "b")
    assert left == without(attempts, lambda attempt: attempt.leaf in "bc")
    assert next_attempt(left, 0, LIMITED) is None


def test_nothing_dropped_copies_nothing_and_everything_dropped_leaves_nothing() -> None:
    attempts = attempts_of(TWO_PAIRS, "v")
    assert all(ours is theirs for ours, theirs in zip(without(attempts, lambda _: False), attempts, strict=True))
    assert without(attempts, lambda _: True) == ()


def test_plan_finds_ids_exactly() -> None:
    plan = Plan({"gpt-4o": Entry("gpt-4o", frozenset({"chat"}), virtual=False, fixed=(Attempt("gpt-4o", "p"),))})
    assert plan.find("gpt-4o") is plan.entries["gpt-4o"]
    assert plan.find("GPT-4o") is None


def test_old_spelling_of_a_capability_is_read() -> None:
    assert [canonical("systemone"), canonical("chat")] == ["decisions", "chat"]
