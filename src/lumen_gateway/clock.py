"""Time as an argument: code that waits or measures takes a Clock, so that tests turn the hands themselves."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the gateway asks of time."""

    def monotonic(self) -> float:
        """Seconds that never go back; deadlines are points on this line."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; for calendars and records, never for timers."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after delay_s seconds."""
        ...


class SystemClock:
    """The machine's own clock. On Linux and macOS `monotonic` is also what the event loop's timers read."""

    def monotonic(self) -> float:
        """Return `time.monotonic()`."""
        return time.monotonic()

    def wall(self) -> float:
        """Return `time.time()`."""
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(delay_s)
