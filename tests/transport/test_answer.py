"""Reading an answer: whole or piece by piece, in time or not, decoded, bounded, closed."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.transport.answer import Answer
from lumen_gateway.transport.encoding import PIECE_BYTES

LATER_S = 20.0  # never reached; a fault shows as a failure then, not as a hanging test
LIMIT_BYTES = 1_000_000


class FakeWire:
    """Notes what an answer asks of its connection."""

    answer: Answer

    def __init__(self) -> None:
        self.closed = 0
        self.paused = False
        self.woken_at: list[float] = []

    def wake_at(self, until: float) -> None:
        self.woken_at.append(until)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed += 1
        self.answer.fail(Failure(Kind.ENDED_EARLY, "closed"))


def later() -> float:
    return asyncio.get_running_loop().time() + LATER_S


def open_answer(*pieces: bytes, coding: bytes | None = None) -> tuple[Answer, FakeWire]:
    """Return an answer whose head and these pieces are in, and its wire."""
    wire = FakeWire()
    answer = wire.answer = Answer(wire, asyncio.get_running_loop())
    answer.content_encoding = coding
    answer.begin(200)
    for piece in pieces:
        answer.take(piece)
    return answer, wire


def whole_answer(*pieces: bytes, coding: bytes | None = None) -> tuple[Answer, FakeWire]:
    answer, wire = open_answer(*pieces, coding=coding)
    answer.finish()
    return answer, wire


def reading(answer: Answer, until: float) -> asyncio.Task[bytes]:
    return asyncio.get_running_loop().create_task(answer.read_chunk(until), name="reader")


async def failure_of(answer: Answer, limit_bytes: int = LIMIT_BYTES) -> Failure:
    with pytest.raises(Failure) as caught:
        await answer.read_all(limit_bytes, later())
    return caught.value


async def test_whole_body_in_one_piece_is_returned_as_it_came() -> None:
    piece = b"hello" * 100
    answer, wire = whole_answer(piece)
    assert await answer.read_all(LIMIT_BYTES, later()) is piece
    assert wire.woken_at == []


async def test_pieces_are_joined_and_the_end_is_empty() -> None:
    answer, _ = whole_answer(b"he", b"llo")
    assert await answer.read_chunk(later()) == b"hello"
    assert [await answer.read_chunk(later()) for _ in range(2)] == [b"", b""]


async def test_waiting_reader_gets_each_piece_as_it_comes() -> None:
    answer, _ = open_answer()
    for piece in (b"one", b"two"):
        task = reading(answer, later())
        await asyncio.sleep(0)
        answer.take(piece)
        answer.wake()
        assert await task == piece
    task = reading(answer, later())
    await asyncio.sleep(0)
    answer.finish()
    assert await task == b""


async def test_spurious_wake_is_no_end() -> None:
    answer, wire = open_answer()
    task = reading(answer, later())
    for _ in range(3):
        await asyncio.sleep(0)
        answer.wake()
    await asyncio.sleep(0)
    assert not task.done()
    assert len(wire.woken_at) == 4
    answer.finish()
    assert await task == b""


async def test_limit_is_exact_and_closes_the_socket() -> None:
    fitting, _ = open_answer(b"y" * 60, b"y" * 40)
    fitting.finish()
    assert len(await fitting.read_all(100, later())) == 100
    large, wire = open_answer(b"y" * 101)
    failure = await failure_of(large, 100)
    assert (failure.kind, wire.closed) == (Kind.MALFORMED, 1)
    assert "larger than 100 bytes" in failure.message


async def test_silence_is_a_read_timeout_after_which_reading_can_go_on() -> None:
    answer, wire = open_answer()
    now = asyncio.get_running_loop().time()
    task = reading(answer, now)
    await asyncio.sleep(0)
    assert wire.woken_at == [now]
    assert answer.look(now) is None
    with pytest.raises(Failure) as caught:
        await task
    assert caught.value.kind is Kind.READ_TIMEOUT
    assert wire.closed == 0
    answer.take(b"late")
    assert await answer.read_chunk(later()) == b"late"


async def test_timer_set_for_an_earlier_wait_learns_the_later_deadline() -> None:
    answer, _ = open_answer()
    now = asyncio.get_running_loop().time()
    assert answer.look(now) is None
    task = reading(answer, now + 5)
    await asyncio.sleep(0)
    assert answer.look(now + 1) == now + 5
    assert not task.done()
    assert answer.look(now + 5) is None
    with pytest.raises(Failure):
        await task


async def test_cancelled_reader_closes_the_socket_at_once() -> None:
    answer, wire = open_answer()
    task = reading(answer, later())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.closed == 1


async def test_reader_cancelled_as_its_answer_ends_leaves_the_connection_to_the_next() -> None:
    answer, wire = open_answer()
    task = reading(answer, later())
    await asyncio.sleep(0)
    answer.finish()  # the connection may be another answer's from here on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.closed == 0


async def test_head_that_does_not_come_in_time_closes_the_socket() -> None:
    wire = FakeWire()
    answer = wire.answer = Answer(wire, asyncio.get_running_loop())
    now = asyncio.get_running_loop().time()
    task = asyncio.get_running_loop().create_task(answer.wait_head(now), name="head")
    await asyncio.sleep(0)
    answer.look(now)
    with pytest.raises(Failure) as caught:
        await task
    assert (caught.value.kind, wire.closed) == (Kind.FIRST_TOKEN_TIMEOUT, 1)


async def test_closing_an_unfinished_answer_closes_its_socket_once() -> None:
    answer, wire = open_answer(b"rest")
    answer.close()
    answer.close()
    assert wire.closed == 1
    assert (await failure_of(answer)).kind is Kind.ENDED_EARLY


async def test_closing_a_finished_answer_touches_nothing() -> None:
    answer, wire = whole_answer(b"hello")
    answer.close()
    assert wire.closed == 0
    assert await answer.read_all(LIMIT_BYTES, later()) == b"hello"


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_coded_body_is_decoded_however_it_arrives(size: int) -> None:
    text = b"hello " * 50_000
    coded = gzip.compress(text)
    answer, _ = whole_answer(*(coded[at : at + size] for at in range(0, len(coded), size)), coding=b"gzip")
    assert await answer.read_all(LIMIT_BYTES, later()) == text


async def test_coded_chunks_stay_small_and_end_properly() -> None:
    answer, _ = whole_answer(zlib.compress(bytes(3 * PIECE_BYTES)), coding=b"deflate")
    assert [len(await answer.read_chunk(later())) for _ in range(4)] == [PIECE_BYTES] * 3 + [0]


async def test_bomb_is_cut_at_the_limit_and_others_run_meanwhile() -> None:
    answer, wire = open_answer(gzip.compress(bytes(20_000_000), compresslevel=9), coding=b"gzip")
    turns, loop = 0, asyncio.get_running_loop()

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    count()
    assert (await failure_of(answer)).kind is Kind.MALFORMED
    assert wire.closed == 1
    assert turns > 10


async def test_bomb_can_be_cancelled_between_two_pieces() -> None:
    answer, wire = open_answer(gzip.compress(bytes(10_000_000)), coding=b"gzip")
    task = reading(answer, later())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.closed == 1


@pytest.mark.parametrize("coding", [b"br", b"gzip"])
async def test_bad_coding_is_malformed_and_closes_the_socket(coding: bytes) -> None:
    answer, wire = open_answer(b"\xffrubbish", coding=coding)
    assert (await failure_of(answer)).kind is Kind.MALFORMED
    assert wire.closed == 1


async def test_cut_of_a_coded_body_is_named_as_the_cut_it_is() -> None:
    answer, _ = open_answer(gzip.compress(b"hello")[:-4], coding=b"gzip")
    answer.fail(Failure(Kind.ENDED_EARLY, "cut"))
    assert (await failure_of(answer)).kind is Kind.ENDED_EARLY
