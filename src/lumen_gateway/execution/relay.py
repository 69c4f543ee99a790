"""What happens to a stream after its commit: relayed as bytes, ended cleanly or with one error frame, never silently.

A clean end is a terminal frame with no error frame after it, then the proper end of the body; the terminator is
completed if the upstream left it out. Everything else ends in exactly one error frame: ours, or the vendor's own, which
is forwarded once.
"""

from __future__ import annotations

from typing import Protocol

from lumen_gateway.clock import Clock
from lumen_gateway.dialects.wire import Dialect
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.commit import OpenStream
from lumen_gateway.execution.exchange import LEAVE_S, failed_inside
from lumen_gateway.execution.executor import outcome_of


class Outlet(Protocol):
    """Where a stream goes: the client's connection."""

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes now; what the client does not take yet is buffered."""
        ...

    async def drain(self) -> None:
        """Return once the client has room again. Raises Failure CLIENT_LEFT when it never has."""
        ...

    def finish(self, last: bytes = b"") -> None:
        """Send the last piece, if there is one, and end the answer's body properly."""
        ...


async def relay(stream: OpenStream, outlet: Outlet, clock: Clock) -> Failure | None:
    """Relay a committed stream to its end, finish the client's answer and close the attempt's record.

    Returns the failure that cut it short, already shown to the client in its error frame, or None.
    """
    record, answer = stream.record, stream.answer
    try:
        failure, last = await _pump(stream, outlet, clock)
        outlet.finish(last + _last_event(stream, failure))
    except BaseException as exc:
        record.outcome = outcome_of(exc)
        answer.close()
        raise
    finally:
        record.ended_s = clock.monotonic()
    if failure is None:
        answer.leave(record.ended_s + LEAVE_S)  # the client has everything: what follows changes nothing
    else:
        record.outcome = failure.kind.outcome
        answer.close()
    return failure


def final_event(failure: Failure, dialect: Dialect, sequence: int = 0) -> bytes:
    """Return the one error frame that ends a broken stream, numbered where events have numbers."""
    return dialect.error_frame(failure.kind.row.code, failure.message, failure.kind.row.type, sequence)


def _last_event(stream: OpenStream, failure: Failure | None) -> bytes:
    """Return what the end of the stream still lacks: the terminator, our error frame, or nothing."""
    if failure is None:
        return stream.reader.end()
    return b"" if stream.reader.error_shown else final_event(failure, stream.dialect, stream.reader.sequence)


async def _pump(stream: OpenStream, outlet: Outlet, clock: Clock) -> tuple[Failure | None, bytes]:
    """Forward frames until the stream is over; return how it ended and the last bytes, which wait for what ends them.

    The idle timer runs from one whole frame to the next: bytes that complete none are silence too.
    """
    reader, idle_s, until = stream.reader, stream.leaf.timeouts.idle_s, 0.0
    forward: bytes | None = bytes(stream.held) + stream.take(stream.pending)
    while not (reader.done or stream.ended or reader.error is not None):
        if forward is not None:
            outlet.write(forward)
            until = clock.monotonic() + idle_s
        if outlet.paused:
            await outlet.drain()
        try:
            forward = await stream.forward(until)
        except Failure as failure:
            failure.blame(stream.leaf.provider)
            return failure, b""
    return _ending(stream, clock), forward or b""


def _ending(stream: OpenStream, clock: Clock) -> Failure | None:
    """Say what ended a stream that is over; None: its answer did."""
    reader = stream.reader
    if reader.error is not None:
        failure = failed_inside(reader.error, stream.answer.status, clock.wall())
    elif reader.done or reader.finished:
        return None
    else:
        failure = Failure(Kind.ENDED_EARLY, "the stream ended before its answer did")
    failure.blame(stream.leaf.provider)
    return failure
