"""A client's connection: whole requests out of bytes however cut, limits of size and time, refusals, and leaving."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.lanes import CANARY, GET, IDLE_S, POST, Client, Recorder

from lumen_gateway.call import Call
from lumen_gateway.fastlane import LINGER_BYTES, LaneSettings
from lumen_gateway.framing import MAX_FIELDS, MAX_HEAD_BYTES
from lumen_gateway.patience import Patience

LIMIT = 1000
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
SAME = b"content-length: 2\r\n\r\nhi"
WHOLE = {
    "without body": (GET, b"GET /v1/x|"),
    "length": (POST + b"content-length: 5\r\n\r\nhello", b"POST /v1/x|hello"),
    "no length": (POST + b"\r\n", b"POST /v1/x|"),
    "chunked": (CHUNKED + b"2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\n\r\n", b"POST /v1/x|hello"),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nhost: other\r\nx: y\r\n\r\n", b"POST /v1/x|hello"),
    "empty lines before": (b"\r\n\r\n" + GET, b"GET /v1/x|"),
    "underscore in a name": (POST + b"content_length: 9\r\n\r\n", b"POST /v1/x|"),
}


def sized(size_bytes: int) -> bytes:
    return POST + b"content-length: %d\r\n\r\n" % size_bytes + bytes(size_bytes)


def chunked(size_bytes: int, chunk_bytes: int = 100) -> bytes:
    sizes = [chunk_bytes] * (size_bytes // chunk_bytes) + [size_bytes % chunk_bytes]
    return CHUNKED + b"".join(b"%x\r\n%b\r\n" % (size, bytes(size)) for size in sizes if size) + b"0\r\n\r\n"


def zipped(size_bytes: int) -> bytes:
    body = gzip.compress(bytes(size_bytes))
    return POST + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def bodies(client: Client) -> list[bytes]:
    return [body for _, _, body in client.answers]


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
async def test_request_is_read_the_same_however_it_is_cut(name: str) -> None:
    request, answer = WHOLE[name]
    for cut in range(1, len(request)):
        client = Client()
        client.send(request[:cut], request[cut:])
        assert bodies(client) == [answer], cut
    byte_by_byte = Client()
    byte_by_byte.send(*(bytes([byte]) for byte in request))
    assert bodies(byte_by_byte) == [answer]


@pytest.mark.parametrize("name", WHOLE)
async def test_request_behind_another_is_served_by_itself(name: str) -> None:
    request, answer = WHOLE[name]
    client = Client()
    client.send(request + CANARY + request)
    assert bodies(client) == [answer, b"GET /canary|", answer]
    assert not client.pipe.is_closing()


async def test_trailers_are_no_headers() -> None:
    client = Client()
    client.send(CHUNKED + b"0\r\nx-lumen-metadata: {}\r\n\r\n")
    assert client.handler.calls[0].header(b"x-lumen-metadata") is None


async def test_request_id_of_the_client_is_kept_on_every_answer() -> None:
    client = Client()
    client.send(POST + b"X-Request-Id: mine\r\ncontent-length: 1001\r\n\r\n")
    [(status, head, _)] = client.answers
    assert status == 413
    assert b"x-request-id: mine" in head


async def test_gzip_body_is_decoded_and_other_codings_are_told_what_is_taken() -> None:
    client = Client()
    client.send(zipped(5), POST + b"content-encoding: br\r\ncontent-length: 1\r\n\r\nx", GET)
    assert client.statuses == [200, 415, 200]
    assert bodies(client)[0] == b"POST /v1/x|" + bytes(5)


async def test_pipelined_requests_are_answered_in_order() -> None:
    client = Client(Recorder(at_once=False))
    client.send(b"".join(b"GET /%d HTTP/1.1\r\nhost: h\r\n\r\n" % number for number in range(5)))
    assert [call.path for call in client.handler.calls] == ["/0"]
    assert client.pipe.reading_paused
    client.handler.gate.set()
    await settle()
    assert bodies(client) == [b"GET /%d|" % number for number in range(5)]
    assert not client.pipe.reading_paused


async def test_many_pipelined_requests_do_not_nest() -> None:
    client = Client(capacity_bytes=1)
    client.send(GET * 5000)
    assert len(client.handler.calls) == 1
    client.pipe.capacity_bytes = None
    client.pipe.take(client.pipe.unsent_bytes)
    for _ in range(5000):
        await asyncio.sleep(0)
    assert len(client.answers) == 5000


async def test_http_1_0_is_answered_once_and_closed() -> None:
    client = Client()
    client.send(b"GET /v1/x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" + CANARY)
    assert bodies(client) == [b"GET /v1/x|"]
    assert client.pipe.is_closing()


async def test_connection_close_is_obeyed() -> None:
    client = Client()
    client.send(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n" + CANARY)
    [(status, head, _)] = client.answers
    assert status == 200
    assert b"connection: close" in head
    assert client.pipe.is_closing()


async def test_upgrade_is_ignored_and_the_request_served() -> None:
    client = Client()
    client.send(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n" + CANARY)
    assert bodies(client) == [b"GET /v1/x|"]
    assert client.pipe.is_closing()


async def test_expectation_is_met_before_the_body() -> None:
    client = Client()
    client.send(POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert client.pipe.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"hi")
    assert client.statuses == [100, 200]


async def test_expectation_of_too_much_is_refused_at_once() -> None:
    client = Client()
    client.send(POST + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
    assert client.statuses == [413]


async def test_expectation_waits_until_the_answer_before_it_is_complete() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET, POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert client.pipe.sent == b""
    client.handler.gate.set()
    await settle()
    assert client.statuses == [200, 100]
    client.send(b"hi")
    await settle()
    assert client.statuses == [200, 100, 200]


async def test_body_that_came_uninvited_needs_no_invitation() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET, POST + b"expect: 100-continue\r\n" + SAME)
    client.handler.gate.set()
    await settle()
    assert client.statuses == [200, 200]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [sized, chunked, zipped])
async def test_body_at_the_limit_passes_and_one_byte_more_is_413(body: Any) -> None:
    passed, refused = Client(), Client()
    passed.send(body(LIMIT))
    refused.send(body(LIMIT + 1))
    assert len(passed.handler.calls[0].body) == LIMIT
    [(status, _, answer)] = refused.answers
    assert status == 413
    assert b"LM-1002" in answer
    assert b"1000 bytes" in answer
    assert refused.handler.calls == []


async def test_refused_client_may_finish_sending_before_the_connection_closes() -> None:
    client = Client()
    client.send(POST + b"content-length: 5000\r\n\r\n", bytes(2000))
    assert client.statuses == [413]
    assert client.pipe.half_closed
    assert not client.pipe.is_closing()
    client.send(bytes(3000))
    assert not client.pipe.is_closing()
    client.leave()
    assert client.statuses == [413]


async def test_refused_client_is_cut_off_after_a_while() -> None:
    client = Client()
    client.send(b"nonsense\r\n\r\n")
    client.loop.turn(9)
    assert not client.pipe.is_closing()
    client.loop.turn(2)
    assert client.pipe.is_closing()


async def test_refused_client_is_cut_off_after_too_much() -> None:
    client = Client()
    client.send(b"nonsense\r\n\r\n")
    client.lane.data_received(bytes(LINGER_BYTES))
    assert not client.pipe.is_closing()
    client.lane.data_received(b"x")
    assert client.pipe.is_closing()


async def test_requests_before_a_broken_one_are_answered_first() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET + CANARY + b"nonsense\r\n\r\n" + CANARY)
    client.handler.gate.set()
    await settle()
    assert client.statuses == [200, 200, 400]
    assert [call.path for call in client.handler.calls] == ["/v1/x", "/canary"]
    assert client.pipe.half_closed


async def test_client_that_leaves_is_noticed_even_behind_a_broken_request() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET + b"nonsense\r\n\r\n")
    await settle()
    assert not client.pipe.reading_paused
    client.leave()
    await settle()
    assert len(client.handler.cancelled) == 1


@pytest.mark.parametrize(
    ("head", "passes"),
    [
        (GET[:-2] + b"x: 1\r\n" * (MAX_FIELDS - 1) + b"\r\n", True),
        (GET[:-2] + b"x: 1\r\n" * MAX_FIELDS + b"\r\n", False),
        (GET[:-2] + b"x: " + b"y" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n", True),
        (GET[:-2] + b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", False),
        (b"GET /" + b"y" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nhost: h\r\n\r\n", False),
        (GET[:-2] + (b"x: " + b"y" * 8192 + b"\r\n") * 100 + b"\r\n", False),
        (GET[:-2] + b"x: 1\r\n" * 10_000 + b"\r\n", False),
    ],
    ids=["100 fields", "101 fields", "16 KiB", "more", "long target", "8 KiB x 100", "10,000 fields"],
)
@pytest.mark.parametrize("piece_bytes", [1 << 20, 1000])
async def test_head_has_its_limits(head: bytes, passes: bool, piece_bytes: int) -> None:
    client = Client()
    client.send(*(head[start : start + piece_bytes] for start in range(0, len(head), piece_bytes)))
    assert client.statuses == ([200] if passes else [431])


async def test_large_requests_before_it_do_not_count_into_a_head() -> None:
    client = Client(body_limit=1 << 20)
    client.send(sized(100_000) + GET[:20], GET[20:])
    assert client.statuses == [200, 200]


@pytest.mark.parametrize("endless", [b"5;" + b"x" * 20_000, b"0\r\nx: " + b"y" * 20_000, b"0\r\n" + b"x: y\r\n" * 4000])
async def test_bytes_that_bring_no_body_are_limited(endless: bytes) -> None:
    client = Client()
    client.send(CHUNKED, endless)
    assert client.statuses == [431]


async def test_crash_of_a_handler_is_a_500_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def serve(self, call: Call) -> Coroutine[Any, Any, None] | None:
            raise RuntimeError("inner detail")

    client = Client(Broken())
    with caplog.at_level(logging.ERROR):
        client.send(GET + GET)
    assert client.statuses == [500, 500]
    assert b"inner detail" not in client.pipe.sent
    assert "inner detail" in caplog.text


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b"G", GET[:-2], POST + b"content-leng"])
async def test_head_that_does_not_come_is_408_however_it_trickles(piece: bytes) -> None:
    client = Client()
    client.send(piece)
    for _ in range(9):
        client.loop.turn(1)
        client.send(b"")
    assert client.statuses == []
    client.loop.turn(2)
    assert client.statuses == [408]
    assert client.pipe.half_closed


async def test_body_that_trickles_is_408() -> None:
    client = Client(body_limit=1 << 20)
    client.send(POST + b"content-length: 100000\r\n\r\n")
    for _ in range(31):
        client.loop.turn(1)
        client.send(bytes(900))
    assert client.statuses == [408]
    assert client.handler.calls == []


async def test_body_that_keeps_coming_may_take_its_time() -> None:
    client = Client(body_limit=1 << 20)
    client.send(POST + b"content-length: 200000\r\n\r\n")
    for _ in range(100):
        client.send(bytes(2000))
        client.loop.turn(1)
    assert client.statuses == [200]


async def test_chunk_framing_without_body_is_no_progress() -> None:
    client = Client(patience=Patience(body_s=5))
    client.send(CHUNKED + b"a;")
    for _ in range(6):
        client.loop.turn(1)
        client.send(b"x" * 2000)
    assert client.statuses == [408]


async def test_idle_connection_is_closed_without_a_word() -> None:
    client = Client()
    client.send(GET)
    client.loop.turn(IDLE_S - 1)
    client.send(b"\r\n")  # no request
    assert not client.pipe.is_closing()
    client.loop.turn(2)
    assert client.pipe.is_closing()
    assert client.statuses == [200]


async def test_connection_that_never_speaks_is_closed() -> None:
    client = Client()
    client.loop.turn(IDLE_S + 1)
    assert client.pipe.is_closing()
    assert client.pipe.sent == b""


async def test_waiting_for_an_answer_is_not_idling() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET)
    client.loop.turn(600)
    assert not client.pipe.is_closing()
    client.handler.gate.set()
    await settle()
    client.loop.turn(IDLE_S - 1)
    assert not client.pipe.is_closing()
    client.loop.turn(2)
    assert client.pipe.is_closing()


async def test_next_request_half_sent_has_its_time_once_the_answer_is_out() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET + GET[:10])
    client.loop.turn(60)
    client.handler.gate.set()
    await settle()
    assert client.statuses == [200]
    client.loop.turn(9)
    assert client.statuses == [200]
    client.loop.turn(2)
    assert client.statuses == [200, 408]


async def test_client_that_does_not_read_is_cut_off() -> None:
    client = Client(capacity_bytes=10)
    client.send(GET)
    client.loop.turn(29)
    assert not client.pipe.is_closing()
    client.loop.turn(2)
    assert client.pipe.aborted


async def test_client_that_reads_slowly_keeps_its_answer() -> None:
    client = Client(capacity_bytes=10, body_limit=1 << 20)
    client.send(sized(200_000))
    for _ in range(100):
        client.pipe.take(1500)
        client.loop.turn(1)
    assert not client.pipe.is_closing()
    client.loop.turn(60)
    assert client.pipe.aborted


async def test_client_that_does_not_read_gets_no_further_answers() -> None:
    client = Client(capacity_bytes=10)
    client.send(GET * 100)
    assert len(client.answers) == 1
    assert client.pipe.reading_paused
    client.pipe.capacity_bytes = None
    client.pipe.take(client.pipe.unsent_bytes)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(client.answers) == 100


async def test_answer_under_way_when_the_connection_idles_out_is_not_waited_for_without_end() -> None:
    client = Client()
    client.send(b"GET /v1/x HTTP/1.0\r\n\r\n")
    client.pipe.unsent_bytes = 500
    client.loop.turn(31)
    assert client.pipe.aborted


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end of stream", "reset"])
async def test_client_that_leaves_cancels_its_request(how: str) -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET)
    await settle()
    if how == "end of stream":
        client.lane.eof_received()
    else:
        client.lane.connection_lost(ConnectionResetError())
    await settle()
    assert [call.path for call in client.handler.cancelled] == ["/v1/x"]
    assert client.state.tasks == set()


async def test_request_of_a_client_that_left_at_once_still_runs_to_its_record() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET)
    client.leave()
    await settle()
    assert len(client.handler.cancelled) == 1


async def test_what_waits_behind_it_is_forgotten() -> None:
    client = Client(Recorder(at_once=False))
    client.send(GET + CANARY)
    client.leave()
    await settle()
    assert [call.path for call in client.handler.calls] == ["/v1/x"]


async def test_gone_connection_is_watched_no_longer() -> None:
    client = Client()
    client.send(GET)
    client.leave()
    assert client.loop.armed == 0
    assert client.state.connections == set()


async def test_client_may_leave_while_we_wait_for_it_to_read() -> None:
    class Stream(Recorder):
        async def later(self, call: Call) -> None:
            try:
                call.start(200, b"")
                call.write(bytes(100))
                await call.drain()
            except asyncio.CancelledError:
                self.cancelled.append(call)
                raise

    client = Client(Stream(at_once=False), capacity_bytes=10)
    client.send(GET)
    await settle()
    client.leave()
    await settle()
    assert len(client.handler.cancelled) == 1


# --- draining ---------------------------------------------------------------------------------------------------------


async def test_draining_closes_what_is_idle_and_lets_an_answer_finish() -> None:
    idle, busy = Client(), Client(Recorder(at_once=False))
    busy.send(GET + CANARY)
    await settle()
    for client in (idle, busy):
        client.lane.shutdown()
    assert idle.pipe.is_closing()
    assert not busy.pipe.is_closing()
    busy.handler.gate.set()
    await settle()
    [(status, head, _)] = busy.answers
    assert status == 200
    assert b"connection: close" in head
    assert busy.pipe.is_closing()


async def test_settings_are_shared_by_all_connections_of_a_worker() -> None:
    settings = LaneSettings(Recorder(), 10)
    first, second = Client(settings=settings), Client(settings=settings)
    settings.body_limit = 1
    for client in (first, second):
        client.send(POST + SAME)
    assert first.statuses == second.statuses == [413]


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
