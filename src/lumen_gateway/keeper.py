"""The keeper: the parent process. It owns the listening socket, the document, the signals and its workers' lives.

It never touches a request of the data plane. A worker that dies is replaced; a second signal ends everything at once.
Paths that are not the data plane's reach it over a Unix socket that its workers relay to.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from uvicorn.config import Config as ServerConfig

from lumen_gateway import control
from lumen_gateway.admin.site import Access, site
from lumen_gateway.clock import SystemClock
from lumen_gateway.documents import Documents
from lumen_gateway.supervise import KILL_S, WorkerLink
from lumen_gateway.tally import EVERY_S, Tally
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Counter, render
from lumen_gateway.telemetry.probes import Probes
from lumen_gateway.transport.client import Client
from lumen_gateway.worker import DRAIN_S, Site

RESTART_S = 1.0  # between two lives of a worker that dies at once
BACKLOG = 2048


class Keeper:
    """Keeps workers serving a document."""

    def __init__(self, listener: socket.socket, command: Sequence[str], documents: Documents, access: Access) -> None:
        self.documents = documents
        self.probes = Probes(lambda: documents.load.config, Client, SystemClock())
        self._listener = listener
        self._command = command
        self._access = access
        self._tally = Tally(documents.load.config.telemetry.metadata_labels)
        self._links: dict[int, WorkerLink] = {}
        self._draining = asyncio.Event()
        self._restarts = Counter("lumen_worker_restarts_total", "Workers that died and were replaced.")

    async def run(self, workers: int) -> None:
        """Serve until a signal, then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.documents.ask)
        with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
            path = str(Path(folder) / "keeper.sock")
            own = Site(ServerConfig(site(self, self._access), uds=path, lifespan="off", log_config=None, ws="none"))
            async with asyncio.TaskGroup() as tasks:
                lives = [
                    tasks.create_task(self._keep_alive(number, [*self._command, path]), name=f"worker {number}")
                    for number in range(1, workers + 1)
                ]
                others = [
                    tasks.create_task(own.serve(), name="keeper's own site"),
                    tasks.create_task(self.documents.follow(self._tell), name="follow the document"),
                    tasks.create_task(self._ask_regularly(), name="ask for counts"),
                    tasks.create_task(self.probes.run(), name="probe the providers"),
                ]
                await asyncio.wait(lives)
                own.should_exit = True
                for task in others[1:]:
                    task.cancel()

    async def metrics(self) -> bytes:
        """Return what all workers and the keeper have counted, in Prometheus text."""
        total = await self._tally.total(self._links.values())
        counters = (self.documents.applied, self.documents.refused, self._restarts)
        return render(total, counters=counters, gauges=(self.probes.gauge(),))

    # Workers.

    async def _keep_alive(self, number: int, command: Sequence[str]) -> None:
        """Run one worker after the other under this number, until the keeper drains."""
        while not self._draining.is_set():
            started_s = time.monotonic()
            link = self._links[number] = WorkerLink(number, self._heard)
            code = await link.run(command, self._listener, self.documents.load)
            del self._links[number]
            self._tally.ended(link)
            if self._draining.is_set():
                return
            log.event(log.ERROR, "worker.died", f"worker {number} ended with {code}; starting another", exit_code=code)
            self._restarts.add(())
            pause_s = max(0.0, RESTART_S - (time.monotonic() - started_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), pause_s)

    def _heard(self, link: WorkerLink, message: control.Message) -> None:
        if isinstance(message, control.Counted):
            self._tally.heard(link, message)

    async def _ask_regularly(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self._tally.ask(self._links.values())

    def _tell(self, message: control.Message) -> None:
        for link in self._links.values():
            link.say(message)

    def stop(self) -> None:
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


def listen(host: str, port: int) -> socket.socket:
    """Bind the public socket.

    Raises: OSError, such as when another process holds the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
