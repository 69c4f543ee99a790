"""The keeper, with small programs in its workers' place: what it starts again, and when it gives up."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lumen_gateway import control, keeper
from lumen_gateway.admin.site import Access
from lumen_gateway.app import prepare
from lumen_gateway.config.sources import FileSource
from lumen_gateway.documents import Documents
from lumen_gateway.keeper import MAX_ROOT_BYTES, UNSENT_BYTES, Keeper, listen, socket_root, start_interval

READY = """
import os, socket, sys
channel = socket.socket(fileno=int(sys.argv[3]))
channel.send({frame!r})
{then}
"""
SILENT = "import time; time.sleep(60)"
UNTIL_TOLD = "while channel.recv(1 << 16): pass"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as each:
        yield each


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    source = FileSource(tmp_path / "lumen.toml", {})
    (tmp_path / "lumen.toml").write_text("")
    load, _ = prepare(source.read(), {})
    assert load is not None
    return Documents(source, lambda document: prepare(document, {}), load)


def ready(documents: Documents, then: str) -> list[str]:
    """Return a worker that serves the document at once, then does as it is told here."""
    frame = control.encode(control.Loaded(documents.load.hash))
    return [sys.executable, "-S", "-c", READY.format(frame=frame, then=then)]


def keeper_of(
    documents: Documents, listener: socket.socket, command: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Keeper:
    monkeypatch.setattr(keeper, "PAUSE_S", 0.01)
    monkeypatch.setattr(keeper, "EVERY_S", 0.02)
    monkeypatch.setattr(keeper, "KILL_S", 0.1)
    return Keeper(listener, command, documents, Access(public=True), drain_s=0.0)


@pytest.mark.parametrize("command", [["/nowhere/python"], [sys.executable, "-S", "-c", "raise SystemExit(3)"]])
async def test_keeper_gives_up_when_no_worker_ever_starts(
    documents: Documents,
    listener: socket.socket,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asyncio.timeout(20):
        assert not await keeper_of(documents, listener, command, monkeypatch).run(2)
    assert "no worker could start" in caplog.text
    assert caplog.text.count("worker.died") == 0
    assert caplog.text.count("starting another") == keeper.START_TRIES


async def test_worker_that_has_served_is_started_again_as_often_as_it_dies(
    documents: Documents, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MAX_PAUSE_S", 0.05)
    kept = keeper_of(documents, listener, ready(documents, "sys.exit(1)"), monkeypatch)
    running = asyncio.get_running_loop().create_task(kept.run(1), name="keeper")
    await until(lambda: restarts(kept) > keeper.START_TRIES)
    kept.stop()
    assert await running


async def test_worker_that_gives_no_sign_of_life_is_killed_and_replaced(
    documents: Documents, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "STUCK_S", 0.1)
    kept = keeper_of(documents, listener, ready(documents, SILENT), monkeypatch)
    running = asyncio.get_running_loop().create_task(kept.run(1), name="keeper")
    await until(lambda: restarts(kept) > 0)
    kept.stop()
    kept.stop()
    assert await running
    assert "gives no sign of life" in caplog.text
    assert "was killed by signal 9" in caplog.text


async def test_keeper_that_was_paused_kills_nobody_it_could_not_hear(
    documents: Documents, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = keeper_of(documents, listener, ready(documents, SILENT), monkeypatch)
    running = asyncio.get_running_loop().create_task(kept.run(1), name="keeper")
    await until(lambda: [worker.hash for worker in kept.workers()] == [documents.load.hash])
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 2 * keeper.STUCK_S)
    asked = kept._tally._number
    await until(lambda: kept._tally._number > asked + 3)
    assert "gives no sign of life" not in caplog.text
    kept.stop()
    kept.stop()
    assert await running


async def test_drain_is_over_when_the_workers_have_gone(
    documents: Documents, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = f"channel.setblocking(True); {UNTIL_TOLD}".replace("while", "\nwhile")
    kept = keeper_of(documents, listener, ready(documents, then), monkeypatch)
    running = asyncio.get_running_loop().create_task(kept.run(2), name="keeper")
    await until(lambda: [worker.hash for worker in kept.workers()] == [documents.load.hash] * 2)
    assert [worker.number for worker in kept.workers()] == [1, 2]
    kept.stop()
    assert await running  # they do not obey, and are killed when their time is up
    assert kept.workers() == []
    assert listener.fileno() == -1


def test_pause_between_starts_grows_to_half_a_minute() -> None:
    assert [start_interval(lives) for lives in (0, 1, 2, 3, 5, 6, 7, 1000)] == [0, 1, 2, 4, 16, 30, 30, 30]


def test_socket_goes_where_its_path_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * (MAX_ROOT_BYTES - 1))
    assert socket_root() is None
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * MAX_ROOT_BYTES)
    assert socket_root() == "/tmp"


def test_connections_hold_little_that_their_readers_have_not_asked_for() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES


def test_port_in_use_is_an_error_at_once(listener: socket.socket) -> None:
    with pytest.raises(OSError, match="in use"):
        listen(*listener.getsockname())


def restarts(kept: Keeper) -> int:
    return kept._restarts.values[()]  # what /metrics shows


async def until(happened: object) -> None:
    assert callable(happened)
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110 - other processes have no event to wait for
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("host", ["a\x00b", "\u00e9" * 70, "\udcff"])
def test_what_cannot_be_a_host_is_an_error_like_a_wrong_one(host: str) -> None:
    with pytest.raises(OSError, match="no host has such a name"):
        listen(host, 1)
