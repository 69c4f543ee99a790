"""The keeper's end of a worker, with small programs in the worker's place."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

from lumen_gateway import control, supervise
from lumen_gateway.config.schema import Config
from lumen_gateway.supervise import WorkerLink, WorkerState, environment

LOAD = control.Load("h1", Config(), {"KEY": "sk-canary"})
PREFACE = "import os, sys, socket; channel = socket.socket(fileno=int(sys.argv[2]));"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as each:
        yield each


class Heard(list[control.Message]):
    """Keeps what a worker says."""

    def __init__(self) -> None:
        self.some = asyncio.Event()

    def __call__(self, link: WorkerLink, message: control.Message) -> None:
        self.append(message)
        self.some.set()


def program(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", PREFACE + text]


async def test_exit_code_is_told(listener: socket.socket) -> None:
    link = WorkerLink(1, Heard())
    assert await link.run(program("sys.exit(3)"), listener, LOAD) == "ended with exit code 3"
    assert not link.is_ready


async def test_signal_is_told(listener: socket.socket) -> None:
    said = await WorkerLink(1, Heard()).run(program("os.kill(os.getpid(), 9)"), listener, LOAD)
    assert said == "was killed by signal 9"


async def test_program_that_is_not_there_is_told(listener: socket.socket) -> None:
    said = await WorkerLink(1, Heard()).run(["/nowhere/python"], listener, LOAD)
    assert said == "could not be started: No such file or directory"


async def test_worker_is_ready_once_it_has_loaded_a_document(listener: socket.socket) -> None:
    heard = Heard()
    link = WorkerLink(4, heard)
    frame = control.encode(control.Loaded("h1"))
    running = asyncio.gather(link.run(program(f"channel.send({frame!r}); channel.recv(1 << 20, 256)"), listener, LOAD))
    await heard.some.wait()
    assert link.is_ready
    state = link.state()
    assert (state.number, state.hash) == (4, "h1")
    assert state.pid is not None
    assert link.silent_s() < 60
    link.kill()
    assert (await running)[0] == "was killed by signal 9"


async def test_document_is_the_first_order_whatever_was_said_before(listener: socket.socket) -> None:
    link = WorkerLink(1, Heard())
    link.say(control.Drain(0.0))
    first = control.encode(LOAD)
    text = f"first = channel.recv({len(first)}, 256); sys.exit(7 if first == {first!r} else 8)"
    assert await link.run(program(text), listener, LOAD) == "ended with exit code 7"


async def test_worker_killed_before_it_runs_does_not_run(listener: socket.socket) -> None:
    link = WorkerLink(1, Heard())
    link.kill()
    assert await link.run(program("import time; time.sleep(60)"), listener, LOAD) == "was killed by signal 9"
    assert link.state() == WorkerState(1, link.state().pid, None)


async def test_garbled_worker_is_killed(listener: socket.socket) -> None:
    text = r"channel.send(b'\0\0\0\1\xc1'); import time; time.sleep(60)"
    assert await WorkerLink(1, Heard()).run(program(text), listener, LOAD) == "was killed by signal 9"


async def test_worker_that_takes_no_orders_is_killed(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "QUEUED", 2)
    link = WorkerLink(1, Heard())
    for number in range(3):
        link.say(control.Report(number))
    assert await link.run(program("import time; time.sleep(60)"), listener, LOAD) == "was killed by signal 9"


def test_worker_inherits_no_secret() -> None:
    environ = {"PATH": "/bin", "LUMEN_MASTER_KEY": "m", "lumen_master_key": "m", "KEY": "sk-canary", "OTHER": "o"}
    assert environment(environ, LOAD.secrets) == {"PATH": "/bin", "OTHER": "o"}
