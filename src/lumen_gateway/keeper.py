"""The keeper: the parent process. It owns the listening socket, the document, the signals and its workers' lives.

It never touches a request. A worker that dies is replaced, a second signal ends everything at once, and a document that
does not hold up changes nothing: it is said in the log, counted, and shown at `/health/config`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from lumen_gateway import control
from lumen_gateway.config import layers
from lumen_gateway.config.load import Document
from lumen_gateway.config.sources import FileSource
from lumen_gateway.supervise import KILL_S, WorkerLink
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Counter, Gauge, Metrics, State, render
from lumen_gateway.worker import DRAIN_S

RESTART_S = 1.0  # between two lives of a worker that dies at once
REPORT_S = 1.0  # a scrape waits no longer for a worker that is busy
BACKLOG = 2048

Prepare = Callable[[Document], tuple[control.Load | None, list[str]]]
"""Compile a document: what workers need to serve it, or None; and every fault, said with its place."""


class Condition(msgspec.Struct):
    """How the document stands, as `/health/config` shows it."""

    status: str  # "ok" or "refused": the newest document was not applied
    hash: str  # of the document that is served
    applied_at: float  # seconds since the epoch
    restart_needed: list[str] = []  # boot fields that differ from what runs
    faults: list[str] = []  # of the refused document


class Keeper:
    """Keeps workers serving the document."""

    def __init__(
        self, listener: socket.socket, command: Sequence[str], source: FileSource, prepare: Prepare, load: control.Load
    ) -> None:
        self._listener = listener
        self._command = command
        self._source = source
        self._prepare = prepare
        self._load = load
        self.condition = Condition("ok", load.hash, time.time())
        self._links: dict[int, WorkerLink] = {}
        self._draining = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._states: dict[WorkerLink, State] = {}
        self._reported = asyncio.Condition()
        self._gone = Metrics(lambda: (), load.config.telemetry.metadata_labels)  # counts of workers that ended
        self._reloads = Counter("lumen_config_reloads_total", "Documents applied while running.")
        self._failures = Counter("lumen_config_reload_failures_total", "Documents refused while running.")
        self._restarts = Counter("lumen_worker_restarts_total", "Workers that died and were replaced.")

    @property
    def config(self) -> control.Load:
        """The document being served."""
        return self._load

    async def run(self, workers: int) -> None:
        """Serve until a signal, then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)
        async with asyncio.TaskGroup() as tasks:
            lives = [
                tasks.create_task(self._keep_alive(number), name=f"worker {number}") for number in range(1, workers + 1)
            ]
            watching = tasks.create_task(self._watch(), name="watch the document")
            reloading = tasks.create_task(self._reload_when_asked(), name="reload")
            await asyncio.wait(lives)
            watching.cancel()
            reloading.cancel()

    # Workers.

    async def _keep_alive(self, number: int) -> None:
        """Run one worker after the other under this number, until the keeper drains."""
        while not self._draining.is_set():
            started_s = time.monotonic()
            link = self._links[number] = WorkerLink(number, self._heard)
            code = await link.run(self._command, self._listener, self._load)
            del self._links[number]
            self._gone.add(self._states.pop(link, _NOTHING))
            if self._draining.is_set():
                return
            log.event(log.ERROR, "worker.died", f"worker {number} ended with {code}; starting another", exit_code=code)
            self._restarts.add(())
            with contextlib.suppress(TimeoutError):
                pause_s = max(0.0, RESTART_S - (time.monotonic() - started_s))
                await asyncio.wait_for(self._draining.wait(), pause_s)

    def _heard(self, link: WorkerLink, message: control.Message) -> None:
        if isinstance(message, control.Counted):
            self._states[link] = message.state
            self._loop_notify(message.report)

    def stop(self) -> None:
        """Drain the worker and end; the second time, end at once. What SIGTERM and SIGINT do."""
        """Drain at the first signal, end at the second."""
        if self._draining.is_set():
            self._kill()
            return
        self._draining.set()
        self._listener.close()
        log.event(log.INFO, "keeper.draining", f"draining for up to {DRAIN_S} s; a second signal stops at once")
        self._tell(control.Drain())
        asyncio.get_running_loop().call_later(DRAIN_S + KILL_S, self._kill)

    def _kill(self) -> None:
        for link in self._links.values():
            link.kill()

    def _tell(self, message: control.Message) -> None:
        for link in self._links.values():
            link.say(message)
