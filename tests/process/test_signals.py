"""How the program comes up, stops and dies: faults before it serves, drains, and nobody left who holds the port."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Self

import httpx2
import pytest
from tests.process.program import HOST, PATIENCE_S, Program

from lumen_gateway.simulator import Upstream, stream

WORDS = ["one ", "two ", "three ", "four ", "five"]


def document(upstream_port: int, *more: str) -> str:
    models = "".join(f'{{ id = "{name}", capabilities = ["chat"] }}, ' for name in ("slow", "endless", *more))
    return f"""
[[providers]]
name = "sim"
kind = "openai"
base_url = "http://{HOST}:{upstream_port}/v1"
models = [{models}]
"""


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    script = {
        "slow": stream(WORDS, frame_delay_s=0.1),
        "endless": stream(["word "] * 5_000, frame_delay_s=0.01),
    }
    async with Upstream(script) as running:
        yield running


class Listening:
    """A client in the middle of a stream."""

    def __init__(self, program: Program, model: str) -> None:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        self._opening = program.client.stream("POST", "/v1/chat/completions", json=body)
        self.heard = ""

    async def __aenter__(self) -> Self:
        self._lines = (await self._opening.__aenter__()).aiter_lines()
        await self.more()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._opening.__aexit__(None, None, None)

    async def more(self) -> None:
        """Hear one more event."""
        async with asyncio.timeout(PATIENCE_S):
            self.heard += await anext(self._lines) + "\n"
            self.heard += await anext(self._lines) + "\n"

    async def all(self) -> str:
        """Hear all of it, to its proper end."""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                self.heard += line + "\n"
        return self.heard


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await happened():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.02)


def refuses(port: int) -> Callable[[], Awaitable[bool]]:
    """Whether nobody listens any more."""

    async def asked() -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return True
        writer.close()
        return False

    return asked


def says(program: Program, text: str) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return text in program.log

    return asked


def workers_of(program: Program) -> list[int]:
    """Return the processes the keeper has started."""
    stats = {int(stat.parent.name): _read(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    return [pid for pid, stat in stats.items() if stat.rpartition(") ")[2].split()[1:2] == [str(program.process.pid)]]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has just ended


# --- coming up --------------------------------------------------------------------------------------------------------


async def test_document_with_a_fault_is_refused_with_file_line_and_fix(tmp_path: Path) -> None:
    astray = '[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\ntargets = [{ model = "slwo" }]'
    program = Program(tmp_path, document(9) + astray)
    await program.start()
    assert await program.ended() == 1
    assert f"{program.path}:11: " in program.log
    assert 'did you mean "slow"?' in program.log
    assert "Traceback" not in program.log


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains_what_runs_and_ends_with_zero(
    tmp_path: Path, upstream: Upstream, number: signal.Signals
) -> None:
    async with Program(tmp_path, document(upstream.port)) as program:
        async with Listening(program, "slow") as listening:
            program.send(number)
            heard = await listening.all()
        assert await program.ended() == 0
    assert all(f'"{word}"' in heard for word in WORDS)
    assert heard.endswith("data: [DONE]\n\n")
    assert "Traceback" not in program.log


async def test_nobody_new_is_let_in_while_it_drains(tmp_path: Path, upstream: Upstream) -> None:
    async with Program(tmp_path, document(upstream.port)) as program:
        async with Listening(program, "endless") as listening:
            program.send(signal.SIGTERM)
            await until(refuses(program.port))
            await listening.more()
            assert program.process.returncode is None
        assert await program.ended() == 0


async def test_second_signal_ends_it_at_once(tmp_path: Path, upstream: Upstream) -> None:
    async with Program(tmp_path, document(upstream.port)) as program:
        async with Listening(program, "endless") as listening:
            program.send(signal.SIGTERM)
            await until(says(program, "draining"))
            await listening.more()
            program.send(signal.SIGTERM)
            with pytest.raises(httpx2.TransportError):
                await listening.all()
        assert await program.ended() == 0
        await upstream.deserted()


# --- dying ------------------------------------------------------------------------------------------------------------


async def test_killed_keeper_leaves_nobody_on_the_port_once_the_worker_has_drained(
    tmp_path: Path, upstream: Upstream
) -> None:
    async with Program(tmp_path, document(upstream.port)) as program:
        async with Listening(program, "slow") as listening:
            program.send(signal.SIGKILL)
            heard = await listening.all()
        assert await program.ended() == -signal.SIGKILL
        assert heard.endswith("data: [DONE]\n\n")
        await until(refuses(program.port))
        await upstream.deserted()
    async with Program(tmp_path, document(upstream.port), port=program.port) as following:
        assert (await following.client.get("/health")).status_code == 200


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker in /proc")
async def test_killed_worker_is_replaced(tmp_path: Path, upstream: Upstream) -> None:
    async with Program(tmp_path, document(upstream.port)) as program:
        (worker,) = workers_of(program)
        os.kill(worker, signal.SIGKILL)
        await until(says(program, "starting another"))
        await program.ready()
        assert (await program.ask("slow", stream=True)).text == "".join(WORDS)
        assert worker not in workers_of(program)


# --- reading again ----------------------------------------------------------------------------------------------------


async def test_document_is_read_again_on_sighup_and_a_faulty_one_changes_nothing(
    tmp_path: Path, upstream: Upstream
) -> None:
    async def lists_more() -> bool:
        return "more" in (await program.client.get("/v1/models")).text

    async with Program(tmp_path, document(upstream.port)) as program:
        assert not await lists_more()
        program.path.write_text(document(upstream.port, "more"))
        program.send(signal.SIGHUP)
        await until(lists_more)
        program.path.write_text("[server\n")
        program.send(signal.SIGHUP)
        await until(says(program, f"{program.path}:1: "))
        assert await lists_more()
