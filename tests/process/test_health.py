"""What the running program says of its upstreams' health, once it was told to look."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.process.program import HOST, PATIENCE_S, Program, free_port

from lumen_gateway.simulator import Reply, Upstream

DOCUMENT = """
[resilience]
health_check_enabled = true
health_check_interval_ms = 50
connect_timeout_ms = 2000

[[providers]]
name = "well"
kind = "vllm"
base_url = "WELL/v1"
api_key_env = "WELL_KEY"

[[providers]]
name = "ill"
kind = "ollama"
base_url = "WELL"

[[providers]]
name = "gone"
kind = "openai"
base_url = "GONE/v1"

[[providers]]
name = "unasked"
kind = "openai"
"""
OFF = DOCUMENT.replace("health_check_enabled = true", "")


async def health(lumen: Program) -> dict[str, Any]:
    answer = await lumen.client.get("/health/providers")
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


async def test_health_and_metrics_show_what_the_probes_found(tmp_path: Path) -> None:
    async with Upstream({"/health": Reply(), "/api/version": Reply(status=500)}) as well:
        document = DOCUMENT.replace("WELL/", f"{well.url}/").replace('"WELL"', f'"{well.url}"')
        document = document.replace("GONE", f"http://{HOST}:{free_port()}")
        async with Program(tmp_path, document, WELL_KEY="a-key") as lumen:
            async with asyncio.timeout(PATIENCE_S):
                while (await health(lumen))["gone"]["status"] == "unknown":
                    await well.called(len(well.calls) + 1)
            told = await health(lumen)
            metrics = (await lumen.client.get("/metrics")).text.splitlines()
    assert {name: found["status"] for name, found in told.items()} == {
        "well": "up",
        "ill": "down",
        "gone": "down",
        "unasked": "unknown",
    }
    assert told["ill"]["detail"] == "answered 500 at /api/version"
    assert told["unasked"] == {"status": "unknown"}
    assert 0 < told["well"]["latency_ms"] < PATIENCE_S * 1000
    samples = [line for line in metrics if line.startswith("lumen_provider_up")]
    assert samples == [
        'lumen_provider_up{provider="well"} 1',
        'lumen_provider_up{provider="ill"} 0',
        'lumen_provider_up{provider="gone"} 0',
    ]
    assert {call.method for call in well.calls} == {"GET"}
    assert all("authorization" not in call.headers for call in well.calls)


async def test_nobody_is_asked_unless_the_document_says_so(tmp_path: Path) -> None:
    async with Upstream(Reply()) as well:
        document = OFF.replace("WELL/", f"{well.url}/").replace('"WELL"', f'"{well.url}"')
        document = document.replace("GONE", f"http://{HOST}:{free_port()}")
        async with Program(tmp_path, document) as lumen:
            assert {found["status"] for found in (await health(lumen)).values()} == {"unknown"}
    assert well.calls == []
