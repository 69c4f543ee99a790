"""Keep an idle event stream alive: comments while nothing else is sent, the first of which opens it early.

One timer per stream. It never writes inside an event, since only whole frames are written, and not to a client that
does not read. A comment line and a blank line form no event, for strict parsers and for lenient ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

PING = b": ping\n\n"


class IdleOutlet(Protocol):
    """What the heartbeat needs to know of the client's connection."""

    started: bool
    last_write_s: float

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes now."""
        ...


class Heartbeat:
    """Beats from `start` to `stop`; `open_early`, if given, sends the head of the stream when nothing else has."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_s: float,
        outlet: IdleOutlet,
        open_early: Callable[[], None] | None,
    ) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._outlet = outlet
        self._open_early = open_early
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Arm the first beat, one interval from now."""
        self._timer = self._loop.call_later(self._interval_s, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        outlet = self._outlet
        idle_s = self._loop.time() - outlet.last_write_s
        if outlet.started and idle_s < self._interval_s:
            self._timer = self._loop.call_later(self._interval_s - idle_s, self._beat)
            return
        if not outlet.started and self._open_early is not None:
            self._open_early()
        if outlet.started and not outlet.paused:
            outlet.write(PING)
        self._timer = self._loop.call_later(self._interval_s, self._beat)
