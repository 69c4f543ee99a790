"""Reasons: every rule asked, every draw taken, in the order of the decision."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing import documents
from tests.routing.documents import config_of, virtual

from lumen_gateway.config.schema import Config
from lumen_gateway.routing.explain import Reason, explain
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.reference import interpret
from lumen_gateway.routing.tree import Grower
from lumen_gateway.routing.validate import check_models

CANARY = virtual("canary", "split", {"model": "a", "weight": 80}, {"model": "b", "weight": 20})
RULES: list[dict[str, Any]] = [
    {"model": "d", "when": {"stream": True}},
    {"model": "safe", "when": {"metadata.plan": "pro"}},
]
ROUTER = virtual("router", "switch", *RULES, "c")
CONFIG = config_of(CANARY, virtual("safe", "fallback", "canary", "c"), ROUTER)


def reasons(facts: Facts, *drawn: float, config: Config = CONFIG, model_id: str = "router") -> list[Reason]:
    tree = Grower(config, check_models(config).conditions).grow(model_id)
    return list(explain(tree, facts, iter(drawn).__next__))


def test_rules_are_told_up_to_the_one_that_holds_and_the_draw_inside_it() -> None:
    assert reasons(Facts.of(stream=False, metadata={"plan": "pro"}), 0.85) == [
        (0, "router", "rule 1 does not hold (stream = true): stream is false"),
        (0, "router", 'rule 2 holds (metadata.plan = "pro"): safe'),
        (1, "canary", "drew 0.850 of 1, 85.0 of 100: b first, then a"),
    ]


def test_default_is_told_after_every_rule() -> None:
    told = [text for _, _, text in reasons(Facts.of(stream=False))]
    assert told[1:] == [
        'rule 2 does not hold (metadata.plan = "pro"): metadata.plan is absent',
        "no rule holds: the default, c",
    ]


@settings(deadline=None, max_examples=50)
@given(documents.trees(), documents.facts, st.lists(st.floats(0, 1, exclude_max=True), min_size=64, max_size=64))
def test_draws_are_taken_as_the_decision_takes_them(tree: tuple[Config, str], facts: Facts, drawn: list[float]) -> None:
    config, model_id = tree
    told = [text for _, _, text in reasons(facts, *drawn, config=config, model_id=model_id) if text.startswith("drew")]
    taken = iter(drawn)
    interpret(config, model_id, facts, taken.__next__)
    assert len(told) == len(drawn) - len(list(taken))
