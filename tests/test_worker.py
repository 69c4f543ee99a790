"""The worker's side of the channel, and what a worker process is made of."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import pytest

from lumen_gateway import control, worker
from lumen_gateway.config.schema import Config
from lumen_gateway.serving import DRAIN_S
from lumen_gateway.telemetry.metrics import State
from lumen_gateway.worker import Compose, Orders

# watchfiles is not among them: uvicorn looks whether it could reload with it.
OF_THE_KEEPER = {"sqlalchemy", "alembic", "starlette", "tomlkit", "aiosqlite", "asyncpg"}
STATE = State({}, {}, {})


def test_worker_process_loads_no_database_no_web_framework_and_no_toml_editor() -> None:
    text = "import sys, lumen_gateway.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert "lumen_gateway.worker" in loaded
    assert {name.partition(".")[0] for name in loaded} & OF_THE_KEEPER == set()


def load(name: str) -> control.Load:
    return control.Load(name, Config(), {})


class Fake:
    """What orders are given to: a gateway, and the site it serves on."""

    def __init__(self) -> None:
        self.telemetry = self
        self.served: list[str] = []
        self.stops: list[float] = []

    def state(self) -> State:
        return STATE

    def stop(self, within_s: float) -> None:
        self.stops.append(within_s)


class Composing:
    """Composes as many slices as it is told, and stops at a gate in the middle of a document named so."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.begun: list[str] = []
        self.slices = 3

    def __call__(self, document: control.Load, running: Any) -> Generator[None, None, Any]:
        self.begun.append(document.hash)
        if document.hash == "broken":
            raise RuntimeError("oops")
        for _ in range(self.slices if document.hash != "endless" else 10**9):
            yield
        self.fake.served.append(document.hash)
        return running


class Channel:
    """Orders under way, and the keeper's end of their channel."""

    def __init__(self, fake: Fake, compose: Compose) -> None:
        self.fake, self.compose = fake, compose

    async def __aenter__(self) -> Channel:
        ours, theirs = socket.socketpair()
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        reader, self._theirs = await asyncio.open_connection(sock=theirs)
        orders = Orders(reader, self._theirs, self.fake, self.fake, self.compose)  # type: ignore[arg-type]  # one fake for both
        loop = asyncio.get_running_loop()
        self.following = loop.create_task(orders.follow(), name="orders")
        self._keeping_up = loop.create_task(orders.keep_up(), name="newest document")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.following.cancel()
        self._keeping_up.cancel()
        await asyncio.gather(self.following, self._keeping_up, return_exceptions=True)
        for writer in (self.writer, self._theirs):
            writer.close()

    async def say(self, message: control.Message) -> None:
        await control.send(self.writer, message)

    async def hear(self) -> control.Message | None:
        async with asyncio.timeout(10):
            return await control.receive(self.reader)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def composing(fake: Fake) -> Composing:
    return Composing(fake)


@pytest.fixture
async def channel(fake: Fake, composing: Composing, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Channel]:
    monkeypatch.setattr(worker, "SLICE_S", 0.0)
    async with Channel(fake, composing) as opened:
        yield opened


async def test_document_is_swapped_in_and_reported(channel: Channel, fake: Fake) -> None:
    await channel.say(load("h2"))
    assert await channel.hear() == control.Loaded("h2")
    assert fake.served == ["h2"]


async def test_newer_document_takes_the_place_of_one_being_composed(
    channel: Channel, fake: Fake, composing: Composing
) -> None:
    await channel.say(load("endless"))
    await until(lambda: composing.begun == ["endless"])
    await channel.say(load("h3"))
    assert await channel.hear() == control.Loaded("h3")
    assert fake.served == ["h3"]


async def test_questions_are_answered_while_a_document_is_composed(channel: Channel, composing: Composing) -> None:
    await channel.say(load("endless"))
    await until(lambda: composing.begun == ["endless"])
    await channel.say(control.Report(5))
    assert await channel.hear() == control.Counted(5, STATE)


async def test_document_that_cannot_be_composed_leaves_the_old_one_and_the_next_is_taken(
    channel: Channel, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    await channel.say(load("broken"))
    await until(lambda: "RuntimeError: oops" in caplog.text)
    await channel.say(load("h2"))
    assert await channel.hear() == control.Loaded("h2")
    assert fake.stops == []


async def test_drain_takes_the_time_it_is_given_and_questions_are_still_answered(channel: Channel, fake: Fake) -> None:
    await channel.say(control.Drain(1.5))
    await channel.say(control.Report(1))
    assert await channel.hear() == control.Counted(1, STATE)
    assert fake.stops == [1.5]


async def test_keeper_that_is_gone_means_drain(channel: Channel, fake: Fake) -> None:
    channel.writer.close()
    await channel.following
    assert fake.stops == [DRAIN_S]


@pytest.mark.parametrize("sent", [b"\0\0\0\1\xc1", control.encode(control.Loaded("h"))])
async def test_keeper_that_makes_no_sense_is_taken_as_gone(
    channel: Channel, fake: Fake, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    channel.writer.write(sent)
    await channel.following
    assert fake.stops == [DRAIN_S]
    assert "lost the keeper" in caplog.text


async def test_collector_is_as_before_once_a_document_is_in(channel: Channel) -> None:
    before = gc.get_threshold()
    await channel.say(load("h2"))
    await channel.hear()
    assert gc.get_threshold() == before
    gc.unfreeze()


async def test_worker_without_a_document_does_not_start() -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.socket() as listener:
        ours.shutdown(socket.SHUT_WR)
        await worker.work(listener, theirs, Composing(Fake()))


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
