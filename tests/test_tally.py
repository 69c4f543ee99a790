"""Counts of many workers as one sum, whatever becomes of the workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lumen_gateway import control, tally
from lumen_gateway.tally import Tally
from lumen_gateway.telemetry.metrics import State

CLOSED, OPEN = 0, 1
NAME = "lumen_fallbacks_total"


class Link:
    """A worker that answers at once, or not at all."""

    def __init__(self, tally: Tally, count: int = 0, *, answers: bool = True, is_ready: bool = True) -> None:
        self.tally, self.count, self.answers, self.is_ready = tally, count, answers, is_ready
        self.circuit = OPEN if count > 1 else CLOSED
        self.asked: list[int] = []

    def say(self, message: control.Message) -> None:
        assert isinstance(message, control.Report)
        self.asked.append(message.number)
        if self.answers:
            self.report(message.number)

    def report(self, number: int) -> None:
        state = State({NAME: {("v", "timeout"): self.count}}, {}, {("p", "m"): self.circuit})
        self.tally.heard(self, control.Counted(number, state))  # type: ignore[arg-type]  # a link as far as it goes


async def total(tally: Tally, links: Any) -> tuple[int, int]:
    """Return the sum of the counter, and the worst circuit."""
    metrics = await tally.total(links)
    return metrics.fallbacks.values.get(("v", "timeout"), 0), metrics.circuits.get(("p", "m"), 0)


async def test_workers_are_added_up_and_their_worst_circuit_shown() -> None:
    tally = Tally([])
    assert await total(tally, [Link(tally, 2), Link(tally, 1)]) == (3, OPEN)


async def test_worker_that_ended_keeps_its_counts_and_loses_its_circuits() -> None:
    tally = Tally([])
    gone, here = Link(tally, 2), Link(tally, 1)
    await total(tally, [gone, here])
    tally.ended(gone)  # type: ignore[arg-type]
    assert await total(tally, [here]) == (3, CLOSED)


async def test_worker_that_ends_without_a_word_changes_nothing() -> None:
    tally = Tally([])
    tally.ended(Link(tally, 5))  # type: ignore[arg-type]
    assert await total(tally, []) == (0, 0)


async def test_starting_worker_is_neither_asked_nor_waited_for() -> None:
    tally = Tally([])
    starting = Link(tally, answers=False, is_ready=False)
    assert await total(tally, [starting, Link(tally, 1)]) == (1, CLOSED)
    assert starting.asked == []


async def test_busy_worker_counts_with_what_it_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "PATIENCE_S", 0.01)
    sums = Tally([])
    busy = Link(sums, 4, answers=False)
    busy.report(0)
    assert await total(sums, [busy]) == (4, OPEN)


async def test_reader_waits_for_an_answer_that_is_under_way() -> None:
    tally = Tally([])
    link = Link(tally, 4, answers=False)
    reading = asyncio.gather(total(tally, [link]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.report(link.asked[0])
    assert (await reading)[0] == (4, OPEN)


async def test_worker_that_dies_while_it_is_waited_for_holds_nobody_up() -> None:
    tally = Tally([])
    links = {1: Link(tally, 4, answers=False)}
    reading = asyncio.gather(total(tally, links.values()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tally.ended(links.pop(1))  # type: ignore[arg-type]
    assert (await reading)[0] == (0, 0)
