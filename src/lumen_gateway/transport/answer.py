"""One upstream answer, from its head to the proper end of its body.

`connection.py` fills it in as bytes arrive; the exchange that asked reads it, one task per answer. Reading from the
socket stops while more than `HIGH_WATER_BYTES` lie here unread, so a slow reader slows the upstream, and costs nothing.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.transport.encoding import Decoder

HIGH_WATER_BYTES = 65_536
PIECE_COST_BYTES = 64  # of a piece beside its bytes; without it, one-byte chunks would hold forty times the mark


class Wire(Protocol):
    """What an answer asks of the connection it arrives on."""

    def wake_at(self, until: float) -> None:
        """Call the answer's `look` no later than `until`."""
        ...

    def pause_reading(self) -> None:
        """Take no more bytes from the peer."""
        ...

    def resume_reading(self) -> None:
        """Take bytes again."""
        ...

    def close(self) -> None:
        """Close the socket at once."""
        ...


class Answer:
    """Status, headers (lower-case names) and the body, decoded, to be read once."""

    __slots__ = (
        "_decoder",
        "_failure",
        "_held_bytes",
        "_left",
        "_loop",
        "_paused",
        "_pieces",
        "_until",
        "_waiter",
        "_whole",
        "_wire",
        "content_encoding",
        "first_byte_at",
        "has_head",
        "headers",
        "status",
    )

    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.first_byte_at = 0.0  # loop time; 0.0: nothing yet
        self.content_encoding: bytes | None = None
        self._loop = loop
        self._wire: Wire | None = wire  # None: the socket is no longer ours
        self.has_head = False  # the final head is in
        self._whole = False
        self._failure: Failure | None = None
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._paused = False
        self._left = False
        self._decoder: Decoder | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._until = 0.0

    # The reader's side.

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header by its lower-case name, the first of several."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    async def read_all(self, limit_bytes: int, until: float) -> bytes:
        """Return the whole body, decoded.

        Raises: Failure, MALFORMED over `limit_bytes`, READ_TIMEOUT at `until`, ENDED_EARLY for a body cut short.
        """
        piece = await self.read_chunk(until)
        self._check_size(len(piece), limit_bytes)
        if self._whole and not self._pieces and self._decoder is None:
            return piece  # the usual case: the body came in one piece
        body = bytearray(piece)
        while piece := await self.read_chunk(until):
            body += piece
            self._check_size(len(body), limit_bytes)
        return bytes(body)

    async def read_chunk(self, until: float) -> bytes:
        """Return the next piece of the body, decoded; nothing only at the proper end.

        After READ_TIMEOUT the answer is still there: read on with a later deadline, or close it.

        Raises: Failure, READ_TIMEOUT at `until`, ENDED_EARLY for a body cut short, MALFORMED for bad framing or coding.
        """
        if self.content_encoding is None:
            return await self._read_coded(until)
        try:
            return await self._read_decoded(self.content_encoding, until)
        except Failure as failure:
            if failure.kind is Kind.MALFORMED:
                self.close()
            raise
        except asyncio.CancelledError:
            self.close()
            raise

    def leave(self, until: float) -> None:
        """Want no more of the body: what still comes is dropped. The socket is kept if it ends by `until`, else closed.

        The reader is done with the answer, and nobody waits.
        """
        if self._wire is None:
            return
        self._left = True
        self._pieces.clear()
        self._until = until
        if self._paused:
            self._wire.resume_reading()
        self._wire.wake_at(until)

    def close(self) -> None:
        """Let go of the answer: an unfinished one closes its socket at once. Closing again does nothing."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        self._pieces.clear()
        wire.close()

    # The connection's side.

    @property
    def is_settled(self) -> bool:
        """Tell whether waiting for the head is over, one way or the other."""
        return self.has_head or self._failure is not None

    async def wait_head(self, until: float) -> None:
        """Return when the head is in.

        Raises: Failure, FIRST_TOKEN_TIMEOUT at `until`, or what happened to the connection.
        """
        while not self.has_head:
            if self._failure is not None:
                raise self._failure
            await self.wait_settling(until)

    async def wait_settling(self, until: float) -> None:
        """Return when something happened; give up, socket and all, at `until`."""
        if not await self._wait(until):
            self.close()
            raise Failure(Kind.FIRST_TOKEN_TIMEOUT, "the upstream did not start its answer in time")

    def begin(self, status: int) -> None:
        """Take the final head."""
        self.status = status
        self.has_head = True

    def take(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self._left:
            return
        self._pieces.append(data)
        self._held_bytes += len(data) + PIECE_COST_BYTES
        if self._held_bytes > HIGH_WATER_BYTES and not self._paused and self._wire is not None:
            self._paused = True
            self._wire.pause_reading()

    def finish(self) -> None:
        """Take the proper end of the body; the socket is the connection's again."""
        self._whole = True
        self._wire = None
        self.wake()

    def fail(self, failure: Failure) -> None:
        """Take a bad end, the first one told. What arrived before it can still be read."""
        if self._failure is None:
            self._failure = failure
        self._wire = None
        self.wake()

    def wake(self) -> None:
        """Let the waiting task look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def look(self, now: float) -> float | None:
        """End a wait whose time has come; return the deadline of one whose time has not, None when nobody waits."""
        waiter = self._waiter
        if not self._left and (waiter is None or waiter.done()):
            return None
        if self._until - now > 0.001:  # uvloop's timers and clock count whole milliseconds
            return self._until
        if waiter is None:  # the answer was left, and its time is over
            self.close()
            return None
        self._waiter = None
        waiter.set_result(False)
        return None

    # Inside.

    async def _wait(self, until: float) -> bool:
        """Return True when something happened, False at `until`. A cancelled wait closes the socket at once."""
        wire = self._wire
        if wire is None:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        self._until = until
        wire.wake_at(until)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._waiter = None
            self.close()
            raise

    async def _read_coded(self, until: float) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._whole:
                return b""
            if not await self._wait(until):
                raise Failure(Kind.READ_TIMEOUT, "the upstream fell silent in the middle of its answer")
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        if self._paused:
            self._paused = False
            if self._wire is not None:
                self._wire.resume_reading()
        return data

    async def _read_decoded(self, coding: bytes, until: float) -> bytes:
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = Decoder(coding)
        while not (piece := decoder.next()):
            coded = await self._read_coded(until)
            if not coded:
                decoder.finish()
                return b""
            decoder.feed(coded)
        await asyncio.sleep(0)  # a small input can hold many pieces: let others run between them
        return piece

    def _check_size(self, size_bytes: int, limit_bytes: int) -> None:
        if size_bytes > limit_bytes:
            self.close()
            raise Failure(Kind.MALFORMED, f"the answer's body is larger than {limit_bytes} bytes")
