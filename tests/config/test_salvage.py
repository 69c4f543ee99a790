"""A mended document converts, and what its mending alone explains is not reported."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lumen_gateway.config.check import check_shape
from lumen_gateway.config.load import parse_document
from lumen_gateway.config.salvage import Damage, salvage
from lumen_gateway.config.schema import Fault
from lumen_gateway.routing.compile import compile_plan

BASE = """
[[providers]]
name = "a"
kind = "openai"
[[providers.models]]
id = "m"
capabilities = ["chat"]
[[virtual_models]]
id = "v"
capability = "chat"
strategy = "fallback"
targets = [{ model = "m" }, { model = "m" }]
"""


def reported(text: str) -> list[str]:
    """Return the paths of everything reported, shapes, rules and references together."""
    document = parse_document(Path("lumen.toml"), text.encode(), {})
    assert document.draft is not None
    document = document.with_faults(compile_plan(document.draft).faults)
    return [".".join(map(str, fault.path)) for fault in document.faults]


def test_reference_fault_is_reported_beside_a_shape_fault() -> None:
    text = BASE.replace('{ model = "m" }]', '{ model = "nope" }]') + "[server]\nport = 0"
    assert reported(text) == ["server.port", "virtual_models.0.targets.1.model"]


def test_rule_fault_is_reported_beside_a_shape_fault() -> None:
    text = BASE.replace('kind = "openai"', 'kind = "vllm"') + "[server]\nport = 0"
    assert reported(text) == ["server.port", "providers.0.base_url"]


def test_missing_weight_is_not_reported_where_the_weight_is_wrong() -> None:
    text = BASE.replace("fallback", "split").replace('{ model = "m" }', '{ model = "m", weight = 0 }')
    assert reported(text) == ["virtual_models.0.targets.0.weight", "virtual_models.0.targets.1.weight"]


def test_targets_of_an_unknown_strategy_are_not_counted() -> None:
    assert reported(BASE.replace('"fallback"', '"falback"')) == ["virtual_models.0.strategy"]


def test_target_of_a_model_whose_id_is_wrong_is_not_called_unknown() -> None:
    text = BASE.replace('id = "m"', 'id = "m m"').replace('model = "m"', 'model = "m m"')
    assert reported(text) == ["providers.0.models.0.id"]


def test_two_wrong_ids_are_not_called_duplicates() -> None:
    text = BASE.replace('id = "m"', 'id = "m m"').replace('id = "v"', 'id = "v v"')
    assert reported(text) == ["providers.0.models.0.id", "virtual_models.0.id"]


def test_legacy_fallbacks_are_reported_and_everything_else_too() -> None:
    text = BASE.replace('["chat"]', '["chat"]\nfallbacks = ["x"]').replace('{ model = "m" }]', '{ model = "x" }]')
    assert reported(text) == ["providers.0.models.0.fallbacks", "virtual_models.0.targets.1.model"]


def test_document_in_one_piece_hides_nothing() -> None:
    assert not Damage().hides(Fault(("server", "port"), ""))
    assert not Damage().hides(Fault((), ""))


misshapen = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.just(Decimal(-1))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["id", "kind", "name", "models", "keys", "targets", "preset", "overrides", "x"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["server", "providers", "virtual_models", "prices", "agents"]), misshapen))
def test_any_document_can_be_mended(document: dict[str, Any]) -> None:
    salvage(document, check_shape(document))
    assert check_shape(document) == []
