"""How an answer is written: framed by what the client speaks, once, and never to a connection that is closing."""

from __future__ import annotations

import pytest
from tests.lanes import GET, Client, Recorder

from lumen_gateway import respond
from lumen_gateway.call import Call

HTTP_1_0 = b"GET /v1/x HTTP/1.0\r\n\r\n"


class Kept(Recorder):
    """Answers nothing by itself."""

    def answer(self, call: Call) -> None:
        """Leave it to the test."""


def received(request: bytes) -> tuple[Client, Call]:
    client = Client(Kept())
    client.send(request)
    [call] = client.handler.calls
    return client, call


async def test_call_knows_its_request() -> None:
    _, call = received(b"GET /v1/models/a%2Fb?q=1&r HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert (call.method, call.path, call.query) == ("GET", "/v1/models/a%2Fb", b"q=1&r")
    assert call.headers == [(b"host", b"h"), (b"x-a", b"1"), (b"x-a", b"2")]
    assert (call.header(b"x-a"), call.header(b"x-b")) == (b"1", None)


async def test_whole_answer_has_its_length() -> None:
    client, call = received(GET)
    call.send(200, respond.JSON, b"{}")
    assert client.pipe.sent.endswith(b"content-length: 2\r\n\r\n{}")
    assert not client.pipe.is_closing()


async def test_head_gets_the_length_and_no_body() -> None:
    client, call = received(b"HEAD /v1/x HTTP/1.1\r\nhost: h\r\n\r\n")
    call.send(405, respond.JSON, b"{}")
    assert client.pipe.sent.endswith(b"content-length: 2\r\n\r\n")


async def test_stream_is_chunked_and_its_head_goes_out_with_the_first_write() -> None:
    client, call = received(GET)
    call.start(200, respond.EVENT_STREAM)
    assert client.pipe.sent == b""
    call.write(b"data: 1\n\n")
    call.write(b"")
    call.finish()
    [(status, head, body)] = client.answers
    assert (status, body) == (200, b"data: 1\n\n")
    assert b"transfer-encoding: chunked" in head


async def test_stream_without_a_frame_still_has_its_head() -> None:
    client, call = received(GET)
    call.start(200, respond.EVENT_STREAM)
    call.finish()
    assert client.statuses == [200]


async def test_stream_to_http_1_0_ends_with_the_connection() -> None:
    client, call = received(HTTP_1_0)
    call.start(200, respond.EVENT_STREAM)
    call.write(b"data: 1\n\n")
    assert not client.pipe.is_closing()
    call.finish()
    assert client.pipe.is_closing()
    assert client.pipe.sent.endswith(b"connection: close\r\n\r\ndata: 1\n\n")
    assert b"transfer-encoding" not in client.pipe.sent


async def test_nothing_is_written_behind_the_end() -> None:
    client, call = received(GET)
    call.start(200, respond.EVENT_STREAM)
    call.finish()
    sent = client.pipe.sent
    call.write(b": ping\n\n")
    call.finish()
    assert client.pipe.sent == sent


@pytest.mark.parametrize("answer", ["send", "stream"])
async def test_answer_to_a_closing_connection_goes_nowhere(answer: str) -> None:
    client, call = received(GET)
    client.pipe.closed = True
    if answer == "send":
        call.send(200, respond.JSON, b"{}")
    else:
        call.start(200, respond.EVENT_STREAM)
        call.write(b"data: 1\n\n")
        call.finish()
    assert client.pipe.sent == b""
    assert call.complete


async def test_head_of_a_stream_is_out_with_its_first_piece() -> None:
    client, call = received(GET)
    call.start(200, respond.EVENT_STREAM)
    client.loop.turn(1.5)
    assert call.headed_s is None
    call.write(b": ping\n\n")
    client.loop.turn(2.5)
    call.write(b"data: {}\n\n")
    assert call.headed_s == call.received_s + 1.5
