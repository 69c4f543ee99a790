"""The fast lane: a client's connection, from bytes to a `Call` and back.

uvicorn owns the listening sockets and the life of connections; this subclass of its httptools protocol replaces the
ASGI machinery behind it. It refuses ambiguous framing and oversize input before anything else looks at them (httptools
lets repeated Host fields, 10,000 header fields and a transfer coding before `chunked` through), collects the body, and
hands whole requests to a handler. A client that leaves cancels the handler's task, and with it the upstream call.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lumen_gateway import respond
from lumen_gateway.errors import Failure, Kind, invalid

MAX_HEAD_BYTES = 16 * 1024  # h11's own limit for a whole head
MAX_FIELDS = 100
STALLED_WRITE_S = 30.0
_HEAD_TOO_LARGE = Failure(
    Kind.HEADERS_TOO_LARGE, f"the request's headers exceed {MAX_FIELDS} fields or {MAX_HEAD_BYTES} bytes"
)
_LOOSE_FIELDS = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect", b"content-encoding"})


class Call:
    """One client request, whole, and the way to answer it.

    Answer with `send`, or with `start`, `write` and `drain` as often as needed, then `finish`.
    """

    __slots__ = (
        "_lane", "_unsent", "body", "chunked", "complete", "content_encoding", "headers", "keep_alive", "last_write_s",
        "method", "path", "query", "received_s", "request_id", "started", "status", "task", "template",
    )  # fmt: skip

    def __init__(self, lane: FastLane, method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._lane = lane
        self._unsent = b""
        self.method = method
        path, _, query = target.partition(b"?")
        self.path = path.decode("latin-1")
        self.query = query
        self.headers = headers
        self.body = b""
        self.content_encoding = b""
        self.request_id = ""
        self.template = "unmatched"  # route template, for metrics
        self.chunked = True
        self.keep_alive = True
        self.started = False
        self.complete = False
        self.status = 0
        self.received_s = lane.loop.time()
        self.last_write_s = self.received_s
        self.task: asyncio.Task[None] | None = None

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        return self._lane.flow.write_paused

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header by its lower-case name."""
        for field, value in self.headers:
            if field == name:
                return value
        return None

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. `headers` are complete lines, without framing."""
        self.status = status
        self.started = True
        framing = b"content-length: %d\r\n%b\r\n" % (len(body), b"" if self.keep_alive else b"connection: close\r\n")
        self._lane.transport.write(respond.head(status, self.request_id, headers) + framing + body)
        self._lane.answered(self)

    def start(self, status: int, headers: bytes) -> None:
        """Open a streamed answer; its head goes out with the first write."""
        self.status = status
        self.started = True
        framing = b"transfer-encoding: chunked\r\n" if self.chunked else b""
        framing += b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._unsent = respond.head(status, self.request_id, headers) + framing

    def write(self, data: bytes) -> None:
        """Send a piece of a streamed answer."""
        if not data or self.complete:
            return
        piece = b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data
        if self._unsent:
            piece, self._unsent = self._unsent + piece, b""
        self.last_write_s = self._lane.loop.time()
        self._lane.transport.write(piece)

    async def drain(self) -> None:
        """Return once the client has room again.

        Raises: Failure CLIENT_LEFT when it has not read for half a minute; the connection is then cut.
        """
        flow = self._lane.flow
        if not flow.write_paused:
            return
        try:
            async with asyncio.timeout(STALLED_WRITE_S):
                await flow.drain()
        except TimeoutError:
            self._lane.transport.abort()
            raise Failure(Kind.CLIENT_LEFT, "the client stopped reading") from None

    def finish(self) -> None:
        """End a streamed answer properly."""
        if self.complete:
            return
        end = b"0\r\n\r\n" if self.chunked else b""
        if self._unsent or end:
            self._lane.transport.write(self._unsent + end)
            self._unsent = b""
        self._lane.answered(self)

    def abort(self) -> None:
        """Cut the connection: the answer cannot be ended properly."""
        self._lane.transport.abort()


class Handler(Protocol):
    """What serves calls: a plain answer at once, or a coroutine to run as the call's task."""

    def serve(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Answer a call whose body is complete."""
        ...

    def finished(self, call: Call) -> None:
        """Take note of an answered call."""
        ...


class LaneSettings:
    """What every connection of a worker shares. One object, so that a reload is one assignment."""

    def __init__(self, handler: Handler, body_limit: int) -> None:
        self.handler = handler
        self.body_limit = body_limit


class FastLane(HttpToolsProtocol):
    """One client connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: LaneSettings,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.settings = settings
        self.call: Call | None = None  # being received
        self.serving: Call | None = None
        self.waiting: deque[Call] = deque()  # pipelined behind it
        self._refusal: Failure | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0  # received of a head that is not complete
        self._field_bytes = 0  # of the fields seen in it
        self._in_head = True

    # Bytes in. The parser calls back synchronously; a refusal is raised through it.

    def data_received(self, data: bytes) -> None:
        """Feed the parser; answer what it or our checks refuse, then close."""
        self._unset_keepalive_if_required()
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
            if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
                raise _HEAD_TOO_LARGE
        except httptools.HttpParserUpgrade:
            self._refuse(invalid("protocol upgrades are not offered here; send a plain HTTP/1.1 request"))
        except httptools.HttpParserError:
            self._refuse(self._refusal or invalid("the request is not well-formed HTTP/1.1"))
        except Failure as failure:
            self._refuse(failure)

    def on_message_begin(self) -> None:
        """A request line begins."""
        self.url = b""
        self.headers = []
        self._body = []
        self._body_bytes = 0
        self._field_bytes = 0
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header field, within limits."""
        self._field_bytes += len(name) + len(value) + 4
        if len(self.headers) >= MAX_FIELDS or self._field_bytes + len(self.url) > MAX_HEAD_BYTES:
            self._fail(_HEAD_TOO_LARGE)
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check framing and size before the first byte of the body."""
        self._in_head = False
        self._head_bytes = 0
        call = Call(self, self.parser.get_method().decode("ascii"), self.url, self.headers)
        self.call = call
        version = self.parser.get_http_version()
        call.chunked = version == "1.1"
        call.keep_alive = call.chunked and self.parser.should_keep_alive()
        fields = [field for field in self.headers if field[0] in _LOOSE_FIELDS]
        _check_framing(fields, version, self._fail)
        for name, value in fields:
            if name == b"content-length" and int(value) > self.settings.body_limit:
                self._fail(_too_large(self.settings.body_limit))
            elif name == b"content-encoding":
                call.content_encoding = value.strip().lower()
            elif name == b"expect" and version == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body, within the limit."""
        self._body_bytes += len(body)
        if self._body_bytes > self.settings.body_limit:
            self._fail(_too_large(self.settings.body_limit))
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A whole request is here: serve it, or queue it behind the one being served."""
        call = self.call
        assert call is not None
        self.call = None
        call.body = b"".join(self._body)
        self._body = []
        call.request_id = respond.request_id(call.header(b"x-request-id"))
        if self.serving is None:
            self._serve(call)
        else:
            self.waiting.append(call)
            self.flow.pause_reading()

    def _fail(self, failure: Failure) -> None:
        """Refuse from inside a parser callback: httptools hides what a callback raises, so it is kept here."""
        self._refusal = failure
        raise failure

    # A call's life.

    def _serve(self, call: Call) -> None:
        self.serving = call
        try:
            if call.content_encoding not in {b"", b"identity"}:
                call.body = _decoded(call, self.settings.body_limit)
            work = self.settings.handler.serve(call)
        except Failure as failure:
            call.send(*respond.failure_answer(failure))
            return
        if work is not None:
            call.task = self.loop.create_task(work, name=call.request_id)
            self.tasks.add(call.task)
            call.task.add_done_callback(self.tasks.discard)

    def answered(self, call: Call) -> None:
        """An answer is complete: go on with the next request, or wait for one."""
        call.complete = True
        self.serving = None
        self.settings.handler.finished(call)
        if self.transport.is_closing():
            return
        if not call.keep_alive:
            self.transport.close()
        elif self.waiting:
            following = self.waiting.popleft()
            if not self.waiting:
                self.flow.resume_reading()
            self.loop.call_soon(self._serve, following)
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _refuse(self, failure: Failure) -> None:
        """Answer what cannot be a request and close: what follows on this connection has no known meaning.

        A request being served is still answered first; the connection then closes without a word on what came behind
        it.
        """
        self.waiting.clear()
        if self.serving is not None:
            self.serving.keep_alive = False
            self.flow.pause_reading()
            return
        call = self.call or Call(self, "", self.url, [])
        call.request_id = respond.request_id(None)
        call.keep_alive = False
        call.send(*respond.failure_answer(failure))

    # The connection's end.

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The client is gone: stop working for it."""
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        self.waiting.clear()
        self.flow.resume_writing()
        if self.serving is not None and self.serving.task is not None:
            self.serving.task.cancel()
        self.parser = None  # type: ignore[assignment]  # breaks the cycle with its callbacks, as uvicorn does

    def shutdown(self) -> None:
        """The server drains: close when idle, else after the answer in progress."""
        if self.serving is None:
            self.transport.close()
        else:
            self.serving.keep_alive = False


def _too_large(limit_bytes: int) -> Failure:
    return Failure(
        Kind.BODY_TOO_LARGE, f"the request body exceeds the limit of {limit_bytes} bytes (server.body_limit)"
    )


def _check_framing(fields: list[tuple[bytes, bytes]], version: str, fail: Callable[[Failure], None]) -> None:
    """Refuse what two readers could frame differently. RFC 9112 6.1 and 6.3; stricter: `chunked` alone, plain digits.

    llhttp has already refused a length beside a transfer coding.
    """
    names = [name for name, _ in fields]
    for name, value in fields:
        if name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
            fail(invalid("the only transfer encoding accepted is chunked, on HTTP/1.1"))
        elif name == b"content-length" and not value.isdigit():
            fail(invalid("content-length must be plain digits"))
        elif name == b"expect" and value.lower() != b"100-continue":
            fail(invalid("the only expectation accepted is 100-continue"))
    if names.count(b"content-length") > 1 or names.count(b"transfer-encoding") > 1:
        fail(invalid("the length of the body is stated more than once"))
    if names.count(b"host") != 1 and version == "1.1":
        fail(invalid("HTTP/1.1 requires exactly one host header"))


def _decoded(call: Call, limit_bytes: int) -> bytes:
    """Return a gzip body decoded, within the limit after decoding."""
    if call.content_encoding != b"gzip":
        raise Failure(Kind.UNSUPPORTED_ENCODING, "request bodies may be sent plain or with content-encoding: gzip only")
    decoder = zlib.decompressobj(wbits=31)
    try:
        body = decoder.decompress(call.body, limit_bytes + 1)
    except zlib.error as exc:
        raise invalid("the body is not valid gzip") from exc
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    if not decoder.eof or decoder.unused_data:
        raise invalid("the gzip body is cut short or followed by other bytes")
    return body
