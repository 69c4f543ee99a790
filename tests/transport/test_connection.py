"""What comes back on one socket is read the same however it is cut, and every bad end is a failure of the right kind.

The peer here is a list of byte strings fed straight to the protocol: no socket, no waiting.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.transport.answer import HIGH_WATER_BYTES, Answer
from lumen_gateway.transport.connection import HEAD_LIMIT_BYTES, HEAD_LIMIT_FIELDS, INTERIM_LIMIT, Connection, Dropped

LATER_S = 20.0  # never reached; a fault shows as a failure then, not as a hanging test
LIMIT_BYTES = 1_000_000
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"

WHOLE = {
    "length": (OK + b"Content-Type: text/plain\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "chunked": (CHUNKED + b"2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\n\r\n", b"hello"),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\ncontent-type: x\r\nx: y\r\n\r\n", b"hello"),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\ncontent-length: 9\r\n\r\n"
        + OK
        + b"content-length: 5\r\n\r\nhello",
        b"hello",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b""),
    "empty": (OK + b"content-length: 0\r\n\r\n", b""),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    "identity": (OK + b"content-encoding: identity\r\ncontent-length: 2\r\n\r\nok", b"ok"),
}
"""Answers that end by themselves and leave the connection open."""

CLOSING = {
    "connection: close": (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    "answer after the answer": (OK + b"content-length: 2\r\n\r\nok" + OK, b"ok"),
    "garbage after the answer": (OK + b"content-length: 2\r\n\r\nok\xff", b"ok"),
    "data after close": (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nokHTTP/1.1", b"ok"),
}
"""Answers that are whole, but whose connection must not be used again."""

UNTIL_CLOSE = OK + b"content-type: text/plain\r\n\r\nhello"

MALFORMED = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "garbage": b"\xff\xfe\x00\x01",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "status of two digits": b"HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok",
    "status of four digits": b"HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nok",
    "status below 100": b"HTTP/1.1 099 No\r\ncontent-length: 2\r\n\r\nok",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "both lengths": OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "both lengths, turned": OK + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nokk",
    "the same length twice": OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok",
    "list of lengths": OK + b"content-length: 2, 2\r\n\r\nok",
    "signed length": OK + b"content-length: +2\r\n\r\nok",
    "negative length": OK + b"content-length: -2\r\n\r\nok",
    "hex length": OK + b"content-length: 0x2\r\n\r\nok",
    "no length after the colon": OK + b"content-length:\r\n\r\nok",
    "endless length": OK + b"content-length: 99999999999999999999999\r\n\r\nok",
    "gzip, chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "gzip transfer": OK + b"transfer-encoding: gzip\r\n\r\nok",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked on 1.0": b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "bad chunk size": CHUNKED + b"zz\r\nok\r\n0\r\n\r\n",
    "signed chunk size": CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
    "endless chunk size": CHUNKED + b"fffffffffffffffffffff\r\nok",
    "space after chunk size": CHUNKED + b"2 \r\nok\r\n0\r\n\r\n",
    "garbage after chunk": CHUNKED + b"2\r\nokXX\r\n0\r\n\r\n",
    "line feed in chunk extension": CHUNKED + b"2;a=\nb\r\nok\r\n0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    "bare carriage return in value": OK + b"x: a\rb\r\ncontent-length: 2\r\n\r\nok",
    "zero byte in value": OK + b"x: a\0b\r\ncontent-length: 2\r\n\r\nok",
    "folded value": OK + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\nok",
    "space before colon": OK + b"content-length : 2\r\n\r\nok",
    "no colon": OK + b"content-length 2\r\n\r\nok",
    "two content encodings": OK + b"content-encoding: gzip\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
    "endless interim answers": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000,
    "too many fields": OK + b"".join(b"x-%d: y\r\n" % n for n in range(10_000)) + b"content-length: 0\r\n\r\n",
    "one field too large": OK + b"x: " + b"y" * 1_048_576 + b"\r\ncontent-length: 0\r\n\r\n",
    "endless reason": b"HTTP/1.1 200 " + b"O" * 1_048_576,
    "endless trailers": CHUNKED + b"0\r\n" + b"x: y\r\n" * 100_000,
    "endless trailer": CHUNKED + b"0\r\nx: " + b"y" * 1_048_576,
    "endless chunk extension": CHUNKED + b"1;" + b"y" * 1_048_576,
}


class FakeTransport(asyncio.Transport):
    """Keeps what is written and what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Peer:
    """One connection, owned by this test, and the other end of its wire."""

    def __init__(self) -> None:
        self.kept: list[Connection] = []
        self.connection = Connection(asyncio.get_running_loop(), self, Origin("http", "a.test", 80))
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    def keep(self, connection: Connection) -> None:
        self.kept.append(connection)

    def opened(self, connection: Connection) -> None:
        pass

    def lost(self, connection: Connection) -> None:
        pass

    def ask(self, payload: bytes = b"GET") -> asyncio.Task[Answer]:
        """Start an exchange."""
        loop = asyncio.get_running_loop()
        return loop.create_task(self.connection.exchange(payload, loop.time() + LATER_S), name="exchange")

    def feed(self, *pieces: bytes) -> None:
        """Deliver pieces one after the other, as a transport does: none after it was closed."""
        for piece in pieces:
            if piece and not self.transport.aborted:
                self.connection.data_received(piece)

    def fin(self) -> None:
        """End the stream, as a transport does."""
        if not self.transport.aborted:
            self.connection.eof_received()
        self.connection.connection_lost(None)

    def rst(self) -> None:
        """Reset the connection."""
        self.connection.connection_lost(ConnectionResetError())


async def body_of(task: asyncio.Task[Answer]) -> bytes:
    answer = await task
    return await answer.read_all(LIMIT_BYTES, asyncio.get_running_loop().time() + LATER_S)


async def receive(*pieces: bytes) -> tuple[Peer, bytes]:
    """Return what an exchange reads when the peer sends these pieces, one per turn of the loop."""
    peer = Peer()
    task = asyncio.get_running_loop().create_task(body_of(peer.ask()), name="reader")
    await asyncio.sleep(0)
    for piece in pieces:
        await asyncio.sleep(0)
        peer.feed(piece)
    return peer, await task


async def failure_of(peer: Peer, task: asyncio.Task[Answer]) -> Failure:
    with pytest.raises(Failure) as caught:
        await body_of(task)
    assert peer.transport.aborted
    assert peer.kept == []
    return caught.value


@pytest.mark.parametrize(("sent", "body"), WHOLE.values(), ids=WHOLE)
async def test_answer_reads_the_same_at_every_split(sent: bytes, body: bytes) -> None:
    for at in range(len(sent) + 1):
        peer, read = await receive(sent[:at], sent[at:])
        assert read == body
        assert peer.kept == [peer.connection]
        assert not peer.transport.aborted
    _, read = await receive(*(sent[at : at + 1] for at in range(len(sent))))
    assert read == body


@pytest.mark.parametrize(("sent", "body"), CLOSING.values(), ids=CLOSING)
async def test_connection_of_a_doubtful_answer_is_not_used_again(sent: bytes, body: bytes) -> None:
    peer, read = await receive(sent)
    assert read == body
    assert peer.kept == []
    assert peer.transport.aborted


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_bad_framing_is_refused_and_the_connection_dropped(sent: bytes) -> None:
    for size in (len(sent), 4096, 1 if len(sent) < 200 else 1000):
        peer = Peer()
        task = peer.ask()
        await asyncio.sleep(0)
        peer.feed(*(sent[at : at + size] for at in range(0, len(sent), size)))
        failure = await failure_of(peer, task)
        assert failure.kind is Kind.MALFORMED
        assert "not valid HTTP" in failure.message


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("name", ["length", "chunked", "trailers", "interim"])
async def test_cut_at_every_byte_is_a_failure_of_the_right_kind(name: str, reset: bool) -> None:
    sent, _ = WHOLE[name]
    head_bytes = sent.rindex(b"\r\n\r\n", 0, sent.index(b"hello") if b"\r\n\r\nhello" in sent else 60) + 4
    for at in range(len(sent)):
        peer = Peer()
        task = peer.ask()
        await asyncio.sleep(0)
        peer.feed(sent[:at])
        peer.rst() if reset else peer.fin()
        with pytest.raises(Failure) as caught:
            await body_of(task)
        assert caught.value.kind is (Kind.UNREACHABLE if at < head_bytes else Kind.ENDED_EARLY), at
        assert isinstance(caught.value, Dropped) is (at == 0)
        assert peer.kept == []


async def test_fin_ends_a_body_without_a_length_and_a_reset_cuts_it() -> None:
    ended, cut = Peer(), Peer()
    tasks = ended.ask(), cut.ask()
    await asyncio.sleep(0)
    for peer in (ended, cut):
        peer.feed(UNTIL_CLOSE)
    ended.fin()
    cut.rst()
    assert await body_of(tasks[0]) == b"hello"
    assert ended.kept == []
    with pytest.raises(Failure) as caught:
        await body_of(tasks[1])
    assert caught.value.kind is Kind.ENDED_EARLY


async def test_bytes_that_arrived_before_the_cut_are_read_first() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(CHUNKED + b"5\r\nhello\r\n")
    peer.rst()
    answer = await task
    until = asyncio.get_running_loop().time() + LATER_S
    assert await answer.read_chunk(until) == b"hello"
    with pytest.raises(Failure):
        await answer.read_chunk(until)


async def test_header_names_are_lower_case_and_values_untouched() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(OK + b"X-Request-ID: aB\r\nretry-after:  2 \r\ncontent-length: 0\r\n\r\n")
    answer = await task
    assert answer.headers[0] == (b"x-request-id", b"aB")
    assert answer.header(b"retry-after") == b"2"
    assert answer.header(b"missing") is None


async def test_headers_of_interim_answers_and_trailers_are_not_the_answers() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\ncontent-encoding: br\r\n\r\n", WHOLE["trailers"][0])
    answer = await task
    assert answer.headers == [(b"transfer-encoding", b"chunked")]
    assert answer.content_encoding is None


async def test_head_at_the_limit_is_taken() -> None:
    fields = b"".join(b"x-%d: y\r\n" % number for number in range(HEAD_LIMIT_FIELDS - 1))
    assert (await receive(OK + fields + b"content-length: 2\r\n\r\nok"))[1] == b"ok"
    large = b"x: " + b"y" * (HEAD_LIMIT_BYTES - 100) + b"\r\n"
    assert (await receive(OK + large + b"content-length: 2\r\n\r\nok"))[1] == b"ok"
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n" * INTERIM_LIMIT
    assert (await receive(interim + OK + b"content-length: 2\r\n\r\nok"))[1] == b"ok"


async def test_large_body_beside_a_small_head_is_no_large_head() -> None:
    body = b"y" * (4 * HEAD_LIMIT_BYTES)
    assert (await receive(OK + b"content-length: %d\r\n\r\n" % len(body) + body))[1] == body


async def test_unread_bytes_stop_the_peer_and_reading_lets_it_go_on() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(OK + b"content-length: %d\r\n\r\n" % (2 * HIGH_WATER_BYTES), b"y" * HIGH_WATER_BYTES)
    assert not peer.transport.reading
    answer = await task
    assert len(await answer.read_chunk(asyncio.get_running_loop().time() + LATER_S)) == HIGH_WATER_BYTES
    assert peer.transport.reading


async def test_tiny_chunks_count_for_more_than_their_bytes() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(CHUNKED + b"1\r\ny\r\n" * 2000)
    assert not peer.transport.reading
    answer = await task
    assert len(await answer.read_chunk(asyncio.get_running_loop().time() + LATER_S)) == 2000


async def test_connection_given_back_is_reading_though_its_answer_was_not_read() -> None:
    peer = Peer()
    task = peer.ask()
    await asyncio.sleep(0)
    peer.feed(OK + b"content-length: %d\r\n\r\n" % (2 * HIGH_WATER_BYTES), b"y" * (2 * HIGH_WATER_BYTES))
    assert peer.transport.reading
    assert peer.kept == [peer.connection]
    assert len(await body_of(task)) == 2 * HIGH_WATER_BYTES


async def test_bytes_nobody_asked_for_close_an_idle_connection() -> None:
    peer = Peer()
    peer.feed(OK)
    assert peer.transport.aborted


async def test_exchange_on_a_closed_connection_is_dropped() -> None:
    peer = Peer()
    peer.transport.abort()
    with pytest.raises(Dropped):
        await peer.ask()


async def test_small_request_is_one_write() -> None:
    peer = Peer()
    task = peer.ask(b"POST / HTTP/1.1\r\n\r\n{}")
    await asyncio.sleep(0)
    assert peer.transport.written == b"POST / HTTP/1.1\r\n\r\n{}"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert peer.transport.aborted


async def test_large_request_waits_for_a_peer_that_is_behind() -> None:
    peer = Peer()
    peer.connection.pause_writing()
    task = peer.ask(b"y" * 1_000_000)
    await asyncio.sleep(0)
    behind = len(peer.transport.written)
    assert 0 < behind < 1_000_000
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert len(peer.transport.written) == 1_000_000
    peer.feed(OK + b"content-length: 2\r\n\r\nok")
    assert await body_of(task) == b"ok"
    assert peer.kept == [peer.connection]


async def test_answer_to_half_a_request_is_taken_and_the_connection_closed() -> None:
    peer = Peer()
    peer.connection.pause_writing()
    task = peer.ask(b"y" * 1_000_000)
    await asyncio.sleep(0)
    peer.feed(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno")
    assert (await task).status == 413
    assert await body_of(task) == b"no"
    assert peer.kept == []
    assert peer.transport.aborted


async def test_one_timer_serves_many_exchanges() -> None:
    peer, timers = Peer(), set()
    for _ in range(3):
        task = peer.ask()
        await asyncio.sleep(0)
        timers.add(cast(asyncio.TimerHandle, peer.connection._timer))
        peer.feed(OK + b"content-length: 2\r\n\r\nok")
        assert await body_of(task) == b"ok"
    assert len(timers) == 1
    peer.connection.close()
    assert timers.pop().cancelled()


async def test_timer_that_comes_late_looks_after_the_socket_was_read() -> None:
    peer = Peer()
    loop = asyncio.get_running_loop()
    task = loop.create_task(peer.connection.exchange(b"GET", loop.time() - 1.0))
    await asyncio.sleep(0)
    peer.connection._on_timer()
    await asyncio.sleep(0)
    assert not task.done()
    peer.feed(OK + b"content-length: 2\r\n\r\nok")
    assert await body_of(task) == b"ok"


async def test_timer_that_comes_late_ends_what_is_silent_all_the_same() -> None:
    peer = Peer()
    loop = asyncio.get_running_loop()
    task = loop.create_task(peer.connection.exchange(b"GET", loop.time() - 1.0))
    assert (await failure_of(peer, task)).kind is Kind.FIRST_TOKEN_TIMEOUT
