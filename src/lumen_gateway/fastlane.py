"""The fast lane: a client's connection, from bytes to a `Call` and back.

uvicorn owns the listening sockets and the life of connections; this subclass of its httptools protocol replaces the
ASGI machinery behind it. It collects whole requests within limits of size and time, hands them to a handler one after
the other, and answers what cannot be a request itself. Rules of framing stand in `framing.py`, limits of time in
`patience.py`, how an answer is written in `call.py`.

**Leaving.** A client that closes its connection, or only its sending half (the two look the same from here), has left:
its request's task is cancelled, and with it the upstream call.

**Refusing.** Once something cannot be read one way only, what follows on the connection has no known meaning. Requests
before it are answered in order, then it gets one error, and the connection lingers: our half is closed, what the client
still sends is thrown away for a while, so that the answer arrives before a reset would wipe it out.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import deque
from collections.abc import Coroutine
from typing import Any, NoReturn, Protocol

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lumen_gateway import respond
from lumen_gateway.call import Call
from lumen_gateway.errors import Failure, Kind, invalid
from lumen_gateway.framing import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    decode_body,
    head_bytes,
    head_too_large,
    read_framing,
    too_large,
)
from lumen_gateway.patience import USUAL, Patience, Watch
from lumen_gateway.telemetry import log

LINGER_BYTES = 256 * 1024 * 1024  # a client far over the limit is cut off all the same


class Handler(Protocol):
    """What serves calls: a plain answer at once, or a coroutine to run as the call's task."""

    def serve(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Answer a call whose body is complete."""
        ...

    def finished(self, call: Call) -> None:
        """Take note of an answered call."""
        ...


class LaneSettings:
    """What every connection of a worker shares."""

    def __init__(self, handler: Handler, body_limit: int, patience: Patience = USUAL) -> None:
        self.handler = handler
        self.body_limit = body_limit
        self.patience = patience
        self.watch = Watch(patience.look_s)


class Part(enum.Enum):
    """What of a request is being received."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


_NOTHING, _HEAD, _BODY = Part  # an enum's attribute costs more than a name in Python 3.11


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
        self.serving: Call | None = None
        self.waiting: deque[Call] = deque()  # pipelined behind it
        self.read_by_s = math.inf  # when the client must have sent what it owes
        self.written_by_s = math.inf  # when it must have taken what we owe
        self._unsent_bytes = 0  # at the start of that wait
        # What is being received.
        self._call: Call | None = None  # since its head is complete
        self.url = b""
        self._part = _NOTHING
        self._awaited = _NOTHING  # what `read_by_s` was set for
        self._body: bytes | bytearray = b""
        self._body_bytes = 0  # received when that wait began
        self._encoding = b""  # of the body
        self._chunk_bytes = 0  # of the bytes being parsed
        self._begun_bytes = 0  # of those a head began in
        self._fruitless_bytes = 0  # received since neither head nor body got on
        self._uninvited = False  # an Expect that waits for its turn
        self._refusal: Failure | None = None
        self._deaf = False  # nothing that comes now is read
        self._lingering_bytes: int | None = None  # left to throw away

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request, as long as between two."""
        super().connection_made(transport)
        self.settings.watch.enter(self)
        self.read_by_s = self.loop.time() + self.timeout_keep_alive

    # Bytes in. The parser calls back synchronously; a refusal is raised through it.

    def data_received(self, data: bytes) -> None:
        """Feed the parser; answer what it or our checks refuse."""
        if self._deaf:
            self._throw_away(len(data))
            return
        self._chunk_bytes = len(data)
        self._fruitless_bytes += len(data)
        try:
            self.parser.feed_data(data)
            if self._fruitless_bytes > MAX_HEAD_BYTES and self._part is not _NOTHING:
                raise head_too_large()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(self._refusal or invalid("the request is not well-formed HTTP/1.1"))
        except Failure as failure:
            self._refuse(failure)
        if self._part is not self._awaited:
            self._await_rest()

    def on_message_begin(self) -> None:
        """A request line begins."""
        if self._deaf:
            self._fail(invalid("nothing is read behind the last request of a connection"))
        self.url = b""
        self.headers = []
        self._body = b""
        self._begun_bytes = self._chunk_bytes
        self._fruitless_bytes = 0
        self._part = _HEAD

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header field. Those behind a chunked body are dropped: nothing here means anything that late."""
        if self._part is _HEAD:
            if len(self.headers) >= MAX_FIELDS:
                self._fail(head_too_large())
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check framing and size before the first byte of the body."""
        parser, limit_bytes = self.parser, self.settings.body_limit
        version = parser.get_http_version()
        call = self._call = Call(self, parser.get_method().decode("ascii"), self.url, self.headers)
        if self._begun_bytes + self._fruitless_bytes > MAX_HEAD_BYTES < head_bytes(self.url, self.headers):
            self._fail(head_too_large())
        try:
            framing = read_framing(version, self.url, self.headers, call.fields)
        except Failure as failure:
            self._fail(failure)
        if framing.length > limit_bytes:
            self._fail(too_large(limit_bytes))
        self._part = _BODY
        self._fruitless_bytes = 0
        self._encoding = framing.encoding
        call.chunked = version == "1.1"
        # An upgrade is not offered, so it is ignored; but llhttp reads no further behind the request that asks for it.
        call.keep_alive = call.chunked and parser.should_keep_alive() and not parser.should_upgrade()
        if framing.expects_continue:
            self._uninvited = True
            self._invite()

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body, within the limit. The first stays as it is: most bodies come in one."""
        self._fruitless_bytes = 0
        if len(self._body) + len(body) > self.settings.body_limit:
            self._fail(too_large(self.settings.body_limit))
        if not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        """A whole request is here."""
        call = self._call
        assert call is not None
        call.body = bytes(self._body)
        if self._encoding:
            try:
                call.body = decode_body(call.body, self._encoding, self.settings.body_limit)
            except Failure as failure:
                call.refusal = failure
        self._received(call)

    def _fail(self, failure: Failure) -> NoReturn:
        """Refuse from inside a parser callback: httptools hides what a callback raises, so it is kept here."""
        self._refusal = failure
        raise failure

    def _refuse(self, failure: Failure) -> None:
        """Answer, in its turn, what cannot be a request, and read no further."""
        if self._deaf:
            return  # only what came behind the connection's last request
        call = self._call or Call(self, "", self.url, [])
        call.keep_alive = False
        call.refusal = failure
        self._lingering_bytes = LINGER_BYTES
        self._received(call)

    def _received(self, call: Call) -> None:
        """Serve a call, or queue it behind the one being served."""
        self._call = None
        self._part = self._awaited = _NOTHING
        self._body = b""
        self._deaf = not call.keep_alive
        self._uninvited = False
        call.request_id = respond.request_id(call.header(b"x-request-id"))
        if self.serving is None and not self.waiting and not self.flow.write_paused:
            self.serving = call
            self._serve(call)
            return
        self.waiting.append(call)
        if not self._deaf:
            self.flow.pause_reading()

    def _invite(self) -> None:
        """Ask for the body a client holds back, once no other answer can be under way."""
        if self._uninvited and self.serving is None and not self.waiting:
            self._uninvited = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # A call's life.

    @property
    def paused(self) -> bool:
        """Whether the client reads more slowly than we write."""
        return self.flow.write_paused

    async def drain(self) -> None:
        """Return once the client has room again."""
        await self.flow.drain()

    def _serve(self, call: Call) -> None:
        if self.transport.is_closing():
            return
        try:
            work = None if call.refusal else self.settings.handler.serve(call)
        except Failure as failure:
            call.refusal = failure
        except Exception:  # noqa: BLE001 - the outermost frame of what is answered at once; logged with its traceback
            log.crash(call.request_id)
            call.refusal = Failure(Kind.INTERNAL, "the gateway failed; its log has the details")
        if call.refusal is not None:
            log.refused(call.request_id, call.refusal)
            call.send(*respond.failure_answer(call.refusal, respond.dialect_of(call.path)))
        elif work is not None:
            call.task = self.loop.create_task(work, name=call.request_id)
            self.tasks.add(call.task)
            call.task.add_done_callback(self.tasks.discard)

    def answered(self, call: Call) -> None:
        """An answer is complete: go on with the next request, or wait for one."""
        self.serving = None
        self.settings.handler.finished(call)
        if call.keep_alive:
            self._go_on()
        elif self._lingering_bytes is not None and not self.waiting:
            self._linger()
        else:
            self._close()

    def _go_on(self) -> None:
        if self.waiting:
            if not self.flow.write_paused:
                self.serving = self.waiting.popleft()
                self.loop.call_soon(self._serve, self.serving)  # not at once: many in a row would nest
        else:
            self._invite()
            self._await_rest()
        if not self.waiting:
            self.flow.resume_reading()

    # The clocks.

    def _await_rest(self) -> None:
        """Start the wait for what the client owes: the rest of a request, or the next one."""
        self._awaited = self._part
        self._body_bytes = len(self._body)
        if self._part is _NOTHING:
            wait_s: float = self.timeout_keep_alive
        elif self._part is _HEAD:
            wait_s = self.settings.patience.head_s
        else:
            wait_s = self.settings.patience.body_s
        self.read_by_s = self.loop.time() + wait_s

    def overdue(self, now_s: float) -> None:
        """Deal with a client that has sent or taken too little for too long."""
        patience = self.settings.patience
        if self.written_by_s <= now_s:
            unsent_bytes = self.transport.get_write_buffer_size()
            if self._unsent_bytes - unsent_bytes < patience.rate * patience.write_s:
                self.transport.abort()
                return
            self._await_reader()
        if self.read_by_s > now_s:
            return
        if self.serving is not None or self.waiting or self.paused:
            self.read_by_s = math.inf  # it waits for us, or is busy with an answer; what follows sets the next wait
        elif self._part is _NOTHING:
            self._close()
        elif self._part is _BODY and len(self._body) - self._body_bytes >= patience.rate * patience.body_s:
            self._await_rest()
        else:
            self._refuse(Failure(Kind.REQUEST_TIMEOUT, "the request did not arrive in time; send it again"))

    def _await_reader(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self.written_by_s = self.loop.time() + self.settings.patience.write_s

    def pause_writing(self) -> None:
        """The client has enough for now."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """The client has room again."""
        super().resume_writing()
        self.written_by_s = math.inf
        if self.serving is None and (self.waiting or not self._deaf):
            self._go_on()

    # The connection's end.

    def eof_received(self) -> None:
        """The client has left, or sends no more and looks the same: asyncio closes what remains."""
        self._abandon()
        self._await_reader()

    def _abandon(self) -> None:
        """Stop working for a client that has left."""
        call, self.serving = self.serving, None
        self.waiting.clear()
        if call is None:
            return
        call.left = True
        if call.task is not None:
            self.loop.call_soon(call.task.cancel)  # behind its first step: a task that never ran leaves no record

    def _linger(self) -> None:
        """Close our half; the client's stays open for a while, so that nothing it still sends resets the connection."""
        self.read_by_s = self.loop.time() + self.settings.patience.linger_s
        self.flow.resume_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()

    def _throw_away(self, size_bytes: int) -> None:
        if self._lingering_bytes is not None:
            self._lingering_bytes -= size_bytes
            if self._lingering_bytes < 0:
                self._close()

    def _close(self) -> None:
        """Close once everything is sent, or the client has had its time to take it."""
        if self.transport.is_closing():
            return
        self.read_by_s = math.inf
        self._await_reader()
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The connection is gone, whoever ended it."""
        self.connections.discard(self)
        self.settings.watch.leave(self)
        self._abandon()
        self.flow.resume_writing()
        self.parser = None  # type: ignore[assignment]  # breaks the cycle with its callbacks, as uvicorn does

    def shutdown(self) -> None:
        """The server drains, and says so again and again: close when idle, else after what is under way."""
        if self.serving is not None:
            self.serving.keep_alive = False
        elif self._part is _NOTHING:
            self._close()
