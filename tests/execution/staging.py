"""The stage for tests of execution: leaves, attempts, a scripted upstream and a client, all without a socket.

Time is the simulator's `ManualClock`: `played` turns it until the work is done, so that an hour of waiting takes no
time. A scripted answer is the transcript of a body in wire order: pieces, silences, and a failure that ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from lumen_gateway.accounting.ledger import Unlimited
from lumen_gateway.accounting.prices import Prices
from lumen_gateway.dialects.chat import ChatRules, parse_request
from lumen_gateway.errors import DEFAULT_TRIGGERS, Failure, Kind, Trigger
from lumen_gateway.execution.breaker import BreakerPolicy
from lumen_gateway.execution.commit import OpenStream, StreamedChat
from lumen_gateway.execution.exchange import BufferedChat
from lumen_gateway.execution.executor import Exchange, Executor, Job
from lumen_gateway.execution.leaf import Credential, Leaf, Timeouts
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import AttemptRecord, Origin
from lumen_gateway.redact import Secret
from lumen_gateway.routing.plan import Attempt, Escape
from lumen_gateway.simulator import ManualClock

T = TypeVar("T")

TIMEOUTS = Timeouts(first_token_s=30.0, response_s=600.0, idle_s=60.0, total_s=600.0)
PRICES = Prices(input=2, output=3)


def key(leaf_id: str, label: str | None = None, weight: int = 1) -> Credential:
    line = f"authorization: Bearer key-{label}\r\n".encode()
    return Credential((f"of-{leaf_id}", label, leaf_id), label, weight, Secret(line))


def leaf(leaf_id: str, *labels: str, timeouts: Timeouts = TIMEOUTS, **more: Any) -> Leaf:
    """Return a leaf of the provider `of-<id>`, with a key per label or one without."""
    return Leaf(
        id=leaf_id,
        provider=f"of-{leaf_id}",
        origin=Origin("http", f"{leaf_id}.test", 80),
        heads={"chat": b"POST /chat HTTP/1.1\r\n"},
        model=msgspec.Raw(msgspec.json.encode(leaf_id)),
        credentials=more.get("credentials") or tuple(key(leaf_id, label) for label in labels or (None,)),
        rules=ChatRules(),
        timeouts=timeouts,
        prices=more.get("prices"),
        repair=more.get("repair", False),
        streams=True,
        images=True,
        forward_headers=more.get("forward_headers", frozenset()),
    )


def chain(*leaf_ids: str, triggers: Trigger = DEFAULT_TRIGGERS) -> tuple[Attempt, ...]:
    """Return what a `fallback` over these leaves decides."""
    *others, last = leaf_ids
    escapes = (Escape(triggers, 0),)
    listed = [
        Attempt(each, f"of-{each}", route=f"v>{each}", escapes=escapes, starts=int(index > 0))
        for index, each in enumerate(others)
    ]
    return (*listed, Attempt(last, f"of-{last}", route=f"v>{last}", starts=int(bool(others))))


def failure(kind: Kind, **more: Any) -> Failure:
    return Failure(kind, "broken", **more)


async def played(clock: ManualClock, work: Coroutine[Any, Any, T], step_s: float = 20.0) -> T:
    """Turn the clock until the work is done; a test that never ends fails instead."""
    task = asyncio.get_running_loop().create_task(work, name="work")
    await clock.advance(0.0)
    for _ in range(100):
        if task.done():
            return task.result()
        await clock.advance(step_s)
    task.cancel()
    raise AssertionError("it never ended")


ONCE, USUAL = RetryPolicy(max_tries=1), BreakerPolicy()


def job(
    exchange: Exchange[T],
    attempts: Sequence[Attempt],
    leaves: Sequence[Leaf] = (),
    *,
    total_at_s: float = 1e9,
    retry: RetryPolicy = ONCE,
    breaker: BreakerPolicy = USUAL,
) -> Job[T]:
    """Return a job over these attempts, each tried once; leaves not given are plain ones."""
    by_id = {each.leaf: leaf(each.leaf) for each in attempts} | {each.id: each for each in leaves}
    return Job(tuple(attempts), by_id, exchange, total_at_s, [], Unlimited(), retry, breaker)


Outcome = Kind | Failure | str | Callable[[], Any]


class Tried(NamedTuple):
    """One try, as the exchange saw it."""

    leaf: str
    key: str | None
    at_s: float


class ScriptedExchange:
    """Plays outcomes by leaf, the last one for ever: a Kind or Failure is raised, a text is the answer."""

    def __init__(self, clock: ManualClock, script: dict[str, list[Outcome]]) -> None:
        self.clock = clock
        self.script = {leaf_id: list(outcomes) for leaf_id, outcomes in script.items()}
        self.tried: list[Tried] = []

    async def perform(self, leaf: Leaf, credential: Credential, attempt: Attempt, record: AttemptRecord) -> str:
        self.tried.append(Tried(leaf.id, credential.label, self.clock.monotonic()))
        name = f"{leaf.id}/{credential.label}"
        outcomes = self.script[name if name in self.script else leaf.id]
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if callable(outcome) and not isinstance(outcome, Kind):
            outcome = await outcome()
        if isinstance(outcome, Kind):
            raise failure(outcome)
        if isinstance(outcome, Failure):
            raise outcome
        return str(outcome)

    @property
    def leaves(self) -> list[str]:
        return [tried.leaf for tried in self.tried]

    @property
    def keys(self) -> list[str | None]:
        return [tried.key for tried in self.tried]


# An upstream, byte by byte.


class Silence(NamedTuple):
    """Nothing comes for that long."""

    for_s: float


Piece = bytes | Silence | Failure


def reset() -> Failure:
    """The connection breaks off."""
    return Failure(Kind.ENDED_EARLY, "the connection was reset before the answer was complete")


class ScriptedAnswer:
    """An upstream's answer: its body is a transcript, the proper end follows unless a failure comes first."""

    def __init__(self, *pieces: Piece, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.clock = ManualClock()  # the transport's, once it is sent
        self.status = status
        self.headers = list(headers)
        self.first_byte_at = 0.0
        self.pieces = list(pieces)
        self.over: str | None = None  # "left" or "closed"
        self.reads = 0

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    async def read_all(self, limit_bytes: int, until: float) -> bytes:
        body = b""
        while piece := await self.read_chunk(until):
            body += piece
            if len(body) > limit_bytes:
                raise Failure(Kind.MALFORMED, "too large")
        return body

    async def read_chunk(self, until: float) -> bytes:
        self.reads += 1
        while self.pieces:
            piece = self.pieces.pop(0)
            if isinstance(piece, Failure):
                raise piece
            if isinstance(piece, bytes):
                if piece:
                    return piece
                continue
            left_s = until - self.clock.monotonic()
            if piece.for_s >= left_s:
                await self.clock.sleep(max(left_s, 0.0))
                self.pieces.insert(0, Silence(piece.for_s - left_s))
                raise Failure(Kind.READ_TIMEOUT, "silent")
            await self.clock.sleep(piece.for_s)
        return b""

    def leave(self, until: float) -> None:
        self.over = self.over or "left"

    def close(self) -> None:
        self.over = self.over or "closed"


class ScriptedTransport:
    """Answers sends by the host's first label, in order, the last one for ever only if it is a Failure's Kind."""

    def __init__(self, clock: ManualClock, script: dict[str, list[ScriptedAnswer | Kind]]) -> None:
        self.clock = clock
        self.script = script
        self.sent: list[tuple[str, bytes]] = []
        self.answers: list[ScriptedAnswer] = []

    async def send(self, origin: Origin, payload: bytes, until: float) -> ScriptedAnswer:
        leaf_id = origin.host.partition(".")[0]
        self.sent.append((leaf_id, payload))
        outcomes = self.script[leaf_id]
        if isinstance(outcomes[0], Kind):
            raise failure(outcomes[0] if len(outcomes) == 1 else outcomes.pop(0))  # type: ignore[arg-type]  # a Kind
        answer = outcomes.pop(0)
        assert isinstance(answer, ScriptedAnswer)
        answer.clock = self.clock
        answer.first_byte_at = self.clock.monotonic()
        self.answers.append(answer)
        return answer

    @property
    def asked(self) -> list[str]:
        return [leaf_id for leaf_id, _ in self.sent]


class FakeClient:
    """Where a stream goes: keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.finished = 0
        self.paused = False
        self.drained = 0
        self.leaves = False  # at the next drain

    @property
    def got(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes) -> None:
        assert not self.finished
        self.writes.append(bytes(data))

    async def drain(self) -> None:
        self.drained += 1
        if self.leaves:
            raise Failure(Kind.CLIENT_LEFT, "the client stopped reading")

    def finish(self, last: bytes = b"") -> None:
        self.write(last)
        self.finished += 1


class Stage:
    """A chat request on its way: clock, executor, scripted upstreams, and what was warned about."""

    def __init__(self, script: dict[str, list[ScriptedAnswer | Kind]], body: bytes = b"") -> None:
        self.clock = ManualClock()
        self.executor = Executor(self.clock, lambda: 0.5)
        self.transport = ScriptedTransport(self.clock, script)
        self.warned: list[tuple[str, int, str | None]] = []
        self.body = body or b'{"model":"v","messages":[{"role":"user","content":"hello you"}]}'
        self.headers: list[tuple[bytes, bytes]] = []

    def exchange(self, attempts: Sequence[Attempt], total_at_s: float) -> dict[str, Any]:
        return {
            "request": parse_request(self.body),
            "attempts": tuple(attempts),
            "headers": self.headers,
            "total_at_s": total_at_s,
            "transport": self.transport,
            "clock": self.clock,
            "warn": lambda *told: self.warned.append(told),
        }

    def buffered(
        self, attempts: Sequence[Attempt], leaves: Sequence[Leaf] = (), *, total_at_s: float = 1e9, **more: Any
    ) -> Job[bytes]:
        return job(BufferedChat(**self.exchange(attempts, total_at_s)), attempts, leaves, total_at_s=total_at_s, **more)

    def streamed(
        self,
        attempts: Sequence[Attempt],
        leaves: Sequence[Leaf] = (),
        *,
        total_at_s: float = 1e9,
        complete: bool = False,
        max_event_bytes: int = 1 << 24,
        **more: Any,
    ) -> Job[OpenStream]:
        exchange = StreamedChat(
            **self.exchange(attempts, total_at_s), complete=complete, max_event_bytes=max_event_bytes
        )
        return job(exchange, attempts, leaves, total_at_s=total_at_s, **more)

    async def run(self, work: Job[T]) -> T:
        return await played(self.clock, self.executor.run(work))

    async def fail(self, work: Job[Any]) -> Failure:
        with pytest.raises(Failure) as caught:
            await self.run(work)
        return caught.value
