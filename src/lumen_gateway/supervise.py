"""The keeper's end of one worker process: start it, tell it things, hear what it says, know when it ends.

What goes down waits in a bounded queue. A worker that lets it fill up has stopped working and is killed; its
replacement starts with the newest document, so nothing that was queued is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from lumen_gateway import control
from lumen_gateway.config.rules import MASTER_KEY
from lumen_gateway.telemetry import log

QUEUED = 64  # orders a worker may be behind


class WorkerState(msgspec.Struct, frozen=True):
    """How a worker stands, as `/health/config` shows it."""

    number: int
    pid: int | None
    hash: str | None  # of the document it serves; None while it starts


class WorkerLink:
    """One worker process, from start to end."""

    def __init__(self, number: int, heard: Callable[[WorkerLink, control.Message], None]) -> None:
        self.number = number
        self._serving: str | None = None
        self._heard = heard
        self._heard_s = 0.0
        self._orders: asyncio.Queue[control.Message] = asyncio.Queue(QUEUED)
        self._process: asyncio.subprocess.Process | None = None
        self._killed = False

    @property
    def is_ready(self) -> bool:
        """Whether it has come to serve a document."""
        return self._serving is not None

    def silent_s(self) -> float:
        """Return how long nothing was heard of it."""
        return time.monotonic() - self._heard_s

    def state(self) -> WorkerState:
        """Return how it stands."""
        return WorkerState(self.number, None if self._process is None else self._process.pid, self._serving)

    async def run(self, command: Sequence[str], listener: socket.socket, first: control.Load) -> str:
        """Start the process, keep up the conversation, and return how it ended, as a predicate."""
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (listener.fileno(), theirs.fileno())
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    *map(str, fds),
                    pass_fds=fds,
                    stdin=subprocess.DEVNULL,
                    env=environment(os.environ, first.secrets),
                )
            except OSError as exc:
                ours.close()
                return f"could not be started: {exc.strerror or exc}"
        return await self._converse(ours, first, self._process)

    async def _converse(self, ours: socket.socket, first: control.Load, process: asyncio.subprocess.Process) -> str:
        reader, writer = await asyncio.open_connection(sock=ours)
        if self._killed:  # before or while it was started
            self._end(process)
        loop = asyncio.get_running_loop()
        sending = loop.create_task(self._send(writer, first), name=f"orders to worker {self.number}")
        try:
            await self._hear(reader)
            return _ending(await process.wait())
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()

    def say(self, message: control.Message) -> None:
        """Queue an order."""
        try:
            self._orders.put_nowait(message)
        except asyncio.QueueFull:
            log.event(log.ERROR, "worker.stuck", f"worker {self.number} takes no orders; it is killed and replaced")
            self.kill()

    def kill(self) -> None:
        """End the process at once, or as soon as it has been started."""
        if not self._killed and self._process is not None:
            self._end(self._process)
        self._killed = True

    def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            process.kill()

    async def _send(self, writer: asyncio.StreamWriter, first: control.Load) -> None:
        try:
            await control.send(writer, first)
            while True:
                await control.send(writer, await self._orders.get())
        except (TimeoutError, ConnectionError):
            self.kill()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await control.receive(reader)) is not None:
                self._heard_s = time.monotonic()
                if isinstance(message, control.Loaded):
                    self._serving = message.hash
                self._heard(self, message)
        except ValueError as exc:
            log.event(log.ERROR, "worker.garbled", f"worker {self.number} sent {exc}; it is killed and replaced")
            self.kill()


def environment(environ: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """Return what a worker inherits: neither the master key, which it has no use for, nor provider keys.

    Those of the document come to it over the channel, and so are in no environment that others could read.
    """
    return {name: value for name, value in environ.items() if name.upper() != MASTER_KEY and name not in secrets}


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
