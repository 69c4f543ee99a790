"""Frames between keeper and worker: whole, bounded, and free of secrets where they are shown."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lumen_gateway import control
from lumen_gateway.config.schema import Config
from lumen_gateway.control import Counted, Drain, Load, Loaded, Message, Report
from lumen_gateway.telemetry.metrics import State

STATE = State({"c": {("a", "b"): 3}}, {"h": {(): ([1, 2], [0.5])}}, {("p", "m"): 2})
MESSAGES: list[Message] = [
    Load("hash", Config(), {"KEY": "value"}),
    Report(7),
    Drain(1.5),
    Loaded("hash"),
    Counted(7, STATE),
]


@asynccontextmanager
async def channel() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A reader on one end, a writer on the other."""
    ours, theirs = socket.socketpair()
    reader, idle = await asyncio.open_connection(sock=ours)
    _, writer = await asyncio.open_connection(sock=theirs)
    try:
        yield reader, writer
    finally:
        for each in (idle, writer):
            each.close()
            await each.wait_closed()


async def test_messages_arrive_as_they_were_sent_and_the_end_is_one_too() -> None:
    async with channel() as (reader, writer):
        for message in MESSAGES:
            await control.send(writer, message)
        writer.write_eof()
        assert [await control.receive(reader) for _ in MESSAGES] == MESSAGES
        assert await control.receive(reader) is None


async def test_frame_cut_short_is_the_end() -> None:
    async with channel() as (reader, writer):
        writer.write(control.encode(Report(1))[:-1])
        writer.write_eof()
        assert await control.receive(reader) is None


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (struct.pack(">I", control.MAX_FRAME_BYTES + 1), "268435457 bytes"),
        (struct.pack(">I", 3) + b"abc", "not one of ours"),
    ],
)
async def test_what_is_no_message_is_refused_before_it_is_read(sent: bytes, said: str) -> None:
    async with channel() as (reader, writer):
        writer.write(sent)
        with pytest.raises(ValueError, match=said):
            await control.receive(reader)


async def test_peer_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "STALLED_S", 0.01)
    async with channel() as (_, writer):
        with pytest.raises(TimeoutError):
            await control.send(writer, Loaded("x" * 10_000_000))
        writer.transport.abort()


def test_document_on_its_way_does_not_print_its_secrets() -> None:
    shown = repr(Load("0123456789abcdef", Config(), {"KEY": "sk-canary"}))
    assert shown == "Load(0123456789ab)"
