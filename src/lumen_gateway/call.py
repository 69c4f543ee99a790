"""One client request, whole, and the way to answer it. What stands between a connection and what serves it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from lumen_gateway import respond
from lumen_gateway.errors import Failure


class Lane(Protocol):
    """The connection a call came in on."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        ...

    async def drain(self) -> None:
        """Return once the client has room again."""
        ...

    def answered(self, call: Call) -> None:
        """Go on: the call's answer is complete."""
        ...


class Call:
    """One client request.

    Answer with `send`, or with `start`, `write` and `drain` as often as needed, then `finish`. What is sent to a client
    that has left goes nowhere, without a word: its lane cancels `task`.
    """

    __slots__ = (
        "_lane", "_unsent", "body", "chunked", "complete", "fields", "headed_s", "headers", "keep_alive",
        "last_write_s", "left", "method", "path", "query", "received_s", "refusal", "request_id", "started", "status",
        "task", "template",
    )  # fmt: skip

    def __init__(self, lane: Lane, method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._lane = lane
        self._unsent = b""
        path, _, self.query = target.partition(b"?")
        self.method = method
        self.path = path.decode("latin-1")
        self.headers = headers  # lower-case names, in the client's order
        self.fields = dict(reversed(headers))  # of a repeated one the first
        self.body = b""
        self.request_id = ""
        self.template = "unmatched"  # route template, for metrics
        self.chunked = True  # how a streamed answer is framed; HTTP/1.0 knows no chunks
        self.keep_alive = True
        self.refusal: Failure | None = None  # why it is answered without being served
        self.started = False
        self.left = False  # the client is gone
        self.complete = False
        self.status = 0
        self.received_s = self.last_write_s = lane.loop.time()
        self.headed_s: float | None = None  # when a streamed answer's head went out
        self.task: asyncio.Task[None] | None = None

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        return self._lane.paused

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header by its lower-case name."""
        return self.fields.get(name)

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. `headers` are complete lines, without framing. HEAD gets no body."""
        self.status = status
        self.started = True
        ending = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        head = b"%bcontent-length: %d\r\n%b" % (
            respond.head(status, self.request_id, headers, self.path),
            len(body),
            ending,
        )
        self._write(head if self.method == "HEAD" else head + body)
        self._end()

    def start(self, status: int, headers: bytes) -> None:
        """Open a streamed answer; its head goes out with the first write."""
        self.status = status
        self.started = True
        framing = b"transfer-encoding: chunked\r\n" if self.chunked else b""
        framing += b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._unsent = respond.head(status, self.request_id, headers, self.path) + framing

    def write(self, data: bytes) -> None:
        """Send a piece of a streamed answer."""
        if data and not self.complete:
            self._write(self._framed(data))

    async def drain(self) -> None:
        """Return once the client has room again; one that takes too little for too long is cut off."""
        await self._lane.drain()

    def finish(self, last: bytes = b"") -> None:
        """Send the last piece of a streamed answer, if there is one, and end it properly, all in one write."""
        if self.complete:
            return
        end = self._framed(last) + (b"0\r\n\r\n" if self.chunked else b"")
        if end:
            self._write(end)
        self._end()

    def _framed(self, data: bytes) -> bytes:
        """Return a piece as it goes on the wire, behind the head if that has not gone out."""
        piece = b"%x\r\n%b\r\n" % (len(data), data) if self.chunked and data else data
        self.last_write_s = self._lane.loop.time()
        if self._unsent:
            piece, self._unsent = self._unsent + piece, b""
            self.headed_s = self.last_write_s
        return piece

    def _write(self, data: bytes) -> None:
        transport = self._lane.transport
        if not transport.is_closing():
            transport.write(data)

    def _end(self) -> None:
        self.complete = True
        self._lane.answered(self)
