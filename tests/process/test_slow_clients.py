"""Clients that send or read too slowly, and those beside them: through the running program, its patience shortened."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.lanes import read_answers
from tests.process import hasty
from tests.process.fleet import Fleet, document, resident_bytes
from tests.process.program import PATIENCE_S
from tests.process.wire import chat, connected, head, to_the_end

from lumen_gateway.simulator import Upstream, completion, stream

FLOOD = ["word " * 2000] * 5000  # 50 MB
MUCH_BYTES = 8 * 1024 * 1024  # far below what the flood brings
BODY = b"%x\r\n%b\r\n" % (5, b'{"mod')

TRICKLES = {
    "request line": (b"", b"GET /a-path-without-end-that-comes-a-letter-at-a-time HTTP/1.1"),
    "header": (
        b"GET /health HTTP/1.1\r\nhost: gateway\r\n",
        b"x-slow: a-value-that-comes-a-letter-at-a-time",
    ),
    "body": (head("content-length: 5000"), b" " * 100),
    "promised body": (head("content-length: 100"), b""),
    "chunk size": (head("transfer-encoding: chunked"), b"0" * 100),
    "chunk": (head("transfer-encoding: chunked") + b"1000\r\n", b" " * 100),
    "trailer": (head("transfer-encoding: chunked") + BODY + b"0\r\n", b"x-slow: a-value-without-end-that-comes-slowly"),
}


class Hasty(Fleet):
    command = (sys.executable, hasty.__file__)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream({"m": completion("Hello"), "flood": stream(FLOOD)}) as running:
        yield running


async def trickled(port: int, start: bytes, rest: bytes) -> bytes:
    """Send the rest a byte at a time, and return what comes back."""
    async with connected(port) as (reader, writer):
        writer.write(start)
        hearing = asyncio.gather(to_the_end(reader))
        for byte in rest:
            if hearing.done():
                break
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.05)
        (heard,) = await hearing
        return heard


async def test_slow_senders_are_told_so_and_others_are_served_beside_them(tmp_path: Path, upstream: Upstream) -> None:
    async with Hasty(tmp_path, document(upstream.port, "m")) as fleet:
        slow = [trickled(fleet.port, *trickle) for trickle in TRICKLES.values() for _ in range(20)]
        trickling = asyncio.gather(*slow)
        served = 0
        while not trickling.done():
            served += (await fleet.ask("m")).done
            await asyncio.sleep(0.01)
        for heard in await trickling:
            ((status, answered, body),) = read_answers(heard)
            assert (status, b"LM-1001" in body, b"connection: close" in answered) == (408, True, True)
        assert served == len(upstream.calls) > 0


async def test_reader_that_takes_nothing_costs_little_and_is_cut_off_with_its_upstream(
    tmp_path: Path, upstream: Upstream
) -> None:
    async with (
        Hasty(tmp_path, document(upstream.port, "m", "flood")) as fleet,
        connected(fleet.port) as (reader, writer),
    ):
        (worker,) = await fleet.workers()
        before_bytes = resident_bytes(worker)
        writer.write(chat("flood", stream=True))
        call = await upstream.called()
        assert (await fleet.ask("m")).text == "Hello"
        most_bytes = 0
        async with asyncio.timeout(PATIENCE_S):
            while not call.over.is_set():
                most_bytes = max(most_bytes, resident_bytes(worker))
                await asyncio.sleep(0.02)
        assert call.peer_closed_at is not None
        assert most_bytes - before_bytes < MUCH_BYTES
        assert b"[DONE]" not in await to_the_end(reader)


async def test_reader_that_takes_its_time_keeps_its_stream(tmp_path: Path, upstream: Upstream) -> None:
    async with Hasty(tmp_path, document(upstream.port, "flood")) as fleet, connected(fleet.port, 65_536) as client:
        reader, writer = client
        writer.write(chat("flood", stream=True))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 3 * hasty.SHORT.write_s
        while loop.time() < until_s:
            async with asyncio.timeout(PATIENCE_S):
                await reader.readexactly(50_000)
            await asyncio.sleep(0.05)
        assert not upstream.calls[0].over.is_set()
