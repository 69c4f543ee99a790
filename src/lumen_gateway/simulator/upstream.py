"""A scripted HTTP/1.1 upstream on a loopback socket: plays replies, records calls.

Used by the tests, by `lumen upstream` and by `lumen demo`. It reads requests properly and writes exactly the bytes a
`Reply` asks for, wrong ones included. A delayed or faulty reply is one task, owned by its connection; a plain one is
written at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Literal, NamedTuple, Self, cast

import httptools

from lumen_gateway.simulator.reply import Answering, Call, Replies, Reply, error

ANY = "*"


class Transcript(NamedTuple):
    """What a reply does on the wire: pauses and writes in order, then how it ends."""

    writes: list[tuple[float, bytes]]
    end: Literal["keep", "reset", "end", "hang"]


def transcript(reply: Reply) -> Transcript:
    """Lay a reply out as writes: first the whole answer, then broken off where it stops, then cut into pieces."""
    writes = _whole(reply)
    if reply.stop_after_bytes is not None and reply.stop is not None:
        writes = _broken_off(writes, reply.stop_after_bytes)
    if reply.bytes_per_write is not None:
        writes = [piece for write in writes for piece in _cut(write, reply.bytes_per_write)]
    if reply.stop is not None:
        return Transcript(writes, reply.stop)
    return Transcript(writes, "end" if reply.framing == "close" else "keep")


def _whole(reply: Reply) -> list[tuple[float, bytes]]:
    if reply.raw is not None:
        return [(reply.delay_s, reply.raw)]
    framing = reply.framing or ("content-length" if reply.frames is None else "chunked")
    frames = reply.frames if reply.frames is not None else (reply.body,)
    head = _head(reply, framing, sum(map(len, frames)))
    if framing == "chunked":
        frames = tuple(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames if frame)
    writes = [(reply.frame_delay_s if index else 0.0, frame) for index, frame in enumerate(frames)]
    if framing == "chunked" and (reply.stop is None or reply.stop_after_bytes is not None):
        writes.append((0.0, b"0\r\n\r\n"))
    if reply.frames is None and writes:
        return [(reply.delay_s, head + writes[0][1]), *writes[1:]]
    return [(reply.delay_s, head), *writes]


def _head(reply: Reply, framing: str, length: int) -> bytes:
    try:
        reason = HTTPStatus(reply.status).phrase
    except ValueError:
        reason = "Scripted"
    lines = [f"HTTP/1.1 {reply.status} {reason}", *(f"{name}: {value}" for name, value in reply.headers)]
    given = {name.lower() for name, _ in reply.headers}
    bodiless = reply.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
    if not bodiless and not given & {"content-length", "transfer-encoding"}:
        if framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif framing == "content-length":
            lines.append(f"content-length: {length}")
    if framing == "close" and "connection" not in given:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _broken_off(writes: list[tuple[float, bytes]], limit_bytes: int) -> list[tuple[float, bytes]]:
    kept: list[tuple[float, bytes]] = []
    for delay_s, data in writes:
        if limit_bytes <= 0:
            break
        kept.append((delay_s, data[:limit_bytes]))
        limit_bytes -= len(data)
    return kept


def _cut(write: tuple[float, bytes], size: int) -> list[tuple[float, bytes]]:
    delay_s, data = write
    return [(0.0 if start else delay_s, data[start : start + size]) for start in range(0, len(data), size)]


class Upstream:
    """A scripted upstream; `async with Upstream(replies) as up` serves on `up.port` of a loopback address.

    `replies` is one reply for every call, a sequence (the n-th call gets the n-th, the last repeats), or a mapping with
    paths (`/v1/...`), models, or `*` for the rest as keys; a model's entry goes before its path's. Each entry counts
    its own calls. A call that nothing is scripted for gets a 404. A function in place of a reply gets the call.
    """

    def __init__(
        self,
        replies: Replies,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.connections = 0  # accepted so far
        self.host = host
        self.port = port
        self._tls = tls
        self._on_call = on_call
        self._script = _by_key(replies)
        self._played: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._news = asyncio.Event()  # a call came in, or a connection closed

    @property
    def url(self) -> str:
        """Base of every path served, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections open now."""
        return len(self._open)

    async def start(self) -> None:
        """Listen; `port` then holds the real port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, drop every connection, and return when their tasks are done."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.drop() for connection in tuple(self._open)))
        if self._server is not None:
            await self._server.wait_closed()

    async def called(self, count: int = 1) -> Call:
        """Return the count-th call once it is here."""
        while len(self.calls) < count:
            await self._wait_news()
        return self.calls[count - 1]

    async def deserted(self) -> None:
        """Return once no connection is open."""
        while self._open:
            await self._wait_news()

    async def _wait_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def drop_connections(self) -> None:
        """Close every connection now, idle ones included, and go on listening."""
        for connection in tuple(self._open):
            connection.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def opened(self, connection: _Connection) -> None:
        """Count a connection."""
        self.connections += 1
        self._open.add(connection)

    def lost(self, connection: _Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        self._news.set()

    def answer(self, call: Call) -> Reply:
        """Record a call and pick its reply."""
        self.calls.append(call)
        self._news.set()
        reply = self._pick(call)
        call.status = reply.status
        if self._on_call is not None:
            self._on_call(call)
        return reply

    def _pick(self, call: Call) -> Reply:
        for key in (call.field("model"), call.path.partition("?")[0], ANY):
            if isinstance(key, str) and key in self._script:
                sequence = self._script[key]
                turn = self._played.get(key, 0)
                self._played[key] = turn + 1
                answering = sequence[min(turn, len(sequence) - 1)]
                return answering if isinstance(answering, Reply) else answering(call)
        return error(404, "no_reply", "no reply is scripted for this call")


def _by_key(replies: Replies) -> dict[str, Sequence[Answering]]:
    if not isinstance(replies, Mapping):
        replies = {ANY: replies}
    script: dict[str, Sequence[Answering]] = {}
    for key, entry in replies.items():
        sequence = (entry,) if isinstance(entry, Reply) or callable(entry) else tuple(entry)
        if not sequence:
            raise ValueError(f"no reply for {key!r}: an entry holds at least one")
        script[key] = sequence
    return script


class _Connection(asyncio.Protocol):
    """One client connection: reads a request, plays its reply, reads the next."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._call: Call | None = None
        self._playing: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Writable means: the kernel has every byte. A TLS transport pauses at the mark, a plain one above it.
        self._transport.set_write_buffer_limits(high=1 if transport.get_extra_info("ssl_object") else 0, low=0)
        self._upstream.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        if self._call is not None and not self._call.over.is_set():
            self._call.peer_closed_at = self._loop.time()
            self._call.over.set()
        if self._playing is not None:
            self._playing.cancel()
        self._upstream.lost(self)
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        call = Call(
            method=self._parser.get_method().decode(),
            path=self._url.decode("latin-1"),
            headers=self._headers,
            body=b"".join(self._body),
            at=self._loop.time(),
        )
        self._call = call
        reply = self._upstream.answer(call)
        plan = transcript(reply)
        if plan.end == "keep" and len(plan.writes) == 1 and plan.writes[0][0] == 0.0:
            self._transport.write(plan.writes[0][1])
            call.over.set()
        else:
            self._playing = self._loop.create_task(self._play(plan, call), name="simulator reply")

    async def _play(self, plan: Transcript, call: Call) -> None:
        for delay_s, data in plan.writes:
            await asyncio.sleep(delay_s)  # a delay of nothing still ends the loop's turn: pieces leave one by one
            await self._writable.wait()
            self._transport.write(data)
        await self._end(plan.end)
        call.over.set()

    async def _end(self, how: Literal["keep", "reset", "end", "hang"]) -> None:
        if how == "hang":
            await self._lost.wait()
        await self._writable.wait()
        if how == "reset":
            self._reset()
        elif how == "end":
            self._transport.close()

    def _reset(self) -> None:
        """Close with RST: with a linger time of zero the kernel sends no FIN."""
        with contextlib.suppress(OSError):  # the peer may be gone already
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def abort(self) -> None:
        """Drop the connection now."""
        self._transport.abort()

    async def drop(self) -> None:
        """Drop the connection and return when nothing of it runs any more."""
        self._transport.abort()
        await self._lost.wait()
        if self._playing is not None:
            await asyncio.wait([self._playing])
