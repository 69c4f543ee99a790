"""An upstream that says nothing, or says it slowly: which clock ends the wait, and what comes of it (B3, B4, C4)."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest
from tests.execution.staging import TIMEOUTS
from tests.execution.streams import Seen
from tests.faults.upstreams import site

from lumen_gateway.errors import Kind
from lumen_gateway.execution.leaf import Timeouts
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.simulator import Reply, completion, stream

OTHER, OTHER_STREAM = completion("other"), stream(["other"])
BRIEF = Timeouts(first_token_s=0.15, response_s=0.15, idle_s=0.15, total_s=600.0)
SLACK_S = 5.0  # for a busy machine; no other clock here is below it


def hanging(reply: Reply, frames: int) -> Reply:
    """The reply's first frames, then silence."""
    assert reply.frames is not None
    return msgspec.structs.replace(reply, frames=reply.frames[:frames], stop="hang")


SILENT = msgspec.structs.replace(completion("x"), stop="hang", stop_after_bytes=0)
HEAD_ONLY = hanging(stream(["x"]), 0)
ROLE_ONLY = hanging(stream(["x"]), 1)
PINGS = msgspec.structs.replace(stream([]), frames=(b": ping\n\n",) * 200, frame_delay_s=0.01)


@pytest.mark.parametrize("reply", [SILENT, HEAD_ONLY, ROLE_ONLY, PINGS], ids=["all", "head", "role", "pings"])
async def test_stream_without_output_in_time_is_left_for_the_next_target(reply: Reply) -> None:
    async with site({"a": reply, "b": OTHER_STREAM}) as gateway:
        began_s = time.monotonic()
        told = await gateway.ask(gateway.leaf("a", BRIEF), "b", stream=True, retry=RetryPolicy())
        assert 0.15 <= time.monotonic() - began_s + 0.01 < 0.15 + SLACK_S
        assert Seen(told.body).text == "other"
        assert [record.outcome for record in told.records] == ["timeout", "ok"]
        await asyncio.wait_for(gateway.upstream.calls[0].over.wait(), SLACK_S)
        assert gateway.upstream.calls[0].peer_closed_at is not None


async def test_unstreamed_answer_that_stalls_is_left_for_the_next_target() -> None:
    stalled = msgspec.structs.replace(completion("x"), stop="hang", stop_after_bytes=200)
    async with site({"a": stalled, "b": OTHER}) as gateway:
        told = await gateway.ask(gateway.leaf("a", BRIEF), "b")
        assert told.body == OTHER.body


async def test_silence_after_the_commit_is_one_error_frame_and_the_end_of_the_upstreams_call() -> None:
    async with site({"a": hanging(stream(["one", " two"]), 2), "b": OTHER_STREAM}) as gateway:
        told = await gateway.ask(gateway.leaf("a", msgspec.structs.replace(BRIEF, first_token_s=5.0)), "b", stream=True)
        seen = Seen(told.body)
        assert (seen.text, [error["code"] for error in seen.errors], seen.ended) == ("one", ["LM-3005"], False)
        await asyncio.wait_for(gateway.upstream.calls[0].over.wait(), SLACK_S)


async def test_slow_stream_that_never_falls_silent_is_relayed_whole() -> None:
    slow = msgspec.structs.replace(stream(["x"] * 10), frame_delay_s=0.1)
    async with site({"a": slow}) as gateway:
        patient = msgspec.structs.replace(BRIEF, idle_s=2.0, first_token_s=2.0)
        told = await gateway.ask(gateway.leaf("a", patient), stream=True, total_s=0.8)
        assert (Seen(told.body).text, told.failure) == ("x" * 10, None)


async def test_refused_connection_leads_on_at_once() -> None:
    async with site({"b": OTHER}) as gateway:
        with socket.socket() as closed:  # bound and not listening: refuses
            closed.bind((gateway.upstream.host, 0))
            told = await gateway.ask(gateway.leaf("a", port=closed.getsockname()[1]), "b")
        assert told.body == OTHER.body
        assert [record.outcome for record in told.records] == ["provider_error", "ok"]


async def test_deadline_over_everything_ends_the_wait_and_nothing_is_sent_behind_it() -> None:
    async with site({"*": SILENT}) as gateway:
        slow = [gateway.leaf(each, msgspec.structs.replace(TIMEOUTS, response_s=0.4)) for each in "abcde"]
        began_s = time.monotonic()
        told = await gateway.ask(*slow, total_s=1.1, retry=RetryPolicy())
        assert 1.1 <= time.monotonic() - began_s + 0.01 < 1.1 + SLACK_S
        assert told.failure is not None
        assert (told.failure.kind, told.failure.provider) == (Kind.TOTAL_TIMEOUT, "of-a")
        assert len(gateway.upstream.calls) == len(told.records) == 3
        await asyncio.sleep(0.1)
        assert len(gateway.upstream.calls) == 3
