"""One try on one leaf: build the call, send it, judge the answer.

`ChatCall` is what both forms of a chat exchange share. `BufferedChat` reads the whole answer here, inside the attempt,
so that a body that stalls or is cut can still fail over; the streamed form stands in `commit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from lumen_gateway.accounting.prices import cost
from lumen_gateway.accounting.tokens import estimate_chat, estimate_output
from lumen_gateway.clock import Clock
from lumen_gateway.dialects.chat import ChatRequest, upstream_body
from lumen_gateway.dialects.chat_answer import read_answer
from lumen_gateway.dialects.chat_repair import repair_answer
from lumen_gateway.errors import Failure, Kind, Trigger
from lumen_gateway.execution.deadline import earliest
from lumen_gateway.execution.leaf import Credential, Leaf
from lumen_gateway.providers import refusals
from lumen_gateway.providers.refusal_log import log_text
from lumen_gateway.records import AttemptRecord, Origin, Usage
from lumen_gateway.routing import overrides
from lumen_gateway.routing.plan import Attempt

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 16 * 1024
ERROR_BODY_S = 0.5  # a refusal's body is worth that wait, not more


class UpstreamAnswer(Protocol):
    """An answer whose head has arrived. Closing an unfinished one cuts the upstream off."""

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

    def close(self) -> None:
        """Give the connection back, or cut it."""
        ...


class Transport(Protocol):
    """What sends bytes to upstreams; `transport/client.py` is the real one."""

    async def send(self, origin: Origin, payload: bytes, until: float) -> UpstreamAnswer:
        """Return once the answer's head is there. Raises Failure, named by phase."""
        ...


class ChatCall(msgspec.Struct):
    """What every try of one chat request has in common."""

    request: ChatRequest
    attempts: tuple[Attempt, ...]
    headers: list[tuple[bytes, bytes]]  # the client's, lower-case names
    total_at_s: float
    transport: Transport
    clock: Clock
    warn: Callable[[str, int, str | None], None]  # an upstream refused: provider, status, its cleaned message

    def payload(self, leaf: Leaf, credential: Credential, attempt: Attempt) -> bytes:
        """Build the whole request for this leaf afresh from the client's own body."""
        edits = attempt.edits
        edit = None if edits is overrides.NO_EDITS else lambda fields: overrides.apply(edits, fields)
        body = upstream_body(self.request, leaf.model, leaf.rules, edit)
        return b"".join(
            (
                leaf.head,
                credential.headers.reveal(),
                *forwarded(self.headers, leaf.forward_headers),
                b"content-length: %d\r\n\r\n" % len(body),
                body,
            )
        )

    async def open(
        self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord, timeout_s: float
    ) -> UpstreamAnswer:
        """Send the call and return a successful answer's head.

        Raises: Failure for anything that is not a 2xx.
        """
        until = earliest(self.clock.monotonic(), timeout_s, self.total_at_s)
        answer = await self.transport.send(leaf.origin, self.payload(leaf, credential, attempt), until)
        record.first_byte_s = answer.first_byte_at
        if 200 <= answer.status < 300:
            return answer
        try:
            raise await self._refused(leaf, answer)
        finally:
            answer.close()

    async def _refused(self, leaf: Leaf, answer: UpstreamAnswer) -> Failure:
        if not 400 <= answer.status < 500:
            return failed(refusals.classify(answer.status, answer.header, b"", self.clock.wall()), answer.status)
        body = await _error_body(answer, self.clock.monotonic())
        if answer.status != 429:  # a storm of those is no news, and the metrics count it
            self.warn(leaf.provider, answer.status, log_text(body))
        return failed(refusals.classify(answer.status, answer.header, body, self.clock.wall()), answer.status)

    def judge(self, *, filtered: bool, empty: bool) -> None:
        """Refuse an answer without output where the chain lists a trigger for it; else it is a success.

        Raises: Failure CONTENT_FILTER or EMPTY_ANSWER.
        """
        if filtered and self._listed(Trigger.CONTENT_FILTER):
            raise Failure(Kind.CONTENT_FILTER, "the answer was withheld by its content filter")
        if empty and self._listed(Trigger.EMPTY_ANSWER):
            raise Failure(Kind.EMPTY_ANSWER, "the answer was empty")

    def _listed(self, trigger: Trigger) -> bool:
        return any(escape.triggers & trigger for attempt in self.attempts for escape in attempt.escapes)

    def book(self, record: AttemptRecord, leaf: Leaf, usage: Usage | None, output_tokens: int) -> None:
        """Write down what an answer used: the upstream's numbers, else an estimate marked as one."""
        if usage is None:
            usage = Usage(estimate_chat(self.request), output_tokens, origin="estimated")
        record.usage = usage
        record.cost_pico = None if leaf.prices is None else cost(usage, leaf.prices)


class BufferedChat(ChatCall):
    """An unstreamed chat exchange: the result is the body for the client."""

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> bytes:
        """Return the answer's body, judged and booked."""
        until = earliest(self.clock.monotonic(), leaf.timeouts.response_s, self.total_at_s)
        answer = await self.open(leaf, credential, attempt, record, leaf.timeouts.response_s)
        try:
            body = await answer.read_all(MAX_ANSWER_BYTES, until)
        finally:
            answer.close()
        if leaf.repair:
            body = repair_answer(body)
        seen = read_answer(body)
        if seen.error is not None:
            raise failed(refusals.classify_in_stream(seen.error, self.clock.wall()), answer.status)
        self.book(record, leaf, seen.usage, estimate_output(seen.output_bytes))
        self.judge(filtered=seen.filtered, empty=seen.empty)
        return body


def failed(refusal: refusals.Refusal, status: int) -> Failure:
    """Turn a classified refusal into the failure that decides what happens next. The message holds no upstream text."""
    return Failure(
        refusal.kind,
        _REFUSAL_TEXTS.get(refusal.kind, "the upstream refused the request") + f" (status {status})",
        upstream_status=status,
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


def forwarded(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> list[bytes]:
    """Return the header lines of the client that the upstream may see."""
    return [b"%b: %b\r\n" % (name, value) for name, value in headers if name in names]


async def _error_body(answer: UpstreamAnswer, now_s: float) -> bytes:
    """Read what arrives of a refusal's body in time: a stalled one is classified from what there is."""
    until, pieces, size = now_s + ERROR_BODY_S, list[bytes](), 0
    try:
        while size < MAX_ERROR_BYTES and (piece := await answer.read_chunk(until)):
            pieces.append(piece)
            size += len(piece)
    except Failure:
        pass  # cut or stalled: the status alone still decides
    return b"".join(pieces)[:MAX_ERROR_BYTES]
