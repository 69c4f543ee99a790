"""Virtual models looked at one by one: each rule, the place it names, and that nothing sound is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.routing.documents import config_of, virtual

from lumen_gateway.config.schema import Fault
from lumen_gateway.routing.validate import MAX_PROMPT_BYTES, check_models


def faults_of(*virtual_models: dict[str, Any]) -> tuple[Fault, ...]:
    return check_models(config_of(*virtual_models)).faults


def weighted(model_id: str, weight: int = 1) -> dict[str, Any]:
    return {"model": model_id, "weight": weight}


def ruled(model_id: str) -> dict[str, Any]:
    return {"model": model_id, "when": {"stream": True}}


SOUND = [
    virtual("v", "single", "a"),
    virtual("v", "fallback", "a", "b", fallback_on=["any_error"]),
    virtual("v", "split", weighted("a"), weighted("b", 2**32 - 1), fallback_on=["timeout"]),
    virtual("v", "switch", ruled("a"), "b"),
    virtual("v", "single", {"model": "a", "overrides": {"drop": ["seed"]}}),
    virtual("v", "single", "a", preset={"system_prompt": "x" * MAX_PROMPT_BYTES}),
    virtual("v", "single", "c", capability="embed"),
    virtual("v", "switch", {"model": "r", "when": {"documents": {"gt": 9}}}, "r", capability="rerank"),
]


@pytest.mark.parametrize("model", SOUND)
def test_sound_model_has_no_fault(model: dict[str, Any]) -> None:
    assert faults_of(model) == ()


BROKEN: list[tuple[dict[str, Any], tuple[str | int, ...], str]] = [
    (virtual("v", "single", "a", "b"), ("targets",), "exactly 1 target, not 2"),
    (virtual("v", "single"), ("targets",), "exactly 1 target, not 0"),
    (virtual("v", "fallback", "a"), ("targets",), "at least 2 targets, not 1"),
    (virtual("v", "split", weighted("a")), ("targets",), "at least 2 targets"),
    (virtual("v", "switch", "a"), ("targets",), "at least 2 targets"),
    (virtual("v", "split", weighted("a"), "b"), ("targets", 1, "weight"), "every target of a split"),
    (virtual("v", "fallback", "a", weighted("b")), ("targets", 1, "weight"), "weight belongs to split"),
    (virtual("v", "switch", "a", "b"), ("targets", 0, "when"), "never reached"),
    (virtual("v", "switch", ruled("a"), ruled("b")), ("targets", 1, "when"), "default and has no when"),
    (virtual("v", "fallback", "a", ruled("b")), ("targets", 1, "when"), "when belongs to switch"),
    (virtual("v", "single", "a", fallback_on=["timeout"]), ("fallback_on",), "belongs to fallback and split"),
    (virtual("v", "fallback", "a", "b", fallback_on=[]), ("fallback_on",), "empty"),
    (
        virtual("v", "single", "e", capability="embed", preset={"system_prompt": "x"}),
        ("preset",),
        "for chat, not for embed",
    ),
    (virtual("v", "single", "a", preset={}), ("preset",), "does nothing"),
    (virtual("v", "single", "a", preset={"system_prompt": "é" * 16_385}), ("preset", "system_prompt"), "32770 bytes"),
    (virtual("v", "single", "a", preset={"overrides": {"set": {"x": 1}}}), ("preset", "overrides", "set", "x"), '"x"'),
    (virtual("v", "single", {"model": "a", "overrides": {}}), ("targets", 0, "overrides"), "empty"),
    (virtual("v", "switch", {"model": "a", "when": {"x": 1}}, "b"), ("targets", 0, "when", "x"), 'condition "x"'),
    (virtual("v", "single", "nowhere"), ("targets", 0, "model"), 'no model has the id "nowhere"'),
    (virtual("v", "single", "e"), ("targets", 0, "model"), "serves embed, not chat"),
    (virtual("v", "single", "a", capability="embed"), ("targets", 0, "model"), "serves chat, not embed"),
]


@pytest.mark.parametrize(("model", "place", "words"), BROKEN)
def test_broken_rule_is_reported_at_its_place_with_a_fix(
    model: dict[str, Any], place: tuple[str | int, ...], words: str
) -> None:
    [fault] = faults_of(model)
    assert fault.path == ("virtual_models", 0, *place)
    assert words in fault.message
    assert fault.fix
    assert not fault.warning


def test_unknown_id_is_compared_with_foundation_and_virtual_ids() -> None:
    [fault] = faults_of(virtual("smart-chat", "single", "a"), virtual("v", "single", "smart-chta"))
    assert 'did you mean "smart-chat"?' in fault.fix


def test_virtual_child_of_another_capability_is_refused() -> None:
    [fault] = faults_of(virtual("v", "single", "w"), virtual("w", "single", "c", capability="embed"))
    assert fault.path == ("virtual_models", 0, "targets", 0, "model")
    assert "serves embed, not chat" in fault.message


def test_preset_and_commit_of_a_referenced_model_are_warned_about_on_every_reference() -> None:
    child = virtual("w", "single", "a", preset={"system_prompt": "SECRET"}, commit="complete")
    faults = faults_of(child, virtual("v", "fallback", "w", "b", "w"))
    assert [fault.path for fault in faults] == [("virtual_models", 1, "targets", i, "model") for i in (0, 0, 2, 2)]
    assert all(fault.warning and "SECRET" not in fault.message + fault.fix for fault in faults)


def test_all_faults_are_reported_at_once() -> None:
    model = virtual("v", "single", weighted("nowhere"), {"model": "e", "overrides": {}}, fallback_on=[], preset={})
    assert len(faults_of(model, model | {"id": "w"})) == 2 * 7


def test_conditions_come_back_by_place() -> None:
    checked = check_models(config_of(virtual("u", "single", "a"), virtual("v", "switch", ruled("a"), ruled("b"), "c")))
    assert set(checked.conditions) == {(1, 0), (1, 1)}
