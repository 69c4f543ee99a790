"""The declared document: what an empty one means, and that it cannot be changed."""

from __future__ import annotations

import pytest

from lumen_gateway.config.schema import Config, Model, Provider


def test_empty_document_listens_on_loopback_and_offers_nothing() -> None:
    config = Config()
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert config.models() == []


def test_models_come_with_their_provider_in_document_order() -> None:
    models = [Model(id=name, capabilities=["chat"]) for name in ("x", "y", "z")]
    first = Provider(name="a", kind="openai", models=models[:2])
    second = Provider(name="b", kind="groq", models=models[2:])
    pairs = [(provider.name, model.id) for provider, model in Config(providers=[first, second]).models()]
    assert pairs == [("a", "x"), ("a", "y"), ("b", "z")]


def test_config_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().log_format = "json"  # type: ignore[misc]


def test_defaults_are_not_shared_between_models() -> None:
    first, second = (Model(id=name, capabilities=["chat"]) for name in "ab")
    assert first.modalities == ["text"]
    assert first.modalities is not second.modalities
