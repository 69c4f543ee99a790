"""Overrides: what is allowed, how levels fold, and what a folded set does to a request."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr
from tests.routing import documents

from lumen_gateway.config.schema import Overrides
from lumen_gateway.routing.overrides import FIELDS, NO_EDITS, Edits, apply, check_overrides, fold

TYPED = {"temperature", "top_p", "max_tokens", "stop"}


def interpret(levels: list[Overrides], sent: dict[str, Any]) -> dict[str, Any]:
    """Do literally what the page says: defaults from the inside out, then set and drop from the outside in."""
    fields = dict(sent)
    for level in reversed(levels):
        for field, value in level.default.items():
            absent = fields.get(field) is None if field in TYPED else field not in fields
            if absent:
                fields[field] = value
    for level in levels:
        fields |= level.set
        for field in level.drop:
            fields.pop(field, None)
    return fields


def applied(edits: Edits, sent: dict[str, Any]) -> dict[str, Any]:
    fields = {field: msgspec.Raw(msgspec.json.encode(value)) for field, value in sent.items()}
    apply(edits, fields)
    return {field: msgspec.json.decode(value) for field, value in fields.items()}


tables = documents.overrides.map(lambda table: msgspec.convert(table, Overrides))
requests = st.fixed_dictionaries(
    {"model": st.just("m")},
    optional={"temperature": st.none() | st.just(1), "seed": st.none() | st.just(9), "stop": st.none() | st.just("z")},
)


@given(st.lists(tables, max_size=5), requests)
def test_folded_edits_do_what_the_levels_say_one_by_one(levels: list[Overrides], sent: dict[str, Any]) -> None:
    assert applied(fold(levels), sent) == interpret(levels, sent)


def test_innermost_default_wins_and_a_client_value_beats_it() -> None:
    edits = fold([Overrides(default={"seed": 1}), Overrides(default={"seed": 2})])
    assert applied(edits, {}) == {"seed": 2}
    assert applied(edits, {"seed": 3}) == {"seed": 3}


def test_null_counts_as_sent_only_for_fields_that_pass_through() -> None:
    edits = fold([Overrides(default={"seed": 1, "temperature": 0})])
    assert applied(edits, {"seed": None, "temperature": None}) == {"seed": None, "temperature": 0}


def test_outer_drop_removes_an_inner_default_but_not_an_inner_set() -> None:
    drop = Overrides(drop=["seed"])
    assert applied(fold([drop, Overrides(default={"seed": 1})]), {"seed": 5}) == {}
    assert applied(fold([drop, Overrides(set={"seed": 1})]), {"seed": 5}) == {"seed": 1}


def test_drop_beats_set_of_the_same_level() -> None:
    assert applied(fold([Overrides(set={"seed": 1}, drop=["seed"])]), {}) == {}


def test_decimals_of_the_document_become_json_numbers() -> None:
    edits = fold([Overrides(set={"temperature": Decimal("0.10"), "top_p": Decimal("1E+2")})])
    assert {field: bytes(value) for field, value in edits.set.items()} == {"temperature": b"0.10", "top_p": b"1E+2"}


def test_no_levels_are_no_edits() -> None:
    assert fold([]) is NO_EDITS
    assert fold([Overrides(drop=["seed"])]) != NO_EDITS


def test_edits_show_names_and_never_values() -> None:
    edits = fold([Overrides(set={"stop": "SECRET"}, default={"reasoning_effort": "SECRET"}, drop=["seed"])])
    for shown in (repr(edits), pretty_repr(edits)):
        assert "SECRET" not in shown
        assert all(name in shown for name in ("stop", "reasoning_effort", "seed"))


# --- checking ---------------------------------------------------------------------------------------------------------

RIGHT: dict[str, list[Any]] = {
    "temperature": [0, 1.5, Decimal("0.2")],
    "max_tokens": [0, 2**32 - 1],
    "stop": ["x", ["x", "y"]],
    "seed": [-(2**63), 2**63 - 1],
    "response_format": [{"type": "json_schema", "json_schema": {"x": [1, True, Decimal("0.5"), "y", {}]}}],
    "reasoning_effort": ["low"],
    "parallel_tool_calls": [False],
}
WRONG: dict[str, list[Any]] = {
    "temperature": ["1", True, Decimal("inf"), Decimal("nan"), None],
    "max_tokens": [-1, 2**32, 1.0, True],
    "stop": [[], [1], 1],
    "seed": [2**63, 1.5, False],
    "response_format": ["json", [], {"x": Decimal("nan")}, {"x": [object()]}],
    "reasoning_effort": [1],
    "parallel_tool_calls": [0, "true"],
}


def faults_of(table: Overrides, capability: str = "chat") -> list[tuple[tuple[str | int, ...], str, str]]:
    return [(fault.path, fault.message, fault.fix) for fault in check_overrides(table, capability, ("here",))]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in RIGHT for value in RIGHT[field]])
def test_value_of_the_right_type_is_taken(field: str, value: Any) -> None:
    assert faults_of(Overrides(set={field: value}, default={field: value}, drop=[field])) == []


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_value_of_the_wrong_type_is_refused_at_its_place_without_being_repeated(field: str, value: Any) -> None:
    [(path, message, fix)] = faults_of(Overrides(set={field: value}))
    assert path == ("here", "set", field)
    assert field in message
    assert fix.startswith("write ")
    assert not isinstance(value, str) or value not in message


def test_value_nested_without_end_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(200):
        nested = {"x": nested}
    assert len(faults_of(Overrides(set={"response_format": nested}))) == 1


def test_unknown_field_is_refused_with_the_allowed_ones_and_the_nearest() -> None:
    faults = faults_of(Overrides(default={"temprature": 1}, drop=["seed", "logprobs"]))
    assert [path for path, _, _ in faults] == [("here", "default", "temprature"), ("here", "drop", 1)]
    assert 'did you mean "temperature"?' in faults[0][2]
    assert all(", ".join(FIELDS["chat"]) in fix for _, _, fix in faults)


def test_empty_table_is_refused() -> None:
    assert len(faults_of(Overrides(set={}))) == 1


@pytest.mark.parametrize(
    ("capability", "field", "value"),
    [("embed", "dimensions", 3), ("embed", "encoding_format", "float"), ("rerank", "top_n", 1)],
)
def test_each_capability_has_its_own_fields(capability: str, field: str, value: Any) -> None:
    assert faults_of(Overrides(set={field: value}), capability) == []
    assert len(faults_of(Overrides(set={field: value}))) == 1


def test_decisions_take_no_overrides() -> None:
    assert "decisions" in faults_of(Overrides(set={"seed": 1}), "decisions")[0][1]
