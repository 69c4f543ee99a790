"""What happens to a stream after its commit: relayed as bytes, ended cleanly or with one error frame, never silently.

A clean end is a terminal frame with no error frame after it, then the proper end of the body; the terminator is
completed if the upstream left it out. Everything else ends in exactly one error frame: ours, or the vendor's own, which
is forwarded once.
"""

from __future__ import annotations

from typing import Protocol

from lumen_gateway.clock import Clock
from lumen_gateway.dialects.chat_answer import DONE, error_frame
from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.commit import OpenStream
from lumen_gateway.execution.exchange import LEAVE_S, failed
from lumen_gateway.execution.executor import outcome_of
from lumen_gateway.providers import refusals


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

    def finish(self) -> None:
        """End the answer's body properly."""
        ...


async def relay(stream: OpenStream, outlet: Outlet, clock: Clock) -> Failure | None:
    """Relay a committed stream to its end, finish the client's answer and close the attempt's record.

    Returns the failure that cut it short, already shown to the client in its error frame, or None.
    """
    record, answer = stream.record, stream.answer
    try:
        failure = await _pump(stream, outlet, clock)
        outlet.write(_last_event(stream.reader, failure))
        outlet.finish()
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


def final_event(failure: Failure) -> bytes:
    """Return the one error frame that ends a broken stream."""
    return error_frame(failure.kind.row.code, failure.message, failure.kind.row.type)


def _last_event(reader: ChatStream, failure: Failure | None) -> bytes:
    """Return what the end of the stream still lacks: the terminator, our error frame, or nothing."""
    if failure is None:
        return b"" if reader.done else DONE
    return b"" if reader.error_shown else final_event(failure)


async def _pump(stream: OpenStream, outlet: Outlet, clock: Clock) -> Failure | None:
    """Forward frames until the stream is over, and say how it ended.

    The idle timer runs from one whole frame to the next: bytes that complete none are silence too.
    """
    reader, idle_s = stream.reader, stream.leaf.timeouts.idle_s
    outlet.write(bytes(stream.held))
    forward: bytes | None = stream.take(stream.pending)
    until = 0.0
    while True:
        if forward is not None:
            outlet.write(forward)
        if reader.error is not None:
            return _named(failed(refusals.classify_in_stream(reader.error, clock.wall()), stream.answer.status), stream)
        if reader.done:
            return None
        if stream.ended:
            cut = Failure(Kind.ENDED_EARLY, "the stream ended before its answer did")
            return None if reader.finished else _named(cut, stream)
        if outlet.paused:
            await outlet.drain()
        if forward is not None:
            until = clock.monotonic() + idle_s
        try:
            forward = await stream.forward(until)
        except Failure as failure:
            return _named(failure, stream)


def _named(failure: Failure, stream: OpenStream) -> Failure:
    if failure.provider is None:
        failure.provider = stream.leaf.provider
        failure.message = f'provider "{failure.provider}": {failure.message}'
    return failure
