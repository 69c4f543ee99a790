"""`docs/resilience.md` and the code agree: defaults, limits, what breakers count, what ends how."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lumen_gateway.config.schema import Provider, Resilience, Server
from lumen_gateway.errors import Kind
from lumen_gateway.execution.commit import MAX_COMPLETE_BYTES, MAX_LIFECYCLE_BYTES
from lumen_gateway.execution.cooldown import MAX_COOLDOWN_S
from lumen_gateway.execution.exchange import ERROR_BODY_S, MAX_ANSWER_BYTES, MAX_ERROR_BYTES
from lumen_gateway.execution.executor import OVER_BUDGET
from lumen_gateway.execution.retry import RetryPolicy, backoff_delay

PAGE = (Path(__file__).parents[1] / "docs" / "resilience.md").read_text()
SETTINGS = re.findall(r"^\| `(server|resilience)\.(\w+)` \| (\d+) \| .* \| (no|yes).* \|$", PAGE, re.MULTILINE)
FIXED = dict(re.findall(r"^\| ([^|`]*(?:`[^`|]*`)?) \| ([0-9][^|]*) \|", PAGE, re.MULTILINE))
KIB, MIB = 1024, 1024 * 1024


def test_settings_of_the_table_are_the_ones_there_are() -> None:
    named = {name for _, name, _, _ in SETTINGS}
    clocks = {name for name in Server.__struct_fields__ if name.endswith("timeout_ms")} | {"sse_heartbeat_ms"}
    rules = {name for name in Resilience.__struct_fields__ if not name.startswith("health_check")}
    assert named == clocks | rules | {"max_event_bytes"}


@pytest.mark.parametrize(("table", "name", "default", "per_provider"), SETTINGS)
def test_defaults_and_what_a_provider_may_change(table: str, name: str, default: str, per_provider: str) -> None:
    declared = {"server": Server(), "resilience": Resilience()}[table]
    assert getattr(declared, name) == int(default)
    assert (name in Provider.__struct_fields__) == (per_provider == "yes")


def test_limits_are_those_of_the_code() -> None:
    assert FIXED["a refusal's body"] == f"{MAX_ERROR_BYTES // KIB} KiB, {ERROR_BODY_S * 1000:.0f} ms"
    assert FIXED["an unstreamed answer"] == f"{MAX_ANSWER_BYTES // MIB} MiB"
    assert FIXED["frames held back before the first output"] == f"{MAX_LIFECYCLE_BYTES // KIB} KiB"
    assert FIXED['a stream held back by `commit = "complete"`'] == f"{MAX_COMPLETE_BYTES // MIB} MiB"
    assert FIXED["a cool-down"] == f"{MAX_COOLDOWN_S:.0f} s"


def test_first_waits_are_as_told() -> None:
    defaults = Resilience()
    policy = RetryPolicy(defaults.retry_max_attempts, defaults.retry_base_ms / 1000, defaults.retry_max_ms / 1000)
    told = re.findall(r"(\d+) to (\d+) ms", PAGE)
    assert [(int(low), int(high)) for low, high in told] == [
        tuple(round(backoff_delay(policy, tries, rand) * 1000) for rand in (0.0, 1.0)) for tries in (1, 2)
    ]


@pytest.mark.parametrize(
    ("clock", "kind"),
    [
        ("connect", Kind.CONNECT_TIMEOUT),
        ("first output", Kind.FIRST_TOKEN_TIMEOUT),
        ("whole answer, or silence in a stream", Kind.READ_TIMEOUT),
        ("total", Kind.TOTAL_TIMEOUT),
    ],
)
def test_clocks_answer_with_the_codes_told(clock: str, kind: Kind) -> None:
    told = re.search(rf"^\| {clock} \| `(LM-\d+)`, (.*) \|$", PAGE, re.MULTILINE)
    assert told is not None
    assert told[1] == kind.row.code
    assert told[2].startswith("`timeout`" if kind.row.triggers else "leads nowhere")


def test_outcome_of_a_skipped_target_is_told() -> None:
    assert f"the outcome `{OVER_BUDGET}`" in PAGE
