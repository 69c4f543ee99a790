"""The tree of one id: routes, levels, escapes, folded overrides, the order of a split."""

from __future__ import annotations

import pytest
from tests.routing.documents import config_of, virtual

from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Trigger
from lumen_gateway.routing.tree import Chain, Draw, Grower, Leaf, Node, Rules, triggers_of
from lumen_gateway.routing.validate import check_models

CANARY = virtual("canary", "split", {"model": "a", "weight": 3}, {"model": "b", "weight": 1})
SAFE = virtual("safe", "fallback", "canary", "c", fallback_on=["timeout"])
ROUTER = virtual("router", "switch", {"model": "safe", "when": {"stream": True}}, {"model": "d", "key": None})


def grow(model_id: str) -> Node:
    config = config_of(CANARY, SAFE, ROUTER, virtual("alias", "single", "router"))
    return Grower(config, check_models(config).conditions).grow(model_id)


def test_single_leaves_no_node_behind_but_stays_in_the_route() -> None:
    root = grow("alias")
    assert isinstance(root, Rules)
    assert isinstance(root.parts[1], Leaf)
    assert root.parts[1].attempt.route == "alias>router>d"


def test_only_fallback_and_split_are_levels() -> None:
    root = grow("router")
    assert isinstance(root, Rules)
    safe = root.parts[0]
    assert isinstance(safe, Chain)
    canary = safe.parts[0]
    assert isinstance(canary, Draw)
    assert (root.level, safe.level, canary.level, canary.parts[0].level) == (0, 0, 1, 2)


def test_leaf_carries_the_escapes_of_all_levels_innermost_first_and_none_of_a_last_target() -> None:
    safe = grow("safe")
    assert isinstance(safe, Chain)
    canary, last = safe.parts
    assert isinstance(canary, Draw)
    assert isinstance(canary.parts[0], Leaf)
    assert isinstance(last, Leaf)
    assert canary.parts[0].attempt.escapes == ((DEFAULT_TRIGGERS, 1), (Trigger.TIMEOUT, 0))
    assert last.attempt.escapes == ()


def test_only_what_no_request_can_change_is_fixed() -> None:
    assert not grow("safe").fixed
    config = config_of(virtual("in", "fallback", "a", "b"), virtual("out", "fallback", "in", "c"))
    assert Grower(config, {}).grow("out").fixed


@pytest.mark.parametrize(("drawn", "picked"), [(0.0, 0), (0.749, 0), (0.75, 1), (0.999, 1)])
def test_draw_falls_on_ranges_in_declaration_order(drawn: float, picked: int) -> None:
    canary = grow("canary")
    assert isinstance(canary, Draw)
    assert canary.pick(drawn) == picked


def test_rest_of_a_split_goes_by_weight_and_ties_as_declared() -> None:
    weights = (1, 5, 2, 5)
    node = Draw("v", 0, grow("canary").parts * 2, weights)  # type: ignore[union-attr]  # a split
    assert [node.order(first) for first in range(4)] == [[0, 1, 3, 2], [1, 3, 2, 0], [2, 1, 3, 0], [3, 1, 2, 0]]


def test_triggers_are_the_four_defaults_unless_named() -> None:
    by_id = {model.id: model for model in config_of(CANARY, SAFE).virtual_models}
    assert triggers_of(by_id["canary"]) == DEFAULT_TRIGGERS
    assert triggers_of(by_id["safe"]) == TRIGGERS["timeout"]
