"""One try on one leaf: build the call, send it, judge the answer, book what it used.

`ChatCall` is what both forms of a chat exchange share. `BufferedChat` reads the whole answer here, inside the attempt,
so that a body that stalls or is cut can still fail over; the streamed form stands in `commit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from lumen_gateway.accounting.prices import cost
from lumen_gateway.accounting.tokens import estimate_answer
from lumen_gateway.clock import Clock
from lumen_gateway.dialects import trace_context
from lumen_gateway.dialects.chat_answer import Identity, read_identity
from lumen_gateway.dialects.codecs import WIRES
from lumen_gateway.dialects.wire import CHAT, ClientRequest, Dialect, Wire
from lumen_gateway.errors import Failure, Kind, Trigger
from lumen_gateway.execution.deadline import earliest
from lumen_gateway.execution.leaf import Credential, Leaf
from lumen_gateway.providers import refusals
from lumen_gateway.providers.refusal_log import log_text
from lumen_gateway.records import AttemptRecord, Origin, Usage, added
from lumen_gateway.routing import overrides
from lumen_gateway.routing.plan import Attempt, lists

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 16 * 1024
ERROR_BODY_S = 0.5  # a refusal's body is worth that wait, not more
LEAVE_S = 1.0  # how long a body nobody reads may still arrive before its connection is given up


class UpstreamAnswer(Protocol):
    """An answer whose head has arrived."""

    status: int
    headers: list[tuple[bytes, bytes]]  # lower-case names
    first_byte_at: float

    def header(self, name: bytes) -> bytes | None:
        """Return a header's value by its lower-case name."""
        ...

    async def read_all(self, limit_bytes: int, until: float) -> bytes:
        """Return the whole decoded body."""
        ...

    async def read_chunk(self, until: float) -> bytes:
        """Return the next decoded piece, b"" only at the proper end."""
        ...

    def leave(self, until: float) -> None:
        """Read no more: the connection is kept if the body ends by then, else cut."""
        ...

    def close(self) -> None:
        """Cut an unfinished answer off at once."""
        ...


class Transport(Protocol):
    """What sends bytes to upstreams; `transport/client.py` is the real one."""

    async def send(self, origin: Origin, payload: bytes, until: float) -> UpstreamAnswer:
        """Return once the answer's head is there. Raises Failure, named by phase."""
        ...


class Trace(Protocol):
    """One request's place in a trace."""

    def call(self, attempt: AttemptRecord) -> trace_context.Fields:
        """Return the header fields that make an attempt the parent of what its upstream does."""
        ...

    def answered(self, attempt: AttemptRecord, identity: Identity, finish_reasons: Sequence[str]) -> None:
        """Note what an answer says of itself."""
        ...


class ChatCall(msgspec.Struct):
    """What every try of one chat request has in common."""

    request: ClientRequest
    attempts: tuple[Attempt, ...]
    headers: list[tuple[bytes, bytes]]  # the client's, lower-case names
    total_at_s: float
    transport: Transport
    clock: Clock
    warn: Callable[[str, int, str | None], None]  # an upstream refused: provider, status, its cleaned message
    trace: Trace | None = None
    dialect: Dialect = CHAT
    note_lost: Callable[[str, Sequence[str]], None] | None = None  # fields that a provider is not told, if anyone asks

    def wire(self, leaf: Leaf) -> Wire:
        """Return what joins the client to this leaf."""
        return WIRES[self.dialect.name, leaf.api(self.dialect.name)]

    def payload(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> bytes:
        """Build the whole request for this leaf afresh from the client's own body."""
        body = self.body(leaf, attempt, record)
        return b"".join(
            (
                self.head(leaf),
                credential.headers.reveal(),
                *self._forwarded(leaf, record),
                b"content-length: %d\r\n\r\n" % len(body),
                body,
            )
        )

    def head(self, leaf: Leaf) -> bytes:
        """Return what the request begins with."""
        return leaf.head(leaf.api(self.dialect.name), stream=self.request.stream)

    def body(self, leaf: Leaf, attempt: Attempt, record: AttemptRecord) -> bytes:
        """Write the body; what of the request and its overrides is not in it is noted, once for each attempt."""
        edits, wire = attempt.edits, self.wire(leaf)
        edit = None if edits is overrides.NO_EDITS else lambda fields: overrides.apply(edits, fields)
        body = wire.body(self.request, leaf.model, leaf.rules, edit)
        if self.note_lost is not None and record.tries == 1 and (lost := wire.lost(self.request, leaf.model, edit)):
            self.note_lost(leaf.provider, lost)
        return body

    def _forwarded(self, leaf: Leaf, record: AttemptRecord) -> list[bytes]:
        """Return the header lines that depend on the request.

        The client's that this upstream may see, its trace context as ours where we trace, and what the api needs.
        """
        fields = [field for field in self.headers if field[0] in leaf.forward_headers]
        for needed in leaf.fields.get(leaf.api(self.dialect.name), ()):
            if all(field[0] != needed[0] for field in fields):
                fields.append(needed)
        if self.trace is not None:
            fields = trace_context.without_context(fields) + self.trace.call(record)
        elif fields:
            fields = trace_context.without_context(fields) + trace_context.read_context(fields)
        return [b"%b: %b\r\n" % field for field in fields]

    async def open(
        self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord, until: float
    ) -> UpstreamAnswer:
        """Send the call and return a successful answer's head.

        Raises: Failure for anything that is not a 2xx.
        """
        record.first_byte_s = record.upstream_status = None  # of an earlier try
        answer = await self.transport.send(leaf.origin, self.payload(leaf, credential, attempt, record), until)
        record.first_byte_s, record.upstream_status = answer.first_byte_at, answer.status
        if 200 <= answer.status < 300:
            return answer
        try:
            raise await self._refused(leaf, answer)
        finally:
            answer.leave(self.clock.monotonic() + LEAVE_S)

    async def fetch(
        self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord
    ) -> tuple[int, bytes]:
        """Send the call and return a successful answer, whole: its status and its body."""
        until = earliest(self.clock.monotonic(), leaf.timeouts.response_s, self.total_at_s)
        try:
            answer = await self.open(leaf, credential, attempt, record, until)
            return answer.status, await _body(answer, until)
        except Failure as failure:
            if failure.kind is Kind.FIRST_TOKEN_TIMEOUT:  # nothing came at all: here that is the whole answer's clock
                failure.kind, failure.message = Kind.READ_TIMEOUT, "the answer did not arrive in time"
            raise

    async def _refused(self, leaf: Leaf, answer: UpstreamAnswer) -> Failure:
        status = answer.status
        client_error = 400 <= status < 500
        body = await self._error_body(answer) if client_error else b""
        refusal = refusals.classify(status, answer.header, body, self.clock.wall())
        if client_error and refusal.kind is not Kind.RATE_LIMITED:  # a burst is no news, and the metrics count it
            self.warn(leaf.provider, status, log_text(body))
        return _failed(refusal, status)

    async def _error_body(self, answer: UpstreamAnswer) -> bytes:
        """Read what arrives of a refusal's body in time: a stalled one is classified from what there is."""
        until, body = earliest(self.clock.monotonic(), ERROR_BODY_S, self.total_at_s), b""
        try:
            while len(body) < MAX_ERROR_BYTES and (piece := await answer.read_chunk(until)):
                body += piece
        except Failure:
            pass  # cut or stalled: the status alone still decides
        return body[:MAX_ERROR_BYTES]

    def judge(self, record: AttemptRecord, *, filtered: bool, empty: bool) -> None:
        """Refuse an answer without output where a list around the attempt names it; else it is a success.

        Raises: Failure CONTENT_FILTER or EMPTY_ANSWER.
        """
        if filtered and lists(self.attempts, record.index, Trigger.CONTENT_FILTER):
            raise Failure(Kind.CONTENT_FILTER, "the answer was withheld by its content filter")
        if empty and lists(self.attempts, record.index, Trigger.EMPTY_ANSWER):
            raise Failure(Kind.EMPTY_ANSWER, "the answer was empty")

    def identify(self, record: AttemptRecord, answer: bytes, finish_reasons: Sequence[str]) -> None:
        """Tell the trace, if there is one, what an answer, or a frame of it, says of itself."""
        if self.trace is not None:
            self.trace.answered(record, read_identity(answer), finish_reasons)

    def book(self, record: AttemptRecord, leaf: Leaf, usage: Usage) -> None:
        """Add what one try used."""
        record.usage = added(record.usage, usage)
        if leaf.prices is not None:
            record.cost_pico = (record.cost_pico or 0) + cost(usage, leaf.prices)


class BufferedChat(ChatCall):
    """An unstreamed chat exchange: the result is the body for the client."""

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> bytes:
        """Return the answer's body, judged and booked."""
        status, body = await self.fetch(leaf, credential, attempt, record)
        created = int(self.clock.wall())
        forward, seen = self.wire(leaf).answer(
            self.request, body, repair=leaf.repair, created=created, estimate=estimate_answer
        )
        self.identify(record, body, seen.finish_reasons)
        if seen.error is None or seen.usage is not None:
            self.book(record, leaf, seen.usage or estimate_answer(self.request, seen.output_bytes))
        if seen.error is not None:
            raise failed_inside(seen.error, status, self.clock.wall())
        self.judge(record, filtered=seen.filtered, empty=seen.empty)
        return forward


async def _body(answer: UpstreamAnswer, until: float) -> bytes:
    try:
        return await answer.read_all(MAX_ANSWER_BYTES, until)
    finally:
        answer.close()


def failed_inside(payload: bytes, status: int, wall_s: float) -> Failure:
    """Return what an error told inside a 2xx amounts to: it has no status of its own for the client to see."""
    return _failed(refusals.classify_in_stream(payload, wall_s), status)


def _failed(refusal: refusals.Refusal, status: int) -> Failure:
    """Turn a classified refusal into the failure that decides what happens next. The message holds no upstream text."""
    return Failure(
        refusal.kind,
        _REFUSAL_TEXTS.get(refusal.kind, "the upstream refused the request") + f" (status {status})",
        upstream_status=status if status >= 300 else None,
        retry_after_s=refusal.retry_after_s,
        cool_s=refusal.cool_s,
    )


_REFUSAL_TEXTS = {
    Kind.CONTEXT_LENGTH: "the prompt is longer than the model's context window; shorten it or use a larger model",
    Kind.CONTENT_FILTER: "the prompt or answer was refused by a content policy",
    Kind.RATE_LIMITED: "the upstream's rate limit is reached; retry later",
    Kind.RATE_TOO_SMALL: "the request is larger than the upstream's rate limit allows at all",
    Kind.QUOTA_LIMITED: "the quota at the upstream is used up",
    Kind.QUOTA_EXHAUSTED: "the quota at the upstream is used up",
    Kind.AUTH_FAILED: "the upstream refused the gateway's own key; check the provider's api_key_env",
    Kind.UPSTREAM_NOT_FOUND: "the upstream knows no such model or endpoint; check upstream_id and base_url",
    Kind.READ_TIMEOUT: "the upstream gave up waiting for its own answer",
    Kind.UPSTREAM_ERROR: "the upstream failed",
}
