"""The program, and what its site says of it: counters, the document, the workers; and what /proc says of a process."""

from __future__ import annotations

import asyncio
import re
import resource
from pathlib import Path
from typing import Any

from tests.process.program import HOST, PATIENCE_S, Program

SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)


def document(upstream_port: int, *models: str, more: str = "") -> str:
    """Return a document with these foundation models, all of one provider."""
    listed = "".join(f'{{ id = "{name}", capabilities = ["chat"] }}, ' for name in models)
    return f"""{more}
[[providers]]
name = "sim"
kind = "openai"
base_url = "http://{HOST}:{upstream_port}/v1"
models = [{listed}]
"""


class Fleet(Program):
    """`lumen serve`, often with `--workers 2`, and what its site says."""

    def __init__(self, folder: Path, text: str, *options: str, **environ: str) -> None:
        super().__init__(folder, text, *options, port=None, **environ)

    async def get(self, path: str) -> Any:
        """Return the JSON of one of the site's pages."""
        return (await self.client.get(path)).raise_for_status().json()

    async def workers(self) -> dict[int, str | None]:
        """Return what each worker serves, by process id."""
        return {worker["pid"]: worker["hash"] for worker in (await self.get("/health/config"))["workers"]}

    async def counted(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        text = (await self.client.get("/metrics")).raise_for_status().text
        return sum(float(value) for found, _, value in SAMPLE.findall(text) if found == name)

    async def serving(self, count: int) -> None:
        """Return once this many workers serve the document the keeper has."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                health = await self.get("/health/config")
                if [worker["hash"] for worker in health["workers"]] == [health["hash"]] * count:
                    return
                await asyncio.sleep(0.02)

    async def settled(self, status: str, other_than: str = "") -> dict[str, Any]:
        """Return the state of the document once it has this status, and every worker its newest good one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                health: dict[str, Any] = await self.get("/health/config")
                all_on_it = all(worker["hash"] == health["hash"] for worker in health["workers"])
                if health["status"] == status and health["hash"] != other_than and all_on_it:
                    return health
                await asyncio.sleep(0.02)


def shown_of(pid: int, what: str) -> str:
    """Return what /proc says of a process: its `environ`, its `cmdline`."""
    return Path(f"/proc/{pid}/{what}").read_text()


def resident_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    return int(shown_of(pid, "statm").split()[1]) * resource.getpagesize()


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def peers(pid: int) -> set[int]:
    """Return the ports at the other ends of a process's TCP connections over IPv4."""
    inodes = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes}


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def until_gone(pids: list[int]) -> None:
    """Return once none of these processes runs."""
    async with asyncio.timeout(PATIENCE_S):
        while any(map(runs, pids)):  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.02)
