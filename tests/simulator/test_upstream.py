"""The simulated upstream writes exactly the bytes its script asks for, and tells when the peer left."""

from __future__ import annotations

import asyncio

import pytest

from lumen_gateway.simulator import Reply, Upstream, completion, error, stream
from lumen_gateway.simulator.upstream import transcript

PATIENCE_S = 10.0


def request(path: str = "/", body: bytes = b"{}") -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


async def ask(up: Upstream, payload: bytes, *, hang_up: bool = True) -> bytes:
    """Send on a connection of its own; return all bytes up to the end, a reset included as b"RST"."""
    reader, writer = await asyncio.open_connection(up.host, up.port)
    writer.write(payload)
    received = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while data := await reader.read(65536):
                received += data
                if hang_up and received.endswith(b"!"):
                    break
    except ConnectionResetError:
        received += b"RST"
    finally:
        writer.close()
    return bytes(received)


def written(reply: Reply) -> bytes:
    return b"".join(data for _, data in transcript(reply).writes)


def test_body_is_told_by_its_length() -> None:
    assert written(Reply(body=b"hi")) == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


def test_frames_are_chunks_with_an_end() -> None:
    assert written(Reply(frames=(b"a", b"bc"))).endswith(b"chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")


def test_framing_header_of_the_script_is_sent_as_it_stands() -> None:
    assert written(Reply(body=b"hi", headers=(("content-length", "9"),))).count(b"content-length") == 1


def test_bodiless_status_has_no_length() -> None:
    assert b"content-length" not in written(Reply(status=204))


def test_unknown_status_has_a_reason_too() -> None:
    assert written(Reply(status=599)).startswith(b"HTTP/1.1 599 Scripted\r\n")


def test_stop_without_a_number_leaves_out_the_end_of_the_body() -> None:
    plan = transcript(Reply(frames=(b"a",), stop="end"))
    assert plan.end == "end"
    assert plan.writes[-1][1] == b"1\r\na\r\n"


@pytest.mark.parametrize("limit", range(0, 60, 7))
def test_stop_after_bytes_counts_from_the_first_byte(limit: int) -> None:
    whole = Reply(frames=(b"a", b"bc"))
    cut = Reply(frames=(b"a", b"bc"), stop="reset", stop_after_bytes=limit)
    assert written(cut) == written(whole)[:limit]


def test_pieces_are_of_the_size_asked_for() -> None:
    plan = transcript(Reply(frames=(b"abcdef",), bytes_per_write=4, frame_delay_s=1.0))
    assert {len(data) for _, data in plan.writes} <= {1, 2, 3, 4}
    assert written(Reply(frames=(b"abcdef",), bytes_per_write=4)) == written(Reply(frames=(b"abcdef",)))


def test_frames_wait_between_each_other_and_not_before_the_first() -> None:
    plan = transcript(Reply(frames=(b"a", b"b"), delay_s=3.0, frame_delay_s=1.0))
    assert [delay for delay, _ in plan.writes] == [3.0, 0.0, 1.0, 0.0]


async def test_calls_get_their_turn_and_the_last_repeats() -> None:
    replies = [Reply(status=500, body=b"!"), Reply(body=b"!")]
    async with Upstream(replies) as up:
        statuses = [(await ask(up, request()))[9:12] for _ in range(3)]
    assert statuses == [b"500", b"200", b"200"]
    assert [call.status for call in up.calls] == [500, 200, 200]


async def test_model_goes_before_path_and_path_before_the_rest() -> None:
    async with Upstream({"m": Reply(body=b"model!"), "/p": Reply(body=b"path!"), "*": Reply(body=b"rest!")}) as up:
        assert (await ask(up, request("/p", b'{"model":"m"}'))).endswith(b"model!")
        assert (await ask(up, request("/p?q=1", b'{"model":"other"}'))).endswith(b"path!")
        assert (await ask(up, request("/q"))).endswith(b"rest!")


async def test_call_without_a_reply_gets_a_404() -> None:
    async with Upstream({"/p": Reply()}) as up:
        payload = request("/q").replace(b"host: x", b"host: x\r\nconnection: close")
        reader, writer = await asyncio.open_connection(up.host, up.port)
        writer.write(payload)
        assert (await reader.readline()) == b"HTTP/1.1 404 Not Found\r\n"
        writer.close()


async def test_call_is_recorded_whole() -> None:
    async with Upstream(Reply(body=b"!")) as up:
        await ask(up, request("/p?q=1", b'{"model":"m"}'))
    (call,) = up.calls
    assert (call.method, call.path, call.headers["host"], call.json()) == ("POST", "/p?q=1", "x", {"model": "m"})
    assert call.over.is_set()
    assert call.peer_closed_at is None


async def test_reset_is_a_reset_and_end_is_an_end() -> None:
    async with Upstream([stream(["a"], stop="reset"), stream(["a"], stop="end")]) as up:
        assert (await ask(up, request())).endswith(b"RST")
        ended = await ask(up, request())
    assert ended.endswith(b"\n\n\r\n")
    assert b"0\r\n\r\n" not in ended


async def test_peer_that_leaves_during_silence_is_noticed() -> None:
    async with Upstream(Reply(frames=(b"!",), stop="hang")) as up:
        reader, writer = await asyncio.open_connection(up.host, up.port)
        writer.write(request())
        await reader.readuntil(b"!")
        writer.close()
        await asyncio.wait_for(up.calls[0].over.wait(), PATIENCE_S)
    assert up.calls[0].peer_closed_at is not None


async def test_closed_framing_ends_with_the_connection() -> None:
    async with Upstream(Reply(body=b"hi", framing="close")) as up:
        assert (await ask(up, request())).endswith(b"connection: close\r\n\r\nhi")


async def test_connection_is_kept_for_the_next_call() -> None:
    async with Upstream([completion("a"), error(500)]) as up:
        reader, writer = await asyncio.open_connection(up.host, up.port)
        for status in (b"200", b"500"):
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head[9:12] == status
            await reader.readexactly(int(head.rpartition(b"content-length: ")[2]))
        writer.close()
        assert up.connections == 1


async def test_stopping_ends_a_reply_under_way() -> None:
    async with Upstream(Reply(delay_s=3600.0)) as up:
        reader, writer = await asyncio.open_connection(up.host, up.port)
        writer.write(request())
        await up.called()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await reader.readexactly(1)
    writer.close()
    assert up.open_connections == 0


def test_entry_without_a_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Upstream({"m": []})
