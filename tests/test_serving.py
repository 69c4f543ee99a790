"""A site's end: at once when idle, after what runs, and with a word to what does not end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from uvicorn.config import Config

from lumen_gateway import serving
from lumen_gateway.serving import Site

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class House:
    """A site on a port of its own that answers when its gate opens."""

    def __init__(self, cut: Callable[[], None] = lambda: None) -> None:
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        self.cancelled = 0
        config = Config(self.answer, interface="asgi3", lifespan="off", log_config=None, ws="none")
        self.site = Site(config, cut)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def __aenter__(self) -> House:
        self.serving = asyncio.get_running_loop().create_task(self.site.serve([self.listener]), name="site")
        async with asyncio.timeout(10):
            while not self.site.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.site.stop(0.0)
        await self.serving

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def closed(self) -> None:
        """Return once nobody is let in any more."""
        with contextlib.suppress(ConnectionError):
            while True:
                _, writer = await self.connect()
                writer.close()
                await asyncio.sleep(0)

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            await self.serving


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CUT_S", 0.05)


async def test_stopped_site_lets_nobody_in_and_closes_idle_connections(house: House) -> None:
    reader, writer = await house.connect()
    house.site.stop(300.0)
    await house.ended()
    assert await reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await house.connect()
    writer.close()


async def test_request_that_runs_is_waited_for(house: House) -> None:
    reader, writer = await house.connect()
    writer.write(REQUEST)
    await house.reached.wait()
    house.site.stop(300.0)
    await house.closed()
    assert not house.serving.done()
    house.gate.set()
    assert (await reader.read()).startswith(b"HTTP/1.1 204 ")
    await house.ended()
    writer.close()


async def test_request_that_does_not_end_is_announced_then_cancelled() -> None:
    told: list[int] = []
    async with House(lambda: told.append(len(told))) as house:
        _, writer = await house.connect()
        writer.write(REQUEST)
        await house.reached.wait()
        house.site.stop(0.05)
        await house.ended()
        assert (told, house.cancelled) == ([0], 1)
        writer.close()


async def test_stopped_again_it_may_get_less_time_but_not_more(house: House) -> None:
    _, writer = await house.connect()
    writer.write(REQUEST)
    await house.reached.wait()
    for within_s in (300.0, 0.0, 300.0):
        house.site.stop(within_s)
    await house.ended()
    assert house.cancelled == 1
    writer.close()


async def test_nobody_is_cut_when_everything_ends_in_time() -> None:
    def cut() -> None:
        raise AssertionError

    async with House(cut) as house:
        house.site.stop(0.0)
        await house.ended()


async def test_connection_that_comes_in_while_the_doors_close_is_not_waited_for(house: House) -> None:
    """The kernel has taken it already; it is known to the site only after the idle ones were closed."""
    house.site.stop(300.0)
    with socket.create_connection(("127.0.0.1", house.port)):
        await house.ended()
