"""Idle connections: the last one used is taken first, old ones and those too many are closed."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from lumen_gateway.records import Origin
from lumen_gateway.transport.connection import Connection
from lumen_gateway.transport.pool import Pool

A = Origin("http", "a.test", 80)
B = Origin("http", "b.test", 80)


class FakeConnection(Connection):
    """A connection without a socket."""

    def __init__(self, pool: Pool, origin: Origin = A) -> None:
        super().__init__(asyncio.get_running_loop(), pool, origin)
        self.closed = False
        pool.opened(self)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._owner.lost, self)


class HandMovedLoop:
    """The few calls a pool makes of its loop, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: float | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: object) -> asyncio.Handle:
        self.due, self.callback = when, callback
        return asyncio.get_running_loop().call_soon(lambda: None)

    def call_later(self, delay_s: float, callback: object) -> asyncio.Handle:
        return self.call_at(self.now + delay_s, callback)

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


@pytest.fixture
async def loop() -> HandMovedLoop:
    return HandMovedLoop()


def pool_on(loop: HandMovedLoop, *, max_idle: int = 3, max_idle_s: float = 30.0) -> Pool:
    return Pool(cast(asyncio.AbstractEventLoop, loop), max_idle=max_idle, max_idle_s=max_idle_s)


def kept(pool: Pool, origin: Origin = A) -> FakeConnection:
    connection = FakeConnection(pool, origin)
    pool.keep(connection)
    return connection


async def test_last_one_used_is_taken_first(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    first, second = kept(pool), kept(pool)
    assert [pool.take(A), pool.take(A), pool.take(A)] == [second, first, None]


async def test_origins_are_apart_by_every_part(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    kept(pool)
    others = [B, Origin("https", "a.test", 80), Origin("http", "a.test", 81), Origin("http", "a.test", 80, 1.0)]
    assert [pool.take(origin) for origin in others] == [None] * 4
    assert pool.take(Origin("http", "a.test", 80)) is not None


async def test_one_too_many_is_closed(loop: HandMovedLoop) -> None:
    pool = pool_on(loop, max_idle=2)
    connections = [kept(pool) for _ in range(3)]
    assert [connection.closed for connection in connections] == [False, False, True]
    assert not kept(pool, B).closed


async def test_connection_grown_old_is_not_handed_out(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    connection = kept(pool)
    loop.now += 30.1
    assert pool.take(A) is None
    assert connection.closed


async def test_sweeper_closes_the_old_and_comes_back_for_the_rest(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    old, other = kept(pool), kept(pool, B)
    loop.now += 10
    young = kept(pool)
    assert loop.due == 130.0
    loop.now = 130.0
    pool._sweep()
    assert (old.closed, other.closed, young.closed) == (True, True, False)
    assert loop.due == 140.0
    loop.now = 140.0
    pool._sweep()
    assert young.closed
    assert pool.idle_count == 0


async def test_connection_that_dies_idle_is_not_handed_out(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    first, second = kept(pool), kept(pool)
    pool.lost(second)
    assert pool.take(A) is first
    assert pool.open_count == 1


async def test_closing_takes_idle_and_busy_and_waits_for_all(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    idle, busy = kept(pool), FakeConnection(pool)
    await pool.aclose()
    assert (idle.closed, busy.closed, pool.open_count) == (True, True, 0)
    await pool.aclose()


async def test_connection_that_comes_too_late_is_closed(loop: HandMovedLoop) -> None:
    pool = pool_on(loop)
    busy = FakeConnection(pool)
    pool.close()
    assert FakeConnection(pool).closed
    pool.keep(busy)
    assert pool.idle_count == 0
