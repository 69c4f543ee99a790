"""The watch looks once a second, at everything that is open, and not at all when nothing is."""

from __future__ import annotations

import math

from tests.lanes import HandLoop

from lumen_gateway.patience import Watch


class Connection:
    def __init__(self, loop: HandLoop) -> None:
        self.loop = loop
        self.read_by_s = self.written_by_s = math.inf
        self.overdue_at: list[float] = []

    def overdue(self, now_s: float) -> None:
        self.overdue_at.append(now_s)
        self.read_by_s = self.written_by_s = math.inf


async def test_point_in_time_that_is_past_is_noticed_at_the_next_look() -> None:
    loop, watch = HandLoop(), Watch(1.0)
    connection = Connection(loop)
    watch.enter(connection)  # type: ignore[arg-type]  # a loop as far as a watch uses one
    connection.read_by_s = loop.now_s + 2.5
    loop.turn(2.9)
    assert connection.overdue_at == []
    loop.turn(0.1)
    assert connection.overdue_at == [1003.0]
    connection.written_by_s = loop.now_s
    loop.turn(1.0)
    assert connection.overdue_at == [1003.0, 1004.0]


async def test_one_timer_serves_all_connections_and_none_runs_without_them() -> None:
    loop, watch = HandLoop(), Watch(1.0)
    connections = [Connection(loop) for _ in range(3)]
    for connection in connections:
        watch.enter(connection)  # type: ignore[arg-type]  # as above
    assert loop.armed == 1
    loop.turn(5.0)
    assert loop.armed == 1
    for connection in connections:
        watch.leave(connection)  # type: ignore[arg-type]  # as above
    assert loop.armed == 0


async def test_connection_may_leave_while_it_is_looked_at() -> None:
    class Leaver(Connection):
        def overdue(self, now_s: float) -> None:
            super().overdue(now_s)
            watch.leave(self)  # type: ignore[arg-type]  # as above

    loop, watch = HandLoop(), Watch(1.0)
    leavers = [Leaver(loop), Leaver(loop)]
    for connection in leavers:
        watch.enter(connection)  # type: ignore[arg-type]  # as above
        connection.read_by_s = loop.now_s
    loop.turn(1.0)
    assert [len(connection.overdue_at) for connection in leavers] == [1, 1]
    assert loop.armed == 0
