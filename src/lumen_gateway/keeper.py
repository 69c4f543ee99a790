"""The keeper: the parent process. It owns the listening socket, the document, the signals and its workers' lives.

It never touches a request of the data plane. A worker that dies is replaced, one that stops answering is killed first;
if none ever comes up, there is nothing to keep. Paths that are not the data plane's reach the keeper over a Unix socket
that its workers relay to.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
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
from lumen_gateway.serving import CUT_S, DRAIN_S, Site
from lumen_gateway.supervise import WorkerLink, WorkerState
from lumen_gateway.tally import EVERY_S, Tally
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Counter, render
from lumen_gateway.telemetry.probes import Probes
from lumen_gateway.transport.client import Client

BACKLOG = 2048
UNSENT_BYTES = 128 * 1024  # what the system buffers for a client; 3 MB otherwise, which hide for long that it stalls
START_TRIES = 3  # starts that fail before any has succeeded: the fault is not the worker's
STEADY_S = 10.0  # a worker that lived this long was no failed start
PAUSE_S, MAX_PAUSE_S = 1.0, 30.0  # from one start to the next
STUCK_S = 30.0  # gunicorn's own limit for a worker that gives no sign of life
HELD_UP_S = 5.0  # by which a nap of the keeper's has to be too long to have been none
MAX_ROOT_BYTES = 103 - len("/lumen-12345678/keeper.sock")  # macOS; Linux takes four more
KILL_S = CUT_S + 1.0  # for a worker to end by itself after its drain


class Keeper:
    """Keeps workers serving a document."""

    def __init__(
        self,
        listener: socket.socket,
        command: Sequence[str],
        documents: Documents,
        access: Access,
        drain_s: float = DRAIN_S,
    ) -> None:
        self.documents = documents
        self.probes = Probes(lambda: documents.load.config, Client, SystemClock())
        self._listener = listener
        self._command = command
        self._access = access
        self._drain_s = drain_s
        self._tally = Tally(documents.load.config.telemetry.metadata_labels)
        self._links: dict[int, WorkerLink] = {}
        self._draining = asyncio.Event()
        self._restarts = Counter("lumen_worker_restarts_total", "Workers that died and were replaced.")
        self._failed_starts: int | None = 0  # None: a worker has served, so starting works

    async def run(self, workers: int) -> bool:
        """Serve until a signal, then drain. False if no worker ever came up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.documents.ask)
        with tempfile.TemporaryDirectory(prefix="lumen-", dir=socket_root()) as folder:
            path = str(Path(folder) / "keeper.sock")
            own = Site(ServerConfig(site(self, self._access), uds=path, lifespan="off", log_config=None, ws="none"))
            async with asyncio.TaskGroup() as tasks:
                lives = [
                    tasks.create_task(self._keep_alive(number, [*self._command, path]), name=f"worker {number}")
                    for number in range(1, workers + 1)
                ]
                serving = tasks.create_task(own.serve(), name="keeper's own site")
                others = [
                    tasks.create_task(self.documents.follow(self._tell), name="follow the document"),
                    tasks.create_task(self._ask_regularly(), name="ask for counts"),
                    tasks.create_task(self.probes.run(), name="probe the providers"),
                ]
                await asyncio.wait(lives)
                own.stop(0.0)
                for task in others:
                    task.cancel()
                await serving
        return self._failed_starts is None or self._failed_starts < START_TRIES

    # What its site shows.

    async def metrics(self) -> bytes:
        """Return what all workers and the keeper have counted, in Prometheus text."""
        total = await self._tally.total(self._links.values())
        counters = (self.documents.applied, self.documents.refused, self._restarts)
        return render(total, counters=counters, gauges=(self.probes.gauge(),))

    def workers(self) -> list[WorkerState]:
        """Return how each worker stands."""
        return [link.state() for _, link in sorted(self._links.items())]

    # Workers.

    async def _keep_alive(self, number: int, command: Sequence[str]) -> None:
        """Run one worker after the other under this number, until the keeper drains."""
        short_lives = 0
        while not self._draining.is_set():
            started_s = time.monotonic()
            link = self._links[number] = WorkerLink(number, self._heard)
            ending = await link.run(command, self._listener, self.documents.load)
            del self._links[number]
            self._tally.ended(link)
            if self._draining.is_set():
                return
            lived_s = time.monotonic() - started_s
            short_lives = 0 if link.is_ready and lived_s >= STEADY_S else short_lives + 1
            pause_s = max(0.0, start_interval(short_lives) - lived_s)
            log.event(log.ERROR, "worker.died", f"worker {number} {ending}; starting another in {pause_s:.1f} s")
            if not link.is_ready and self._is_hopeless():
                return
            self._restarts.add(())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), pause_s)

    def _is_hopeless(self) -> bool:
        """Count a start that failed; give up when none has ever succeeded."""
        if self._failed_starts is None:
            return False
        self._failed_starts += 1
        if self._failed_starts < START_TRIES:
            return False
        log.event(log.ERROR, "keeper.hopeless", "no worker could start; what the last ones said stands above")
        self._draining.set()
        self._kill()
        return True

    def _heard(self, link: WorkerLink, message: control.Message) -> None:
        if isinstance(message, control.Counted):
            self._tally.heard(link, message)
        else:
            self._failed_starts = None

    async def _ask_regularly(self) -> None:
        """Ask for counts; who does not answer any more is killed, and replaced by `_keep_alive`.

        A keeper that was itself held up, as in a paused container, has heard nobody: silence then begins anew.
        """
        resumed_s = -math.inf
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(EVERY_S)
            now_s = time.monotonic()
            if now_s - asleep_s > EVERY_S + HELD_UP_S:
                resumed_s = now_s
            self._tally.ask(self._links.values())
            for link in self._links.values():
                if link.is_ready and min(link.silent_s(), now_s - resumed_s) > STUCK_S:
                    log.event(log.ERROR, "worker.stuck", f"worker {link.number} gives no sign of life; it is killed")
                    link.kill()

    def _tell(self, message: control.Message) -> None:
        for link in self._links.values():
            link.say(message)

    # The end.

    def stop(self) -> None:
        """Drain at the first signal, end at the second."""
        if self._draining.is_set():
            log.event(log.WARNING, "keeper.killed", "stopping at once; what still ran is cut off")
            self._kill()
            return
        self._draining.set()
        self._listener.close()
        said = f"draining for up to {self._drain_s:g} s; a second signal stops at once"
        log.event(log.INFO, "keeper.draining", said)
        self._tell(control.Drain(self._drain_s))
        asyncio.get_running_loop().call_later(self._drain_s + KILL_S, self._kill)

    def _kill(self) -> None:
        for link in self._links.values():
            link.kill()


def socket_root() -> str | None:
    """Return where the own socket's folder goes if the usual place has too long a path: sockets take 103 bytes."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= MAX_ROOT_BYTES else "/tmp"  # noqa: S108 - made private


def start_interval(short_lives: int) -> float:
    """Return the least time from one start of a worker to the next, after so many short lives in a row."""
    if short_lives == 0:
        return 0.0
    interval_s: float = min(PAUSE_S * 2 ** min(short_lives - 1, 10), MAX_PAUSE_S)
    return interval_s


def listen(host: str, port: int) -> socket.socket:
    """Bind the public socket.

    Raises: OSError, such as when another process holds the port, or for what cannot be a host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # a system that is none of the usual ones may not know it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)  # connections inherit it
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    except TypeError as exc:  # a NUL, a label of more than 63 letters
        listener.close()
        raise OSError(errno.EINVAL, "no host has such a name") from exc
    return listener
