"""The end of a drain: what does not finish in time is told so, what is idle is not waited for."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.process.fleet import Fleet, document
from tests.process.program import HOST, PATIENCE_S

from lumen_gateway.simulator import Reply, Upstream, stream

STUCK = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    script = {
        "stuck": Reply(frames=(STUCK,), headers=(("content-type", "text/event-stream"),), stop="hang"),
        "silent": Reply(body=b"", stop="hang", stop_after_bytes=0),
        "long": stream(["one ", "two ", "three"], frame_delay_s=0.1),
    }
    async with Upstream(script) as running:
        yield running


async def test_what_is_stuck_at_the_limit_gets_one_last_error(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "stuck", "silent", "long"), "--drain", "1.5") as fleet:
        asking = asyncio.gather(fleet.ask("stuck", stream=True), fleet.ask("silent"), fleet.ask("long", stream=True))
        await upstream.called(3)
        fleet.send(signal.SIGTERM)
        told_s = time.monotonic()
        stuck, silent, long = await asking
        assert await fleet.ended() == 0
        assert time.monotonic() - told_s >= 1.5
    assert (stuck.status, stuck.text, stuck.done) == (200, "Hello", False)
    assert stuck.error["code"] == "LM-5001"
    assert (silent.status, silent.error["code"]) == (503, "LM-5001")
    assert (long.text, long.done, long.error) == ("one two three", True, {})
    assert "Traceback" not in fleet.log


async def test_reader_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    flood = stream(["word " * 2000] * 2000)
    async with (
        Upstream({"flood": flood}) as upstream,
        Fleet(tmp_path, document(upstream.port, "flood"), "--drain", "0.5") as fleet,
    ):
        reader, writer = await asyncio.open_connection(HOST, fleet.port)
        body = b'{"model":"flood","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        await reader.readuntil(b"word")
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        writer.close()


async def test_idle_connection_is_closed_at_once(tmp_path: Path, upstream: Upstream) -> None:
    async with Fleet(tmp_path, document(upstream.port, "long"), "--drain", "300") as fleet:
        reader, writer = await asyncio.open_connection(HOST, fleet.port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"}")
        fleet.send(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        assert await fleet.ended() == 0
        writer.close()


async def test_request_whose_body_is_under_way_is_still_served(tmp_path: Path, upstream: Upstream) -> None:
    body = b'{"model":"long","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
    async with Fleet(tmp_path, document(upstream.port, "long")) as fleet:
        reader, writer = await asyncio.open_connection(HOST, fleet.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body[:10])
        assert (await fleet.client.get("/health")).status_code == 200  # behind the half request, on the one worker
        fleet.send(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            while "draining" not in fleet.log:  # noqa: ASYNC110 - another process has no event to wait for
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # the worker has the order by now; if not, the test passes for the lesser reason
        writer.write(body[10:])
        assert (await reader.read()).rstrip().endswith(b"data: [DONE]\n\n\r\n0")
        assert await fleet.ended() == 0
        writer.close()
