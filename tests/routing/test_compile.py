"""Compiled plans against the reference interpreter, and documents against the limits of size and time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing import documents
from tests.routing.documents import config_of, plan_of, virtual

from lumen_gateway.config.schema import Config
from lumen_gateway.errors import Trigger
from lumen_gateway.routing.compile import compile_plan, compile_slices
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.overrides import fold
from lumen_gateway.routing.plan import Attempt, Entry, next_attempt, without
from lumen_gateway.routing.reference import Step, follow, interpret, surviving

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
    entry = plan_of(config).find(model_id)
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


def entry(model_id: str, *virtual_models: dict[str, Any]) -> Entry:
    found = plan_of(config_of(*virtual_models)).find(model_id)
    assert found is not None
    return found


def leaves(attempts: tuple[Attempt, ...]) -> list[str]:
    return [attempt.leaf for attempt in attempts]


def test_foundation_model_answers_with_one_direct_attempt() -> None:
    found = entry("c")
    assert found.fixed == (Attempt("c", "two"),)
    assert found.fixed[0].route is None
    assert (found.virtual, found.capabilities) == (False, frozenset({"chat", "embed"}))


def test_example_of_the_page_escapes_past_the_inner_fallback() -> None:
    inner = virtual("inner", "fallback", "a", "b", fallback_on=["rate_limited"])
    attempts = entry("outer", virtual("outer", "fallback", "inner", "d"), inner).decide(Facts.of(), Draws([]))
    assert leaves(attempts) == ["a", "b", "d"]
    assert next_attempt(attempts, 0, Trigger.RATE_LIMITED) == 1
    assert next_attempt(attempts, 0, Trigger.PROVIDER_ERROR) == 2
    assert next_attempt(attempts, 0, Trigger.CONTENT_FILTER) is None
    assert next_attempt(attempts, 2, Trigger.RATE_LIMITED) is None


@pytest.mark.parametrize(
    ("drawn", "expected"), [(0.0, "acb"), (0.1999, "acb"), (0.2, "bca"), (0.39, "bca"), (0.4, "cab"), (0.9999, "cab")]
)
def test_split_ranges_follow_the_declaration_and_the_rest_follows_the_weights(drawn: float, expected: str) -> None:
    targets = [{"model": "a", "weight": 1}, {"model": "b", "weight": 1}, {"model": "c", "weight": 3}]
    assert leaves(entry("v", virtual("v", "split", *targets)).decide(Facts.of(), Draws([drawn]))) == list(expected)


def test_nested_split_draws_once_in_the_order_of_the_tree_even_behind_the_first_attempt() -> None:
    dice = virtual("dice", "split", {"model": "a", "weight": 1}, {"model": "b", "weight": 1})
    outer = virtual("outer", "split", {"model": "dice", "weight": 1}, {"model": "dice", "weight": 1})
    chain = virtual("v", "fallback", "c", "outer", "dice")
    draws = Draws([0.9, 0.0, 0.9, 0.0])  # outer takes its second; dice: a, then b; the last dice: a
    attempts = entry("v", dice, outer, chain).decide(Facts.of(), draws)
    assert leaves(attempts) == ["c", "b", "a", "a", "b", "a", "b"]
    assert draws.taken == 4


def test_switch_takes_the_first_rule_that_holds_and_never_another() -> None:
    rules = [{"model": "a", "when": {"stream": True}}, {"model": "b", "when": {"stream": True}}]
    found = entry("v", virtual("v", "switch", *rules, "c"))
    assert leaves(found.decide(Facts.of(stream=True), Draws([]))) == ["a"]
    assert leaves(found.decide(Facts.of(stream=False), Draws([]))) == ["c"]


def test_preset_of_the_requested_id_is_the_outermost_level_and_others_are_ignored() -> None:
    inner = virtual("inner", "single", "a", preset={"overrides": {"set": {"seed": 7}}})
    target = {"model": "inner", "overrides": {"set": {"temperature": 0}}}
    preset = {"overrides": {"set": {"temperature": 1}, "default": {"stop": "x"}}}
    outer = virtual("outer", "single", target, preset=preset)
    [attempt] = entry("outer", inner, outer).decide(Facts.of(), Draws([]))
    assert {field: bytes(value) for field, value in attempt.edits.set.items()} == {"temperature": b"0"}
    assert set(attempt.edits.default) == {"stop"}


def test_pinned_key_and_route_are_those_of_the_path() -> None:
    inner = virtual("i", "single", {"model": "a", "key": "spare"})
    [attempt] = entry("o", virtual("o", "single", "i"), inner).decide(Facts.of(), Draws([]))
    assert (attempt.key, attempt.route) == ("spare", "o>i>a")


def test_entry_carries_what_the_gateway_needs_of_the_requested_id() -> None:
    found = entry("v", virtual("v", "single", "a", commit="complete", preset={"system_prompt": "x"}))
    assert (found.commit, found.virtual, found.capabilities) == ("complete", True, frozenset({"chat"}))
    assert found.preset is not None


def test_warnings_do_not_stand_in_the_way_of_a_plan() -> None:
    compiled = compile_plan(config_of(virtual("o", "single", "i"), virtual("i", "single", "a", commit="complete")))
    assert compiled.plan is not None
    assert [fault.warning for fault in compiled.faults] == [True]


def test_faults_of_models_and_of_their_graph_come_together_and_there_is_no_plan() -> None:
    compiled = compile_plan(config_of(virtual("v", "single", "v"), virtual("w", "single", "nowhere")))
    assert compiled.plan is None
    assert {fault.path[1] for fault in compiled.faults} == {0, 1}


def test_ids_taken_twice_are_left_to_the_document_check_without_a_crash() -> None:
    twice = [virtual("a", "single", "b"), virtual("v", "single", "a"), virtual("v", "single", "b")]
    assert compile_plan(config_of(*twice)).faults == ()
    [loop] = compile_plan(config_of(virtual("a", "fallback", "a", "b"))).faults  # the id means the virtual model here
    assert loop.message.endswith("a -> a")


def test_long_chain_of_references_is_refused_without_recursion() -> None:
    chain = [virtual(f"v{number}", "single", f"v{number + 1}") for number in range(2000)]
    [fault] = compile_plan(config_of(*chain, virtual("v2000", "single", "a"))).faults
    assert "the limit is 8" in fault.message


def test_ten_thousand_virtual_models_compile() -> None:
    shapes = [
        virtual("x", "fallback", "a", "b"),
        virtual("x", "split", {"model": "a", "weight": 8}, {"model": "b", "weight": 2}),
        virtual("x", "switch", {"model": "a", "when": {"metadata.plan": "pro"}}, "b"),
    ]
    config = config_of(*(shapes[number % 3] | {"id": f"v{number}"} for number in range(10_000)))
    plan = plan_of(config)
    assert len(plan.entries) == 10_000 + 6


def test_switch_with_thousands_of_rules_compiles_and_still_finds_its_default() -> None:
    rules = [{"model": "a", "when": {"metadata.plan": f"p{number}"}} for number in range(5_000)]
    found = entry("v", virtual("v", "switch", *rules, "b"))
    assert leaves(found.decide(Facts.of(metadata={"plan": "p4999"}), Draws([]))) == ["a"]
    assert leaves(found.decide(Facts.of(metadata={"plan": "other"}), Draws([]))) == ["b"]


def test_slices_stop_before_every_virtual_model_and_end_in_the_same_plan() -> None:
    config = config_of(virtual("v", "fallback", "a", "b"), virtual("w", "single", "v"))
    slices = compile_slices(config)
    for _ in range(2):
        next(slices)
    with pytest.raises(StopIteration) as done:
        next(slices)
    assert done.value.value == compile_plan(config).plan
