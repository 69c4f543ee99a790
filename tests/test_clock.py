"""The system's clock is a clock; what code does with time is tested with the manual one."""

from __future__ import annotations

import asyncio
import time

from lumen_gateway.clock import Clock, SystemClock


def test_monotonic_runs_with_the_event_loop_and_never_back() -> None:
    async def now() -> float:
        return asyncio.get_running_loop().time()

    clock: Clock = SystemClock()
    before, between, after = clock.monotonic(), asyncio.run(now()), clock.monotonic()
    assert before <= between <= after


def test_wall_is_the_calendars_time() -> None:
    before, between, after = time.time(), SystemClock().wall(), time.time()
    assert min(before, after) - 1 <= between <= max(before, after) + 1


async def test_sleep_comes_back_no_earlier_than_asked() -> None:
    clock = SystemClock()
    started_s = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() - started_s >= 0.001
