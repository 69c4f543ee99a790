"""An upstream that breaks off: after each byte of its answer, by RST and by FIN, streamed and not (B1, C5).

Before the commit the next target serves; after it there is one error frame. Never a 200 with a cut body, never an event
twice, never two models' words in one answer, and the broken connection is not used again.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.execution.streams import Seen
from tests.faults.upstreams import Site, Told, site

from lumen_gateway.errors import Kind
from lumen_gateway.simulator import Reply, completion, stream
from lumen_gateway.simulator.reply import Stop
from lumen_gateway.simulator.upstream import transcript

WHOLE = completion("hello", usage=None)
STREAM = stream(["hel", "lo"])
BEHIND = {"b": completion("other", usage=None)}
BEHIND_STREAM = {"b": stream(["other"])}


def size_of(reply: Reply) -> int:
    return sum(len(data) for _, data in transcript(reply).writes)


def cut(reply: Reply, at: int, stop: Stop) -> Reply:
    return msgspec.structs.replace(reply, stop=stop, stop_after_bytes=at)


async def cuts(
    reply: Reply, behind: dict[str, Reply], stop: Stop, *, step: int, stream: bool = False, complete: bool = False
) -> list[tuple[int, Told]]:
    """Ask once for every cut of the reply, with a sound target behind it."""
    offsets = range(0, size_of(reply), step)
    async with site({"a": [cut(reply, at, stop) for at in offsets], **behind}) as gateway:
        return [(at, await gateway.ask("a", "b", stream=stream, complete=complete)) for at in offsets]


@pytest.mark.parametrize("stop", ["reset", "end"])
async def test_unstreamed_answer_cut_at_any_byte_is_served_by_the_next_target(stop: Stop) -> None:
    for at, told in await cuts(WHOLE, BEHIND, stop, step=1):
        assert told.body == BEHIND["b"].body, at
        assert [record.outcome for record in told.records] == ["provider_error", "ok"], at


TERMINATED_AT = size_of(STREAM) - len(b"\r\n0\r\n\r\n")
"""From here on the client has its terminator, and what becomes of the rest is nothing to it."""


@pytest.mark.parametrize("stop", ["reset", "end"])
async def test_stream_cut_at_any_byte_is_served_by_the_next_target_or_ends_in_one_error(stop: Stop) -> None:
    endings = set()
    for at, told in await cuts(STREAM, BEHIND_STREAM, stop, step=3, stream=True):
        seen = Seen(told.body)
        served_by = told.records[-1].leaf
        endings.add((served_by, seen.ended))
        if served_by == "b":
            assert (seen.text, seen.ended, seen.errors) == ("other", True, []), at
        elif at < TERMINATED_AT:
            assert (told.failure.kind if told.failure else None) is Kind.ENDED_EARLY, at
            assert [error["code"] for error in seen.errors] == ["LM-3010"], at
            assert "hello".startswith(seen.text), at
            assert not seen.ended, at
        else:
            assert (seen.text, seen.ended, seen.errors) == ("hello", True, []), at
    assert endings == {("b", True), ("a", False), ("a", True)}


@pytest.mark.parametrize("stop", ["reset", "end"])
async def test_complete_stream_cut_anywhere_is_served_by_the_next_target(stop: Stop) -> None:
    for at, told in await cuts(STREAM, BEHIND_STREAM, stop, step=3, stream=True, complete=True):
        seen = Seen(told.body)
        expected = "other" if at < TERMINATED_AT else "hello"
        assert (seen.text, seen.ended, seen.errors) == (expected, True, []), at


async def test_broken_connection_is_not_used_again_and_a_sound_one_is() -> None:
    async with site({"a": [WHOLE, cut(WHOLE, size_of(WHOLE) - 1, "reset"), WHOLE], **BEHIND}) as gateway:
        await gateway.ask("a")
        assert gateway.upstream.connections == 1
        assert (await gateway.ask("a")).failure is not None
        assert (await gateway.ask("a")).failure is None
        assert gateway.upstream.connections == 2


async def test_fault_after_the_first_output_costs_one_call_and_no_repeated_word() -> None:
    broken = msgspec.structs.replace(stream(["one", " two", " three"], done=False), stop="reset")
    async with site({"a": broken, **BEHIND_STREAM}) as gateway:
        told = await asyncio.gather(*(gateway.ask("a", "b", stream=True) for _ in range(100)))
        assert len(gateway.upstream.calls) == 100
        assert {call.field("model") for call in gateway.upstream.calls} == {"a"}
    for each in told:
        seen = Seen(each.body)
        assert seen.text == "one two three"
        assert len(seen.errors) == 1
        assert [record.tries for record in each.records] == [1]


# The end of a stream and its connection.


async def test_connection_is_reused_when_the_body_ends_soon_behind_its_terminator() -> None:
    slow_end = msgspec.structs.replace(STREAM, frame_delay_s=0.002)
    async with site({"a": slow_end}) as gateway:
        for _ in range(3):
            assert Seen((await gateway.ask("a", stream=True)).body).ended
            await body_over(gateway)
        assert gateway.upstream.connections == 1


async def test_answer_does_not_wait_for_a_body_that_never_ends() -> None:
    hanging = msgspec.structs.replace(STREAM, stop="hang")
    async with site({"a": hanging}) as gateway:
        told = await gateway.ask("a", stream=True)
        assert (told.failure, Seen(told.body).ended) == (None, True)
        await asyncio.wait_for(gateway.upstream.deserted(), 5.0)


async def body_over(gateway: Site) -> None:
    await gateway.upstream.calls[-1].over.wait()
    await asyncio.sleep(0.01)  # the last bytes are on their way
