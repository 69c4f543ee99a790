"""The one loop: attempts, deadline, breaker, keys, retry, escape.

It knows nothing of HTTP or dialects: what one try does is the `Exchange` it is given, what a failure means stands in
`errors.py`, where it leads is in the plan. Breakers and cooldowns live here, per process, across reloads.

    run                over the plan's attempts, along their escapes
      _attempt         one leaf, recorded
        _over_keys     another key of the same provider, where the failure is about the key
          _over_tries  the same key again, after a pause
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from lumen_gateway.clock import Clock
from lumen_gateway.errors import Failure, Kind, Trigger, trigger_name
from lumen_gateway.execution import deadline
from lumen_gateway.execution.breaker import Breaker, BreakerPolicy, State
from lumen_gateway.execution.cooldown import Cooldowns
from lumen_gateway.execution.leaf import Credential, Key, Leaf
from lumen_gateway.execution.retry import RetryPolicy, retry_delay
from lumen_gateway.records import AttemptRecord
from lumen_gateway.routing.plan import Attempt, next_attempt

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY_TROUBLE = frozenset({Kind.RATE_LIMITED, Kind.QUOTA_LIMITED, Kind.QUOTA_EXHAUSTED, Kind.AUTH_FAILED})
"""Failures that another key of the same provider may not have."""

EXHAUSTED = (("x-lumen-fallback-exhausted", "true"),)


class Exchange(Protocol[T_co]):
    """One try on one leaf: one upstream call, or several that stand or fall together."""

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> T_co:
        """Call the upstream and return its answer, or raise the Failure it amounts to."""
        ...


class Job(msgspec.Struct, Generic[T]):
    """What one request asks of the executor. `records` grows by one entry per attempt entered."""

    attempts: tuple[Attempt, ...]
    leaves: Mapping[str, Leaf]
    exchange: Exchange[T]
    total_at_s: float  # monotonic
    records: list[AttemptRecord]


class _Visit(msgspec.Struct, Generic[T]):
    """One attempt being made: where, and with which keys so far."""

    job: Job[T]
    attempt: Attempt
    leaf: Leaf
    record: AttemptRecord
    tried: list[Credential] = []

    @property
    def candidates(self) -> tuple[Credential, ...]:
        """The keys that may be used: all of the provider's, or the one the target pins."""
        if self.attempt.key is None:
            return self.leaf.credentials
        return tuple(credential for credential in self.leaf.credentials if credential.label == self.attempt.key)


class Executor:
    """Runs jobs. One per process."""

    def __init__(self, clock: Clock, rand: Callable[[], float]) -> None:
        self.clock = clock
        self.rand = rand
        self.retry = RetryPolicy()
        self.breaker = BreakerPolicy()
        self.breakers: dict[Key, Breaker] = {}
        self.cooldowns = Cooldowns()

    def states(self) -> Iterator[tuple[str, str, State]]:
        """List the breakers there are: provider, model, state."""
        for (provider, _, model), breaker in self.breakers.items():
            yield provider, model, breaker.state

    async def run(self, job: Job[T]) -> T:
        """Return the first answer along the plan's escapes.

        Raises: Failure, the last attempt's, with the smallest wait any of them named.
        """
        index = 0
        waits: list[float] = []
        while True:
            try:
                return await self._attempt(job, index)
            except Failure as failure:
                if failure.retry_after_s is not None:
                    waits.append(failure.retry_after_s)
                following = next_attempt(job.attempts, index, failure.triggers)
                if following is None:
                    _conclude(failure, waits, escaped=index > 0)
                    raise
                job.records[-1].escape = _taken(job.attempts[index], failure.triggers)
                index = following

    async def _attempt(self, job: Job[T], index: int) -> T:
        attempt = job.attempts[index]
        leaf = job.leaves[attempt.leaf]
        record = AttemptRecord(
            index, leaf.id, leaf.provider, attempt.key, attempt.route, started_s=self.clock.monotonic()
        )
        job.records.append(record)
        try:
            return await self._over_keys(_Visit(job, attempt, leaf, record))
        except Failure as failure:
            record.outcome = failure.kind.outcome
            record.upstream_status = failure.upstream_status
            raise
        except asyncio.CancelledError:
            record.outcome = "cancelled"
            raise
        finally:
            record.ended_s = self.clock.monotonic()

    async def _over_keys(self, visit: _Visit[T]) -> T:
        while True:
            credential = self._admit(visit)
            visit.record.key_label = credential.label
            visit.tried.append(credential)
            try:
                return await self._over_tries(visit, credential)
            except Failure as failure:
                if failure.kind not in KEY_TROUBLE or not self._usable(visit):
                    raise

    async def _over_tries(self, visit: _Visit[T], credential: Credential) -> T:
        for tries in itertools.count(1):
            visit.record.tries += 1
            try:
                result = await visit.job.exchange.perform(visit.leaf, credential, visit.attempt, visit.record)
            except Failure as failure:
                self._name(failure, visit)
                delay_s = self._pause(failure, tries, visit)
                if delay_s is None:
                    self._charge(failure, credential)
                    raise
                await self.clock.sleep(delay_s)
            else:
                self._breaker(credential).success()
                return result
        raise AssertionError("unreachable")

    def _pause(self, failure: Failure, tries: int, visit: _Visit[T]) -> float | None:
        """How long to wait before the same key is tried again, or None: leave it."""
        if failure.kind in KEY_TROUBLE and self._usable(visit):
            return None
        has_escape = next_attempt(visit.job.attempts, visit.record.index, failure.triggers) is not None
        delay_s = retry_delay(self.retry, failure, tries, self.rand(), has_escape=has_escape)
        if delay_s is not None and self.clock.monotonic() + delay_s >= visit.job.total_at_s:
            return None
        return delay_s

    def _charge(self, failure: Failure, credential: Credential) -> None:
        """Count the failure against the breaker, once per leaf and request, and note how long to stay away."""
        now_s = self.clock.monotonic()
        row = failure.kind.row
        if row.provider_fault:
            self.breakers[credential.key].fault(self.breaker, now_s)
        cool_s = failure.cool_s
        if cool_s is None and row.retryable and (failure.retry_after_s or 0.0) > self.retry.max_s:
            cool_s = failure.retry_after_s
        if cool_s is not None:
            self.cooldowns.start(credential.key, now_s, cool_s, row.triggers)

    def _name(self, failure: Failure, visit: _Visit[T]) -> None:
        """Say which provider failed, and tell a spent total deadline from the attempt's own timeout."""
        if deadline.ended_by_total(failure, self.clock.monotonic(), visit.job.total_at_s):
            failure.kind = Kind.TOTAL_TIMEOUT
            failure.provider = visit.job.leaves[visit.job.attempts[0].leaf].provider
            failure.message = f'provider "{failure.provider}": the request\'s total deadline has passed'
        elif failure.provider is None:
            failure.provider = visit.leaf.provider
            failure.message = f'provider "{failure.provider}": {failure.message}'

    # Which key to use.

    def _usable(self, visit: _Visit[T]) -> list[Credential]:
        """Keys that are neither tried, open, nor cooling. Changes no breaker."""
        now_s = self.clock.monotonic()
        return [
            credential
            for credential in visit.candidates
            if credential not in visit.tried
            and self.cooldowns.find(credential.key, now_s) is None
            and self._breaker(credential).wait(self.breaker, now_s) == 0.0
        ]

    def _admit(self, visit: _Visit[T]) -> Credential:
        """Pick a usable key by weight and let the call through its breaker.

        Raises: Failure CIRCUIT_OPEN or COOLING_DOWN, with the smallest wait, when no key is usable.
        """
        usable = self._usable(visit)
        if not usable:
            raise self._refusal(visit)
        credential = usable[0] if len(usable) == 1 else _pick(usable, self.rand())
        self._breaker(credential).admit(self.breaker, self.clock.monotonic())
        return credential

    def _refusal(self, visit: _Visit[T]) -> Failure:
        now_s = self.clock.monotonic()
        waits_s: list[float] = []
        cause = Trigger.NONE
        kind, state = Kind.COOLING_DOWN, "it asked to be left alone for a while"
        for credential in visit.candidates:
            appointment = self.cooldowns.find(credential.key, now_s)
            if appointment is not None:
                waits_s.append(appointment.until_s - now_s)
                cause |= appointment.triggers
            else:
                waits_s.append(self._breaker(credential).wait(self.breaker, now_s))
                kind, state = Kind.CIRCUIT_OPEN, "its circuit breaker is open"
        provider = visit.leaf.provider
        message = f'provider "{provider}" is not called for model "{visit.leaf.id}": {state}; retry later'
        return Failure(kind, message, provider=provider, retry_after_s=min(waits_s), cause=cause)

    def _breaker(self, credential: Credential) -> Breaker:
        breaker = self.breakers.get(credential.key)
        if breaker is None:
            breaker = self.breakers[credential.key] = Breaker()
        return breaker


def _pick(credentials: list[Credential], rand: float) -> Credential:
    remainder = rand * sum(credential.weight for credential in credentials)
    for credential in credentials:
        remainder -= credential.weight
        if remainder < 0:
            return credential
    return credentials[-1]


def _taken(attempt: Attempt, triggers: Trigger) -> str:
    """Name the trigger that led away from an attempt."""
    for escape in attempt.escapes:
        if escape.triggers & triggers:
            return trigger_name(escape.triggers & triggers) or "any_error"
    return ""


def _conclude(failure: Failure, waits: list[float], *, escaped: bool) -> None:
    """Turn the last attempt's failure into the request's: the smallest wait, and whether a chain was used up."""
    if waits:
        failure.retry_after_s = min(waits)
    if escaped:
        failure.headers += EXHAUSTED
