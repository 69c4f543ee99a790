"""Which target lists stand around an attempt, its last places included."""

from __future__ import annotations

import pytest

from lumen_gateway.errors import Trigger
from lumen_gateway.routing.plan import Attempt, Escape, lists, without

OUTER, INNER = Trigger.TIMEOUT, Trigger.EMPTY_ANSWER
NESTED = (  # outer [a, inner [b, c], d]
    Attempt("a", "p", escapes=(Escape(OUTER, 0),)),
    Attempt("b", "p", escapes=(Escape(INNER, 1), Escape(OUTER, 0)), starts=0b01),
    Attempt("c", "p", escapes=(Escape(OUTER, 0),), starts=0b10),
    Attempt("d", "p", starts=0b01),
)


@pytest.mark.parametrize(("index", "inner"), list(enumerate([False, True, True, False])))
def test_inner_list_names_its_triggers_for_its_own_targets_only(index: int, inner: bool) -> None:
    assert lists(NESTED, index, INNER) is inner
    assert lists(NESTED, index, OUTER)
    assert not lists(NESTED, index, Trigger.CONTENT_FILTER)


def test_inner_list_that_comes_first_ends_where_the_next_outer_target_begins() -> None:
    first = (  # outer [inner [a, b], c]
        Attempt("a", "p", escapes=(Escape(INNER, 1), Escape(OUTER, 0))),
        Attempt("b", "p", escapes=(Escape(OUTER, 0),), starts=0b10),
        Attempt("c", "p", starts=0b01),
    )
    assert [lists(first, index, INNER) for index in range(3)] == [True, True, False]


def test_attempt_alone_stands_in_no_list() -> None:
    assert not lists((Attempt("a", "p"),), 0, OUTER)


def test_what_is_left_of_a_list_still_names_its_triggers() -> None:
    left = without(NESTED, lambda attempt: attempt.leaf == "a")
    assert [lists(left, index, INNER) for index in range(3)] == [True, True, False]
