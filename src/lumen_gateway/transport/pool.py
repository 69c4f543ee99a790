"""Connections kept between exchanges, by origin, the last one used taken first.

The most recent connection is the likeliest to be alive; the others grow old and are closed. A connection that dies idle
takes itself out. How connections come to be is `connect.py`'s business.
"""

from __future__ import annotations

import asyncio

from lumen_gateway.records import Origin
from lumen_gateway.transport.connection import Connection


class Pool:
    """Idle connections by origin, and all that are open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, max_idle: int = 128, max_idle_s: float = 30.0) -> None:
        self._loop = loop
        self._max_idle = max_idle  # per origin
        self._max_idle_s = max_idle_s
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._open: set[Connection] = set()
        self._none_open: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def idle_count(self) -> int:
        """Connections waiting for work."""
        return sum(map(len, self._idle.values()))

    @property
    def open_count(self) -> int:
        """Connections open, idle or at work."""
        return len(self._open)

    def take(self, origin: Origin) -> Connection | None:
        """Hand out the connection used last, or none."""
        idle = self._idle.get(origin)
        if not idle:
            return None
        connection = idle.pop()
        if self._loop.time() - connection.idle_since <= self._max_idle_s:
            return connection
        connection.close()  # the sweeper is due; those below are older still
        return None

    def keep(self, connection: Connection) -> None:
        """Take a connection that is ready for its next exchange; close one too many."""
        idle = self._idle.setdefault(connection.origin, [])
        if self._closed or len(idle) >= self._max_idle:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._max_idle_s, self._sweep)

    def opened(self, connection: Connection) -> None:
        """Count a new connection; close it if it comes too late."""
        self._open.add(connection)
        if self._closed:
            connection.close()

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle is not None and connection in idle:
            idle.remove(connection)
        if not self._open and self._none_open is not None and not self._none_open.done():
            self._none_open.set_result(None)

    def close(self) -> None:
        """Close every connection, those at work included."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in tuple(self._open):
            connection.close()

    async def aclose(self) -> None:
        """Close, and return when every socket is closed."""
        self.close()
        if self._open:
            self._none_open = self._loop.create_future()
            await self._none_open

    def _sweep(self) -> None:
        """Close what lay idle too long: the bottom of each stack."""
        self._sweeper = None
        oldest_allowed = self._loop.time() - self._max_idle_s
        for origin, idle in tuple(self._idle.items()):
            old = [connection for connection in idle if connection.idle_since <= oldest_allowed]
            for connection in old:
                connection.close()
            del idle[: len(old)]
            if not idle:
                del self._idle[origin]
        if self._idle:
            due = min(idle[0].idle_since for idle in self._idle.values()) + self._max_idle_s
            self._sweeper = self._loop.call_at(due, self._sweep)
