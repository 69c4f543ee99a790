"""The manual clock wakes sleepers in order, at their own time, and never by itself."""

from __future__ import annotations

import asyncio

from lumen_gateway.simulator import ManualClock


async def test_sleepers_wake_in_order_of_their_time() -> None:
    clock = ManualClock(monotonic=0.0)
    woken: list[tuple[float, float]] = []

    async def sleeper(delay_s: float) -> None:
        await clock.sleep(delay_s)
        woken.append((delay_s, clock.monotonic()))

    tasks = [asyncio.get_running_loop().create_task(sleeper(delay), name=f"sleeper {delay}") for delay in (3, 1, 2, 9)]
    await clock.advance(5)
    assert woken == [(1, 1), (2, 2), (3, 3)]
    assert clock.monotonic() == 5
    await clock.advance(4)
    assert [at_s for _, at_s in woken] == [1, 2, 3, 9]
    await asyncio.gather(*tasks)


async def test_woken_task_that_sleeps_again_is_woken_within_the_same_advance() -> None:
    clock = ManualClock(monotonic=0.0)
    ticks: list[float] = []

    async def ticker() -> None:
        for _ in range(3):
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    task = asyncio.get_running_loop().create_task(ticker(), name="ticker")
    await clock.advance(2.5)
    assert ticks == [1, 2]
    await clock.advance(0.5)
    assert ticks == [1, 2, 3]
    assert clock.slept == [1, 1, 1]
    await task


async def test_cancelled_sleeper_is_passed_over() -> None:
    clock = ManualClock()
    task = asyncio.get_running_loop().create_task(clock.sleep(1), name="sleeper")
    await clock.advance(0)
    task.cancel()
    await clock.advance(2)
    assert task.cancelled()


async def test_sleeping_for_nothing_returns_without_the_hands_moving() -> None:
    clock = ManualClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() == before


def test_wall_jumps_do_not_move_the_hands() -> None:
    clock = ManualClock(monotonic=10.0, wall=1000.0)
    clock.jump_wall(-3600)
    assert (clock.monotonic(), clock.wall()) == (10.0, -2600.0)
