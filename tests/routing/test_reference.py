"""The reference itself, against lists written out by hand from the page."""

from __future__ import annotations

from tests.routing.documents import config_of, virtual

from lumen_gateway.errors import DEFAULT_TRIGGERS, Trigger
from lumen_gateway.routing.facts import Facts
from lumen_gateway.routing.reference import Step, follow, interpret, surviving

LIMITED = Trigger.RATE_LIMITED


def never() -> float:
    raise AssertionError("nothing to draw")


def outline(steps: list[Step]) -> list[tuple[str, tuple[tuple[Trigger, int], ...]]]:
    return [(step.leaf, step.escapes) for step in steps]


NESTED = config_of(
    virtual("outer", "fallback", "inner", "d"), virtual("inner", "fallback", "a", "b", fallback_on=["rate_limited"])
)


def test_inner_escapes_come_first_and_lead_to_indexes() -> None:
    steps = interpret(NESTED, "outer", Facts.of(), never)
    assert outline(steps) == [
        ("a", ((LIMITED, 1), (DEFAULT_TRIGGERS, 2))),
        ("b", ((DEFAULT_TRIGGERS, 2),)),
        ("d", ()),
    ]
    assert [step.route for step in steps] == ["outer>inner>a", "outer>inner>b", "outer>d"]
    assert (follow(steps, 0, LIMITED), follow(steps, 0, Trigger.TIMEOUT)) == (1, 2)


def test_dropped_steps_hand_their_escapes_on() -> None:
    steps = interpret(NESTED, "outer", Facts.of(), never)
    assert outline(surviving(steps, lambda index: index == 1)) == [
        ("a", ((LIMITED, 1), (DEFAULT_TRIGGERS, 1))),
        ("d", ()),
    ]
    assert outline(surviving(steps, lambda index: index > 0)) == [("a", ())]


def test_split_orders_the_rest_by_weight() -> None:
    targets = [{"model": each, "weight": weight} for each, weight in zip("abcd", (1, 2, 1, 2), strict=True)]
    steps = interpret(config_of(virtual("v", "split", *targets)), "v", Facts.of(), lambda: 0.99)
    assert [step.leaf for step in steps] == ["d", "b", "a", "c"]


def test_switch_takes_one_branch_and_any_error_takes_every_trigger() -> None:
    rule = {"model": "both", "when": {"stream": True}}
    config = config_of(
        virtual("v", "switch", rule, "c"), virtual("both", "fallback", "a", "b", fallback_on=["any_error"])
    )
    assert outline(interpret(config, "v", Facts.of(stream=False), never)) == [("c", ())]
    [first, _] = interpret(config, "v", Facts.of(stream=True), never)
    assert first.escapes == ((Trigger(4095), 1),)


def test_levels_are_those_of_the_way_with_the_preset_outermost() -> None:
    inner = virtual(
        "in", "single", {"model": "a", "overrides": {"drop": ["seed"]}}, preset={"overrides": {"drop": ["stop"]}}
    )
    outer = virtual(
        "out", "single", {"model": "in", "overrides": {"set": {"seed": 1}}}, preset={"overrides": {"drop": ["top_p"]}}
    )
    [step] = interpret(config_of(inner, outer), "out", Facts.of(), never)
    assert [(level.set, level.drop) for level in step.levels] == [({}, ["top_p"]), ({"seed": 1}, []), ({}, ["seed"])]


def test_foundation_model_is_one_step_without_a_route() -> None:
    assert interpret(NESTED, "a", Facts.of(), never) == [Step("a", None, (), None, ())]
