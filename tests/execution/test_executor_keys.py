"""Which key a leaf is called with, and when it is not called at all: weights, other keys, breakers, cool-downs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.execution.staging import ScriptedExchange, chain, failure, job, key, leaf, played

from lumen_gateway.errors import TRIGGERS, Failure, Kind, Trigger
from lumen_gateway.execution.breaker import BreakerPolicy, State
from lumen_gateway.execution.executor import Executor, Job
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.routing.plan import Attempt
from lumen_gateway.simulator import ManualClock

TOUCHY = BreakerPolicy(threshold=1, cooldown_s=30.0)
KEY_TROUBLE = [Kind.RATE_LIMITED, Kind.RATE_TOO_SMALL, Kind.QUOTA_LIMITED, Kind.QUOTA_EXHAUSTED, Kind.AUTH_FAILED]
TWO_KEYS = leaf("a", "one", "two")


class Rig:
    """An executor with a clock, a scripted exchange, and draws that a test can set."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        self.clock = ManualClock()
        self.draw = 0.0
        self.executor = Executor(self.clock, lambda: self.draw)
        self.exchange = ScriptedExchange(self.clock, script)

    async def run(self, work: Job[str]) -> str:
        return await played(self.clock, self.executor.run(work))

    async def fail(self, work: Job[str]) -> Failure:
        with pytest.raises(Failure) as caught:
            await self.run(work)
        return caught.value

    def job(self, *leaf_ids: str, pinned: str | None = None, triggers: Trigger | None = None, **more: Any) -> Job[str]:
        attempts = chain(*leaf_ids, **({} if triggers is None else {"triggers": triggers}))
        if pinned is not None:
            attempts = (Attempt(leaf_ids[0], f"of-{leaf_ids[0]}", pinned),)
        return job(self.exchange, attempts, more.pop("leaves", [TWO_KEYS]), **more)

    def state(self, leaf_id: str, label: str | None = None) -> State:
        return self.executor.breakers[f"of-{leaf_id}", label, leaf_id].state


# Keys.


@pytest.mark.parametrize(("draw", "expected"), [(0.0, "one"), (0.74, "one"), (0.76, "two"), (0.999, "two")])
async def test_key_is_drawn_by_weight(draw: float, expected: str) -> None:
    rig = Rig({"a": ["hello"]})
    rig.draw = draw
    weighted = leaf("a", credentials=(key("a", "one", 3), key("a", "two", 1)))
    work = rig.job("a", leaves=[weighted])
    await rig.run(work)
    assert rig.exchange.keys == [expected]
    assert work.records[0].key_label == expected


@pytest.mark.parametrize("kind", KEY_TROUBLE)
async def test_trouble_with_a_key_is_met_with_another_at_once_inside_the_attempt(kind: Kind) -> None:
    rig = Rig({"a/one": [kind], "a/two": ["hello"]})
    work = rig.job("a", "b", triggers=TRIGGERS["any_error"], retry=RetryPolicy())
    assert await rig.run(work) == "hello"
    assert rig.exchange.keys == ["one", "two"]
    assert rig.clock.slept == []
    assert [(record.tries, record.key_label, record.outcome) for record in work.records] == [(2, "two", "ok")]


@pytest.mark.parametrize("kind", [Kind.UPSTREAM_ERROR, Kind.UNREACHABLE, Kind.CONTEXT_LENGTH, Kind.MALFORMED])
async def test_trouble_that_is_not_the_keys_is_not_met_with_another_key(kind: Kind) -> None:
    rig = Rig({"a": [kind]})
    await rig.fail(rig.job("a"))
    assert rig.exchange.keys == ["one"]


async def test_leaf_is_left_only_when_no_key_is_left() -> None:
    rig = Rig({"a": [Kind.RATE_LIMITED], "b": ["hello"]})
    work = rig.job("a", "b")
    assert await rig.run(work) == "hello"
    assert rig.exchange.keys == ["one", "two", None]
    assert work.records[0].escape == "rate_limited"


async def test_pinned_key_stays_alone() -> None:
    rig = Rig({"a": [Kind.AUTH_FAILED]})
    await rig.fail(rig.job("a", pinned="two"))
    assert rig.exchange.keys == ["two"]


async def test_each_key_answers_for_itself() -> None:
    rig = Rig({"a/one": [Kind.RATE_LIMITED], "a/two": ["hello"]})
    await rig.run(rig.job("a", breaker=TOUCHY))
    assert (rig.state("a", "one"), rig.state("a", "two")) == (State.OPEN, State.CLOSED)
    await rig.run(rig.job("a", breaker=TOUCHY))
    assert rig.exchange.keys == ["one", "two", "two"]


async def test_tries_with_other_keys_count_and_the_last_key_is_retried_with_what_is_left() -> None:
    rig = Rig({"a": [Kind.RATE_LIMITED]})
    work = rig.job("a", retry=RetryPolicy(max_tries=3))
    await rig.fail(work)
    assert rig.exchange.keys == ["one", "two", "two"]
    assert work.records[0].tries == 3


async def test_smallest_wait_counts_that_of_a_key_left_behind() -> None:
    limited = {f"a/{label}": [failure(Kind.RATE_LIMITED, retry_after_s=s)] for label, s in (("one", 10), ("two", 20))}
    rig = Rig(dict(limited))
    assert (await rig.fail(rig.job("a"))).retry_after_s == 10


# Breakers.


async def test_breaker_opens_after_exactly_as_many_requests_however_often_each_tried() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})
    policies: dict[str, Any] = {"retry": RetryPolicy(max_tries=3), "breaker": BreakerPolicy(threshold=5)}
    for request in range(5):
        assert "b" not in {model for _, model, state in rig.executor.states() if state is State.OPEN}, request
        await rig.fail(rig.job("b", **policies))
    assert len(rig.exchange.tried) == 15
    refused = await rig.fail(rig.job("b", **policies))
    assert len(rig.exchange.tried) == 15
    assert refused.kind is Kind.CIRCUIT_OPEN
    assert refused.provider == "of-b"


async def test_open_breaker_skips_target_without_calling_it_and_the_escape_leads_on() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR], "c": ["hello"]})
    await rig.fail(rig.job("b", breaker=TOUCHY))
    work = rig.job("b", "c", breaker=TOUCHY)
    assert await rig.run(work) == "hello"
    assert rig.exchange.leaves == ["b", "c"]
    assert [(record.outcome, record.tries, record.escape) for record in work.records] == [
        ("circuit_open", 0, "circuit_open"),
        ("ok", 1, None),
    ]


async def test_refusal_of_open_breakers_says_when_to_come_back() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})
    await rig.fail(rig.job("b", breaker=TOUCHY))
    await rig.clock.advance(12.0)
    assert (await rig.fail(rig.job("b", breaker=TOUCHY))).retry_after_s == pytest.approx(18.0)


async def test_of_many_requests_after_the_cooldown_exactly_one_is_the_probe() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})
    await rig.fail(rig.job("b", breaker=TOUCHY))
    await rig.clock.advance(30.0)

    async def slow() -> str:
        await rig.clock.sleep(1.0)
        return "hello"

    rig.exchange.script["b"] = [slow]
    rig.exchange.tried.clear()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(rig.executor.run(rig.job("b", breaker=TOUCHY)), name=f"{n}") for n in range(200)]
    await rig.clock.advance(1.0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert len(rig.exchange.tried) == 1
    assert results.count("hello") == 1
    assert sum(isinstance(each, Failure) and each.kind is Kind.CIRCUIT_OPEN for each in results) == 199
    assert rig.state("b") is State.CLOSED


async def test_probe_that_fails_keeps_everyone_out_for_a_whole_cooldown() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})
    await rig.fail(rig.job("b", breaker=TOUCHY))
    await rig.clock.advance(30.0)
    await rig.fail(rig.job("b", breaker=TOUCHY))
    await rig.clock.advance(29.0)
    assert (await rig.fail(rig.job("b", breaker=TOUCHY))).kind is Kind.CIRCUIT_OPEN
    assert len(rig.exchange.tried) == 2


async def test_probe_whose_client_left_is_replaced_one_cooldown_later() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})
    await rig.fail(rig.job("b", breaker=TOUCHY))
    await rig.clock.advance(30.0)
    rig.exchange.script["b"] = [asyncio.Event().wait, "hello"]
    probe = asyncio.get_running_loop().create_task(rig.executor.run(rig.job("b", breaker=TOUCHY)), name="probe")
    await rig.clock.advance(1.0)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert rig.state("b") is State.HALF_OPEN
    assert (await rig.fail(rig.job("b", breaker=TOUCHY))).kind is Kind.CIRCUIT_OPEN
    await rig.clock.advance(29.0)
    assert await rig.run(rig.job("b", breaker=TOUCHY)) == "hello"


async def test_success_of_a_straggler_closes_an_open_breaker_and_its_failure_does_not_prolong_it() -> None:
    rig = Rig({"b": [Kind.UPSTREAM_ERROR]})

    def straggler(outcome: Any) -> Any:
        async def late() -> Any:
            await rig.clock.sleep(10.0)
            return outcome

        return late

    loop = asyncio.get_running_loop()
    for outcome, expected in ((Kind.UPSTREAM_ERROR, State.OPEN), ("hello", State.CLOSED)):
        rig.executor.breakers.clear()
        rig.exchange.script["b"] = [straggler(outcome), Kind.UPSTREAM_ERROR]
        late = loop.create_task(rig.executor.run(rig.job("b", breaker=TOUCHY)), name="straggler")
        await rig.clock.advance(0.0)
        opened = await rig.fail(rig.job("b", breaker=TOUCHY))
        assert opened.kind is Kind.UPSTREAM_ERROR
        await rig.clock.advance(10.0)
        await asyncio.gather(late, return_exceptions=True)
        assert rig.state("b") is expected


# Cool-downs.


async def test_wait_beyond_patience_is_not_waited_for_and_the_leaf_rests_that_long() -> None:
    rig = Rig({"b": [failure(Kind.RATE_LIMITED, retry_after_s=60.0)], "c": ["hello"]})
    assert await rig.run(rig.job("b", "c", retry=RetryPolicy())) == "hello"
    assert rig.clock.slept == []
    await rig.clock.advance(59.0)
    work = rig.job("b", "c")
    await rig.run(work)
    assert rig.exchange.leaves == ["b", "c", "c"]
    assert [record.outcome for record in work.records] == ["circuit_open", "ok"]
    rig.exchange.script["b"] = ["back"]
    await rig.clock.advance(1.0)
    assert await rig.run(rig.job("b", "c")) == "back"


async def test_exhausted_quota_rests_for_what_it_said_and_matches_what_sent_it_away() -> None:
    rig = Rig({"b": [failure(Kind.QUOTA_EXHAUSTED, cool_s=120.0)], "c": ["hello"]})
    await rig.fail(rig.job("b"))
    work = rig.job("b", "c", triggers=Trigger.QUOTA_EXHAUSTED)
    assert await rig.run(work) == "hello"
    assert rig.exchange.leaves == ["b", "c"]


async def test_all_resting_is_answered_with_the_shortest_rest() -> None:
    waits = {"b": 60.0, "c": 40.0}
    rig = Rig({each: [failure(Kind.RATE_LIMITED, retry_after_s=wait_s)] for each, wait_s in waits.items()})
    await rig.fail(rig.job("b", "c"))
    await rig.clock.advance(10.0)
    found = await rig.fail(rig.job("b", "c"))
    assert (found.kind, found.status) == (Kind.COOLING_DOWN, 503)
    assert found.retry_after_s == pytest.approx(30.0)
    assert rig.exchange.leaves == ["b", "c"]


async def test_resting_key_leaves_the_other_keys_in_use() -> None:
    rig = Rig({"a/one": [failure(Kind.RATE_LIMITED, retry_after_s=60.0)], "a/two": ["hello"]})
    await rig.run(rig.job("a"))
    await rig.run(rig.job("a"))
    assert rig.exchange.keys == ["one", "two", "two"]
