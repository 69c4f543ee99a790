"""The one loop: attempts, deadline, breaker, keys, retry, escape.

It knows nothing of HTTP or dialects: what one try does is the `Exchange` it is given, what a failure means stands in
`errors.py`, where it leads is in the plan. Breakers and cooldowns live here, per process, across reloads.

    run              over the plan's attempts, along their escapes
      _attempt       one leaf: try, and after a failure
        _recover     try again with another key, or with the same one after a pause, or leave
      _onward        the next attempt the failure leads to and the budget has room for
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from lumen_gateway.accounting.ledger import Admission
from lumen_gateway.clock import Clock
from lumen_gateway.errors import TRIGGERS, Failure, Kind, Trigger, trigger_name
from lumen_gateway.execution.breaker import Breaker, BreakerPolicy, State
from lumen_gateway.execution.cooldown import Cooldowns
from lumen_gateway.execution.deadline import ended_by_total
from lumen_gateway.execution.leaf import Credential, Key, Leaf
from lumen_gateway.execution.retry import RetryPolicy, retry_delay
from lumen_gateway.records import AttemptRecord
from lumen_gateway.routing.plan import Attempt, next_attempt

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY_TROUBLE = frozenset(
    {Kind.RATE_LIMITED, Kind.RATE_TOO_SMALL, Kind.QUOTA_LIMITED, Kind.QUOTA_EXHAUSTED, Kind.AUTH_FAILED}
)
"""Failures that another key of the same provider may not have."""

EXHAUSTED = (("x-lumen-fallback-exhausted", "true"),)
OVER_BUDGET = "budget"
"""Outcome of an attempt that was skipped because no budget was left for it."""

_ANY = TRIGGERS["any_error"]


class Exchange(Protocol[T_co]):
    """One try on one leaf: one upstream call, or several that stand or fall together."""

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> T_co:
        """Call the upstream and return its answer, or raise the Failure it amounts to."""
        ...


class Job(msgspec.Struct, Generic[T]):
    """What one request asks of the executor.

    `records` grows by one entry per attempt entered or skipped. `admission` was made for the first attempt and is asked
    again before each further one. The policies are those of the request's document, so that a reload changes nothing
    half-way. `waits_s` and `charged` are notes of the executor: every wait an upstream asked for,
    and the keys whose breakers have counted this request.
    """

    attempts: tuple[Attempt, ...]
    leaves: Mapping[str, Leaf]
    exchange: Exchange[T]
    total_at_s: float  # monotonic
    records: list[AttemptRecord]
    admission: Admission
    retry: RetryPolicy = RetryPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    waits_s: list[float] = []
    charged: list[Key] = []

    def note_wait(self, failure: Failure) -> None:
        """Remember how long the failed upstream asked to be left alone."""
        if failure.retry_after_s is not None:
            self.waits_s.append(failure.retry_after_s)


class _Visit(msgspec.Struct, Generic[T]):
    """One attempt being made: where, with which key, and which keys it has not used yet."""

    job: Job[T]
    attempt: Attempt
    leaf: Leaf
    record: AttemptRecord
    credential: Credential
    breaker: Breaker
    left: tuple[Credential, ...]


class Executor:
    """Runs jobs. One per process."""

    def __init__(self, clock: Clock, rand: Callable[[], float]) -> None:
        self.clock = clock
        self.rand = rand
        self.breakers: dict[Key, Breaker] = {}
        self.cooldowns = Cooldowns()

    def states(self) -> Iterator[tuple[str, str, State]]:
        """List the breakers there are: provider, model, state."""
        for (provider, _, model), breaker in self.breakers.items():
            yield provider, model, breaker.state

    def retain(self, keys: Container[Key]) -> None:
        """Forget what is known of keys that the document no longer has."""
        for key in [key for key in self.breakers if key not in keys]:
            del self.breakers[key]
        self.cooldowns.retain(keys)

    async def run(self, job: Job[T]) -> T:
        """Return the first answer along the plan's escapes.

        Raises: Failure, the last attempt's, with the smallest wait any of them named.
        """
        index = 0
        while True:
            try:
                return await self._attempt(job, index)
            except Failure as failure:
                job.note_wait(failure)
                following = self._onward(job, index, failure)
                if following is None:
                    failure.retry_after_s = min(job.waits_s, default=None)
                    raise
                index = following

    async def _attempt(self, job: Job[T], index: int) -> T:
        """Try one leaf as often, and with as many of its keys, as makes sense; leave a record of it."""
        attempt = job.attempts[index]
        leaf = job.leaves[attempt.leaf]
        now_s = self.clock.monotonic()
        record = AttemptRecord(index, leaf.id, leaf.provider, attempt.key, attempt.route, started_s=now_s)
        job.records.append(record)
        try:
            visit = self._admit(job, attempt, leaf, record)
            while True:
                if now_s >= job.total_at_s:
                    raise _spent(job)
                record.tries += 1
                try:
                    answer = await job.exchange.perform(leaf, visit.credential, attempt, record)
                except Failure as failure:
                    pause_s = self._recover(visit, failure)
                    if pause_s is None:
                        raise
                else:
                    visit.breaker.success()
                    return answer
                if pause_s > 0.0:
                    await self.clock.sleep(pause_s)
                now_s = self.clock.monotonic()
        except BaseException as exc:
            record.outcome = outcome_of(exc)
            raise
        finally:
            record.ended_s = self.clock.monotonic()

    def _onward(self, job: Job[T], index: int, failure: Failure) -> int | None:
        """Return the attempt that the failure leads to, past those for which the budget has no room.

        A skipped attempt is as if it were not in the list: whoever leads to it leads to the one behind it. A chain that
        was followed to its end is said to be exhausted.
        """
        failed, attempts = job.records[-1], job.attempts
        following = next_attempt(attempts, index, failure.triggers)
        if following is not None:
            for position in range(following, len(attempts)):
                if job.admission.top_up(attempts[position].leaf):
                    failed.escape = _taken(attempts, index, failure.triggers, following)
                    return position
                job.records.append(self._skipped(attempts[position], position))
        elif next_attempt(attempts, index, _ANY) is not None:
            return None
        if index > 0:
            failure.headers += EXHAUSTED
        return None

    def _skipped(self, attempt: Attempt, index: int) -> AttemptRecord:
        now_s = self.clock.monotonic()
        record = AttemptRecord(index, attempt.leaf, attempt.provider, attempt.key, attempt.route, started_s=now_s)
        record.outcome, record.ended_s = OVER_BUDGET, now_s
        return record

    # After a failed try.

    def _recover(self, visit: _Visit[T], failure: Failure) -> float | None:
        """Return the pause before the leaf is tried again, with the key that `visit` then holds; None: leave it."""
        self._name(visit, failure)
        now_s = self.clock.monotonic()
        others = self._usable(visit.job, visit.left, now_s) if failure.kind in KEY_TROUBLE else []
        pause_s = 0.0 if others else self._pause(visit, failure)
        if others or pause_s is None:
            self._charge(visit, failure)
        if others:
            visit.job.note_wait(failure)
            self._take(visit, others, now_s)
        return pause_s

    def _name(self, visit: _Visit[T], failure: Failure) -> None:
        """Say which provider failed, and tell a spent total deadline from the attempt's own timeout."""
        if ended_by_total(failure, self.clock.monotonic(), visit.job.total_at_s):
            spent = _spent(visit.job)
            failure.kind, failure.message, failure.provider = spent.kind, spent.message, spent.provider
        else:
            failure.blame(visit.leaf.provider)

    def _pause(self, visit: _Visit[T], failure: Failure) -> float | None:
        """How long to wait before the same key is tried again, or None."""
        job, record = visit.job, visit.record
        has_escape = next_attempt(job.attempts, record.index, failure.triggers) is not None
        pause_s = retry_delay(job.retry, failure, record.tries, self.rand(), has_escape=has_escape)
        if pause_s is not None and self.clock.monotonic() + pause_s >= job.total_at_s:
            return None
        return pause_s

    def _charge(self, visit: _Visit[T], failure: Failure) -> None:
        """Count the failure against the key's breaker, once per request, and note how long to stay away.

        A probe is always counted: an open breaker waits for its outcome.
        """
        row, key, charged = failure.kind.row, visit.credential.key, visit.job.charged
        now_s = self.clock.monotonic()
        if row.provider_fault and (key not in charged or visit.breaker.state is State.HALF_OPEN):
            charged.append(key)
            visit.breaker.fault(visit.job.breaker, now_s)
        cool_s = failure.cool_s
        if cool_s is None and row.retryable and (failure.retry_after_s or 0.0) > visit.job.retry.max_s:
            cool_s = failure.retry_after_s
        if cool_s is not None:
            self.cooldowns.start(key, now_s, cool_s, row.triggers)

    # Which key to use.

    def _admit(self, job: Job[T], attempt: Attempt, leaf: Leaf, record: AttemptRecord) -> _Visit[T]:
        """Begin an attempt with a usable key.

        Raises: Failure CIRCUIT_OPEN or COOLING_DOWN, with the smallest wait, when no key is usable.
        """
        keys, now_s = leaf.credentials, record.started_s
        if attempt.key is not None:
            keys = tuple(key for key in keys if key.label == attempt.key)
        first = keys[0]
        visit = _Visit(job, attempt, leaf, record, first, self._breaker(first), ())
        if len(keys) == 1 and visit.breaker.state is State.CLOSED and self.cooldowns.find(first.key, now_s) is None:
            record.key_label = first.label  # the usual case: one key, and nothing against it
            return visit
        usable = self._usable(job, keys, now_s)
        if not usable:
            raise self._refusal(job, leaf, keys)
        visit.left = keys
        self._take(visit, usable, now_s)
        return visit

    def _usable(self, job: Job[T], keys: Iterable[Credential], now_s: float) -> list[Credential]:
        """Return the keys that are neither open nor cooling. Changes no breaker."""
        return [
            key
            for key in keys
            if self.cooldowns.find(key.key, now_s) is None and self._breaker(key).wait(job.breaker, now_s) == 0.0
        ]

    def _take(self, visit: _Visit[T], usable: Sequence[Credential], now_s: float) -> None:
        """Pick one of the usable keys by weight and let the call through its breaker."""
        credential = usable[0] if len(usable) == 1 else _pick(usable, self.rand())
        visit.credential = credential
        visit.record.key_label = credential.label
        visit.left = tuple(key for key in visit.left if key is not credential)
        visit.breaker = self._breaker(credential)
        visit.breaker.admit(visit.job.breaker, now_s)

    def _refusal(self, job: Job[T], leaf: Leaf, keys: Sequence[Credential]) -> Failure:
        now_s = self.clock.monotonic()
        waits_s: list[float] = []
        cause = Trigger.NONE
        kind, state = Kind.COOLING_DOWN, "it asked to be left alone for a while"
        for credential in keys:
            appointment = self.cooldowns.find(credential.key, now_s)
            if appointment is not None:
                waits_s.append(appointment.until_s - now_s)
                cause |= appointment.triggers
            else:
                waits_s.append(self._breaker(credential).wait(job.breaker, now_s))
                kind, state = Kind.CIRCUIT_OPEN, "its circuit breaker is open"
        message = f'provider "{leaf.provider}" is not called for model "{leaf.id}": {state}; retry later'
        return Failure(kind, message, provider=leaf.provider, retry_after_s=min(waits_s), cause=cause)

    def _breaker(self, credential: Credential) -> Breaker:
        breaker = self.breakers.get(credential.key)
        if breaker is None:
            breaker = self.breakers[credential.key] = Breaker()
        return breaker


def outcome_of(exc: BaseException) -> str:
    """Return what a record calls an attempt that ended this way."""
    if isinstance(exc, Failure):
        return exc.kind.outcome
    return (Kind.CLIENT_LEFT if isinstance(exc, asyncio.CancelledError) else Kind.INTERNAL).outcome


def _spent(job: Job[T]) -> Failure:
    """The total deadline has passed: named after the provider whose clock it was, the first attempt's."""
    failure = Failure(Kind.TOTAL_TIMEOUT, "the request's total deadline has passed")
    failure.blame(job.leaves[job.attempts[0].leaf].provider)
    return failure


def _pick(credentials: Sequence[Credential], rand: float) -> Credential:
    remainder = rand * sum(credential.weight for credential in credentials)
    for credential in credentials:
        remainder -= credential.weight
        if remainder < 0:
            return credential
    return credentials[-1]


def _taken(attempts: Sequence[Attempt], index: int, triggers: Trigger, following: int) -> str:
    """Name the finest trigger that leads from one attempt to the other."""
    for trigger in reversed(Trigger):
        if trigger & triggers and next_attempt(attempts, index, trigger) == following:
            return trigger_name(trigger) or "any_error"
    raise AssertionError("some trigger led there")
