"""Several workers under one keeper: who serves, what they know, and what becomes of the rest when one dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from tests.process.fleet import Fleet, document, peers, shown_of, until_gone
from tests.process.program import LUMEN
from tests.process.wire import Connection, chat, connected, to_the_end

from lumen_gateway.simulator import Upstream, completion, stream

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")

MASTER_KEY = "0123456789abcdef" * 4
PROVIDER_KEY = "sk-canary-of-the-provider"
IMPORT = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
OPEN_FILES = re.compile(r"^Max open files +(\d+) +(\d+)", re.MULTILINE)


class Confined(Fleet):
    """Started with few descriptors, of which the system grants more."""

    command = ("sh", "-c", 'ulimit -Sn 64; ulimit -Hn 4096; exec "$@"', "sh", LUMEN)


class Detached(Fleet):
    """Started as some supervisors do: with nothing at 0, 1 and 2."""

    command = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", LUMEN)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    script = {
        "m": completion("Hello"),
        "long": stream(["word "] * 30, frame_delay_s=0.1),
        "brief": stream(["word "] * 5, frame_delay_s=0.1),
    }
    async with Upstream(script) as running:
        yield running


async def on_their_own_connections(fleet: Fleet, count: int) -> None:
    """Ask so often that every worker has its share: each connection goes to whoever accepts it first."""
    for _ in range(count):
        assert (await fleet.ask("m", headers={"connection": "close"})).status == 200


async def test_counts_of_all_workers_are_one_sum(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        await fleet.serving(2)
        await on_their_own_connections(fleet, 20)
        assert await fleet.counted("lumen_attempts_total") == 20


async def test_killed_worker_takes_its_own_requests_along_and_no_others(tmp_path: Path, upstream: Upstream) -> None:
    async with (
        Fleet(tmp_path, document(upstream.port, "m", "long"), "--workers", "2") as fleet,
        AsyncExitStack() as open_,
    ):
        await fleet.serving(2)
        victim, survivor = await fleet.workers()
        streams: dict[int, Connection] = {}  # by the client's port
        while not all(streams.keys() & peers(worker) for worker in (victim, survivor)):
            for reader, writer in [await open_.enter_async_context(connected(fleet.port)) for _ in range(8)]:
                writer.write(chat("long", "connection: close", stream=True))
                streams[writer.get_extra_info("sockname")[1]] = reader, writer
            await upstream.called(len(streams))
        of_the_victim = streams.keys() & peers(victim)
        os.kill(victim, signal.SIGKILL)
        heard = await asyncio.gather(*(to_the_end(reader) for reader, _ in streams.values()))
        cut = {port for port, rest in zip(streams, heard, strict=True) if b"data: [DONE]" not in rest}
        assert cut == of_the_victim
        await fleet.serving(2)
        assert survivor in await fleet.workers()
        assert victim not in await fleet.workers()
        assert await fleet.counted("lumen_worker_restarts_total") == 1
        assert "was killed by signal 9" in fleet.log


async def test_workers_of_a_killed_keeper_end(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        await fleet.serving(2)
        workers = list(await fleet.workers())
        fleet.send(signal.SIGKILL)
        await until_gone(workers)


async def test_worker_asked_to_end_by_name_is_replaced_without_loss(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "m", "brief")) as fleet:
        await fleet.serving(1)
        (worker,) = await fleet.workers()
        asking = asyncio.gather(fleet.ask("brief", stream=True))
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


async def test_running_worker_has_loaded_nothing_of_the_keepers(tmp_path: Path, upstream: Upstream) -> None:
    """Python tells what it imports; what it tells once the first worker is dead comes from the second."""
    async with Fleet(tmp_path, document(upstream.port, "m", "brief"), PYTHONPROFILEIMPORTTIME="1") as fleet:
        await fleet.serving(1)
        (first,) = await fleet.workers()
        told_before = len(fleet.log)
        os.kill(first, signal.SIGKILL)
        await fleet.ready()
        await fleet.serving(1)
        assert (await fleet.ask("m")).done
        assert (await fleet.ask("brief", stream=True)).done
        loaded = {module.partition(".")[0] for module in IMPORT.findall(fleet.log[told_before:])}
        assert {"lumen_gateway", "httptools", "uvicorn"} <= loaded
        assert (
            loaded & {"sqlalchemy", "alembic", "aiosqlite", "asyncpg", "starlette", "tomlkit", "opentelemetry"} == set()
        )


async def test_worker_takes_the_descriptors_the_system_grants(tmp_path: Path, upstream: Upstream) -> None:
    async with Confined(tmp_path, document(upstream.port, "m")) as fleet:
        await fleet.serving(1)
        (worker,) = await fleet.workers()
        soft, hard = OPEN_FILES.findall(shown_of(worker, "limits"))[0]
        assert soft == hard != "64"


async def test_answer_that_came_while_a_worker_was_paused_is_no_timeout(tmp_path: Path) -> None:
    impatient = "[server]\nresponse_timeout_ms = 500\n[resilience]\nretry_max_attempts = 1\n"
    async with (
        Upstream(msgspec.structs.replace(completion("Hello"), delay_s=0.2)) as upstream,
        Fleet(tmp_path, document(upstream.port, "m", more=impatient)) as fleet,
    ):
        await fleet.serving(1)
        (worker,) = await fleet.workers()
        asked = asyncio.get_running_loop().create_task(fleet.ask("m"))
        await upstream.called(1)
        os.kill(worker, signal.SIGSTOP)
        await asyncio.sleep(1.0)
        os.kill(worker, signal.SIGCONT)
        assert (await asked).text == "Hello"


async def test_program_without_standard_streams_serves(tmp_path: Path, upstream: Upstream) -> None:
    async with Detached(tmp_path, document(upstream.port, "m"), "--workers", "2") as fleet:
        await fleet.serving(2)
        assert (await fleet.ask("m")).text == "Hello"


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
