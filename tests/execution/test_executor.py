"""The loop over attempts: where a failure leads, when the same leaf is asked again, what is recorded, what is spent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.execution.staging import ScriptedExchange, chain, failure, job, played

from lumen_gateway.accounting.ledger import Unlimited
from lumen_gateway.errors import DEFAULT_TRIGGERS, TRIGGERS, Failure, Kind, Trigger, trigger_name
from lumen_gateway.execution.breaker import BreakerPolicy, State
from lumen_gateway.execution.executor import EXHAUSTED, Executor, Job
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.routing.plan import Attempt, Escape, next_attempt, without
from lumen_gateway.simulator import ManualClock

ANY = TRIGGERS["any_error"]
TWICE, PATIENT = RetryPolicy(max_tries=2), RetryPolicy()
TOUCHY = BreakerPolicy(threshold=1)


class Purse(Unlimited):
    """Has no room for some leaves."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[str] = []

    def top_up(self, leaf: str) -> bool:
        self.asked.append(leaf)
        return leaf not in self.refused


def stage(script: dict[str, list[Any]]) -> tuple[Executor, ScriptedExchange, ManualClock]:
    clock = ManualClock()
    return Executor(clock, lambda: 0.5), ScriptedExchange(clock, script), clock


async def run(clock: ManualClock, executor: Executor, work: Job[str]) -> str:
    return await played(clock, executor.run(work))


async def failing(clock: ManualClock, executor: Executor, work: Job[str]) -> Failure:
    with pytest.raises(Failure) as caught:
        await run(clock, executor, work)
    return caught.value


async def test_first_answer_is_the_result_and_nothing_behind_it_is_called() -> None:
    executor, exchange, clock = stage({"a": ["hello"], "b": ["never"]})
    work = job(exchange, chain("a", "b"))
    assert await run(clock, executor, work) == "hello"
    assert exchange.leaves == ["a"]
    (record,) = work.records
    assert (record.leaf, record.provider, record.route, record.outcome, record.tries) == ("a", "of-a", "v>a", "ok", 1)
    assert record.escape is None
    assert record.ended_s == clock.monotonic()


async def test_failure_follows_its_escape_and_both_attempts_are_recorded() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": ["hello"]})
    work = job(exchange, chain("a", "b"))
    assert await run(clock, executor, work) == "hello"
    assert [(record.index, record.outcome, record.escape) for record in work.records] == [
        (0, "provider_error", "provider_error"),
        (1, "ok", None),
    ]


async def test_failure_that_no_escape_lists_is_the_answer_at_once() -> None:
    executor, exchange, clock = stage({"a": [Kind.CONTEXT_LENGTH], "b": ["never"]})
    found = await failing(clock, executor, job(exchange, chain("a", "b")))
    assert found.kind is Kind.CONTEXT_LENGTH
    assert found.headers == ()
    assert exchange.leaves == ["a"]


async def test_provider_that_failed_is_named_once() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR]})
    found = await failing(clock, executor, job(exchange, chain("a"), retry=TWICE))
    assert found.provider == "of-a"
    assert found.message == 'provider "of-a": broken'


async def test_exhausted_chain_answers_with_the_last_failure_and_says_so() -> None:
    executor, exchange, clock = stage({"a": [Kind.RATE_LIMITED], "b": [Kind.UNREACHABLE]})
    found = await failing(clock, executor, job(exchange, chain("a", "b")))
    assert found.kind is Kind.UNREACHABLE
    assert found.headers == EXHAUSTED


async def test_single_target_is_never_an_exhausted_chain() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR]})
    assert (await failing(clock, executor, job(exchange, chain("a")))).headers == ()


async def test_chain_that_a_failure_leaves_unused_is_not_exhausted() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": [Kind.UPSTREAM_REFUSED], "c": ["never"]})
    found = await failing(clock, executor, job(exchange, chain("a", "b", "c")))
    assert found.kind is Kind.UPSTREAM_REFUSED
    assert found.headers == ()


async def test_smallest_wait_that_anyone_named_is_the_answers() -> None:
    waits_s = {"a": 40, "b": 20, "c": 30}
    outcomes = {each: [failure(Kind.RATE_LIMITED, retry_after_s=wait_s)] for each, wait_s in waits_s.items()}
    executor, exchange, clock = stage(outcomes)
    assert (await failing(clock, executor, job(exchange, chain("a", "b", "c")))).retry_after_s == 20


@pytest.mark.parametrize("kind", Kind)
async def test_each_failure_does_what_its_row_says(kind: Kind) -> None:
    row = kind.row
    executor, exchange, clock = stage({"a": [kind]})
    await failing(clock, executor, job(exchange, chain("a"), retry=TWICE, breaker=TOUCHY))
    assert len(exchange.tried) == (2 if row.retryable else 1)
    assert ("of-a", "a", State.OPEN if row.provider_fault else State.CLOSED) in list(executor.states())


@pytest.mark.parametrize("kind", Kind)
async def test_each_failure_leads_on_exactly_where_its_triggers_are_listed(kind: Kind) -> None:
    for trigger in Trigger:
        executor, exchange, clock = stage({"a": [kind], "b": ["hello"]})
        work = job(exchange, chain("a", "b", triggers=trigger))
        if trigger & kind.row.triggers:
            assert await run(clock, executor, work) == "hello"
            assert work.records[0].escape == (trigger_name(trigger) or "any_error")
        else:
            await failing(clock, executor, work)
            assert exchange.leaves == ["a"]


async def test_escape_is_named_after_the_finest_trigger_that_leads_there() -> None:
    inner, outer = Escape(Trigger.RATE_LIMITED, 1), Escape(Trigger.QUOTA_EXHAUSTED | Trigger.RATE_LIMITED, 0)
    attempts = (Attempt("a", "p", escapes=(inner, outer)), Attempt("b", "p", starts=0b01))
    executor, exchange, clock = stage({"a": [Kind.QUOTA_LIMITED], "b": ["hello"]})
    work = job(exchange, attempts)
    await run(clock, executor, work)
    assert work.records[0].escape == "quota_exhausted"


# Every list of attempts, every sequence of failures.

KINDS = [kind for kind in Kind if kind is not Kind.TOTAL_TIMEOUT]
escapes = st.tuples(st.sampled_from([*Trigger, DEFAULT_TRIGGERS, ANY]), st.integers(0, 2)).map(lambda it: Escape(*it))
lists = st.lists(
    st.tuples(st.lists(escapes, max_size=3), st.integers(0, 7), st.sampled_from([*KINDS, *[None] * 4]), st.booleans()),
    min_size=1,
    max_size=8,
)


@given(lists)
async def test_path_is_the_chain_of_escapes_through_what_the_budget_leaves(
    drawn: list[tuple[list[Escape], int, Kind | None, bool]],
) -> None:
    attempts = [
        Attempt(f"m{index}", "p", escapes=tuple(escapes), starts=starts if index else 0)
        for index, (escapes, starts, _, _) in enumerate(drawn)
    ]
    outcomes = {f"m{index}": kind for index, (_, _, kind, _) in enumerate(drawn)}
    refused = {f"m{index}" for index, each in enumerate(drawn) if each[3] and index}
    expected, failed = walk(without(attempts, lambda attempt: attempt.leaf in refused), outcomes)

    executor, exchange, clock = stage({name: [kind or "hello"] for name, kind in outcomes.items()})
    work = job(exchange, attempts)
    work.admission = Purse(*refused)
    if failed:
        found = await failing(clock, executor, work)
        assert found.kind is outcomes[expected[-1]]
        assert found.headers in ((), EXHAUSTED if len(expected) > 1 else ())
    else:
        assert await run(clock, executor, work) == "hello"
    assert exchange.leaves == expected
    made = [record for record in work.records if record.outcome != "budget"]
    assert [attempts[record.index].leaf for record in made] == expected
    assert all(record.escape for record in made[:-1])
    assert made[-1].escape is None


def walk(attempts: tuple[Attempt, ...], outcomes: dict[str, Kind | None]) -> tuple[list[str], bool]:
    path, index = [attempts[0].leaf], 0
    while (kind := outcomes[attempts[index].leaf]) is not None:
        following = next_attempt(attempts, index, kind.row.triggers)
        if following is None:
            return path, True
        index = following
        path.append(attempts[index].leaf)
    return path, False


# The same leaf again.


async def test_waits_between_tries_grow_and_the_record_counts_the_tries() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR, Kind.UPSTREAM_ERROR, "hello"]})
    work = job(exchange, chain("a"), retry=PATIENT)
    assert await run(clock, executor, work) == "hello"
    assert clock.slept == pytest.approx([0.15, 0.3])
    assert (work.records[0].tries, work.records[0].outcome) == (3, "ok")
    assert work.records[0].upstream_status is None


async def test_timeout_is_not_repeated_where_the_chain_goes_on_and_is_where_it_ends() -> None:
    executor, exchange, clock = stage({"a": [Kind.FIRST_TOKEN_TIMEOUT], "b": [Kind.FIRST_TOKEN_TIMEOUT]})
    await failing(clock, executor, job(exchange, chain("a", "b"), retry=PATIENT))
    assert exchange.leaves == ["a", "b", "b", "b"]


async def test_retry_after_within_the_budget_is_waited_for() -> None:
    limited = failure(Kind.RATE_LIMITED, retry_after_s=4.0)
    executor, exchange, clock = stage({"a": [limited, "hello"]})
    assert await run(clock, executor, job(exchange, chain("a", "b"), retry=PATIENT)) == "hello"
    assert clock.slept == [4.0]


# The total deadline.


async def test_wait_that_would_outlast_the_deadline_is_not_begun() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR]})
    slow = RetryPolicy(base_s=10.0, max_s=10.0)
    found = await failing(clock, executor, job(exchange, chain("a"), total_at_s=clock.monotonic() + 5.0, retry=slow))
    assert found.kind is Kind.UPSTREAM_ERROR
    assert clock.slept == []


async def test_nothing_is_sent_once_the_deadline_has_passed() -> None:
    executor, exchange, clock = stage({"a": [], "b": ["never"]})
    exchange.script["a"] = [lambda: slow_failure(clock, 7.0)]
    work = job(exchange, chain("a", "b"), total_at_s=clock.monotonic() + 5.0)
    found = await failing(clock, executor, work)
    assert found.kind is Kind.TOTAL_TIMEOUT
    assert exchange.leaves == ["a"]


async def slow_failure(clock: ManualClock, after_s: float, kind: Kind = Kind.UPSTREAM_ERROR) -> Kind:
    await clock.sleep(after_s)
    return kind


async def test_timeout_at_the_deadline_is_the_deadlines_names_the_first_provider_and_charges_nobody() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": []})
    exchange.script["b"] = [lambda: slow_failure(clock, 5.0, Kind.READ_TIMEOUT)]
    work = job(exchange, chain("a", "b", "c"), total_at_s=clock.monotonic() + 5.0, breaker=TOUCHY)
    found = await failing(clock, executor, work)
    assert (found.kind, found.provider, found.headers) == (Kind.TOTAL_TIMEOUT, "of-a", ())
    assert list(executor.states()) == [("of-a", "a", State.OPEN), ("of-b", "b", State.CLOSED)]
    assert work.records[1].outcome == "total_timeout"


# A client that leaves, a fault of ours.


async def test_cancelled_attempt_is_recorded_as_such_and_charges_nobody() -> None:
    executor, exchange, clock = stage({"a": []})
    exchange.script["a"] = [lambda: slow_failure(clock, 60.0)]
    work = job(exchange, chain("a"), breaker=TOUCHY)
    task = asyncio.get_running_loop().create_task(executor.run(work), name="request")
    await clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.records[0].outcome == "client_left"
    assert work.records[0].ended_s == clock.monotonic()
    assert list(executor.states()) == [("of-a", "a", State.CLOSED)]


async def test_client_that_leaves_during_a_pause_ends_it() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR]})
    work = job(exchange, chain("a"), retry=PATIENT)
    task = asyncio.get_running_loop().create_task(executor.run(work), name="request")
    await clock.advance(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(exchange.tried) == 1


async def test_fault_of_ours_is_no_failure_of_the_upstreams() -> None:
    async def crash() -> str:
        raise ZeroDivisionError

    executor, exchange, clock = stage({"a": [crash], "b": ["never"]})
    work = job(exchange, chain("a", "b", triggers=ANY), breaker=TOUCHY)
    with pytest.raises(ZeroDivisionError):
        await run(clock, executor, work)
    assert work.records[0].outcome == "internal"
    assert exchange.leaves == ["a"]
    assert list(executor.states()) == [("of-a", "a", State.CLOSED)]


# The budget.


async def test_budget_is_asked_before_each_attempt_but_the_first() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": [Kind.UPSTREAM_ERROR], "c": ["hello"]})
    work = job(exchange, chain("a", "b", "c"))
    work.admission = purse = Purse()
    await run(clock, executor, work)
    assert purse.asked == ["b", "c"]


async def test_attempt_without_room_in_the_budget_is_skipped_for_the_next_and_no_breaker_hears_of_it() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": ["never"], "c": ["hello"]})
    work = job(exchange, chain("a", "b", "c"))
    work.admission = Purse("b")
    assert await run(clock, executor, work) == "hello"
    assert [(record.leaf, record.outcome, record.tries) for record in work.records] == [
        ("a", "provider_error", 1),
        ("b", "budget", 0),
        ("c", "ok", 1),
    ]
    assert [model for _, model, _ in executor.states()] == ["a", "c"]


async def test_chain_that_the_budget_ends_answers_with_the_failure_before() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": [Kind.RATE_LIMITED], "c": ["never"]})
    work = job(exchange, chain("a", "b", "c"))
    work.admission = Purse("c")
    found = await failing(clock, executor, work)
    assert found.kind is Kind.RATE_LIMITED
    assert found.headers == EXHAUSTED
    assert work.records[1].escape is None


async def test_leaf_listed_twice_is_charged_once_for_one_request() -> None:
    executor, exchange, clock = stage({"a": [Kind.UPSTREAM_ERROR], "b": [Kind.UPSTREAM_ERROR]})
    policies: dict[str, Any] = {"retry": TWICE, "breaker": BreakerPolicy(threshold=2)}
    await failing(clock, executor, job(exchange, chain("a", "b", "a"), **policies))
    assert exchange.leaves == ["a"] * 2 + ["b"] * 2 + ["a"] * 2
    assert {model: state for _, model, state in executor.states()} == {"a": State.CLOSED, "b": State.CLOSED}
    await failing(clock, executor, job(exchange, chain("a"), **policies))
    assert {model: state for _, model, state in executor.states()}["a"] is State.OPEN
