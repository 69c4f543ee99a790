"""Virtual models taken together: loops, depth, attempts, size."""

from __future__ import annotations

from typing import Any

import pytest
from tests.routing.documents import config_of, virtual

from lumen_gateway.config.schema import Fault
from lumen_gateway.routing.graph import MAX_SIZE, MAX_TOTAL_SIZE, check_graph


def faults_of(*virtual_models: dict[str, Any]) -> list[Fault]:
    return list(check_graph(config_of(*virtual_models)))


def chain(length: int) -> list[dict[str, Any]]:
    """Return virtual models that refer to each other in a row, the last to a foundation model."""
    ids = [f"v{number}" for number in range(length)]
    return [virtual(each, "single", following) for each, following in zip(ids, [*ids[1:], "a"], strict=True)]


def test_loop_is_spelled_out_on_the_model_that_is_declared_first() -> None:
    [fault] = faults_of(virtual("b2", "fallback", "a", "a2"), virtual("a2", "single", "b2"))
    assert fault.path == ("virtual_models", 0, "targets", 1, "model")
    assert fault.message.endswith("b2 -> a2 -> b2")


def test_loop_of_one_and_models_that_only_lead_into_it() -> None:
    [fault] = faults_of(virtual("outer", "single", "me"), virtual("me", "fallback", "a", "me"))
    assert fault.path == ("virtual_models", 1, "targets", 1, "model")
    assert fault.message.endswith("me -> me")


def test_each_loop_is_reported() -> None:
    faults = faults_of(virtual("u", "single", "v"), virtual("v", "single", "u"), virtual("w", "single", "w"))
    assert [fault.path[1] for fault in faults] == [0, 2]


def test_document_full_of_loops_is_reported_within_bounds() -> None:
    ids = [f"v{number}" for number in range(60)]
    faults = faults_of(*(virtual(each, "fallback", *ids) for each in ids))
    assert 0 < len(faults) <= 20


def test_long_loop_is_shortened() -> None:
    models = chain(2_000)
    models[-1]["targets"] = [{"model": "v0"}]
    [fault] = faults_of(*models)
    assert "v0 -> v1 -> v2 -> v3 -> v4 -> ... ->" in fault.message
    assert fault.message.endswith("-> v0")


@pytest.mark.parametrize("turned", [False, True])
def test_eight_models_may_nest_and_nine_may_not_whatever_the_order_of_declaration(turned: bool) -> None:
    step = -1 if turned else 1
    assert faults_of(*chain(8)[::step]) == []
    [fault] = faults_of(*chain(9)[::step])
    assert fault.path == ("virtual_models", 8 if turned else 0, "targets")
    assert "v0 -> v1 -> v2 -> v3 -> v4 -> v5 -> v6 -> v7 -> v8" in fault.message
    assert "limit is 8" in fault.message


def test_chain_of_thousands_is_refused_once() -> None:
    assert len(faults_of(*chain(2_000))) == 1


def test_sixty_four_attempts_are_allowed_and_one_more_is_not() -> None:
    assert faults_of(virtual("v", "fallback", *["a"] * 64)) == []
    [fault] = faults_of(virtual("v", "fallback", *["a"] * 65))
    assert "65 attempts; the limit is 64" in fault.message


def test_attempts_add_up_in_fallback_and_split_and_only_the_longest_branch_counts_in_a_switch() -> None:
    long, longer = virtual("long", "fallback", *["a"] * 32), virtual("longer", "fallback", *["a"] * 33)
    split = virtual("v", "split", {"model": "long", "weight": 1}, {"model": "longer", "weight": 1})
    switch = virtual("v", "switch", {"model": "long", "when": {"stream": True}}, "longer")
    assert "65 attempts" in faults_of(long, longer, split)[0].message
    assert faults_of(long, longer, switch) == []


def test_model_around_one_that_is_too_long_is_not_blamed_again() -> None:
    [fault] = faults_of(virtual("outer", "single", "v"), virtual("v", "fallback", *["a"] * 65))
    assert fault.path[1] == 1


def test_counts_saturate() -> None:
    doubling = [virtual(f"v{n}", "fallback", f"v{n + 1}", f"v{n + 1}") for n in range(300)]
    faults = faults_of(*doubling, virtual("v300", "single", "a"))
    assert any("128 attempts" in fault.message for fault in faults)
    assert len(faults) <= 4


def rules(model_id: str, count: int) -> list[dict[str, Any]]:
    return [{"model": model_id, "when": {"metadata.x": f"{number}"}} for number in range(count)]


def test_shared_branches_of_nested_switches_cannot_explode() -> None:
    levels = [virtual(f"s{n}", "switch", *rules(f"s{n + 1}", 30), "a") for n in range(5)]
    faults = faults_of(*levels, virtual("s5", "single", "a"))
    assert [fault.path[1] for fault in faults] == [2]
    assert f"the limit is {MAX_SIZE}" in faults[0].message


def test_hundred_thousand_rules_are_refused_quickly() -> None:
    [fault] = faults_of(virtual("v", "switch", *rules("a", 100_000), "b"))
    assert "100001 targets" in fault.message


def test_document_as_a_whole_is_bounded_too() -> None:
    big = virtual("big", "switch", *rules("a", MAX_SIZE - 1), "b")
    around = [virtual(f"v{number}", "single", "big") for number in range(MAX_TOTAL_SIZE // MAX_SIZE)]
    assert faults_of(big, *around[:-1]) == []
    [fault] = faults_of(big, *around)
    assert fault.path == ("virtual_models", len(around), "targets")
