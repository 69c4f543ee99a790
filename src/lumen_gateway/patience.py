"""How long a client may take to send and to read, and the watch that notices.

No timer per request: a connection holds two points in time, and one look a second over all connections of a worker
finds those that are past. What follows from it is the connection's business.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol


class Patience(NamedTuple):
    """Limits in seconds. The time between two requests is uvicorn's `timeout_keep_alive`."""

    head_s: float = 10.0  # for a whole head
    body_s: float = 30.0  # for `rate` to be kept, again and again; nginx waits 60 for each read
    write_s: float = 30.0  # the same while the client takes an answer
    linger_s: float = 10.0  # for a refused client to notice; nginx gives 30
    look_s: float = 1.0  # between two looks
    rate: int = 1024  # bytes a second, both ways


USUAL = Patience()


class Watched(Protocol):
    """What is watched: when the client must have sent what it owes, and taken what we owe."""

    loop: asyncio.AbstractEventLoop
    read_by_s: float
    written_by_s: float

    def overdue(self, now_s: float) -> None:
        """Deal with the point in time that is past."""
        ...


class Watch:
    """Looks over the connections while there are any."""

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Watched) -> None:
        """Look after a connection that has opened."""
        self._watched.add(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(self._look_s, self._look, connection.loop)

    def leave(self, connection: Watched) -> None:
        """Forget a connection that is gone."""
        self._watched.discard(connection)
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._look_s, self._look, loop)
        now_s = loop.time()
        for connection in [each for each in self._watched if each.read_by_s <= now_s or each.written_by_s <= now_s]:
            connection.overdue(now_s)
