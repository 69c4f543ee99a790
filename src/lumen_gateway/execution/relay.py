"""What happens to a stream after its commit: relayed as bytes, ended cleanly or with one error frame, never silently.

A clean end is a terminal frame with no error frame after it, then the proper end of the body; the terminator is
completed if the upstream left it out. Everything else ends in exactly one error frame: ours, or the vendor's own, which
is forwarded once.
"""

from __future__ import annotations

from typing import Protocol

from lumen_gateway.clock import Clock
from lumen_gateway.dialects.chat_answer import DONE, error_frame
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.commit import OpenStream, split_frames
from lumen_gateway.execution.exchange import failed
from lumen_gateway.providers import refusals

TAIL_S = 1.0  # how long the end of a body may lag behind its terminator before the connection is given up


class Outlet(Protocol):
    """Where a stream goes: the client's connection."""

    def write(self, data: bytes) -> None:
        """Send bytes now; what the client does not take yet is buffered."""
        ...

    async def drain(self) -> None:
        """Return once the client has room again."""
        ...

    def finish(self) -> None:
        """End the answer's body properly."""
        ...


async def relay(stream: OpenStream, outlet: Outlet, clock: Clock) -> Failure | None:
    """Relay a committed stream to its end and finish the client's answer.

    Returns the failure that cut it short, already shown to the client in its error frame, or None.
    """
    try:
        failure = await _pump(stream, outlet, clock)
        if failure is not None:
            outlet.write(final_event(failure, shown=stream.reader.error is not None))
        elif not stream.reader.done:
            outlet.write(DONE)
        outlet.finish()
        if failure is None:
            await _tail(stream, clock)
    finally:
        stream.answer.close()
    return failure


def final_event(failure: Failure, *, shown: bool = False) -> bytes:
    """Return the one error frame that ends a broken stream; nothing when the vendor's own was forwarded."""
    return b"" if shown else error_frame(failure.kind.row.code, failure.message, failure.kind.row.type)


async def _pump(stream: OpenStream, outlet: Outlet, clock: Clock) -> Failure | None:
    reader = stream.reader
    while True:
        while stream.pending and reader.error is None:
            stream.take(stream.pending.popleft())
        if stream.held:
            outlet.write(b"".join(stream.held))
            stream.held.clear()
            await outlet.drain()
        if reader.error is not None:
            return _named(failed(refusals.classify_in_stream(reader.error, clock.wall()), stream.answer.status), stream)
        if reader.done:
            return None
        if stream.ended:
            cut = Failure(Kind.ENDED_EARLY, "the stream ended before its answer did")
            return None if reader.finished else _named(cut, stream)
        try:
            await _read(stream, clock)
        except Failure as failure:
            return _named(failure, stream)


async def _read(stream: OpenStream, clock: Clock) -> None:
    chunk = await stream.answer.read_chunk(clock.monotonic() + stream.leaf.timeouts.idle_s)
    stream.pending.extend(split_frames(stream.splitter, chunk))
    stream.ended = not chunk


async def _tail(stream: OpenStream, clock: Clock) -> None:
    """Let the body end, so that its connection can be used again. The client has everything already."""
    until = clock.monotonic() + TAIL_S
    try:
        while not stream.ended and await stream.answer.read_chunk(until):
            pass
    except Failure:
        pass  # whatever follows the terminator changes nothing


def _named(failure: Failure, stream: OpenStream) -> Failure:
    if failure.provider is None:
        failure.provider = stream.leaf.provider
        failure.message = f'provider "{failure.provider}": {failure.message}'
    return failure
