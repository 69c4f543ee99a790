"""What is not the data plane, carried to the keeper and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.lanes import Client

from lumen_gateway.call import Call
from lumen_gateway.clock import SystemClock
from lumen_gateway.elsewhere import Elsewhere
from lumen_gateway.transport.client import Client as Transport

ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n"
    b"date: today\r\nserver: uvicorn\r\nx-request-id: theirs\r\nconnection: keep-alive\r\nx-own: 1\r\n\r\nhello"
)


class Keeper:
    """Listens where a keeper does, keeps what it is asked, answers with the same bytes."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.asked: list[bytes] = []
        self.answer = ANSWER

    async def __aenter__(self) -> Keeper:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        self.asked.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        writer.close()
        await writer.wait_closed()


class Lane:
    """A client's connection whose requests go elsewhere."""

    def __init__(self, path: str) -> None:
        self.transport = Transport()
        self.relay = Elsewhere(path, self.transport, SystemClock()).relay
        self.client = Client(self)

    def serve(self, call: Call) -> None:
        self.call = call

    def finished(self, call: Call) -> None:
        """Take no note."""

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        self.client.send(request)
        await self.relay(self.call)
        await self.transport.aclose()
        sent = self.client.pipe.sent
        head, _, body = sent.partition(b"\r\n\r\n")
        return int(head[9:12]), head.lower(), body


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    async with Keeper(tmp_path / "keeper.sock") as listening:
        yield listening


async def test_request_is_carried_over_with_its_own_framing_and_id(keeper: Keeper) -> None:
    lane = Lane(keeper.path)
    await lane.ask(
        b"POST /admin/x?q=1 HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer k\r\nX-Request-Id: mine\r\n"
        b"Connection: keep-alive\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    assert keeper.asked == [
        b"POST /admin/x?q=1 HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer k\r\nx-request-id: mine\r\n"
        b"content-length: 3\r\n\r\nabc"
    ]


async def test_answer_comes_back_with_the_headers_every_answer_has(keeper: Keeper) -> None:
    status, head, body = await Lane(keeper.path).ask(
        b"GET /metrics HTTP/1.1\r\nhost: gateway\r\nx-request-id: mine\r\n\r\n"
    )
    assert (status, body) == (200, b"hello")
    for line in (b"x-request-id: mine", b"content-type: text/plain", b"content-length: 5", b"x-own: 1"):
        assert head.count(line) == 1
    assert head.count(b"x-request-id") == head.count(b"content-length") == head.count(b"x-frame-options") == 1
    assert b"uvicorn" not in head


async def test_head_gets_what_get_would_say_without_the_body(keeper: Keeper) -> None:
    status, head, body = await Lane(keeper.path).ask(b"HEAD /metrics HTTP/1.1\r\nhost: gateway\r\n\r\n")
    assert (status, body) == (200, b"")
    assert b"content-length: 5" in head
    assert keeper.asked[0].startswith(b"GET /metrics ")


async def test_keeper_that_does_not_answer_is_told_as_503(tmp_path: Path) -> None:
    status, _, body = await Lane(str(tmp_path / "nobody.sock")).ask(b"GET /metrics HTTP/1.1\r\nhost: gateway\r\n\r\n")
    assert status == 503
    assert b"the control plane does not answer" in body


async def test_answer_that_is_cut_short_is_told_as_503(keeper: Keeper) -> None:
    keeper.answer = ANSWER[:-2]
    status, _, body = await Lane(keeper.path).ask(b"GET /metrics HTTP/1.1\r\nhost: gateway\r\n\r\n")
    assert status == 503
    assert b"hel" not in body
