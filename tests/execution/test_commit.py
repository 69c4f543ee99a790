"""A stream up to its commit point: what is held back, what fails over, how long it may take, how much is kept.

Streams are transcripts in wire order. The reference stream is cut at each of its bytes, in both commit modes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
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
    reset,
)
from tests.execution.streams import COMMENT, ERROR, FINISH, PLAIN, ROLE, USAGE, Seen, data, frame, text

from lumen_gateway.dialects.chat_answer import DONE
from lumen_gateway.errors import TRIGGERS, Kind, Trigger
from lumen_gateway.execution.commit import MAX_COMPLETE_BYTES, MAX_LIFECYCLE_BYTES
from lumen_gateway.execution.relay import relay
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import Usage

WHOLE = b"".join(PLAIN)
STREAMING = b'{"model":"v","stream":true,"messages":[{"role":"user","content":"hello you"}]}'
MODES = pytest.mark.parametrize("complete", [False, True], ids=["first_output", "complete"])


def stage(*pieces: Piece, other: bool = True) -> Stage:
    script: dict[str, Any] = {"a": [ScriptedAnswer(*pieces)]}
    if other:
        script["b"] = [ScriptedAnswer(ROLE, text("other"), FINISH, DONE)]
    return Stage(script, STREAMING)


async def served(stage: Stage, work: Any) -> FakeClient:
    """Run the work and relay what comes of it."""
    client = FakeClient()
    stream = await stage.run(work)
    await relay(stream, client, stage.clock)
    return client


# What commits.

OUTPUTS: list[dict[str, Any]] = [
    {"content": "x"},
    {"reasoning_content": "x"},
    {"reasoning": "x"},
    {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}}]},
    {"refusal": "x"},
    {"audio": {"id": "x"}},
]


@pytest.mark.parametrize("delta", OUTPUTS, ids=lambda delta: next(iter(delta)))
async def test_first_output_of_any_kind_commits(delta: dict[str, Any]) -> None:
    stage_ = stage(ROLE, frame(delta), reset())
    client = await served(stage_, stage_.streamed(chain("a", "b")))
    assert stage_.transport.asked == ["a"]
    assert client.got.startswith(ROLE + frame(delta))


@pytest.mark.parametrize(
    "opening",
    [
        COMMENT,
        ROLE,
        frame({"content": None}),
        frame({}),
        data({"choices": []}),
        b"event: ping\ndata: {}\n\n",
        b"id: 1\n\n",
    ],
)
async def test_what_is_no_output_commits_nothing(opening: bytes) -> None:
    stage_ = stage(opening, reset())
    client = await served(stage_, stage_.streamed(chain("a", "b")))
    assert Seen(client.got).text == "other"


@pytest.mark.parametrize("pieces", [(ERROR,), (ROLE, ERROR), (COMMENT, ROLE, ERROR, text("x"))])
async def test_error_frame_before_output_is_an_ordinary_failure(pieces: tuple[bytes, ...]) -> None:
    stage_ = stage(*pieces)
    work = stage_.streamed(chain("a", "b"))
    client = await served(stage_, work)
    assert Seen(client.got).errors == []
    assert work.records[0].outcome == "provider_error"
    assert stage_.transport.answers[0].over == "closed"


async def test_error_frame_is_classified_as_the_same_error_with_a_status_is() -> None:
    stage_ = stage(data({"error": {"code": "context_length_exceeded", "message": "m"}}))
    found = await stage_.fail(stage_.streamed(chain("a", "b")))
    assert (found.kind, found.status) == (Kind.CONTEXT_LENGTH, 400)


async def test_frames_held_back_reach_the_client_in_order_and_unchanged() -> None:
    stage_ = stage(*PLAIN)
    client = await served(stage_, stage_.streamed(chain("a")))
    assert client.got == WHOLE
    stage_ = stage(WHOLE)
    assert (await served(stage_, stage_.streamed(chain("a")))).got == WHOLE


@MODES
async def test_every_split_of_the_stream_reads_the_same(complete: bool) -> None:
    for cut in range(1, len(WHOLE)):
        stage_ = stage(WHOLE[:cut], WHOLE[cut:])
        assert (await served(stage_, stage_.streamed(chain("a"), complete=complete))).got == WHOLE
    stage_ = stage(*(WHOLE[i : i + 1] for i in range(len(WHOLE))))
    assert (await served(stage_, stage_.streamed(chain("a"), complete=complete))).got == WHOLE


# Cut at each byte.

COMMITS_AT = len(COMMENT + ROLE + text("one "))
FINISHED_AT = len(WHOLE) - len(DONE)


async def test_stream_reset_at_any_byte_fails_over_before_its_commit_and_ends_in_one_error_after() -> None:
    for cut in range(len(WHOLE)):
        stage_ = stage(WHOLE[:cut], reset())
        client = await served(stage_, stage_.streamed(chain("a", "b")))
        seen = Seen(client.got)
        if cut < COMMITS_AT:
            assert (seen.text, seen.ended, seen.errors) == ("other", True, []), cut
        else:
            assert_broken(seen, cut)
            assert stage_.transport.asked == ["a"]
        assert client.finished == 1


async def test_stream_that_ends_at_any_byte_counts_its_last_frame_and_is_whole_only_with_a_terminal_one() -> None:
    blank = 2  # the last frame counts without its blank line
    for cut in range(len(WHOLE)):
        stage_ = stage(WHOLE[:cut])
        seen = Seen((await served(stage_, stage_.streamed(chain("a", "b")))).got)
        if cut < COMMITS_AT - blank:
            assert (seen.text, seen.ended, seen.errors) == ("other", True, []), cut
        elif cut < FINISHED_AT - blank:
            assert_broken(seen, cut)
        else:
            assert (seen.text, seen.ended, seen.errors) == ("one two", True, []), cut


@pytest.mark.parametrize("ending", [[reset()], []], ids=["reset", "end"])
async def test_complete_stream_fails_over_wherever_it_is_cut(ending: list[Piece]) -> None:
    for cut in range(FINISHED_AT - 2):
        stage_ = stage(WHOLE[:cut], *ending)
        client = await served(stage_, stage_.streamed(chain("a", "b"), complete=True))
        seen = Seen(client.got)
        assert (seen.text, seen.ended, seen.errors) == ("other", True, []), cut


def assert_broken(seen: Seen, cut: int) -> None:
    assert "one two".startswith(seen.text), cut
    assert not seen.ended, cut
    assert [error["code"] for error in seen.errors] == ["LM-3010"], cut
    assert "error" in seen.values[-1], cut


async def test_finish_reason_and_then_a_reset_is_no_end_before_the_commit_either() -> None:
    stage_ = stage(ROLE, FINISH, reset())
    assert Seen((await served(stage_, stage_.streamed(chain("a", "b")))).got).text == "other"


# Streams without output.

FILTERED = frame(finish="content_filter")


@MODES
@pytest.mark.parametrize(
    ("finish", "trigger", "code"),
    [(FINISH, Trigger.EMPTY_ANSWER, "LM-3002"), (FILTERED, Trigger.CONTENT_FILTER, "LM-2013")],
    ids=["empty", "filtered"],
)
async def test_stream_without_output_is_a_failure_only_where_listed(
    finish: bytes, trigger: Trigger, code: str, complete: bool
) -> None:
    silent = ROLE + finish + DONE
    stage_ = stage(silent)
    client = await served(stage_, stage_.streamed(chain("a", "b"), complete=complete))
    assert client.got == silent
    stage_ = stage(silent)
    client = await served(stage_, stage_.streamed(chain("a", "b", triggers=trigger), complete=complete))
    assert Seen(client.got).text == "other"
    stage_ = Stage({"a": [ScriptedAnswer(silent)], "b": [ScriptedAnswer(silent)]}, STREAMING)
    found = await stage_.fail(stage_.streamed(chain("a", "b", triggers=trigger), complete=complete))
    assert found.kind.row.code == code


async def test_terminator_left_out_of_a_stream_without_output_is_completed() -> None:
    stage_ = stage(ROLE, FINISH)
    assert (await served(stage_, stage_.streamed(chain("a")))).got == ROLE + FINISH + DONE


@pytest.mark.parametrize("body", [b"", COMMENT, b"\n\n", b": ping\n\n: ping\n\n"])
async def test_stream_that_ends_without_a_frame_fails_over_as_ended_early(body: bytes) -> None:
    stage_ = stage(body)
    work = stage_.streamed(chain("a", "b"))
    assert Seen((await served(stage_, work)).got).text == "other"
    assert work.records[0].outcome == "provider_error"
    stage_ = stage(body)
    assert (await stage_.fail(stage_.streamed(chain("a")))).kind is Kind.ENDED_EARLY


# What is no stream.


async def test_error_document_where_a_stream_was_asked_for_is_that_error() -> None:
    document = b'{"error": {"code": "insufficient_quota", "message": "m"}}'
    stage_ = stage(document)
    assert (await stage_.fail(stage_.streamed(chain("a")))).kind is Kind.QUOTA_LIMITED


async def test_answer_document_where_a_stream_was_asked_for_is_malformed_and_its_usage_is_booked() -> None:
    document = (
        b'{\n"choices":[{"message":{"content":"x"}}],"error":null,\n"usage":{"prompt_tokens":7,"completion_tokens":5}}'
    )
    stage_ = stage(document)
    work = stage_.streamed(chain("a", "b"))
    assert (await stage_.fail(work)).kind is Kind.MALFORMED
    assert work.records[0].usage == Usage(7, 5, origin="reported")


@pytest.mark.parametrize("document", [b"<!doctype html><h1>busy</h1>", b'{"ok":true}', b"[1]", b"{cut"])
async def test_any_other_document_is_an_upstream_fault(document: bytes) -> None:
    stage_ = stage(document)
    found = await stage_.fail(stage_.streamed(chain("a", "b")))
    assert (found.kind.row.code, found.provider) == ("LM-3002", "of-a")


# Bounds.


async def test_event_without_measure_is_malformed() -> None:
    stage_ = stage(ROLE, b"data: " + b"x" * 2000)
    found = await stage_.fail(stage_.streamed(chain("a"), max_event_bytes=1000))
    assert found.kind is Kind.MALFORMED


async def test_lifecycle_frames_beyond_their_bound_are_let_go_as_a_stream() -> None:
    frames = MAX_LIFECYCLE_BYTES // len(ROLE) + 1
    stage_ = stage(ROLE * frames, reset())
    client = await served(stage_, stage_.streamed(chain("a", "b")))
    assert stage_.transport.asked == ["a"]
    assert [error["code"] for error in Seen(client.got).errors] == ["LM-3010"]


async def test_comments_without_end_are_dropped_and_commit_nothing() -> None:
    pings: list[Piece] = [COMMENT * 1000] * (2 * MAX_LIFECYCLE_BYTES // (1000 * len(COMMENT)))
    stage_ = stage(*pings, reset())
    assert Seen((await served(stage_, stage_.streamed(chain("a", "b")))).got).text == "other"


async def test_complete_stream_beyond_its_bound_is_let_go_as_it_comes() -> None:
    big = text("x" * 65_536)
    stage_ = stage(*[big] * (MAX_COMPLETE_BYTES // len(big) + 1), reset())
    client = await served(stage_, stage_.streamed(chain("a", "b"), complete=True))
    assert stage_.transport.asked == ["a"]
    assert [error["code"] for error in Seen(client.got).errors] == ["LM-3010"]


# Time.

QUICK = msgspec.structs.replace(TIMEOUTS, first_token_s=10.0, idle_s=4.0)


@pytest.mark.parametrize(
    "pieces",
    [
        (Silence(1e6),),
        (COMMENT, Silence(1e6)),
        (COMMENT, Silence(3.0)) * 10,
        (ROLE, Silence(9.0), COMMENT, Silence(9.0)),
    ],
)
async def test_neither_silence_nor_comments_outlast_the_first_outputs_timeout(pieces: tuple[Piece, ...]) -> None:
    stage_ = stage(*pieces)
    work = stage_.streamed(chain("a", "b"), [leaf("a", timeouts=QUICK)], retry=RetryPolicy())
    assert Seen((await served(stage_, work)).got).text == "other"
    assert sum(stage_.clock.slept) == pytest.approx(10.0)
    assert work.records[0].outcome == "timeout"
    assert stage_.transport.answers[0].over == "closed"


async def test_no_output_in_time_has_its_own_code() -> None:
    stage_ = stage(ROLE, Silence(1e6))
    found = await stage_.fail(stage_.streamed(chain("a"), [leaf("a", timeouts=QUICK)]))
    assert found.kind.row.code == "LM-3011"


async def test_complete_stream_that_falls_silent_after_output_is_left_after_the_idle_timeout() -> None:
    stage_ = stage(ROLE, text("one"), Silence(3.0), text("two"), Silence(1e6))
    work = stage_.streamed(chain("a", "b"), [leaf("a", timeouts=QUICK)], complete=True)
    assert Seen((await served(stage_, work)).got).text == "other"
    assert stage_.clock.slept == [3.0, 4.0]


@MODES
async def test_total_deadline_ends_the_wait_for_a_commit(complete: bool) -> None:
    pieces: tuple[Piece, ...] = (text("one"), Silence(1e6)) if complete else (Silence(1e6),)
    stage_ = stage(*pieces)
    at_s = stage_.clock.monotonic() + 3.0
    found = await stage_.fail(stage_.streamed(chain("a", "b"), complete=complete, total_at_s=at_s))
    assert found.kind is Kind.TOTAL_TIMEOUT
    assert stage_.clock.slept == [3.0]


# The books.


async def test_stream_that_failed_before_its_commit_books_what_it_reported_and_no_estimate() -> None:
    reported = data({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    for pieces, expected in (((ROLE, reported, ERROR), "reported"), ((ROLE, ERROR), "unknown")):
        stage_ = stage(*pieces)
        work = stage_.streamed(chain("a", "b"), [leaf("a", prices=PRICES)])
        await served(stage_, work)
        assert work.records[0].usage.origin == expected


@pytest.mark.parametrize(("seen", "expected"), [((ROLE,), "unknown"), ((ROLE, text("x")), "estimated")])
async def test_client_that_leaves_while_held_back_pays_for_the_output_it_caused(
    seen: tuple[bytes, ...], expected: str
) -> None:
    stage_ = stage(*seen, Silence(1e6))
    work = stage_.streamed(chain("a"), complete=True)
    task = asyncio.get_running_loop().create_task(stage_.executor.run(work), name="request")
    await stage_.clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.records[0].usage.origin == expected
    assert work.records[0].outcome == "client_left"
    assert stage_.transport.answers[0].over == "closed"


async def test_time_of_the_first_output_is_the_commits() -> None:
    stage_ = stage(ROLE, Silence(2.0), text("one"), FINISH, DONE)
    work = stage_.streamed(chain("a"))
    began_s = stage_.clock.monotonic()
    await stage_.run(work)
    assert work.records[0].first_output_s == began_s + 2.0


async def test_usage_nobody_asked_for_is_read_and_withheld() -> None:
    stage_ = stage(ROLE, text("x"), FINISH, USAGE, DONE)
    work = stage_.streamed(chain("a", triggers=TRIGGERS["any_error"]), complete=True)
    client = await served(stage_, work)
    assert client.got == ROLE + text("x") + FINISH + DONE
