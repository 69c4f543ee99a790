"""Old fields are refused with a virtual model that can be pasted."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from lumen_gateway.config.check import check_shape
from lumen_gateway.config.legacy import check_legacy
from lumen_gateway.config.load import parse_document

OLD = """
[[providers]]
name = "openai"
kind = "openai"
[[providers.models]]
id = "gpt-4o"
capabilities = ["chat"]
fallbacks = ["claude"]
[[providers.models]]
id = "claude"
capabilities = ["chat"]
"""
NEW = """
[[providers]]
name = "openai"
kind = "openai"
[[providers.models]]
id = "openai/gpt-4o"
upstream_id = "gpt-4o"
capabilities = ["chat"]
[[providers.models]]
id = "claude"
capabilities = ["chat"]
"""


def test_fallbacks_are_refused_by_name_with_the_command_that_moves_them() -> None:
    [fault] = check_legacy(tomllib.loads(OLD))
    assert fault.path == ("providers", 0, "models", 0, "fallbacks")
    assert 'model "gpt-4o"' in fault.message
    assert "`lumen config migrate`" in fault.fix
    assert '"openai/gpt-4o" with upstream_id = "gpt-4o"' in fault.fix


def test_snippet_for_fallbacks_makes_the_document_whole() -> None:
    [fault] = check_legacy(tomllib.loads(OLD))
    document = parse_document(Path("lumen.toml"), (NEW + fault.fix.partition("\n")[2]).encode(), {})
    assert document.config is not None
    [virtual] = document.config.virtual_models
    assert (virtual.id, virtual.strategy) == ("gpt-4o", "fallback")
    assert [target.model for target in virtual.targets] == ["openai/gpt-4o", "claude"]


def test_rerank_table_becomes_a_virtual_reranker() -> None:
    old = OLD.replace('fallbacks = ["claude"]', 'upstream_id = "judge"\nrerank = { instructions = "hunter2" }')
    [fault] = check_legacy(tomllib.loads(old))
    [virtual] = tomllib.loads(fault.fix.partition("\n")[2])["virtual_models"]
    assert virtual == {
        "id": "gpt-4o",
        "capability": "rerank",
        "strategy": "single",
        "targets": [{"model": "openai/gpt-4o", "remap": {"strategy": "predicate"}}],
    }
    assert "hunter2" not in fault.message + fault.fix
    assert 'upstream_id = "judge"' in fault.fix


def test_rerank_of_a_typesafe_model_is_told_once_with_a_virtual_reranker() -> None:
    old = OLD.replace('kind = "openai"', 'kind = "typesafe"').replace('["chat"]\nf', '["decisions", "rerank"]\nf')
    [fault] = [fault for fault in check_shape(tomllib.loads(old)) if fault.path[-2:] == ("capabilities", 1)]
    assert fault.message == 'model "gpt-4o": capability rerank gave way to virtual models'
    assert 'let this model declare "decisions" in its place' in fault.fix
    [virtual] = tomllib.loads(fault.fix.partition("\n")[2])["virtual_models"]
    assert (virtual["id"], virtual["capability"], virtual["targets"][0]["model"]) == (
        "gpt-4o",
        "rerank",
        "openai/gpt-4o",
    )


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"providers": 1},
        {"providers": [1, {"models": {}}, {"models": [1, {}]}]},
        {"providers": [{"models": [{"fallbacks": 1}, {"rerank": None, "id": 3, "capabilities": []}]}]},
    ],
)
def test_misshapen_document_is_no_trouble(document: dict[str, Any]) -> None:
    check_legacy(document)
