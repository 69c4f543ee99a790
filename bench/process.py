"""What the running gateway takes: memory at rest and with many open streams, and the time to its first answer.

A simulated upstream sends the first words of each stream and then holds it open. Goals: a worker at most 60 MB and the
keeper 90 MB at rest, 250 MB for the worker with 5,000 open streams, the first answer within 1.5 s. Reads /proc, so on
other systems than Linux nothing is measured, and the run says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LUMEN = str(Path(sys.executable).with_name("lumen"))
STREAMS = (1_000, 5_000)
STARTS = 3
SCRIPT = """
[[replies]]
stream = ["Hello", " there"]
stop = "hang"
"""
DOCUMENT = """
[[providers]]
name = "p"
kind = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
[[providers.models]]
id = "held"
capabilities = ["chat"]
"""
BODY = b'{"model":"held","stream":true,"messages":[{"role":"user","content":"hi"}]}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
REQUEST = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


def run() -> dict[str, float]:
    """Measure; nothing, and a line on stderr, where there is no /proc."""
    if not Path("/proc/self/status").exists():
        print("bench process: skipped, this system has no /proc", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory(prefix="lumen-bench-") as name:
        folder, upstream = Path(name), free_port()
        (folder / "script.toml").write_text(SCRIPT)
        (folder / "lumen.toml").write_text(DOCUMENT.format(upstream=upstream))
        measured = {"first_200_s": min(_first_answer_s(folder) for _ in range(STARTS))}
        with running(LUMEN, "upstream", "--script", f"{name}/script.toml", "--port", str(upstream), port=upstream):
            return measured | _memory(folder)


def _first_answer_s(folder: Path) -> float:
    started_s, port = time.perf_counter(), free_port()
    with running(LUMEN, "serve", "-c", f"{folder}/lumen.toml", "--port", str(port), port=port):
        while not _healthy(port):
            time.sleep(0.01)
        return time.perf_counter() - started_s


def _healthy(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: bench\r\n\r\n")
        return client.recv(16).startswith(b"HTTP/1.1 200")
    return False


def _memory(folder: Path) -> dict[str, float]:
    port = free_port()
    with running(LUMEN, "serve", "-c", f"{folder}/lumen.toml", "--port", str(port), port=port) as keeper:
        while not _healthy(port):
            time.sleep(0.01)
        worker = _worker(keeper)
        measured = {"keeper_idle_mb": _resident_mb(keeper), "worker_idle_mb": _resident_mb(worker)}
        return measured | asyncio.run(_open_streams(port, worker))


async def _open_streams(port: int, worker: int) -> dict[str, float]:
    """Open streams until there are enough, and look at the worker's memory at each mark."""
    measured: dict[str, float] = {}
    clients: list[asyncio.StreamWriter] = []
    for mark in STREAMS:
        while len(clients) < mark:
            batch = await asyncio.gather(*(_open(port) for _ in range(min(100, mark - len(clients)))))
            clients += batch
        measured[f"worker_{mark}_streams_mb"] = _resident_mb(worker)
    for client in clients:
        client.close()
    return measured


async def _open(port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the gateway did not open the stream: {head.decode()}")
        await reader.readuntil(b"there")
    return writer


def _worker(keeper: int) -> int:
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return next(int(pid) for pid in children if b"lumen_gateway.app" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


@contextlib.contextmanager
def running(*command: str, port: int) -> Iterator[int]:
    """Run a server while the block lasts, from when it takes connections; yields its process id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once something listens on the port."""
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.01)
    raise RuntimeError(f"nothing listens on port {port}")


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
