"""An answer nobody reads on: its connection is kept if the body ends soon, and given up if not."""

from __future__ import annotations

import asyncio

from lumen_gateway.transport.answer import HIGH_WATER_BYTES, Answer


class FakeWire:
    """Notes what an answer asks of its connection."""

    def __init__(self) -> None:
        self.closed = 0
        self.resumed = 0
        self.woken_at: list[float] = []

    def wake_at(self, until: float) -> None:
        self.woken_at.append(until)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        self.resumed += 1

    def close(self) -> None:
        self.closed += 1


def left(until: float, *pieces: bytes) -> tuple[Answer, FakeWire]:
    wire = FakeWire()
    answer = Answer(wire, asyncio.get_running_loop())
    answer.begin(200)
    for piece in pieces:
        answer.take(piece)
    answer.leave(until)
    return answer, wire


async def test_body_that_ends_in_time_gives_the_connection_back() -> None:
    answer, wire = left(100.0)
    answer.take(b"late")
    answer.finish()
    answer.close()
    assert (wire.woken_at, wire.closed) == ([100.0], 0)


async def test_body_that_goes_on_costs_the_connection_at_its_time() -> None:
    answer, wire = left(100.0)
    assert answer.look(99.0) == 100.0
    assert wire.closed == 0
    assert answer.look(100.0) is None
    assert wire.closed == 1


async def test_what_still_comes_is_dropped_and_reading_is_not_held_up() -> None:
    answer, wire = left(100.0, b"x" * (HIGH_WATER_BYTES + 1))
    assert wire.resumed == 1
    for _ in range(10):
        answer.take(b"x" * HIGH_WATER_BYTES)
    answer.finish()
    assert await answer.read_chunk(1e9) == b""


async def test_answer_that_is_over_has_nothing_to_leave() -> None:
    wire = FakeWire()
    answer = Answer(wire, asyncio.get_running_loop())
    answer.begin(200)
    answer.finish()
    answer.leave(100.0)
    assert (wire.woken_at, wire.closed) == ([], 0)
