"""Several workers under one keeper: who serves, what they know, and what becomes of the rest when one dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from tests.process.fleet import Fleet, document, shown_of, until_gone
from tests.process.program import HOST, PATIENCE_S

from lumen_gateway.simulator import Upstream, completion, stream

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")

MASTER_KEY = "0123456789abcdef" * 4
PROVIDER_KEY = "sk-canary-of-the-provider"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    script = {"m": completion("Hello"), "long": stream(["word "] * 30, frame_delay_s=0.1)}
    async with Upstream(script) as running:
        yield running


async def on_their_own_connections(fleet: Fleet, count: int) -> None:
    """Ask so often that every worker has its share: each connection goes to whoever accepts it first."""
    for _ in range(count):
        async with httpx2.AsyncClient(base_url=f"http://{HOST}:{fleet.port}", timeout=PATIENCE_S) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_counts_of_all_workers_are_one_sum(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        await fleet.serving(2)
        await on_their_own_connections(fleet, 20)
        assert await fleet.counted("lumen_attempts_total") == 20


async def test_killed_worker_takes_only_its_own_requests_and_is_replaced(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m", "long"), "--workers", "2") as fleet:
        await fleet.serving(2)
        victim, survivor = await fleet.workers()
        asking = asyncio.gather(*(fleet.ask("long", stream=True) for _ in range(8)), return_exceptions=True)
        await upstream.called(8)
        os.kill(victim, signal.SIGKILL)
        answers = await asking
        cut = [answer for answer in answers if isinstance(answer, httpx2.TransportError)]
        whole = [answer for answer in answers if not isinstance(answer, BaseException) and answer.done]
        assert len(cut) + len(whole) == 8
        await fleet.serving(2)
        assert victim not in await fleet.workers()
        assert survivor in await fleet.workers()
        assert await fleet.counted("lumen_worker_restarts_total") == 1
        assert "was killed by signal 9" in fleet.log


async def test_workers_of_a_killed_keeper_end(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        await fleet.serving(2)
        workers = list(await fleet.workers())
        fleet.send(signal.SIGKILL)
        await until_gone(workers)


async def test_worker_asked_to_end_by_name_is_replaced_without_loss(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m", "long")) as fleet:
        await fleet.serving(1)
        (worker,) = await fleet.workers()
        asking = asyncio.gather(fleet.ask("long", stream=True))
        await upstream.called()
        os.kill(worker, signal.SIGTERM)
        (answer,) = await asking
        assert answer.done
        await fleet.ready()
        await fleet.serving(1)
        assert worker not in await fleet.workers()


async def test_terminal_signals_to_a_worker_are_the_keepers_business(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m")) as fleet:
        await fleet.serving(1)
        (worker,) = await fleet.workers()
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(worker, number)
        assert (await fleet.ask("m")).text == "Hello"
        assert list(await fleet.workers()) == [worker]


async def test_no_secret_is_in_a_workers_environment_or_on_a_command_line(tmp_path: Path, upstream: Upstream) -> None:
    text = document(upstream.port, "m").replace("models =", 'api_key_env = "SIM_KEY"\nmodels =')
    environ = {"LUMEN_MASTER_KEY": MASTER_KEY, "SIM_KEY": PROVIDER_KEY, "SIM_OTHER": "kept"}
    async with Fleet(tmp_path, text, "--workers", "2", **environ) as fleet:
        await fleet.serving(2)
        await fleet.ask("m")
        (called,) = upstream.calls
        assert called.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        for worker in await fleet.workers():
            inherited = shown_of(worker, "environ")
            assert "SIM_OTHER=kept" in inherited
            shown = inherited + shown_of(worker, "cmdline")
            assert PROVIDER_KEY not in shown
            assert MASTER_KEY not in shown
        assert PROVIDER_KEY not in fleet.log + str(await fleet.get("/health/config"))
        assert MASTER_KEY not in fleet.log
