"""The document while it runs: taken over whole, or not at all, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from lumen_gateway import control
from lumen_gateway.config.load import Document
from lumen_gateway.config.schema import Config, Resilience, Server
from lumen_gateway.documents import Documents

SERVED = control.Load("h1", Config(), {})


class Source:
    """A document that a test hands out, and news of it when it says so."""

    def __init__(self, *, broken: Exception | None = None) -> None:
        self.news = asyncio.Event()
        self.broken = broken
        self.stopped = False
        self.text = "# whatever"

    def read(self) -> Document:
        return Document(Path("lumen.toml"), self.text)

    async def changes(self, stop: asyncio.Event) -> AsyncIterator[None]:
        if self.broken is not None:
            raise self.broken
        while True:
            waiting = [asyncio.ensure_future(each.wait()) for each in (self.news, stop)]  # noqa: TID251 - awaited here
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
            if stop.is_set():
                self.stopped = True
                return
            self.news.clear()
            yield


class House:
    """Documents under test. `next` is what checking the document comes to: a result, or an exception."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source or Source()
        self.next: Any = (SERVED, [])
        self.applied: list[control.Load] = []
        self.documents = Documents(cast("Any", self.source), self._prepare, SERVED)
        self.checked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _prepare(self, document: Document) -> tuple[control.Load | None, list[str]]:
        self._loop.call_soon_threadsafe(self.checked.set)
        if isinstance(self.next, Exception):
            raise self.next
        result: tuple[control.Load | None, list[str]] = self.next
        return result

    async def __aenter__(self) -> House:
        self._following = self._loop.create_task(self.documents.follow(self.applied.append), name="follow")
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def read(self, result: Any) -> None:
        """Have the document read again, and return once it was dealt with."""
        self.next = result
        self.checked.clear()
        counts = self.counts()
        self.documents.ask()
        await self.checked.wait()
        for _ in range(100):
            if self.counts() != counts:
                break
            await asyncio.sleep(0.001)

    def counts(self) -> tuple[int, int]:
        return self.documents.applied.values[()], self.documents.refused.values[()]


async def test_new_document_is_handed_on() -> None:
    newer = control.Load("h2", Config(resilience=Resilience(retry_max_attempts=1)), {"K": "v"})
    async with House() as house:
        await house.read((newer, []))
    assert house.applied == [newer]
    assert house.documents.load == newer
    assert (house.documents.condition.status, house.documents.condition.hash) == ("ok", "h2")
    assert house.counts() == (1, 0)


async def test_file_that_changed_is_read() -> None:
    async with House() as house:
        house.next = (control.Load("h2", Config(), {}), [])
        house.source.news.set()
        await house.checked.wait()
        async with asyncio.timeout(10):
            while not house.applied:  # noqa: ASYNC110 - it comes back from a thread
                await asyncio.sleep(0.001)
    assert house.source.stopped


async def test_refused_document_changes_nothing_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async with House() as house:
        await house.read((None, ["lumen.toml:3: no"]))
    assert house.applied == []
    assert house.documents.load is SERVED
    condition = house.documents.condition
    assert (condition.status, condition.hash, condition.faults) == ("refused", "h1", ["lumen.toml:3: no"])
    assert house.counts() == (0, 1)
    assert "lumen.toml:3: no" in caplog.text


async def test_good_document_that_comes_back_clears_the_refusal_and_is_no_reload() -> None:
    async with House() as house:
        before = house.documents.condition
        await house.read((None, ["no"]))
        await house.read((SERVED, []))
    assert house.documents.condition == before
    assert house.applied == []
    assert house.counts() == (0, 1)


async def test_file_that_was_emptied_is_refused() -> None:
    async with House() as house:
        house.source.text = " \n"
        house.documents.ask()
        async with asyncio.timeout(10):
            while house.counts() == (0, 0):  # noqa: ASYNC110 - it comes back from a thread
                await asyncio.sleep(0.001)
    (fault,) = house.documents.condition.faults
    assert fault.startswith("lumen.toml: is empty; ")
    assert house.documents.load is SERVED


async def test_bug_in_checking_is_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async with House() as house:
        await house.read(RuntimeError("oops"))
        assert house.documents.condition.status == "refused"
        await house.read((control.Load("h2", Config(), {}), []))
    assert house.documents.condition.status == "ok"
    assert "RuntimeError: oops" in caplog.text


async def test_boot_fields_wait_until_they_are_put_back_or_the_program_is_started_anew() -> None:
    moved = Config(server=Server(port=1), resilience=Resilience(retry_max_attempts=1))
    async with House() as house:
        await house.read((control.Load("h2", moved, {}), []))
        assert house.documents.condition.restart_needed == ["server.port"]
        assert house.applied[-1].config.server == Server()
        assert house.applied[-1].config.resilience.retry_max_attempts == 1
        await house.read((None, ["no"]))
        assert house.documents.condition.restart_needed == ["server.port"]
        await house.read((control.Load("h3", Config(), {}), []))
        assert house.documents.condition.restart_needed == []


async def test_folder_that_cannot_be_watched_leaves_the_signal(caplog: pytest.LogCaptureFixture) -> None:
    async with House(Source(broken=OSError("no watches left"))) as house:
        await house.read((control.Load("h2", Config(), {}), []))
    assert [load.hash for load in house.applied] == ["h2"]
    assert "no watches left" in caplog.text
