"""Which settings a running gateway takes over from a changed document, and which wait for a restart.

Every field belongs to exactly one layer; a test fails for a new field that has chosen none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.config.schema import Config

BOOT = frozenset(
    {
        "config_source",
        "log_format",
        "server",
        "telemetry",
        "usage_events",
        "storage",
        "auth.enabled",
        "auth.db_path",
        "auth.usage_channel_capacity",
        "auth.usage_batch_max",
        "auth.usage_flush_ms",
    }
)
DYNAMIC = frozenset(
    {
        "prices",
        "tokenizer",
        "resilience",
        "image_fetch",
        "webhooks",
        "agents",
        "providers",
        "virtual_models",
        "auth.flush_interval_ms",
        "auth.retention_days",
    }
)


def apply(running: Config, changed: Config) -> tuple[Config, list[str]]:
    """Return the changed document with the running boot layer, and the boot fields that wait for a restart."""
    waiting: list[str] = []
    kept: dict[str, Any] = {}
    for name in BOOT:
        table, _, field = name.partition(".")
        old, new = getattr(running, table), getattr(changed, table)
        if field:
            if getattr(old, field) != getattr(new, field):
                waiting.append(name)
        elif old != new:
            waiting += _differences(name, old, new)
            kept[table] = old
    auth = {field: getattr(running.auth, field) for table, _, field in (n.partition(".") for n in BOOT) if field}
    kept["auth"] = msgspec.structs.replace(changed.auth, **auth)
    return msgspec.structs.replace(changed, **kept), sorted(waiting)


def _differences(name: str, old: object, new: object) -> list[str]:
    if not isinstance(old, msgspec.Struct):
        return [name]
    fields = msgspec.structs.fields(old)
    return [f"{name}.{f.name}" for f in fields if getattr(old, f.name) != getattr(new, f.name)]
