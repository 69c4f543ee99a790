"""Fields of older documents that became virtual models: refused with what to write instead, ready to paste.

Rewriting a whole document is left to `migrate.py`.
"""

from __future__ import annotations

import json
from typing import Any

from lumen_gateway.config.schema import Fault
from lumen_gateway.config.wording import quoted

LEGACY_KEYS = ("fallbacks", "rerank")


def check_legacy(document: dict[str, Any]) -> list[Fault]:
    """Refuse every old field of a foundation model. Looks at the raw document: anything in it may be misshapen."""
    return [
        _fault(provider, model, key, ("providers", outer, "models", inner, key))
        for outer, provider in _tables_in(document, "providers")
        for inner, model in _tables_in(provider, "models")
        for key in LEGACY_KEYS
        if key in model
    ]


def _tables_in(table: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    value = table.get(key)
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)] if type(value) is list else []


def _fault(provider: dict[str, Any], model: dict[str, Any], key: str, path: tuple[str | int, ...]) -> Fault:
    name = str(model.get("id", "?"))
    renamed = f"{provider.get('name', '?')}/{name}"
    upstream = model.get("upstream_id", name)
    virtual = _fallback(name, renamed, model) if key == "fallbacks" else _rerank(name, renamed)
    return Fault(
        path,
        f"model {quoted(name)}: {key} gave way to virtual models",
        f"run `lumen config migrate`, or remove it, name this model {quoted(renamed)} with upstream_id = "
        f"{_toml(upstream)}, and add\n{virtual}",
    )


def _fallback(name: str, renamed: str, model: dict[str, Any]) -> str:
    capabilities, fallbacks = model.get("capabilities"), model["fallbacks"]
    capability = capabilities[0] if type(capabilities) is list and capabilities else "chat"
    targets = [renamed, *(fallbacks if type(fallbacks) is list else [])]
    listed = ", ".join(f"{{ model = {_toml(target)} }}" for target in targets)
    return _virtual(name, _toml(capability), "fallback", listed)


def _rerank(name: str, renamed: str) -> str:
    target = f'{{ model = {_toml(renamed)}, remap = {{ strategy = "predicate" }} }}'
    return _virtual(name, '"rerank"', "single", target)


def _virtual(name: str, capability: str, strategy: str, targets: str) -> str:
    return (
        "[[virtual_models]]\n"
        f"id = {_toml(name)}\n"
        f"capability = {capability}\n"
        f'strategy = "{strategy}"\n'
        f"targets = [{targets}]"
    )


def _toml(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
