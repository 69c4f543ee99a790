"""Under load: what the program loses when its document, its life or its clients' patience ends. Nothing.

All load stays on the loopback and is bounded; how many streams fit is what this machine's limit on descriptors says.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.process.fleet import Fleet, descriptors, document, resident_bytes
from tests.process.program import HOST, Asked
from tests.process.wire import chat

from lumen_gateway.simulator import Reply, Upstream, auto, stream
from lumen_gateway.simulator.reply import STREAM_HEADERS

RELOADS = 10
CLIENTS = 8
MANY = 5000
ENOUGH = 1000  # streams a machine must allow for the test to say anything
PATIENCE_S = 60.0  # opening thousands takes its time where many do
MAX_STREAM_BYTES = 40 * 1024  # of a worker's memory for one idle stream; 21 KiB when this was written
SPARE = 5  # descriptors and connections that are kept for the next request
FRAME = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'


def pointing_at(port: int, target: str) -> str:
    """Return a document whose virtual model leads to one of two models."""
    single = '[[virtual_models]]\nid = "v"\ncapability = "chat"\nstrategy = "single"\n'
    return document(port, "here", "there") + single + f'targets = [{{ model = "{target}" }}]\n'


async def test_reload_under_load_loses_nothing_and_mixes_no_documents(tmp_path: Path) -> None:
    answers: list[Asked] = []
    over = asyncio.Event()

    async def keep_asking(number: int) -> None:
        while not over.is_set():
            answers.append(await fleet.ask("v", stream=number % 2 == 0))

    replies = {"here": auto("It is here"), "there": auto("It is there")}
    async with (
        Upstream(replies) as upstream,
        Fleet(tmp_path, pointing_at(upstream.port, "here"), "--workers", "2") as fleet,
    ):
        await fleet.serving(2)
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(keep_asking(number), name=f"client {number}")
            health = await fleet.settled("ok")
            for turn in range(RELOADS):
                fleet.path.write_text(pointing_at(upstream.port, ("there", "here")[turn % 2]))
                fleet.send(signal.SIGHUP)
                health = await fleet.settled("ok", other_than=health["hash"])
            over.set()
        assert all(answer.done and not answer.error for answer in answers)
        assert {(answer.route, answer.text) for answer in answers} == {
            ("v>here", "It is here"),
            ("v>there", "It is there"),
        }
        assert len(upstream.calls) == len(answers) == await fleet.counted("lumen_attempts_total")
        assert await fleet.counted("lumen_config_reloads_total") == RELOADS
        assert "Traceback" not in fleet.log


async def test_drain_under_streams_cuts_none_that_ends_in_time(tmp_path: Path) -> None:
    words = [f"{number} " for number in range(20)]
    async with (
        Upstream({"long": stream(words, frame_delay_s=0.05)}) as upstream,
        Fleet(tmp_path, document(upstream.port, "long"), "--workers", "2") as fleet,
    ):
        await fleet.serving(2)
        asking = asyncio.gather(*(fleet.ask("long", stream=True) for _ in range(60)))
        await upstream.called(60)
        fleet.send(signal.SIGTERM)
        answers = await asking
        assert {(answer.text, answer.done) for answer in answers} == {("".join(words), True)}
        assert await fleet.ended() == 0
        assert "Traceback" not in fleet.log


class Idler(asyncio.Protocol):
    """A client that has sent its request and listens."""

    def __init__(self) -> None:
        self.heard = b""
        self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        assert isinstance(transport, asyncio.Transport)
        transport.write(chat("idle", stream=True))

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True


@pytest.fixture
def many() -> Iterator[int]:
    """How many streams fit, after lifting the soft limit: here, and in the worker, each takes two descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(MANY, (hard - 500) // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def idling(port: int, count: int) -> AsyncIterator[list[Idler]]:
    """Hold so many streams, opened a few at a time."""
    loop = asyncio.get_running_loop()
    idlers: list[Idler] = []
    try:
        for start in range(0, count, 100):
            opening = [loop.create_connection(Idler, HOST, port) for _ in range(min(100, count - start))]
            idlers += [idler for _, idler in await asyncio.gather(*opening)]
        yield idlers
    finally:
        for idler in idlers:
            idler.transport.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110 - thousands of clients, or another process, have no event to wait for
            await asyncio.sleep(0.1)


async def test_thousands_of_idle_streams_are_held_beaten_and_let_go(tmp_path: Path, many: int) -> None:
    if many < ENOUGH:
        pytest.skip(f"the limit on descriptors allows {many} streams, too few to say anything")
    idle = Reply(headers=STREAM_HEADERS, frames=(FRAME,), stop="hang")
    text = "[server]\nsse_heartbeat_ms = 1000\n"
    async with (
        Upstream({"idle": idle, "m": auto("Hello")}) as upstream,
        Fleet(tmp_path, document(upstream.port, "idle", "m", more=text)) as fleet,
    ):
        (worker,) = await fleet.workers()
        lean_bytes, few = resident_bytes(worker), descriptors(worker)
        async with idling(fleet.port, many) as idlers:
            await until(lambda: all(b"word" in idler.heard for idler in idlers))
            await until(lambda: all(b": ping" in idler.heard for idler in idlers))
            assert (await fleet.ask("m")).text == "Hello"
            assert resident_bytes(worker) - lean_bytes <= many * MAX_STREAM_BYTES
            assert not any(idler.over for idler in idlers)
        await until(lambda: descriptors(worker) <= few + SPARE and upstream.open_connections <= SPARE)
        assert (await fleet.ask("m")).text == "Hello"
    assert "Traceback" not in fleet.log
