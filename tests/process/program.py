"""The real program for tests: `lumen serve` on a document of their own, and a client that asks it.

A `Program` is started, waited for and stopped here; its log stands in a file. What stands behind it are simulated
upstreams, which run in the test's own loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx2

LUMEN = Path(sys.executable).with_name("lumen")
HOST = "127.0.0.1"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the system's authorities takes a client a tenth of a second
PATIENCE_S = 30.0  # for whatever has to happen; nothing here waits that long unless it is broken


class Asked(NamedTuple):
    """An answer as a client sees it, whole or streamed."""

    status: int
    headers: Mapping[str, str]
    text: str  # what the assistant said
    error: Mapping[str, Any]  # of the envelope, or of a stream's error frame; empty if there is none
    done: bool  # the stream was properly ended; of an unstreamed answer: it was an answer

    @property
    def route(self) -> str | None:
        return self.headers.get("x-lumen-route")

    @property
    def served_by(self) -> str | None:
        return self.headers.get("x-lumen-model-used")


class Program:
    """`lumen serve` in a process group of its own; `async with` starts it and stops it."""

    command: Sequence[str | Path] = (LUMEN,)

    def __init__(self, folder: Path, document: str, *options: str, port: int | None = None, **environ: str) -> None:
        self.port = free_port() if port is None else port
        self.url = f"http://{HOST}:{self.port}/v1"
        self.path = folder / "lumen.toml"
        self.path.write_text(document)
        self._options = options
        self._log = folder / "lumen.log"
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("LUMEN_")} | environ
        self._process: Process | None = None
        self._client = httpx2.AsyncClient(base_url=f"http://{HOST}:{self.port}", timeout=PATIENCE_S, verify=NO_TLS)

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    @property
    def client(self) -> httpx2.AsyncClient:
        return self._client

    @property
    def log(self) -> str:
        """Everything it has printed, on both streams."""
        return self._log.read_text()

    async def start(self) -> None:
        """Start it, whatever comes of that."""
        with self._log.open("w") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, "serve", "-c", self.path, "--port", str(self.port), *self._options,
                stdin=DEVNULL, stdout=log, stderr=log, env=self._environ, start_new_session=True,
            )  # fmt: skip

    async def ready(self) -> None:
        """Return once /health answers."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    answer = await self._client.get("/health")
                    assert answer.status_code == 200
                    return
                assert self.process.returncode is None, self.log
                await asyncio.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the keeper alone, as an init system does."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Return the exit code once it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()
        if self.process.returncode is None:
            self.send(signal.SIGTERM)
            try:
                assert await self.ended() == 0
            finally:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()

    async def ask(self, model: str, *, stream: bool = False, headers: Mapping[str, str] = {}, **body: Any) -> Asked:
        """Ask for a chat completion and take the whole answer."""
        messages = body.pop("messages", [{"role": "user", "content": "Hello"}])
        asked = {"model": model, "messages": messages, **({"stream": True} if stream else {}), **body}
        answer = await self._client.post("/v1/chat/completions", json=asked, headers=dict(headers))
        if answer.headers["content-type"].startswith("text/event-stream"):
            return _streamed(answer)
        told = answer.json()
        text = told["choices"][0]["message"]["content"] if answer.status_code == 200 else ""
        return Asked(answer.status_code, answer.headers, text, told.get("error", {}), answer.status_code == 200)


def _streamed(answer: httpx2.Response) -> Asked:
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    done = bool(data) and data[-1] == "[DONE]"
    events = [json.loads(event) for event in data if event != "[DONE]"]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ()))
    error: Mapping[str, Any] = next((event["error"] for event in events if "error" in event), {})
    return Asked(answer.status_code, answer.headers, text, error, done)


def free_port() -> int:
    """Return a port that is free, below the range from which the system takes those it hands out itself."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise AssertionError("no port is free")
