"""Fields of older documents that became virtual models: refused with what to write instead, ready to paste.

Rewriting a whole document is left to `migrate.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lumen_gateway.config.schema import Fault
from lumen_gateway.config.wording import quoted

Path = tuple[str | int, ...]

_LEGACY_KEYS = ("fallbacks", "rerank")


def check_legacy(document: dict[str, Any]) -> list[Fault]:
    """Refuse every old field of a foundation model. Looks at the raw document: anything in it may be misshapen."""
    return [
        _fault(provider, model, old, ("providers", outer, "models", inner, *place))
        for outer, provider in _tables_in(document, "providers")
        for inner, model in _tables_in(provider, "models")
        for old, place in _old_fields(provider, model)
    ]


def _old_fields(provider: dict[str, Any], model: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Name each old field of a model, and where it stands."""
    for key in _LEGACY_KEYS:
        if key in model:
            yield key, (key,)
    capabilities = model.get("capabilities")
    if provider.get("kind") == "typesafe" and type(capabilities) is list and "rerank" in capabilities:
        yield "capability rerank", ("capabilities", capabilities.index("rerank"))


def _tables_in(table: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    value = table.get(key)
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)] if type(value) is list else []


def _fault(provider: dict[str, Any], model: dict[str, Any], old: str, path: Path) -> Fault:
    name = str(model.get("id", "?"))
    renamed = f"{provider.get('name', '?')}/{name}"
    upstream = model.get("upstream_id", name)
    virtual = _fallback(name, renamed, model) if old == "fallbacks" else _rerank(name, renamed)
    removed = "remove it" if old in _LEGACY_KEYS else 'let this model declare "decisions" in its place'
    return Fault(
        path,
        f"model {quoted(name)}: {old} gave way to virtual models",
        f"by hand, since `lumen config migrate` is not in this version: {removed}, name this model {quoted(renamed)} "
        f"with upstream_id = {_toml(upstream)}, and add\n{virtual}",
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
