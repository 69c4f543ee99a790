"""A clock whose hands only move when a test moves them."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """Implements `clock.Clock`. `advance` wakes the sleepers that are due, earliest first, each at its own time."""

    def __init__(self, monotonic: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = monotonic
        self._wall_offset = wall - monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.slept: list[float] = []  # every delay asked for, in order

    def monotonic(self) -> float:
        """Return the hands' position."""
        return self._now

    def wall(self) -> float:
        """Return the calendar time that goes with it."""
        return self._now + self._wall_offset

    def jump_wall(self, by_s: float) -> None:
        """Set the calendar by `by_s`, as an administrator or NTP would; timers do not notice."""
        self._wall_offset += by_s

    async def sleep(self, delay_s: float) -> None:
        """Return once the hands have moved by `delay_s`; a delay of nothing only lets others run."""
        self.slept.append(delay_s)
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        sleeper = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + delay_s, next(self._order), sleeper))
        await sleeper

    async def advance(self, by_s: float) -> None:
        """Move the hands forward; whoever wakes runs until it waits again before the hands move on."""
        until = self._now + by_s
        await _let_run()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)
                await _let_run()
        self._now = until


async def _let_run() -> None:
    for _ in range(10):  # a woken task may wake others in turn
        await asyncio.sleep(0)
