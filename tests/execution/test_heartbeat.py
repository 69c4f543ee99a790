"""Comments on an idle stream: when they come, when not, and what the first of them opens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from lumen_gateway.execution.heartbeat import PING, Heartbeat

INTERVAL_S = 15.0


class HandLoop:
    """An event loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.timers: list[tuple[float, Timer]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self.timers.append((self.now_s + delay_s, timer))
        return timer

    def turn(self, by_s: float) -> None:
        until_s = self.now_s + by_s
        while due := sorted((at_s, i) for i, (at_s, _) in enumerate(self.timers) if at_s <= until_s):
            at_s, index = due[0]
            _, timer = self.timers.pop(index)
            self.now_s = at_s
            timer.fire()
        self.now_s = until_s


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


class Client:
    """The client's connection as the heartbeat sees it."""

    def __init__(self, loop: HandLoop) -> None:
        self.loop = loop
        self.started = False
        self.opened_at_s: list[float] = []
        self.paused = False
        self.last_write_s = loop.now_s
        self.writes: list[tuple[float, bytes]] = []

    def write(self, data: bytes) -> None:
        self.last_write_s = self.loop.now_s
        self.writes.append((self.loop.now_s - 1000.0, data))

    def open_early(self) -> None:
        self.started = True
        self.opened_at_s.append(self.loop.now_s - 1000.0)


def stage(**more: Any) -> tuple[HandLoop, Client, Heartbeat]:
    loop = HandLoop()
    client = Client(loop)
    open_early = client.open_early if more.get("early", True) else None
    heartbeat = Heartbeat(cast(asyncio.AbstractEventLoop, loop), INTERVAL_S, client, open_early)
    heartbeat.start()
    return loop, client, heartbeat


def test_first_beat_opens_the_stream_and_each_interval_brings_a_comment() -> None:
    loop, client, _ = stage()
    loop.turn(14.9)
    assert client.opened_at_s == []
    loop.turn(30.2)
    assert client.opened_at_s == [15.0]
    assert client.writes == [(15.0, PING), (30.0, PING), (45.0, PING)]


def test_nothing_is_opened_early_where_that_is_off_and_comments_follow_the_head() -> None:
    loop, client, _ = stage(early=False)
    loop.turn(100.0)
    assert client.writes == []
    client.started = True
    client.write(b"data: x\n\n")
    loop.turn(29.9)
    assert client.writes == [(100.0, b"data: x\n\n"), (115.0, PING)]


def test_beat_comes_one_interval_after_the_last_write_not_sooner() -> None:
    loop, client, _ = stage()
    client.started = True
    loop.turn(10.0)
    client.write(b"data: x\n\n")
    loop.turn(14.9)
    assert client.writes[1:] == []
    loop.turn(0.2)
    assert client.writes[1:] == [(25.0, PING)]


def test_client_that_does_not_read_gets_no_comments_until_it_does() -> None:
    loop, client, _ = stage()
    client.started = client.paused = True
    loop.turn(50.0)
    assert client.writes == []
    client.paused = False
    loop.turn(15.0)
    assert [data for _, data in client.writes] == [PING]


def test_stopped_heartbeat_is_silent_and_may_be_stopped_again() -> None:
    loop, client, heartbeat = stage()
    heartbeat.stop()
    heartbeat.stop()
    loop.turn(100.0)
    assert not client.started
    assert client.writes == []


def test_comment_is_no_event_to_any_reader() -> None:
    assert PING.startswith(b":")
    assert PING.endswith(b"\n\n")
