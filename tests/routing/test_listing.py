"""The listing that clients see."""

from __future__ import annotations

from tests.routing.documents import config_of, read, virtual

from lumen_gateway.routing.listing import list_models


def test_foundation_models_come_first_and_each_kind_in_document_order() -> None:
    config = config_of(virtual("z", "single", "a"), virtual("y", "single", "b"))
    assert [model["id"] for model in list_models(config)] == ["a", "b", "c", "d", "e", "r", "z", "y"]


def test_foundation_model_names_its_provider_and_what_it_declares() -> None:
    listed = {model["id"]: model for model in list_models(read(DATED))}
    assert listed["a"] == {
        "id": "a",
        "object": "model",
        "owned_by": "one",
        "capabilities": ["chat"],
        "modalities": ["text", "image"],
        "virtual": False,
    }
    assert listed["dated"]["release_date"] == "2024-05-13"
    assert listed["dated"]["created"] == 1715558400
    assert listed["dated"]["capabilities"] == ["decisions"]


DATED = """
[[providers]]
name = "three"
kind = "openai"
models = [{ id = "dated", capabilities = ["systemone"], release_date = "2024-05-13" }]
"""


def test_virtual_model_is_ours_and_says_what_it_is_for() -> None:
    listed = list(list_models(config_of(virtual("v", "single", "a", description="For all."))))
    assert listed[-1] == {
        "id": "v",
        "object": "model",
        "owned_by": "lumen",
        "capabilities": ["chat"],
        "modalities": ["text", "image"],
        "virtual": True,
        "description": "For all.",
    }


def test_hidden_virtual_model_is_left_out_and_still_counts_for_those_around_it() -> None:
    hidden = virtual("hidden", "fallback", "a", "b", listed=False)
    listed = {model["id"]: model for model in list_models(config_of(virtual("v", "fallback", "a", "hidden"), hidden))}
    assert "hidden" not in listed
    assert listed["v"]["modalities"] == ["text"]
