"""A document that changes under the running program: what is taken over, what waits, and what changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.process.fleet import Fleet, document

from lumen_gateway.simulator import Upstream, completion, error, stream

RELOADS, REFUSALS = "lumen_config_reloads_total", "lumen_config_reload_failures_total"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    script = {
        "m": completion("Hello"),
        "streamed": stream(["one ", "two ", "three"]),
        "ill": error(500),
    }
    async with Upstream(script) as running:
        yield running


async def test_saved_document_is_served_by_every_worker_without_a_signal(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        before = await fleet.settled("ok")
        fleet.path.write_text(document(upstream.port, "m", "streamed"))
        after = await fleet.settled("ok", other_than=before["hash"])
        assert after["applied_at"] > before["applied_at"]
        assert (await fleet.ask("streamed", stream=True)).done
        assert await fleet.counted(RELOADS) == 1


async def test_request_in_flight_keeps_its_document(tmp_path: Path, upstream: Upstream) -> None:
    """It was to try twice, then take the next target; meanwhile the document allows one try and has no such target."""
    text = document(upstream.port, "ill", "m", more="[resilience]\nretry_max_attempts = 2\nretry_base_ms = 4000\n")
    chain = '[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "fallback"\n'
    chain += 'targets = [{ model = "ill" }, { model = "m" }]\n'
    async with Fleet(tmp_path, text + chain) as fleet:
        before = await fleet.settled("ok")
        asking = asyncio.gather(fleet.ask("v"))
        await upstream.called()
        fleet.path.write_text(document(upstream.port, "ill", more="[resilience]\nretry_max_attempts = 1\n"))
        await fleet.settled("ok", other_than=before["hash"])
        assert not asking.done()
        assert (await fleet.ask("v")).error["code"] == "LM-2001"
        (answer,) = await asking
        assert (answer.text, answer.route) == ("Hello", "v>m")
        assert len(upstream.calls) == 3


async def test_faulty_document_changes_nothing_and_says_why(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        before = await fleet.settled("ok")
        fleet.path.write_text(document(upstream.port, "m") + 'nmae = "x"\n')
        health = await fleet.settled("refused")
        assert health["hash"] == before["hash"]
        (fault,) = health["faults"]
        assert fault.startswith(f"{fleet.path}:")
        assert "nmae" in fault
        assert fault in fleet.log
        assert (await fleet.ask("m")).text == "Hello"
        assert await fleet.counted(REFUSALS) >= 1

        fleet.path.write_text(document(upstream.port, "m"))
        mended = await fleet.settled("ok")
        assert mended == {**before, "workers": mended["workers"]}
        assert await fleet.counted(RELOADS) == 0


async def test_unchanged_document_is_no_reload(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m")) as fleet:
        os.utime(fleet.path)
        fleet.send(signal.SIGHUP)
        async with asyncio.timeout(20):
            while "is the one being served" not in fleet.log:  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)
        assert await fleet.counted(RELOADS) == 0
        assert await fleet.counted(REFUSALS) == 0


async def test_boot_fields_wait_for_a_restart_and_the_rest_is_applied(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m")) as fleet:
        before = await fleet.settled("ok")
        more = 'log_format = "json"\n[server]\nport = 1\nsse_heartbeat_ms = 7\n'
        fleet.path.write_text(document(upstream.port, "m", "streamed", more=more))
        health = await fleet.settled("ok", other_than=before["hash"])
        assert health["restart_needed"] == ["log_format", "server.port", "server.sse_heartbeat_ms"]
        assert "restart to apply log_format, server.port, server.sse_heartbeat_ms" in fleet.log
        assert (await fleet.ask("streamed", stream=True)).done


async def test_link_into_a_folder_that_is_swapped_is_followed(tmp_path: Path, upstream: Upstream) -> None:
    """How Kubernetes brings a new ConfigMap: `lumen.toml` -> `..data/lumen.toml`, `..data` -> a folder of its own."""
    async with Fleet(tmp_path, document(upstream.port, "m")) as fleet:
        before = await fleet.settled("ok")
        for name, models in (("first", ("m",)), ("second", ("m", "streamed"))):
            (tmp_path / name).mkdir()
            (tmp_path / name / "lumen.toml").write_text(document(upstream.port, *models, more=f"# {name}\n"))
        (tmp_path / "..data").symlink_to("first")
        (tmp_path / "link").symlink_to("..data/lumen.toml")
        (tmp_path / "link").rename(fleet.path)
        linked = await fleet.settled("ok", other_than=before["hash"])
        (tmp_path / "swap").symlink_to("second")
        (tmp_path / "swap").rename(tmp_path / "..data")
        await fleet.settled("ok", other_than=linked["hash"])
        assert (await fleet.ask("streamed", stream=True)).done
