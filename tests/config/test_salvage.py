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


def test_target_that_comes_near_a_wrong_id_is_not_called_unknown() -> None:
    text = BASE.replace('id = "m"', 'id = "large model"').replace('model = "m"', 'model = "large-model"')
    assert reported(text) == ["providers.0.models.0.id"]


def test_two_wrong_ids_are_not_called_duplicates() -> None:
    text = (
        BASE.replace('id = "m"', 'id = "m m"').replace('id = "v"', 'id = "v v"').replace('model = "m"', 'model = "m m"')
    )
    assert reported(text) == ["providers.0.models.0.id", "virtual_models.0.id"]


def test_no_fault_is_kept_back_for_one_beside_it() -> None:
    keys = '[{ label = "k", api_key_env = 1 }, { label = "k", api_key_env = "K" }]'
    provider = f'api_version = "x"\nstrict = 1\nkeys = {keys}'
    model = 'cost_per_1m_input = -1\nrelease_date = "2024-02-31"'
    virtual = 'description = " "\nfallback_on = ["timeout"]\n[[virtual_models]]\nid = "w w"'
    text = BASE.replace('kind = "openai"', f'kind = "openai"\n{provider}').replace('["chat"]\n', f'["chat"]\n{model}\n')
    text = text.replace('"fallback"', '"single"').replace('{ model = "m" }]', '{ model = "nope", weight = 1, x = 1 }]')
    assert set(reported(text + virtual)) == {
        "providers.0.api_version",
        "providers.0.strict",
        "providers.0.keys.0.api_key_env",
        "providers.0.keys.1.label",
        "providers.0.models.0.cost_per_1m_input",
        "providers.0.models.0.release_date",
        "virtual_models.0.targets",
        "virtual_models.0.targets.1.x",
        "virtual_models.0.targets.1.weight",
        "virtual_models.0.targets.1.model",
        "virtual_models.0.description",
        "virtual_models.0.fallback_on",
        "virtual_models.1.id",
        "virtual_models.1.capability",
        "virtual_models.1.strategy",
        "virtual_models.1.targets",
    }


def test_ids_and_names_are_compared_whatever_else_is_wrong_with_their_owners() -> None:
    second = '[[providers]]\nname = "a"\nkind = "grok"\nmodels = [{ id = "m", capabilities = ["chta"] }]'
    assert reported(BASE + second) == [
        "providers.1.kind",
        "providers.1.models.0.capabilities.0",
        "providers.1.name",
        "providers.1.models.0.id",
    ]


def test_pin_on_keys_that_are_wrong_is_not_called_unknown() -> None:
    text = BASE.replace('kind = "openai"', 'kind = "openai"\nkeys = [{ label = 1, api_key_env = "K" }]')
    assert reported(text.replace('{ model = "m" }]', '{ model = "m", key = "k" }]')) == ["providers.0.keys.0.label"]


def test_targets_of_an_unbuilt_capability_are_not_held_against_another() -> None:
    text = BASE.replace('capability = "chat"', 'capability = "embed"').replace(
        '{ model = "m" }]', '{ model = "m", overrides = { set = { dimensions = 1 } } }]'
    )
    assert reported(text) == ["virtual_models.0.capability"]


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
