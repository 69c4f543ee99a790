"""A fast lane on a port of its own, for what only real sockets show: closing halves, flushing, resets, TLS."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable

from tests.lanes import Recorder, quiet_config
from uvicorn.server import ServerState

from lumen_gateway.fastlane import FastLane, LaneSettings
from lumen_gateway.patience import Patience

LIMIT = 1 << 20
MUCH = bytes(1 << 16)
SOON_S = 10.0  # never reached; a fault shows as a failure then, not as a hanging test


class Gate:
    """A fast lane on a port of its own."""

    def __init__(
        self,
        patience: Patience | None = None,
        handler: Recorder | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        self.handler = handler or Recorder()
        self.state = ServerState()
        self.settings = LaneSettings(self.handler, LIMIT, patience or Patience())

    async def __aenter__(self) -> Gate:
        loop = asyncio.get_running_loop()
        lane = functools.partial(FastLane, quiet_config(), self.state, {}, settings=self.settings)
        self.server = await loop.create_server(lane, "127.0.0.1", 0, ssl=self.tls)
        self.address: tuple[str, int] = self.server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for connection in tuple(self.state.connections):
            connection.transport.abort()
        await self.until_empty()

    async def until_empty(self) -> None:
        await until(lambda: not self.state.connections and not self.state.tasks)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in kernels and protocols, not in tasks
            await asyncio.sleep(0.005)


async def exchange(gate: Gate, head: bytes, body_bytes: int) -> bytes:
    """Send all of a request before reading anything, as most clients do, then read to the end."""
    reader, writer = await asyncio.open_connection(*gate.address)
    writer.write(head)
    for _ in range(body_bytes // len(MUCH)):
        writer.write(MUCH)
        await writer.drain()
    async with asyncio.timeout(SOON_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
