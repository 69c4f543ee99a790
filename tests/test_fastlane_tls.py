"""The fast lane behind TLS: the same answers, on both event loops, and refusals that need no half-closed connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop
from tests.gate import LIMIT, MUCH, SOON_S, Gate, until
from tests.lanes import GET, POST, Recorder
from tests.transport.peers import server_tls, trusting

from lumen_gateway.patience import Patience


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


def secured(patience: Patience | None = None, handler: Recorder | None = None) -> Gate:
    return Gate(patience, handler, server_tls("localhost"))


async def connect(gate: Gate) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*gate.address, ssl=trusting("localhost"), server_hostname="localhost")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(SOON_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return int(head[9:12]), await reader.readexactly(length)


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def test_requests_are_served_over_one_connection(runner: asyncio.Runner) -> None:
    async def ask() -> None:
        async with secured() as gate:
            reader, writer = await connect(gate)
            for _ in range(2):
                writer.write(POST + b"content-length: 2\r\n\r\nhi")
                assert await read_answer(reader) == (200, b"POST /v1/x|hi")
            await leave(writer)
            await gate.until_empty()

    runner.run(ask())


def test_413_reaches_a_client_that_sends_all_before_it_reads(runner: asyncio.Runner) -> None:
    async def upload() -> None:
        async with secured() as gate:
            reader, writer = await connect(gate)
            writer.write(POST + b"content-length: %d\r\n\r\n" % (4 * LIMIT))
            for _ in range(4 * LIMIT // len(MUCH)):
                writer.write(MUCH)
                await writer.drain()
            status, body = await read_answer(reader)
            assert status == 413
            assert b"LM-1002" in body
            await leave(writer)
            await gate.until_empty()

    runner.run(upload())


def test_client_that_leaves_cancels_its_request(runner: asyncio.Runner) -> None:
    async def go() -> None:
        async with secured(handler=Recorder(at_once=False)) as gate:
            _, writer = await connect(gate)
            writer.write(GET)
            await until(lambda: bool(gate.handler.calls))
            await leave(writer)
            await gate.until_empty()
            assert len(gate.handler.cancelled) == 1

    runner.run(go())


def test_plain_http_is_turned_away(runner: asyncio.Runner) -> None:
    async def mistake() -> None:
        async with secured() as gate:
            reader, writer = await asyncio.open_connection(*gate.address)
            writer.write(GET)
            async with asyncio.timeout(SOON_S):
                assert not (await reader.read()).startswith(b"HTTP/")
            assert gate.handler.calls == []
            writer.close()

    runner.run(mistake())
