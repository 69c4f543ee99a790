"""The client against a real peer on a loopback socket, on both event loops."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from tests.transport.peers import PATIENCE_S, resolving, server_tls, trusting

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.simulator import Replies, Reply, Upstream, completion, error, stream
from lumen_gateway.transport.answer import Answer
from lumen_gateway.transport.client import Client

LIMIT_BYTES = 10_000_000
SILENT = Reply(stop="hang", stop_after_bytes=0)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    one = Client(resolver=resolving("127.0.0.1"), tls=trusting("localhost"))
    yield one
    async with asyncio.timeout(PATIENCE_S):
        await one.aclose()


def later(within_s: float = PATIENCE_S) -> float:
    return asyncio.get_running_loop().time() + within_s


def origin_of(up: Upstream) -> Origin:
    return Origin("http", up.host, up.port)


def post(body: bytes = b"{}", path: bytes = b"/v1/chat/completions") -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: a.test\r\ncontent-length: %d\r\n\r\n%s" % (path, len(body), body)


async def send(client: Client, up: Upstream, within_s: float = PATIENCE_S) -> Answer:
    return await client.send(origin_of(up), post(), later(within_s))


async def read(client: Client, up: Upstream, within_s: float = PATIENCE_S) -> bytes:
    """Return the body of one call, read whole."""
    answer = await send(client, up, within_s)
    return await answer.read_all(LIMIT_BYTES, later(within_s))


async def failure_of(client: Client, up: Upstream, within_s: float = PATIENCE_S) -> Failure:
    with pytest.raises(Failure) as caught:
        await read(client, up, within_s)
    return caught.value


async def test_call_is_sent_as_it_stands_and_answered(client: Client) -> None:
    async with Upstream(error(429, "rate_limit_exceeded", retry_after=2)) as up:
        answer = await client.send(origin_of(up), post(b'{"model":"m"}', b"/v1/x"), later())
        assert (answer.status, answer.header(b"retry-after")) == (429, b"2")
        assert b"rate_limit_exceeded" in await answer.read_all(LIMIT_BYTES, later())
        assert (up.calls[0].path, up.calls[0].body) == ("/v1/x", b'{"model":"m"}')
        assert answer.first_byte_at >= up.calls[0].at - 0.01  # both loops count time in milliseconds or finer


async def test_connection_is_used_again(client: Client) -> None:
    async with Upstream(completion("hi")) as up:
        for _ in range(5):
            assert b"hi" in await read(client, up)
        assert up.connections == 1
        assert client.pool.idle_count == 1


async def test_answers_under_way_at_once_have_connections_of_their_own(client: Client) -> None:
    async with Upstream(completion("hi")) as up:
        await asyncio.gather(*(read(client, up) for _ in range(5)))
        await asyncio.gather(*(read(client, up) for _ in range(5)))
        assert up.connections == client.pool.idle_count == 5


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
@pytest.mark.parametrize("framing", ["chunked", "content-length", "close"])
async def test_stream_reads_the_same_however_it_is_sent(client: Client, framing: str, size: int) -> None:
    reply = stream(["Hello", " there"], framing=framing, bytes_per_write=size)
    async with Upstream(reply) as up:
        assert await read(client, up) == b"".join(reply.frames or ())


async def test_frames_are_read_as_they_come(client: Client) -> None:
    reply = stream(["a", "b"])
    async with Upstream(reply) as up:
        answer, received = await send(client, up), b""
        while chunk := await answer.read_chunk(later()):
            received += chunk
        assert received == b"".join(reply.frames or ())
        assert client.pool.idle_count == 1


@pytest.mark.parametrize("stop", ["reset", "end"])
async def test_answer_cut_anywhere_is_never_taken_for_whole(client: Client, stop: str) -> None:
    body = b'{"choices":[]}'
    head_bytes = len(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n")
    replies = [Reply(body=body, stop=stop, stop_after_bytes=at) for at in range(head_bytes + len(body))]  # type: ignore[arg-type]  # a parameter is any str
    async with Upstream(replies) as up:
        for at in range(len(replies)):
            failure = await failure_of(client, up)
            expected = {Kind.UNREACHABLE} if at < head_bytes else {Kind.ENDED_EARLY}
            if stop == "reset" and at >= head_bytes:
                expected.add(Kind.UNREACHABLE)  # a reset may overtake the bytes before it
            assert failure.kind in expected, at
        assert client.pool.idle_count == 0
        assert up.connections == len(replies)


async def test_call_on_a_connection_that_died_idle_is_sent_once_more(client: Client) -> None:
    async with Upstream([completion("one"), Reply(stop="end", stop_after_bytes=0), completion("two")]) as up:
        await read(client, up)
        assert b"two" in await read(client, up)
        assert (len(up.calls), up.connections) == (3, 2)


async def test_call_is_sent_no_more_than_twice(client: Client) -> None:
    async with Upstream([completion("one"), Reply(stop="reset", stop_after_bytes=0)]) as up:
        await read(client, up)
        assert (await failure_of(client, up)).kind is Kind.UNREACHABLE
        assert len(up.calls) == 3


async def test_call_on_a_fresh_connection_is_sent_once(client: Client) -> None:
    async with Upstream(Reply(stop="end", stop_after_bytes=0)) as up:
        assert (await failure_of(client, up)).kind is Kind.UNREACHABLE
        assert len(up.calls) == 1


async def test_call_is_not_repeated_after_the_first_byte_of_an_answer(client: Client) -> None:
    async with Upstream([completion("one"), Reply(stop="end", stop_after_bytes=1)]) as up:
        await read(client, up)
        assert (await failure_of(client, up)).kind is Kind.UNREACHABLE
        assert len(up.calls) == 2


async def test_connections_the_peer_closed_are_replaced(client: Client) -> None:
    async with Upstream(completion("hi")) as up:
        await read(client, up)
        up.drop_connections()
        assert b"hi" in await read(client, up)
        assert up.connections == 2


async def test_silence_before_the_head_ends_at_the_deadline_and_closes(client: Client) -> None:
    async with Upstream(SILENT) as up:
        failure = await failure_of(client, up, 0.05)
        assert failure.kind is Kind.FIRST_TOKEN_TIMEOUT
        async with asyncio.timeout(PATIENCE_S):
            await up.deserted()
        assert up.calls[0].peer_closed_at is not None


async def test_silence_within_the_body_is_a_read_timeout(client: Client) -> None:
    async with Upstream(Reply(frames=(b"data: 1\n\n",), stop="hang")) as up:
        answer = await send(client, up)
        assert await answer.read_chunk(later()) == b"data: 1\n\n"
        with pytest.raises(Failure) as caught:
            await answer.read_chunk(later(0.05))
        assert caught.value.kind is Kind.READ_TIMEOUT
        answer.close()
        async with asyncio.timeout(PATIENCE_S):
            await up.deserted()


async def test_earlier_deadline_counts_after_a_later_one(client: Client) -> None:
    async with Upstream([completion("hi"), SILENT]) as up:
        await read(client, up)
        assert (await failure_of(client, up, 0.05)).kind is Kind.FIRST_TOKEN_TIMEOUT


@pytest.mark.parametrize("reply", [SILENT, Reply(frames=(b"data: 1\n\n",), stop="hang")], ids=["head", "body"])
async def test_cancelled_call_closes_its_socket(client: Client, reply: Reply) -> None:
    async with Upstream(reply) as up:
        task = asyncio.get_running_loop().create_task(read(client, up), name="call")
        async with asyncio.timeout(PATIENCE_S):
            await up.called()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE_S):
            await up.deserted()
        assert up.calls[0].peer_closed_at is not None
        assert client.pool.open_count == 0


async def test_slow_reader_stops_the_peer(client: Client) -> None:
    frame, frames = b"y" * 100_000, 400
    async with Upstream(Reply(frames=(frame,) * frames, framing="content-length")) as up:
        answer = await send(client, up)
        size = len(await answer.read_chunk(later()))
        await asyncio.sleep(0.1)  # time enough to send it all, if nothing held the peer back
        assert not up.calls[0].over.is_set()
        while chunk := await answer.read_chunk(later()):
            size += len(chunk)
            assert len(chunk) < 1_000_000
        assert size == len(frame) * frames
        assert client.pool.idle_count == 1


async def test_large_request_arrives_whole(client: Client) -> None:
    body = bytes(range(256)) * 40_000
    async with Upstream(completion("hi")) as up:
        answer = await client.send(origin_of(up), post(body), later())
        assert answer.status == 200
        assert up.calls[0].body == body
        answer.close()


async def test_compressed_body_is_decoded_and_a_bomb_is_cut(client: Client) -> None:
    coded = (("content-encoding", "gzip"),)
    small, bomb = gzip.compress(b"hello"), gzip.compress(bytes(2 * LIMIT_BYTES))
    async with Upstream([Reply(headers=coded, body=small), Reply(headers=coded, body=bomb)]) as up:
        assert await read(client, up) == b"hello"
        assert (await failure_of(client, up)).kind is Kind.MALFORMED


async def test_redirect_is_an_answer_like_any_other(client: Client) -> None:
    async with Upstream(Reply(status=307, headers=(("location", "http://127.0.0.1:1/"),))) as up:
        assert (await send(client, up)).status == 307
        assert len(up.calls) == 1


async def test_malformed_answer_leaves_the_next_call_alone(client: Client) -> None:
    both = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    async with Upstream([Reply(raw=both), completion("hi")]) as up:
        assert (await failure_of(client, up)).kind is Kind.MALFORMED
        assert b"hi" in await read(client, up)
        assert up.connections == 2


async def test_tls_connection_is_used_again_and_a_cut_is_seen(client: Client) -> None:
    replies: Replies = [completion("hi"), completion("hi"), stream(["a"], stop="end")]
    async with Upstream(replies, tls=server_tls("localhost")) as up:
        origin = Origin("https", "localhost", up.port)
        for _ in range(2):
            answer = await client.send(origin, post(), later())
            assert b"hi" in await answer.read_all(LIMIT_BYTES, later())
        answer = await client.send(origin, post(), later())
        with pytest.raises(Failure) as caught:
            await answer.read_all(LIMIT_BYTES, later())
        assert caught.value.kind is Kind.ENDED_EARLY
        assert up.connections == 1


async def test_closing_the_client_ends_what_is_under_way() -> None:
    async with Upstream(SILENT) as up:
        one = Client(tls=trusting("localhost"))
        task = asyncio.get_running_loop().create_task(read(one, up), name="call")
        async with asyncio.timeout(PATIENCE_S):
            await up.called()
            await one.aclose()
            await up.deserted()
            with pytest.raises(Failure):
                await task
