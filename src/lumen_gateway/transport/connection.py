"""One socket to an upstream: writes a request, parses what comes back, tells how it ended.

The parser is httptools (llhttp), which refuses a bad status line, header, length or chunk by itself. What it lets pass
and we do not is refused here: HTTP versions other than 1.0 and 1.1, transfer codings other than a lone `chunked`, any
on 1.0, switching protocols, endless interim answers, heads or framing without measure. Source: RFC 9112, 6 and 7.

An exchange costs one write, one future and no timer: a connection keeps one timer, which looks at the current deadline
when it fires and is moved only for a deadline earlier than the one it is set to.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.transport.answer import Answer

HEAD_LIMIT_BYTES = 65_536
HEAD_LIMIT_FIELDS = 200
INTERIM_LIMIT = 16
HELD_UP_S = 0.1  # a timer this late tells of a loop that stood still: no upstream is to blame for that
AGAIN_S = 0.01  # for the socket to be read before the timer looks
_SLICE_BYTES = 262_144  # a request up to this size is one write; the socket's own buffer holds about as much

_NOTED = frozenset((b"content-length", b"transfer-encoding", b"content-encoding"))


class Dropped(Failure):
    """The connection was gone before the first byte of an answer. On a reused one the request may be sent once more."""


class _RefusedError(Exception):
    """Raised in a parser's callback: the parser takes it for bad. The text says why."""


class Owner(Protocol):
    """Who keeps connections between exchanges."""

    def keep(self, connection: Connection) -> None:
        """Take a connection that is ready for its next exchange."""
        ...

    def opened(self, connection: Connection) -> None:
        """Learn of a new connection."""
        ...

    def lost(self, connection: Connection) -> None:
        """Learn that a connection is closed."""
        ...


class Connection(asyncio.Protocol):
    """One exchange at a time; between two it belongs to its owner."""

    _unproductive_bytes: int  # received since the last byte of a body
    _delimited: bool  # the head says where the body ends

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, origin: Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0  # set by the owner
        self._loop = loop
        self._owner = owner
        self._transport = cast(asyncio.Transport, None)  # set before anyone can use it
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._writing = False
        self._write_paused = False
        self._read_paused = False
        self._reset_head()

    async def exchange(self, payload: bytes, until: float) -> Answer:
        """Send a request and return its answer as soon as the head is in.

        Raises: Failure: Dropped, UNREACHABLE, FIRST_TOKEN_TIMEOUT, MALFORMED. The connection is then closed.
        """
        if self._transport.is_closing():
            raise Dropped(Kind.UNREACHABLE, "the upstream closed the connection")
        answer = self._answer = Answer(self, self._loop)
        self._reset_head()
        if len(payload) <= _SLICE_BYTES:
            self._transport.write(payload)
        else:
            await self._write_slices(payload, answer, until)
        await answer.wait_head(until)
        return answer

    async def _write_slices(self, payload: bytes, answer: Answer, until: float) -> None:
        """Write no faster than the peer reads, and stop when it has made up its mind already."""
        self._writing = True
        view = memoryview(payload)
        for start in range(0, len(view), _SLICE_BYTES):
            self._transport.write(view[start : start + _SLICE_BYTES])
            while self._write_paused and not answer.is_settled:
                await answer.wait_settling(until)
            if answer.is_settled:
                return  # `_writing` stays set: a request half sent makes the connection unfit for another
        self._writing = False

    # Called by the answer.

    def wake_at(self, until: float) -> None:
        """Have `_on_timer` look at the answer no later than `until`."""
        if self._timer is not None:
            if self._timer_at <= until:
                return
            self._timer.cancel()
        self._timer_at = until
        self._timer = self._loop.call_at(until, self._on_timer)

    def pause_reading(self) -> None:
        """Leave bytes in the socket, so that the peer has to wait."""
        self._read_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the socket again."""
        self._read_paused = False
        self._transport.resume_reading()

    def close(self) -> None:
        """Close the socket at once. An answer under way fails, unless it knows of a better reason already."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.fail(Failure(Kind.ENDED_EARLY, "the answer was closed before its end"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()

    def _on_timer(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        now = self._loop.time()
        if now - self._timer_at > HELD_UP_S:  # we were; libuv runs timers first, and what has arrived lies unread
            self.wake_at(now + AGAIN_S)
            return
        later = self._answer.look(now)
        if later is not None:
            self.wake_at(later)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin life."""
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End life; a reset comes as an exception."""
        self._end(reset=exc is not None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._owner.lost(self)

    def eof_received(self) -> None:
        """Close with the peer. Left to the transport, closing would wait for unsent bytes nobody wants."""
        self._end(reset=False)
        self._transport.abort()

    def pause_writing(self) -> None:
        """Note that the peer is behind."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Let the writer go on."""
        self._write_paused = False
        if self._answer is not None:
            self._answer.wake()

    def data_received(self, data: bytes) -> None:
        """Parse, then tell the answer."""
        answer = self._answer
        if answer is None:
            self.close()  # bytes nobody asked for
            return
        if answer.first_byte_at == 0.0:
            answer.first_byte_at = self._loop.time()
        self._unproductive_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._parsing_failed(answer, exc)
            return
        if self._message_over:
            self._release(answer)
        elif self._unproductive_bytes > HEAD_LIMIT_BYTES:
            self._refuse(answer, "the upstream's answer is not valid HTTP: its header or framing is too large")
        else:
            answer.wake()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Notice an answer after the answer."""
        if self._message_over:
            raise _RefusedError("data after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer is nothing to us."""
        answer = self._answer
        assert answer is not None
        if answer.has_head:
            return
        headers = answer.headers
        if len(headers) == HEAD_LIMIT_FIELDS:
            raise _RefusedError("its header has too many fields")
        name = name.lower()
        value = value.rstrip(b" \t")  # the parser leaves it, RFC 9110 section 5.5 does not
        headers.append((name, value))
        if name in _NOTED:
            self._note(answer, name, value)

    def _note(self, answer: Answer, name: bytes, value: bytes) -> None:
        """Remember what the head says about its body, and refuse what could be read in two ways."""
        if name == b"content-length":
            self._delimited = True
        elif name == b"transfer-encoding":
            if self._delimited or value.lower() != b"chunked":
                raise _RefusedError("a transfer encoding other than chunked")
            self._delimited = self._chunked = True
        elif answer.content_encoding is not None:
            raise _RefusedError("more than one content encoding")
        elif value.lower() not in (b"", b"identity"):
            answer.content_encoding = value

    def on_headers_complete(self) -> None:
        """Tell a final head from an interim one."""
        answer = self._answer
        assert answer is not None
        status = self._parser.get_status_code()
        version = self._parser.get_http_version()
        if status == 101 or status < 100:
            raise _RefusedError("a status that ends no HTTP answer")
        if version != "1.1" and (version != "1.0" or self._chunked):
            raise _RefusedError("an HTTP version that is not spoken here")
        if self._unproductive_bytes > HEAD_LIMIT_BYTES:  # at most: some of these bytes may follow the head
            self._measure(answer)
        if status >= 200:
            answer.begin(status)
            return
        self._interim += 1
        if self._interim > INTERIM_LIMIT:
            raise _RefusedError("too many interim answers")

    def _measure(self, answer: Answer) -> None:
        if sum(len(name) + len(value) for name, value in answer.headers) > HEAD_LIMIT_BYTES:
            raise _RefusedError("its header is too large")

    def on_body(self, data: bytes) -> None:
        """Pass a piece of the body on."""
        self._unproductive_bytes = 0
        assert self._answer is not None
        self._answer.take(data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, or start over after an interim one."""
        answer = self._answer
        assert answer is not None
        if answer.has_head:
            self._message_over = True
            self._reusable = self._parser.should_keep_alive()
            return
        answer.headers.clear()
        answer.content_encoding = None
        self._delimited = self._chunked = False

    # Inside.

    def _reset_head(self) -> None:
        self._interim = 0
        self._unproductive_bytes = 0
        self._delimited = False
        self._chunked = False
        self._message_over = False
        self._reusable = False

    def _release(self, answer: Answer) -> None:
        self._answer = None
        answer.finish()
        if not self._reusable or self._writing:
            self.close()
            return
        if self._read_paused:
            self.resume_reading()
        self._owner.keep(self)

    def _parsing_failed(self, answer: Answer, exc: Exception) -> None:
        if self._message_over:  # the answer is whole, what follows it is not ours
            self._reusable = False
            self._release(answer)
            return
        cause = exc.__context__
        if isinstance(exc, httptools.HttpParserCallbackError) and not isinstance(cause, _RefusedError):
            raise exc  # a fault of ours
        reason = str(cause if isinstance(cause, _RefusedError) else exc)
        self._refuse(answer, f"the upstream's answer is not valid HTTP: {reason or type(exc).__name__}")

    def _refuse(self, answer: Answer, message: str) -> None:
        answer.fail(Failure(Kind.MALFORMED, message))
        self.close()

    def _end(self, *, reset: bool) -> None:
        """Judge an end by what was still due: a FIN ends a body without a length, and cuts any other short.

        Over TLS the event loops do not tell a close notice from a bare FIN, and many servers send no notice: who reads
        a body without a length checks that what it holds is complete.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            return
        how = "was reset" if reset else "was closed"
        if answer.has_head and not self._delimited and not reset:
            answer.finish()
        elif answer.has_head:
            answer.fail(Failure(Kind.ENDED_EARLY, f"the connection {how} before the answer was complete"))
        elif answer.first_byte_at:
            answer.fail(Failure(Kind.UNREACHABLE, f"the connection {how} before the answer's head was complete"))
        else:
            answer.fail(Dropped(Kind.UNREACHABLE, f"the connection {how} before an answer"))
