"""What a running gateway takes over from a changed document, and what waits."""

from __future__ import annotations

import msgspec
import pytest

from lumen_gateway.config.layers import BOOT, DYNAMIC, apply
from lumen_gateway.config.schema import Auth, Config, Provider, Resilience, Server, Telemetry

FIELDS = {field.name for field in msgspec.structs.fields(Config)}
AUTH_FIELDS = {f"auth.{field.name}" for field in msgspec.structs.fields(Auth)}


def test_every_field_has_chosen_one_layer() -> None:
    assert (FIELDS - {"auth"}) | AUTH_FIELDS == BOOT | DYNAMIC
    assert BOOT.isdisjoint(DYNAMIC)


def test_dynamic_fields_are_taken_over() -> None:
    changed = Config(
        providers=[Provider("p", "openai")],
        resilience=Resilience(retry_max_attempts=1),
        auth=Auth(flush_interval_ms=1, retention_days=2),
    )
    assert apply(Config(), changed) == (changed, [])


@pytest.mark.parametrize(
    ("changed", "waiting"),
    [
        (Config(log_format="json"), ["log_format"]),
        (Config(server=Server(port=1, host="::")), ["server.host", "server.port"]),
        (Config(telemetry=Telemetry(metadata_labels=["team"])), ["telemetry.metadata_labels"]),
        (Config(auth=Auth(db_path="x", usage_batch_max=1)), ["auth.db_path", "auth.usage_batch_max"]),
        (Config(usage_events={}), ["usage_events"]),
    ],
)
def test_boot_fields_stay_and_are_named(changed: Config, waiting: list[str]) -> None:
    assert apply(Config(), changed) == (Config(), waiting)


def test_both_layers_of_one_table_go_their_ways() -> None:
    running = Config(auth=Auth(db_path="here"))
    config, waiting = apply(running, Config(auth=Auth(db_path="there", retention_days=7)))
    assert config.auth == Auth(db_path="here", retention_days=7)
    assert waiting == ["auth.db_path"]
