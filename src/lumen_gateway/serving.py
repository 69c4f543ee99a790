"""uvicorn's server with a life of our own: no signals, no ticking, and a drain that ends.

uvicorn re-raises SIGTERM, looks ten times a second whether it should stop, and cancels what is left after its drain
without a word. Here stopping takes effect at once, and what the drain cannot wait for is told why before it is cut.
Worker and keeper each serve with one of these; who may stop them is their business.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Iterator

from uvicorn.config import Config
from uvicorn.server import Server

DRAIN_S = 30.0  # long enough for most answers, below the patience of usual supervisors
CUT_S = 1.0  # for the last words of what was cut to reach its client
LOOK_S = 0.05


class Site(Server):
    """Serves until told to stop, then drains. `cut` is called when the drain is over and requests still run."""

    def __init__(self, config: Config, cut: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._cut = cut
        self._stopped = asyncio.Event()
        self._until_s = math.inf

    def stop(self, within_s: float) -> None:
        """Accept nothing new and end once what runs is done, or has had its time. Said again, it may get less."""
        self._until_s = min(self._until_s, asyncio.get_running_loop().time() + within_s)
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def main_loop(self) -> None:
        """Sleep until stopped."""
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the doors, wait for what runs, cut what does not end."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        if await self._is_quiet():
            return
        self._cut()
        for task in tuple(self.server_state.tasks):
            task.cancel()
        self._until_s = asyncio.get_running_loop().time() + CUT_S
        if not await self._is_quiet():
            for connection in tuple(self.server_state.connections):
                connection.transport.abort()

    async def _is_quiet(self) -> bool:
        """Wait until nothing runs and nobody is connected. Idle connections are closed, late ones included."""
        loop = asyncio.get_running_loop()
        while True:
            for connection in tuple(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(0)
            if not self.server_state.connections and not self.server_state.tasks:
                return True
            left_s = self._until_s - loop.time()
            if left_s <= 0:
                return False
            await asyncio.sleep(min(LOOK_S, left_s))
