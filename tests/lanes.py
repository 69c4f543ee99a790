"""A client's connection without a socket: bytes go in by hand, time moves by hand, what comes out is kept."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from lumen_gateway import respond
from lumen_gateway.call import Call
from lumen_gateway.fastlane import FastLane, LaneSettings
from lumen_gateway.patience import Patience

IDLE_S = 75
POST = b"POST /v1/x HTTP/1.1\r\nhost: gateway\r\n"
GET = b"GET /v1/x HTTP/1.1\r\nhost: gateway\r\n\r\n"
CANARY = b"GET /canary HTTP/1.1\r\nhost: gateway\r\n\r\n"


class HandLoop:
    """The running loop, with hands of its own: `call_later` fires when `turn` passes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now_s = 1000.0
        self._timers: list[tuple[float, asyncio.Handle]] = []
        self.call_soon = self._loop.call_soon
        self.create_task = self._loop.create_task

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop)
        self._timers.append((self.now_s + delay_s, handle))
        return handle

    def turn(self, by_s: float) -> None:
        """Move the hands forward; what is due fires, each at its own time."""
        until_s = self.now_s + by_s
        while due := [timer for timer in self._timers if timer[0] <= until_s and not timer[1].cancelled()]:
            first = min(due, key=lambda timer: timer[0])
            self._timers.remove(first)
            self.now_s = first[0]
            first[1]._run()
        self.now_s = until_s

    @property
    def armed(self) -> int:
        return sum(not handle.cancelled() for _, handle in self._timers)


class Pipe(asyncio.Transport):
    """The gateway's end of a connection; `capacity_bytes` is what the client's side takes before it is full."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        self.sent = b""
        self.unsent_bytes = 0
        self.closed = self.aborted = self.half_closed = self.reading_paused = False
        self.lane: FastLane | None = None

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.closed, "written after the connection was closed"
        assert not self.half_closed, "written after our half was closed"
        self.sent += data
        if self.capacity_bytes is not None:
            self.unsent_bytes += len(data)
            if self.unsent_bytes > self.capacity_bytes and self.lane is not None:
                self.lane.pause_writing()

    def take(self, size_bytes: int) -> None:
        """Let the client read."""
        assert self.lane is not None
        self.unsent_bytes -= size_bytes
        if self.unsent_bytes <= 0:
            self.lane.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


class Recorder:
    """A handler that keeps the calls it gets and answers each with its path and body, at once or when let go."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.calls: list[Call] = []
        self.finished_calls: list[Call] = []
        self.cancelled: list[Call] = []
        self.at_once = at_once
        self.gate = asyncio.Event()

    def serve(self, call: Call) -> Coroutine[Any, Any, None] | None:
        self.calls.append(call)
        if self.at_once:
            self.answer(call)
            return None
        return self.later(call)

    async def later(self, call: Call) -> None:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        self.answer(call)

    def answer(self, call: Call) -> None:
        call.send(200, respond.JSON, b"%s %s|%s" % (call.method.encode(), call.path.encode(), call.body))

    def finished(self, call: Call) -> None:
        self.finished_calls.append(call)


class Client:
    """One connection to a fast lane, held from the client's side."""

    def __init__(
        self,
        handler: Any = None,
        body_limit: int = 1000,
        patience: Patience | None = None,
        capacity_bytes: int | None = None,
        settings: LaneSettings | None = None,
    ) -> None:
        self.handler = handler or Recorder()
        self.loop = HandLoop()
        self.settings = settings or LaneSettings(self.handler, body_limit, patience or Patience())
        self.state = ServerState()
        self.pipe = Pipe(capacity_bytes)
        self.lane = FastLane(quiet_config(), self.state, {}, self.loop, settings=self.settings)  # type: ignore[arg-type]  # a loop as far as a lane uses one
        self.pipe.lane = self.lane
        self.lane.connection_made(self.pipe)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.pipe.closed:
                self.lane.data_received(piece)

    def leave(self) -> None:
        """Close the connection, as a client that is done or gone does."""
        self.lane.eof_received()
        self.lane.connection_lost(None)

    @property
    def answers(self) -> list[tuple[int, bytes, bytes]]:
        return read_answers(self.pipe.sent)

    @property
    def statuses(self) -> list[int]:
        return [status for status, _, _ in self.answers]


@functools.cache  # it is only read, and loading it takes longer than most tests
def quiet_config() -> Config:
    """uvicorn's settings as a worker makes them."""

    async def no_app(scope: object, receive: object, send: object) -> None:
        raise AssertionError

    config = Config(no_app, interface="asgi3", ws="none", lifespan="off", log_config=None, timeout_keep_alive=IDLE_S)
    config.load()
    return config


def read_answers(sent: bytes) -> list[tuple[int, bytes, bytes]]:
    """Cut what a client got into answers: status, head, body. Bodies to HEAD requests would show as rubbish here."""
    answers = []
    while sent:
        head, blank, rest = sent.partition(b"\r\n\r\n")
        assert blank, f"a head without end: {head!r}"
        assert head.startswith(b"HTTP/1.1 "), f"no answer: {head!r}"
        status = int(head[9:12])
        lines = head.lower().split(b"\r\n")
        length = next((int(line[16:]) for line in lines if line.startswith(b"content-length: ")), None)
        if b"transfer-encoding: chunked" in lines:
            body, rest = _dechunk(rest)
        elif length is not None:
            body, rest = rest[:length], rest[length:]
        elif status == 100:
            body = b""
        else:
            body, rest = rest, b""
        answers.append((status, head, body))
        sent = rest
    return answers


def _dechunk(rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            assert rest.startswith(b"\r\n")
            return body, rest[2:]
        assert rest[length : length + 2] == b"\r\n"
        body, rest = body + rest[:length], rest[length + 2 :]
    return body, rest  # cut short
