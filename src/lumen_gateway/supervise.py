"""The keeper's end of one worker process: start it, tell it things, hear what it says, know when it ends.

What goes down waits in a bounded queue. A worker that lets it fill up has stopped working and is killed; its
replacement starts with the newest document, so nothing that was queued is missed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Sequence

from lumen_gateway import control
from lumen_gateway.telemetry import log

QUEUED = 64  # orders a worker may be behind
KILL_S = 5.0  # beyond its drain time


class WorkerLink:
    """One worker process, from start to end."""

    def __init__(self, number: int, heard: Callable[[WorkerLink, control.Message], None]) -> None:
        self.number = number
        self.serving: str | None = None  # hash of the document it serves
        self._heard = heard
        self._orders: asyncio.Queue[control.Message] = asyncio.Queue(QUEUED)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, command: Sequence[str], listener: socket.socket, first: control.Load) -> int:
        """Start the process, keep up the conversation, and return its exit code."""
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (listener.fileno(), theirs.fileno())
            self._process = await asyncio.create_subprocess_exec(
                *command, *map(str, fds), pass_fds=fds, stdin=subprocess.DEVNULL, env=_environment()
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        self.say(first)
        sending = asyncio.get_running_loop().create_task(self._send(writer), name=f"orders to worker {self.number}")
        try:
            await self._hear(reader)
            return await self._process.wait()
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
        """End the process at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await control.send(writer, await self._orders.get())
        except (TimeoutError, ConnectionError):
            self.kill()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await control.receive(reader)) is not None:
                if isinstance(message, control.Loaded):
                    self.serving = message.hash
                self._heard(self, message)
        except ValueError as exc:
            log.event(log.ERROR, "worker.garbled", f"worker {self.number} sent {exc}; it is killed and replaced")
            self.kill()


def _environment() -> dict[str, str]:
    """Everything but the master key, which a worker has no use for."""
    return {name: value for name, value in os.environ.items() if name.upper() != "LUMEN_MASTER_KEY"}
