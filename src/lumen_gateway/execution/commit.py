"""Hold a stream back until its commit point, inside the attempt.

Until the first frame that carries output nothing but comments may reach the client, so an error frame, a stall or an
end is an ordinary failed attempt. `commit = "complete"` holds back to the end of the stream instead. What happens after
the commit is `relay.py`.
"""

from __future__ import annotations

from collections import deque

import msgspec

from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.sse import EventTooLarge, Frame, Splitter
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.deadline import earliest, ended_by_total
from lumen_gateway.execution.exchange import MAX_ERROR_BYTES, ChatCall, UpstreamAnswer, failed
from lumen_gateway.execution.leaf import Credential, Leaf
from lumen_gateway.providers import refusals
from lumen_gateway.records import AttemptRecord
from lumen_gateway.routing.plan import Attempt

MAX_LIFECYCLE_BYTES = 256 * 1024
MAX_COMPLETE_BYTES = 8 * 1024 * 1024


class OpenStream(msgspec.Struct):
    """A stream at its commit point.

    `held` are the bytes for the client so far, `pending` the frames that came in the same read behind them; `ended` is
    True when the upstream's body is already over.
    """

    answer: UpstreamAnswer
    leaf: Leaf
    record: AttemptRecord
    splitter: Splitter
    reader: ChatStream
    held: list[bytes]
    held_bytes: int = 0
    pending: deque[Frame] = msgspec.field(default_factory=deque)
    ended: bool = False

    def take(self, frame: Frame) -> None:
        """Read one frame and keep what of it is for the client."""
        forward = self.reader.read(frame)
        if forward is not None:
            self.held.append(forward)
            self.held_bytes += len(forward)


class StreamedChat(ChatCall):
    """A streamed chat exchange: the result is a stream that may now be shown to the client."""

    max_event_bytes: int = 16 * 1024 * 1024
    complete: bool = False

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> OpenStream:
        """Open the stream and return it at its commit point."""
        first_output_at = earliest(self.clock.monotonic(), leaf.timeouts.first_token_s, self.total_at_s)
        answer = await self.open(leaf, credential, attempt, record, leaf.timeouts.first_token_s)
        stream = OpenStream(
            answer,
            leaf,
            record,
            Splitter(self.max_event_bytes),
            ChatStream(repair=leaf.repair, include_usage=self.request.include_usage),
            [],
        )
        try:
            await self._refuse_other_media(answer, first_output_at)
            await self._hold(stream, first_output_at)
        except BaseException:
            if stream.reader.usage is not None:
                self.book(record, leaf, stream.reader.usage, 0)
            answer.close()
            raise
        record.first_output_s = self.clock.monotonic()
        return stream

    async def _hold(self, stream: OpenStream, first_output_at: float) -> None:
        """Read until the stream commits or ends well; anything else raises the Failure it is."""
        reader = stream.reader
        while True:
            for_output = not reader.output
            chunk = await self._read(stream, first_output_at, for_output=for_output)
            stream.pending.extend(split_frames(stream.splitter, chunk))
            while stream.pending:
                stream.take(stream.pending.popleft())
                if reader.error is not None:
                    raise failed(refusals.classify_in_stream(reader.error, self.clock.wall()), stream.answer.status)
                if self._commits(stream):
                    return None
            if not chunk or reader.done:
                return self._end(stream)

    async def _read(self, stream: OpenStream, first_output_at: float, *, for_output: bool) -> bytes:
        now_s = self.clock.monotonic()
        until = first_output_at if for_output else earliest(now_s, stream.leaf.timeouts.idle_s, self.total_at_s)
        try:
            return await stream.answer.read_chunk(until)
        except Failure as failure:
            now_s = self.clock.monotonic()
            if failure.kind is Kind.READ_TIMEOUT and for_output and not ended_by_total(failure, now_s, self.total_at_s):
                failure.kind, failure.message = Kind.FIRST_TOKEN_TIMEOUT, "no output arrived in time"
            raise

    def _commits(self, stream: OpenStream) -> bool:
        if self.complete:
            return stream.held_bytes > MAX_COMPLETE_BYTES
        return stream.reader.output or stream.held_bytes > MAX_LIFECYCLE_BYTES

    def _end(self, stream: OpenStream) -> None:
        """The body is over, or its terminator was seen, before the commit: a complete answer, or a failure."""
        reader = stream.reader
        if not (reader.done or reader.finished):
            raise Failure(Kind.ENDED_EARLY, "the stream ended before its answer did")
        self.judge(filtered=reader.filtered, empty=reader.empty)
        stream.ended = True

    async def _refuse_other_media(self, answer: UpstreamAnswer, until: float) -> None:
        """A JSON document where a stream was asked for is an error told with a 200, or no answer at all."""
        if b"application/json" not in (answer.header(b"content-type") or b""):
            return
        body = await answer.read_all(MAX_ERROR_BYTES, until)
        if b'"error"' in body:
            raise failed(refusals.classify_in_stream(body, self.clock.wall()), answer.status)
        raise Failure(Kind.MALFORMED, "it answered with a JSON document where a stream was asked for")


def split_frames(splitter: Splitter, chunk: bytes) -> list[Frame]:
    """Cut the next bytes into frames; at the end of the body, what is left without its blank line."""
    try:
        if chunk:
            return splitter.feed(chunk)
    except EventTooLarge as exc:
        raise Failure(Kind.MALFORMED, str(exc)) from exc
    last = splitter.end()
    return [] if last is None else [last]
