"""The keeper's document while it runs: read again when asked, applied whole or not at all.

A document that does not hold up changes nothing: its faults are in the log and at `/health/config`, and the last good
one keeps serving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from lumen_gateway import control
from lumen_gateway.config import layers
from lumen_gateway.config.load import Document
from lumen_gateway.config.sources import FileSource
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Counter

Prepare = Callable[[Document], tuple[control.Load | None, list[str]]]
"""Compile a document: what workers need to serve it, or None; and every fault, said with its place."""


class Condition(msgspec.Struct, frozen=True):
    """How the document stands, as `/health/config` shows it."""

    status: str  # "ok", or "refused": the newest document was not applied
    hash: str  # of the document that is served
    applied_at: float  # seconds since the epoch
    restart_needed: list[str] = []  # boot fields whose new value waits for a restart
    faults: list[str] = []  # of the refused document


class Documents:
    """The document being served, and the way to a newer one."""

    def __init__(self, source: FileSource, prepare: Prepare, load: control.Load) -> None:
        self.load = load
        self.condition = Condition("ok", load.hash, time.time())
        self.applied = Counter("lumen_config_reloads_total", "Documents applied while running.")
        self.refused = Counter("lumen_config_reload_failures_total", "Documents refused while running.")
        self._source = source
        self._prepare = prepare
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have the document read again; asking twice is asking once."""
        self._asked.set()

    async def follow(self, apply: Callable[[control.Load], None]) -> None:
        """Read the document whenever asked or changed, and hand on each new one that holds up."""
        stop = asyncio.Event()
        watching = asyncio.get_running_loop().create_task(self._watch(stop), name="watch the document")
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                if await self._refresh():
                    apply(self.load)
        finally:
            stop.set()
            await watching

    async def _watch(self, stop: asyncio.Event) -> None:
        try:
            async for _ in self._source.changes(stop):
                self._asked.set()
        except (OSError, RuntimeError) as exc:  # no such folder; watches used up, which watchfiles says as RuntimeError
            said = f"the document is not watched ({exc}); SIGHUP still has it read again"
            log.event(log.WARNING, "config.unwatched", said)

    async def _refresh(self) -> bool:
        """Read and compile off the loop; True if there is a new document to serve."""
        try:
            load, faults = await asyncio.to_thread(self._check)
        except Exception:  # noqa: BLE001 - a bug in checking must not end a gateway that serves
            log.broken("config.crash", "the document could not be checked")
            load, faults = None, ["the gateway failed to check the document; its log has the details"]
        if load is not None and load.hash == self.load.hash:
            self.condition = msgspec.structs.replace(self.condition, status="ok", faults=[])
            log.event(log.INFO, "config.unchanged", "the document is the one being served")
            return False
        for fault in faults:
            log.event(log.WARNING, "config.fault", fault)
        if load is None:
            self._refuse(faults)
            return False
        self._take(load)
        return True

    def _check(self) -> tuple[control.Load | None, list[str]]:
        """Read and compile. A file without a word is one being written: no gateway is emptied by accident."""
        document = self._source.read()
        if not document.faults and not document.text.strip():
            return None, [f"{document.path}: is empty; to serve no models on purpose, leave a comment in it"]
        return self._prepare(document)

    def _refuse(self, faults: list[str]) -> None:
        self.refused.add(())
        self.condition = msgspec.structs.replace(self.condition, status="refused", faults=faults)
        log.event(log.WARNING, "config.refused", "the document was not applied; the last good one keeps serving")

    def _take(self, load: control.Load) -> None:
        """Make a document the one to serve, with the boot layer of the running one."""
        config, waiting = layers.apply(self.load.config, load.config)
        if waiting:
            log.event(log.WARNING, "config.restart", f"restart to apply {', '.join(waiting)}; the rest is applied")
        log.event(log.INFO, "config.applied", "the document was applied", old=self.load.hash[:12], new=load.hash[:12])
        self.condition = Condition("ok", load.hash, time.time(), waiting)
        self.load = msgspec.structs.replace(load, config=config)
        self.applied.add(())
