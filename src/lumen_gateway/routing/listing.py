"""The models a client is shown: `GET /v1/models`.

Built once per document, from a document that compiled. Hidden virtual models (`listed = false`) are left out and still
callable.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from lumen_gateway.config.schema import Config, Model, Provider, VirtualModel
from lumen_gateway.routing.plan import canonical


def list_models(config: Config) -> Iterator[dict[str, Any]]:
    """Yield every listed model as clients see it: foundation models first, each kind in document order."""
    modalities = _Modalities(config)
    for provider, model in config.models():
        yield _foundation(provider, model)
    for virtual in config.virtual_models:
        if virtual.listed:
            yield _virtual(virtual, modalities.of(virtual.id))


def _foundation(provider: Provider, model: Model) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "owned_by": provider.name,
        "capabilities": [canonical(capability) for capability in model.capabilities],
        "modalities": model.modalities,
        "virtual": False,
    }
    if model.release_date is not None:
        midnight = datetime.datetime.fromisoformat(model.release_date).replace(tzinfo=datetime.UTC)
        shown |= {"created": int(midnight.timestamp()), "release_date": model.release_date}
    return shown


def _virtual(model: VirtualModel, modalities: list[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "owned_by": "lumen",
        "capabilities": [canonical(model.capability)],
        "modalities": modalities,
        "virtual": True,
    }
    if model.description is not None:
        shown["description"] = model.description
    return shown


class _Modalities:
    """What a model takes; a virtual one takes what all its leaves take."""

    def __init__(self, config: Config) -> None:
        self._known = {model.id: model.modalities for _, model in config.models()}
        self._virtual = {model.id: model for model in config.virtual_models}

    def of(self, model_id: str) -> list[str]:
        """Return the modalities of a model, in the order its first leaf declares them."""
        known = self._known.get(model_id)
        if known is None:
            first, *rest = [self.of(target.model) for target in self._virtual[model_id].targets]
            known = self._known[model_id] = [each for each in first if all(each in other for other in rest)]
        return known
