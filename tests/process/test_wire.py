"""The client's side of the wire, byte by byte, through the running program: framing, limits, order, codings."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.faults.framing import REFUSED, SERVED
from tests.lanes import read_answers
from tests.process.fleet import Fleet, document
from tests.process.program import PATIENCE_S
from tests.process.wire import chat, connected, exchange, head, to_the_end

from lumen_gateway.simulator import Upstream, completion

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY_LIMIT = 4096
LAST = "connection: close"
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hello"}]}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Upstream]:
    late = msgspec.structs.replace(completion("Late"), delay_s=0.3)
    async with Upstream({"m": completion("Hello"), "late": late}) as upstream:
        yield upstream


@pytest.fixture
def upstream(running: Upstream) -> Upstream:
    """The upstream, with no calls yet."""
    running.calls.clear()
    return running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory, running: Upstream) -> AsyncIterator[int]:
    text = document(running.port, "m", "late", more=f"[server]\nbody_limit = {BODY_LIMIT}\n")
    async with Fleet(tmp_path_factory.mktemp("wire"), text) as fleet:
        yield fleet.port


def statuses(got: bytes) -> list[int]:
    return [status for status, _, _ in read_answers(got)]


@pytest.mark.parametrize("name", REFUSED)
async def test_ambiguous_request_is_refused_and_no_canary_behind_it_reaches_an_upstream(
    port: int, upstream: Upstream, name: str
) -> None:
    ((status, answered, body),) = read_answers(await exchange(port, REFUSED[name] + chat("m", LAST)))
    assert (status, b"LM-1001" in body) == (400, True)
    assert b"connection: close" in answered
    assert upstream.calls == []


@pytest.mark.parametrize("name", SERVED)
async def test_canary_behind_a_plain_request_is_served_once_and_for_itself(
    port: int, upstream: Upstream, name: str
) -> None:
    first, second = read_answers(await exchange(port, SERVED[name][0] + chat("m", LAST)))
    assert (first[0], b"LM-1003" in first[2]) == (404, True)
    assert (second[0], b'"Hello"' in second[2]) == (200, True)
    assert len(upstream.calls) == 1


async def test_upstream_gets_framing_of_our_own_and_no_headers_of_the_hop(port: int, upstream: Upstream) -> None:
    lines = ("transfer-encoding: chunked", "te: trailers", "connection: close, x-hop", "x-hop: 1", "trailer: x-last")
    chunks = b"5;a=b\r\n%b\r\n%x\r\n%b\r\n0\r\nx-last: 1\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])
    assert statuses(await exchange(port, head(*lines) + chunks)) == [200]
    (called,) = upstream.calls
    assert called.headers["content-length"] == str(len(called.body))
    assert not called.headers.keys() & {"transfer-encoding", "te", "connection", "x-hop", "trailer", "x-last"}


async def test_pipelined_requests_are_answered_in_their_order(port: int, upstream: Upstream) -> None:
    health = b"GET /health HTTP/1.1\r\nhost: gateway\r\n\r\n"
    answers = read_answers(await exchange(port, chat("late") + health + chat("m") + chat("late", LAST)))
    said = [next(word for word in (b"Late", b"Hello", b'"ok"') if word in body) for _, _, body in answers]
    assert said == [b"Late", b'"ok"', b"Hello", b"Late"]


async def test_client_that_asks_first_is_told_to_go_on_or_not_to(port: int, upstream: Upstream) -> None:
    asking = ("expect: 100-continue", LAST)
    async with connected(port) as (reader, writer), asyncio.timeout(PATIENCE_S):
        writer.write(head(*asking, f"content-length: {len(BODY)}"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        assert statuses(await to_the_end(reader)) == [200]
    assert statuses(await exchange(port, head(*asking, f"content-length: {BODY_LIMIT + 1}"))) == [413]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("form", ["plain", "chunked", "gzip"])
async def test_body_limit_is_exact_whatever_the_form(port: int, upstream: Upstream, form: str, extra: int) -> None:
    body = BODY.ljust(BODY_LIMIT + extra)
    match form:
        case "plain":
            request = head(LAST, f"content-length: {len(body)}") + body
        case "chunked":
            request = head(LAST, "transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        case _:
            packed = gzip.compress(body)
            request = head(LAST, "content-encoding: gzip", f"content-length: {len(packed)}") + packed
    ((status, _, answer),) = read_answers(await exchange(port, request))
    assert status == (413 if extra else 200)
    assert (b"LM-1002" in answer) == bool(extra)
    assert len(upstream.calls) == 1 - extra


async def test_other_codings_are_refused_with_the_one_that_is_taken(port: int, upstream: Upstream) -> None:
    request = head(LAST, "content-encoding: br", f"content-length: {len(BODY)}") + BODY
    ((status, answered, _),) = read_answers(await exchange(port, request))
    assert status == 415
    assert b"accept-encoding: gzip" in answered


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["x-large: " + "x" * 17_000], id="one large field"),
        pytest.param([f"x-{n}: {'x' * 180}" for n in range(90)], id="many fields of some size"),
        pytest.param([f"x-{n}: 1" for n in range(10_000)], id="10,000 fields"),
    ],
)
async def test_head_without_measure_is_refused(port: int, upstream: Upstream, lines: list[str]) -> None:
    assert statuses(await exchange(port, chat("m", *lines, LAST))) == [431]
    assert upstream.calls == []


async def test_target_without_measure_is_refused(port: int) -> None:
    target = b"GET /v1/models?" + b"x" * 1_000_000 + b" HTTP/1.1\r\nhost: gateway\r\n\r\n"
    assert statuses(await exchange(port, target)) == [431]
