"""A stream after its commit: bytes through, one end, and never a second story."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.execution.staging import (
    PRICES,
    TIMEOUTS,
    FakeClient,
    Piece,
    ScriptedAnswer,
    Silence,
    Stage,
    chain,
    leaf,
    played,
    reset,
)
from tests.execution.streams import COMMENT, ERROR, FINISH, ROLE, USAGE, Seen, data, frame, text

from lumen_gateway.dialects.chat_answer import DONE
from lumen_gateway.dialects.wire import CHAT
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.execution.commit import OpenStream
from lumen_gateway.execution.executor import Job
from lumen_gateway.execution.relay import final_event, relay
from lumen_gateway.records import AttemptRecord, Usage

STREAMING = b'{"model":"v","stream":true,"messages":[{"role":"user","content":"hello you"}]}'
BEGUN = ROLE + text("one ")


class Run:
    """A stream relayed to its end, with a fallback behind it that must stay unused."""

    def __init__(self, *pieces: Piece, idle_s: float = 60.0, body: bytes = STREAMING) -> None:
        self.stage = Stage({"a": [ScriptedAnswer(*pieces)], "b": []}, body)
        self.client = FakeClient()
        timeouts = msgspec.structs.replace(TIMEOUTS, idle_s=idle_s, total_s=5.0)
        leaves = [leaf("a", timeouts=timeouts, prices=PRICES)]
        self.work: Job[OpenStream] = self.stage.streamed(chain("a", "b"), leaves, total_at_s=1005.0)
        self.failure: Failure | None = None

    @property
    def answer(self) -> ScriptedAnswer:
        return self.stage.transport.answers[0]

    @property
    def record(self) -> AttemptRecord:
        (record,) = self.work.records
        return record

    async def begin(self) -> OpenStream:
        return await self.stage.run(self.work)

    async def finish(self) -> Run:
        stream = await self.begin()
        self.failure = await played(self.stage.clock, relay(stream, self.client, self.stage.clock))
        assert self.client.finished == 1
        return self

    @property
    def seen(self) -> Seen:
        return Seen(self.client.got)


# Clean ends.


@pytest.mark.parametrize(
    ("tail", "added"),
    [
        ((FINISH, DONE), b""),
        ((FINISH,), DONE),
        ((DONE,), b""),
        ((FINISH, COMMENT), DONE),
        ((FINISH, b"data:  [DONE] \n\n"), b""),
        ((FINISH.removesuffix(b"\n\n"),), b"\n\n" + DONE),
    ],
)
async def test_terminal_frame_and_the_proper_end_are_a_clean_end_with_its_terminator(
    tail: tuple[bytes, ...], added: bytes
) -> None:
    run = await Run(BEGUN, *tail).finish()
    assert run.failure is None
    assert run.client.got == BEGUN + b"".join(tail) + added
    assert (run.record.outcome, run.answer.over) == ("ok", "left")


async def test_every_choice_that_began_must_finish() -> None:
    second = frame({"content": "x"}, index=1)
    assert (await Run(BEGUN, second, FINISH).finish()).failure is not None
    assert (await Run(BEGUN, second, FINISH, frame(finish="stop", index=1)).finish()).failure is None


async def test_answer_ends_at_its_terminator_though_the_upstream_goes_on() -> None:
    run = Run(BEGUN, DONE, Silence(1e6), text("late"), DONE)
    await run.finish()
    assert run.client.got == BEGUN + DONE
    assert run.stage.clock.slept == []
    assert run.answer.over == "left"


async def test_nothing_behind_the_terminator_is_forwarded() -> None:
    run = await Run(BEGUN + DONE + text("late") + DONE).finish()
    assert run.client.got == BEGUN + DONE


async def test_text_that_looks_like_a_terminator_is_none() -> None:
    run = await Run(BEGUN, text("\n\ndata: [DONE]\n\n"), reset()).finish()
    assert run.seen.text == "one \n\ndata: [DONE]\n\n"
    assert [error["code"] for error in run.seen.errors] == ["LM-3010"]


@given(st.lists(st.integers(0, 400), max_size=6))
async def test_stream_is_forwarded_byte_for_byte_however_it_was_split(cuts: list[int]) -> None:
    whole = COMMENT + BEGUN + text("two\u2028 \u00e9 \U0001f600") + b"event: odd\r\ndata: {}\r\n\r\n" + FINISH + DONE
    edges = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    pieces = [whole[start:end] for start, end in itertools.pairwise(edges)]
    run = await Run(*pieces).finish()
    assert (run.client.got, run.failure) == (whole, None)


# Broken ends: exactly one error frame, nothing after it.

BROKEN: list[tuple[tuple[Piece, ...], str]] = [
    ((reset(),), "LM-3010"),
    ((), "LM-3010"),
    ((text("two"), reset()), "LM-3010"),
    ((FINISH, reset()), "LM-3010"),
    ((b'data: {"choices":[{"delta":{"conte',), "LM-3010"),
    ((b'data: {"choices":[{"delta":{"conte', reset()), "LM-3010"),
    ((Silence(1e6),), "LM-3005"),
    ((text("two"), Silence(1e6)), "LM-3005"),
    ((b"data: " + b"x" * 2_000_000,), "LM-3002"),
]


@pytest.mark.parametrize(("tail", "code"), BROKEN)
async def test_broken_stream_ends_in_one_error_frame(tail: tuple[Piece, ...], code: str) -> None:
    run = Run(BEGUN, *tail)
    run.work.exchange.max_event_bytes = 1_000_000  # type: ignore[attr-defined]  # it is a StreamedChat
    await run.finish()
    assert run.failure is not None
    assert run.client.got.endswith(final_event(run.failure, CHAT))
    assert [error["code"] for error in run.seen.errors] == [code]
    assert 'provider "of-a": ' in run.seen.errors[0]["message"]
    assert not run.seen.ended
    assert run.seen.text in ("one ", "one two")
    assert (run.record.outcome, run.answer.over) == (run.failure.kind.outcome, "closed")
    assert run.stage.transport.asked == ["a"]


async def test_failure_after_the_commit_never_reaches_the_breaker() -> None:
    run = await Run(BEGUN, reset()).finish()
    assert run.stage.executor.breakers["of-a", None, "a"]._faults == 0


@pytest.mark.parametrize("kept", [ERROR, b"event: error\n" + ERROR, data({"choices": [], "error": {"code": 502}})])
async def test_vendors_own_error_is_forwarded_once_and_ends_the_stream(kept: bytes) -> None:
    run = await Run(BEGUN, kept, text("late"), ERROR, DONE).finish()
    assert run.client.got == BEGUN + kept
    assert run.failure is not None
    assert run.record.outcome == "provider_error"


async def test_vendors_error_keeps_its_class_on_the_record() -> None:
    run = await Run(BEGUN, data({"error": {"code": "rate_limit_exceeded"}})).finish()
    assert run.failure is not None
    assert (run.failure.kind, run.record.outcome) == (Kind.RATE_LIMITED, "rate_limited")


@pytest.mark.parametrize("hidden", [frame(finish="error"), frame(finish="insufficient_system_resource")])
async def test_error_that_no_client_would_notice_is_followed_by_ours(hidden: bytes) -> None:
    run = await Run(BEGUN, hidden).finish()
    assert run.client.got.startswith(BEGUN + hidden)
    assert [error["code"] for error in run.seen.errors] == ["LM-3003"]


async def test_frame_of_broken_json_is_dropped_and_the_stream_goes_on() -> None:
    run = await Run(BEGUN, b"data: {broken\n\n", text("two"), FINISH, DONE).finish()
    assert run.client.got == BEGUN + text("two") + FINISH + DONE


# Time and flow.


async def test_total_deadline_does_not_cut_a_stream_that_has_begun() -> None:
    run = await Run(BEGUN, Silence(30.0), text("two"), Silence(30.0), FINISH, DONE).finish()
    assert run.failure is None
    assert run.stage.clock.monotonic() > 1005.0


async def test_idle_timer_starts_anew_with_each_frame_comments_included() -> None:
    pieces: tuple[Piece, ...] = (COMMENT, Silence(9.0)) * 5
    assert (await Run(BEGUN, *pieces, FINISH, DONE, idle_s=10.0).finish()).failure is None


async def test_bytes_that_never_make_a_frame_are_silence() -> None:
    pieces: tuple[Piece, ...] = (b"x", Silence(3.0)) * 10
    run = await Run(BEGUN, *pieces, FINISH, DONE, idle_s=10.0).finish()
    assert run.failure is not None
    assert run.failure.kind is Kind.READ_TIMEOUT
    assert sum(run.stage.clock.slept) == pytest.approx(10.0)


async def test_slow_client_is_waited_for_before_more_is_read() -> None:
    run = Run(BEGUN, text("two"), FINISH, DONE)
    run.client.paused = True
    await run.finish()
    assert run.client.drained == 3  # after each piece but the last: an answer that is over waits for nobody


async def test_client_that_stops_reading_ends_the_upstreams_call() -> None:
    run = Run(BEGUN, text("two"), FINISH, DONE)
    run.client.paused = run.client.leaves = True
    stream = await run.begin()
    with pytest.raises(Failure) as caught:
        await relay(stream, run.client, run.stage.clock)
    assert caught.value.kind is Kind.CLIENT_LEFT
    assert (run.record.outcome, run.answer.over) == ("client_left", "closed")


async def test_client_that_leaves_cuts_the_upstream_off() -> None:
    run = Run(BEGUN, Silence(1e6))
    stream = await run.begin()
    work: Any = relay(stream, run.client, run.stage.clock)
    task = asyncio.get_running_loop().create_task(work, name="relay")
    await run.stage.clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.client.got == BEGUN
    assert (run.record.outcome, run.answer.over) == ("client_left", "closed")
    assert run.record.ended_s == run.stage.clock.monotonic()


# The books.


async def test_reported_usage_of_a_stream_is_booked_once() -> None:
    run = Run(BEGUN, FINISH, USAGE, DONE)
    stream = await run.begin()
    await relay(stream, run.client, run.stage.clock)
    run.work.exchange.settle(stream)  # type: ignore[attr-defined]  # it is a StreamedChat
    assert run.record.usage == Usage(7, 5, origin="reported")
    assert run.record.cost_pico == 7 * PRICES.input + 5 * PRICES.output
    assert USAGE not in run.client.got


async def test_usage_that_was_asked_for_is_forwarded() -> None:
    asked = STREAMING.replace(b'"stream":true', b'"stream":true,"stream_options":{"include_usage":true}')
    run = await Run(BEGUN, FINISH, USAGE, DONE, body=asked).finish()
    assert run.client.got == BEGUN + FINISH + USAGE + DONE


async def test_cut_stream_books_an_estimate_of_what_was_seen() -> None:
    run = Run(BEGUN, text("two"), reset())
    stream = await run.begin()
    await relay(stream, run.client, run.stage.clock)
    run.work.exchange.settle(stream)  # type: ignore[attr-defined]  # it is a StreamedChat
    assert run.record.usage == Usage(4 + 3, 2, origin="estimated")
