"""Counts of all workers in one place: of those that live, what they last reported; of those that ended, what they left.

A worker reports everything it has counted since it started, once a second and when metrics are read. One that is killed
takes at most a second's counts with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from lumen_gateway import control
from lumen_gateway.supervise import WorkerLink
from lumen_gateway.telemetry.metrics import Metrics, State

EVERY_S = 1.0
PATIENCE_S = 1.0  # a reader of metrics waits no longer for a worker that is busy


class Tally:
    """Asks workers for their counts and adds them up."""

    def __init__(self, metadata_labels: list[str]) -> None:
        self._metadata_labels = metadata_labels
        self._ended = Metrics(lambda: (), metadata_labels)
        self._latest: dict[WorkerLink, control.Counted] = {}
        self._number = 0
        self._news = asyncio.Event()

    def heard(self, link: WorkerLink, counted: control.Counted) -> None:
        """Keep a worker's newest report."""
        self._latest[link] = counted
        self._news.set()

    def ended(self, link: WorkerLink) -> None:
        """Keep what a worker that is gone had counted; its circuits went with it."""
        counted = self._latest.pop(link, None)
        if counted is not None:
            self._ended.add(State(counted.state.counters, counted.state.histograms, {}))
        self._news.set()

    def ask(self, links: Collection[WorkerLink]) -> None:
        """Have every worker that serves report."""
        self._number += 1
        for link in links:
            if link.is_ready:
                link.say(control.Report(self._number))

    async def total(self, links: Collection[WorkerLink]) -> Metrics:
        """Return the sum of everything, as fresh as the workers answer in time."""
        self.ask(links)
        number, asked = self._number, {link for link in links if link.is_ready}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while any(self._reported(link) < number for link in asked & set(links)):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass  # what a busy worker reported last is less than a second or two old
        total = Metrics(lambda: (), self._metadata_labels)
        total.add(self._ended.state())
        for counted in self._latest.values():
            total.add(counted.state)
        return total

    def _reported(self, link: WorkerLink) -> int:
        counted = self._latest.get(link)
        return 0 if counted is None else counted.number
