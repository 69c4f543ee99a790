"""Refusals over real sockets: a client that is still sending gets its answer, not a reset.

Both event loops: closing halves, flushing and resets are where they could differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest
import uvloop
from tests.gate import LIMIT, SOON_S, Gate, exchange, until
from tests.lanes import CANARY, GET, POST, Recorder, read_answers

from lumen_gateway.patience import Patience


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


@pytest.mark.parametrize("head", [
    POST + b"content-length: %d\r\n\r\n" % (16 * LIMIT),
    POST + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % (16 * LIMIT),
], ids=["stated", "counted"])  # fmt: skip
def test_413_reaches_a_client_that_sends_all_before_it_reads(runner: asyncio.Runner, head: bytes) -> None:
    async def upload() -> None:
        async with Gate() as gate:
            [(status, _, body)] = read_answers(await exchange(gate, head, 16 * LIMIT))
            assert status == 413
            assert b"LM-1002" in body
            assert gate.handler.calls == []

    runner.run(upload())


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"nonsense\r\n\r\n", 400),
        (POST + b"x: 1\r\n" * 200 + b"\r\n", 431),
        (POST + b"content-length: +1\r\n\r\n", 400),
    ],
    ids=["400", "431", "length"],
)
def test_refusal_reaches_a_client_that_keeps_sending(runner: asyncio.Runner, head: bytes, expected: int) -> None:
    async def upload() -> None:
        async with Gate() as gate:
            [(status, _, _)] = read_answers(await exchange(gate, head, 4 * LIMIT))
            assert status == expected

    runner.run(upload())


def test_refused_client_that_neither_stops_nor_leaves_is_cut_off(runner: asyncio.Runner) -> None:
    async def insist() -> None:
        async with Gate(Patience(linger_s=0.2, look_s=0.05)) as gate:
            _, writer = await asyncio.open_connection(*gate.address)
            writer.write(b"nonsense\r\n\r\n")
            await gate.until_empty()
            writer.close()

    runner.run(insist())


def test_client_that_stops_sending_is_told_408(runner: asyncio.Runner) -> None:
    async def stall() -> None:
        async with Gate(Patience(head_s=0.2, body_s=0.2, linger_s=0.2, look_s=0.05)) as gate:
            for piece in (GET[:10], POST + b"content-length: 5\r\n\r\nhel"):
                [(status, _, body)] = read_answers(await exchange(gate, piece, 0))
                assert status == 408
                assert b"LM-1001" in body
            await gate.until_empty()

    runner.run(stall())


def test_client_that_does_not_read_its_answer_is_cut_off(runner: asyncio.Runner) -> None:
    async def stall() -> None:
        async with Gate(Patience(write_s=0.3, look_s=0.05, rate=1 << 30)) as gate:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, gate.address)
            with contextlib.suppress(ConnectionError):  # cut off while it sends is cut off
                await loop.sock_sendall(client, (POST + b"content-length: %d\r\n\r\n" % LIMIT + bytes(LIMIT)) * 16)
            await gate.until_empty()
            assert gate.handler.calls
            client.close()

    runner.run(stall())


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_client_that_leaves_is_noticed_at_once(runner: asyncio.Runner, how: str) -> None:
    async def leave() -> None:
        async with Gate(handler=Recorder(at_once=False)) as gate:
            loop = asyncio.get_running_loop()
            client = socket.create_connection(gate.address)
            client.sendall(GET)
            await until(lambda: bool(gate.handler.calls))
            left_s = loop.time()
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how == "half-close":
                client.shutdown(socket.SHUT_WR)
            else:
                client.close()
            await gate.until_empty()
            client.close()
            assert len(gate.handler.cancelled) == 1
            assert loop.time() - left_s < 1.0

    runner.run(leave())


def test_answer_to_a_client_that_closed_its_half_right_behind_the_request_still_comes(runner: asyncio.Runner) -> None:
    async def one_shot() -> None:
        async with Gate() as gate:
            reader, writer = await asyncio.open_connection(*gate.address)
            writer.write(GET + CANARY)
            writer.write_eof()
            async with asyncio.timeout(SOON_S):
                assert [status for status, _, _ in read_answers(await reader.read())] == [200, 200]
            writer.close()

    runner.run(one_shot())
