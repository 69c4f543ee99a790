"""Hold a stream back until its commit point, inside the attempt.

Until the first frame that carries output nothing but comments may reach the client, so an error frame, a stall or an
end is an ordinary failed attempt. `commit = "complete"` holds back to the end of the stream instead. What happens after
the commit is `relay.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from lumen_gateway.accounting.tokens import estimate_stream
from lumen_gateway.dialects.sse import EventTooLarge, Frame, Splitter
from lumen_gateway.dialects.wire import Dialect, Stream
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.deadline import earliest
from lumen_gateway.execution.exchange import ChatCall, UpstreamAnswer, failed_inside
from lumen_gateway.execution.leaf import Credential, Leaf
from lumen_gateway.records import AttemptRecord
from lumen_gateway.routing.plan import Attempt

MAX_LIFECYCLE_BYTES = 256 * 1024
MAX_COMPLETE_BYTES = 8 * 1024 * 1024


class OpenStream(msgspec.Struct):
    """An upstream's stream, at its commit point once `StreamedChat` has returned it.

    `held` are the bytes for the client so far, `pending` the frames that came in the same read behind them; `stray` is
    what came outside of events; `ended` is True when the upstream's body is over.
    """

    answer: UpstreamAnswer
    leaf: Leaf
    record: AttemptRecord
    splitter: Splitter
    reader: Stream
    dialect: Dialect
    held: bytearray = msgspec.field(default_factory=bytearray)
    stray: bytearray = msgspec.field(default_factory=bytearray)
    pending: deque[Frame] = msgspec.field(default_factory=deque)
    ended: bool = False

    async def read(self, until: float) -> list[Frame] | bytes:
        """Return the frames that the next bytes complete; at the end of the body, what is left without its blank line.

        Where all of them are ordinary they are read already, at once, and the result is what of them is for the client.
        Raises: Failure: what the answer's `read_chunk` raises, MALFORMED for an event without measure.
        """
        chunk = await self.answer.read_chunk(until)
        block, rest = self.splitter.whole(chunk)
        forward = self.reader.read_block(block) if block else None
        if forward is None:
            return self._split(chunk)
        self.splitter.skip_to(rest)
        return forward

    async def forward(self, until: float) -> bytes | None:
        """Take in the next bytes and return what of them is for the client; None if they complete no frame.

        Raises: as `read`.
        """
        came = await self.read(until)
        if isinstance(came, bytes):
            return came
        return self.take(came) if came else None

    def take(self, frames: Iterable[Frame]) -> bytes:
        """Read frames up to the first that is an error, and return what of them is for the client."""
        out: list[bytes] = []
        for frame in frames:
            forward = self.reader.read(frame)
            if forward is not None:
                out.append(forward)
            if self.reader.error is not None:
                break
        return b"".join(out)

    def _split(self, chunk: bytes) -> list[Frame]:
        if chunk:
            try:
                return self.splitter.feed(chunk)
            except EventTooLarge as exc:
                raise Failure(Kind.MALFORMED, str(exc)) from exc
        self.ended = True
        last = self.splitter.end()
        return [] if last is None else [last]

    def hold(self, frame: Frame) -> None:
        """Read one frame and keep what of it is for the client. Comments without end are not worth keeping."""
        forward = self.reader.read(frame) or b""
        if frame.data is None:
            if len(self.held) + len(frame.raw) > MAX_LIFECYCLE_BYTES:
                return
            self.stray += frame.raw
        self.held += forward


class StreamedChat(ChatCall):
    """A streamed chat exchange: the result is a stream that may now be shown to the client."""

    max_event_bytes: int = 16 * 1024 * 1024
    complete: bool = False

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> OpenStream:
        """Open the stream and return it at its commit point."""
        until = earliest(self.clock.monotonic(), leaf.timeouts.first_token_s, self.total_at_s)
        answer = await self.open(leaf, credential, attempt, record, until)
        created = int(self.clock.wall())
        reader = self.wire(leaf).stream(self.request, repair=leaf.repair, created=created, estimate=estimate_stream)
        stream = OpenStream(answer, leaf, record, Splitter(self.max_event_bytes), reader, self.dialect)
        try:
            await self._hold(stream, until)
        except BaseException as exc:
            seen_by_leaver = reader.output and isinstance(exc, asyncio.CancelledError)
            if reader.usage is not None or seen_by_leaver:
                self.settle(stream)
            answer.close()
            raise
        record.first_output_s = self.clock.monotonic()
        return stream

    def settle(self, stream: OpenStream) -> None:
        """Book what the stream used as far as it came. Once for each stream."""
        reader = stream.reader
        self.identify(stream.record, reader.opening, reader.finish_reasons)
        stream.record.dropped_frames += reader.dropped
        usage = reader.usage or estimate_stream(self.request, reader.output_frames)
        self.book(stream.record, stream.leaf, usage)

    async def _hold(self, stream: OpenStream, until: float) -> None:
        """Read until the stream commits or ends well; anything else raises the Failure it is."""
        reader = stream.reader
        while not (stream.ended or reader.done):
            came = await self._read(stream, until)
            if isinstance(came, bytes):
                stream.held += came
                if self._commits(stream):
                    return
            else:
                stream.pending.extend(came)
            while stream.pending:
                stream.hold(stream.pending.popleft())
                if reader.error is not None:
                    raise failed_inside(reader.error, stream.answer.status, self.clock.wall())
                if self._commits(stream):
                    return
            if reader.output and came:
                until = earliest(self.clock.monotonic(), stream.leaf.timeouts.idle_s, self.total_at_s)
        if not (reader.done or reader.finished):
            raise self._no_stream(stream)
        self.judge(stream.record, filtered=reader.filtered, empty=reader.empty)

    async def _read(self, stream: OpenStream, until: float) -> list[Frame] | bytes:
        try:
            return await stream.read(until)
        except Failure as failure:
            if failure.kind is Kind.READ_TIMEOUT and not stream.reader.output:
                failure.kind, failure.message = Kind.FIRST_TOKEN_TIMEOUT, "no output arrived in time"
            raise

    def _commits(self, stream: OpenStream) -> bool:
        if self.complete:
            return len(stream.held) > MAX_COMPLETE_BYTES
        return stream.reader.output or len(stream.held) > MAX_LIFECYCLE_BYTES

    def _no_stream(self, stream: OpenStream) -> Failure:
        """Say what a body was that ended without a terminal frame: cut, or no event stream but a document."""
        body = bytes(stream.stray).strip()
        if body.startswith(b"<"):  # the page of a proxy in between
            return Failure(Kind.MALFORMED, "it answered with a page where a stream was asked for")
        if not body.startswith((b"{", b"[")):
            return Failure(Kind.ENDED_EARLY, "the stream ended before its answer did")
        _, seen = self.wire(stream.leaf).answer(self.request, body, repair=False, created=0)
        if seen.usage is not None:
            self.book(stream.record, stream.leaf, seen.usage)
        if seen.error is not None:
            return failed_inside(seen.error, stream.answer.status, self.clock.wall())
        return Failure(Kind.MALFORMED, "it answered with a JSON document where a stream was asked for")
