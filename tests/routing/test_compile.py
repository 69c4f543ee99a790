"""Compiled plans against the reference interpreter, and documents against the limits of size and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lumen_gateway.config.schema import Config
from lumen_gateway.errors import Trigger
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.overrides import fold
from lumen_gateway.routing.plan import Attempt, next_attempt, without
from lumen_gateway.routing.reference import Step, follow, interpret, surviving
from tests.routing import documents
from tests.routing.documents import config_of, plan_of, virtual

TRIGGERS = tuple(Trigger)


class Draws:
    """A scripted source of draws that remembers how many were taken."""

    def __init__(self, values: list[float]) -> None:
        self._values = values
        self.taken = 0

    def __call__(self) -> float:
        self.taken += 1
        return self._values[(self.taken - 1) % len(self._values)]


def decide(config: Config, model_id: str, facts: Facts, draws: Draws) -> tuple[Attempt, ...]:
    compiled = compile_plan(config)
    assume(compiled.plan is not None)  # some random trees allow more than 64 attempts
    assert compiled.plan is not None
    entry = compiled.plan.find(model_id)
    assert entry is not None
    return entry.decide(facts, draws)


def assert_same(attempts: tuple[Attempt, ...], steps: list[Step]) -> None:
    assert [(each.leaf, each.key, each.route) for each in attempts] == [(s.leaf, s.key, s.route) for s in steps]
    for index in range(len(steps)):
        for trigger in TRIGGERS:
            assert next_attempt(attempts, index, trigger) == follow(steps, index, trigger), (index, trigger)


draws = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=8)


@settings(deadline=None)
@given(documents.trees(), documents.facts, draws)
def test_compiled_plan_decides_as_the_reference_does(
    tree: tuple[Config, str], facts: Facts, values: list[float]
) -> None:
    config, model_id = tree
    ours, reference = Draws(values), Draws(values)
    attempts = decide(config, model_id, facts, ours)
    steps = interpret(config, model_id, facts, reference)
    assert_same(attempts, steps)
    assert ours.taken == reference.taken
    assert [attempt.edits for attempt in attempts] == [fold(step.levels) for step in steps]


@settings(deadline=None)
@given(documents.trees(), documents.facts, draws, st.sets(st.sampled_from(documents.LEAVES)))
def test_attempts_without_some_leaves_lead_where_rewired_escapes_do(
    tree: tuple[Config, str], facts: Facts, values: list[float], gone: set[str]
) -> None:
    config, model_id = tree
    attempts = without(decide(config, model_id, facts, Draws(values)), lambda attempt: attempt.leaf in gone)
    steps = interpret(config, model_id, facts, Draws(values))
    assert_same(attempts, surviving(steps, lambda index: steps[index].leaf in gone))
