"""Everything that is not the data plane: relayed to the keeper's own site over its Unix socket.

Small answers of the control plane, read whole. The worker only carries them: it adds the headers every answer has, and
decides nothing.
"""

from __future__ import annotations

from lumen_gateway import respond
from lumen_gateway.call import Call
from lumen_gateway.clock import Clock
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.exchange import MAX_ANSWER_BYTES, Transport
from lumen_gateway.records import Origin

PATIENCE_S = 60.0  # an export of many rows takes its time
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"expect",
        b"content-encoding",
    }
)
_OURS = frozenset(
    {
        b"x-request-id",
        b"x-content-type-options",
        b"x-frame-options",
        b"referrer-policy",
        b"content-security-policy",
        b"date",
        b"server",
    }
)


class Elsewhere:
    """The way to the keeper's site."""

    def __init__(self, path: str, transport: Transport, clock: Clock) -> None:
        self._origin = Origin("unix", path, 0)
        self._transport = transport
        self._clock = clock

    async def relay(self, call: Call) -> None:
        """Carry a request over and its answer back. 503 while the keeper does not answer."""
        until = self._clock.monotonic() + PATIENCE_S
        try:
            answer = await self._transport.send(self._origin, _payload(call), until)
            try:
                body = await answer.read_all(MAX_ANSWER_BYTES, until)
            finally:
                answer.close()
        except Failure:
            call.send(
                *respond.failure_answer(Failure(Kind.UNREACHABLE, "the control plane does not answer; try later"))
            )
            return
        call.send(answer.status, b"".join(_lines(answer.headers, _HOP_BY_HOP | _OURS)), body)


def _payload(call: Call) -> bytes:
    """Write the request anew. HEAD goes as GET: the keeper's answer then has its body, and the client gets none."""
    target = call.path.encode("latin-1") + (b"?" + call.query if call.query else b"")
    method = "GET" if call.method == "HEAD" else call.method
    return b"".join(
        (
            b"%b %b HTTP/1.1\r\n" % (method.encode(), target),
            *_lines(call.headers, _HOP_BY_HOP | {b"x-request-id"}),
            b"x-request-id: %b\r\n" % call.request_id.encode(),
            b"content-length: %d\r\n\r\n" % len(call.body),
            call.body,
        )
    )


def _lines(headers: list[tuple[bytes, bytes]], without: frozenset[bytes]) -> list[bytes]:
    return [b"%b: %b\r\n" % (name, value) for name, value in headers if name not in without]
