"""The keeper: the parent process. It owns the listening socket, the document, the signals and the worker's life.

It never touches a request. A worker that dies is replaced; a second signal ends everything at once; a document that
does not hold up changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from lumen_gateway import control
from lumen_gateway.telemetry import log
from lumen_gateway.worker import DRAIN_S

RESTART_S = 1.0  # between two lives of a worker that dies at once
BACKLOG = 2048


class Keeper:
    """Keeps one worker serving."""

    def __init__(
        self,
        listener: socket.socket,
        command: Sequence[str],
        load: control.Load,
        reload: Callable[[], control.Load | None],
    ) -> None:
        self._listener = listener
        self._command = command
        self._load = load
        self._reload = reload
        self._draining = asyncio.Event()
        self._worker: asyncio.subprocess.Process | None = None
        self._channel: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until a signal, then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hup)
        while not self._draining.is_set():
            await self._one_life()

    async def _one_life(self) -> None:
        """Run a worker from its start to its end."""
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (self._listener.fileno(), theirs.fileno())
            self._worker = await asyncio.create_subprocess_exec(
                *self._command, *map(str, fds), pass_fds=fds, stdin=subprocess.DEVNULL, env=_environment()
            )
        reader, self._channel = await asyncio.open_connection(sock=ours)
        await control.send(self._channel, self._load)
        while await control.receive(reader) is not None:
            pass  # what the worker says of its documents is kept by nobody yet
        code = await self._ended()
        self._channel.close()
        if not self._draining.is_set():
            log.event(40, "worker.died", f"the worker ended with {code}; starting another")
            await asyncio.sleep(RESTART_S)

    async def _ended(self) -> int:
        assert self._worker is not None
        try:
            async with asyncio.timeout(DRAIN_S + 5):
                return await self._worker.wait()
        except TimeoutError:
            self._worker.kill()
            return await self._worker.wait()

    def _stop(self) -> None:
        if self._draining.is_set():
            if self._worker is not None and self._worker.returncode is None:
                self._worker.kill()
            return
        self._draining.set()
        log.event(20, "keeper.draining", f"draining for up to {DRAIN_S} s; a second signal stops at once")
        self._say(control.Drain())

    def _hup(self) -> None:
        load = self._reload()
        if load is not None:
            self._load = load
            self._say(load)

    def _say(self, message: control.Message) -> None:
        if self._channel is not None:
            task = asyncio.get_running_loop().create_task(control.send(self._channel, message), name="order")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


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


def _environment() -> dict[str, str]:
    """Everything but the master key, which a worker has no use for."""
    return {name: value for name, value in os.environ.items() if name.upper() != "LUMEN_MASTER_KEY"}
