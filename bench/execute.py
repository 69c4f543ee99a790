"""What running a request costs beside its upstream: the executor around an instant answer, and the relay of one frame.

The exchange answers at once and the frames lie ready, so that only our own work is measured. A frame is what most
streams are made of, one more piece of text, and each comes in a read of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from lumen_gateway.accounting.ledger import Unlimited
from lumen_gateway.clock import SystemClock
from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.dialects.chat_answer import DONE
from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.sse import Splitter
from lumen_gateway.dialects.wire import CHAT
from lumen_gateway.execution.commit import OpenStream
from lumen_gateway.execution.executor import Executor, Job
from lumen_gateway.execution.leaf import Credential, Leaf, Timeouts
from lumen_gateway.execution.relay import relay
from lumen_gateway.records import AttemptRecord, Origin
from lumen_gateway.redact import Secret
from lumen_gateway.routing.plan import Attempt

CALLS, FRAMES, ROUNDS = 20_000, 20_000, 7
LEAF = Leaf(
    id="m",
    provider="p",
    kind="openai",
    origin=Origin("http", "127.0.0.1", 80),
    heads={"chat": b""},
    model=msgspec.Raw(b'"m"'),
    credentials=(Credential(("p", None, "m"), None, 1, Secret(b"")),),
    rules=ChatRules(),
    timeouts=Timeouts(30.0, 600.0, 60.0, 600.0),
    prices=None,
    repair=False,
    streams=True,
    images=True,
    forward_headers=frozenset(),
)
ATTEMPTS = (Attempt("m", "p", route="v>m"),)
LEAVES = {"m": LEAF}
FRAME = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)


class Instant:
    """An exchange that has its answer already."""

    async def perform(self, *_: object) -> bytes:
        """Answer."""
        return b"{}"


class Ready:
    """An answer whose pieces lie ready, one frame each."""

    status = 200
    first_byte_at = 0.0

    def __init__(self, frames: int) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.left = frames

    def header(self, *_: object) -> None:
        """Have none."""

    async def read_all(self, *_: object) -> bytes:
        """Be a stream."""
        raise NotImplementedError

    async def read_chunk(self, *_: object) -> bytes:
        """Return the next frame."""
        self.left -= 1
        return FRAME if self.left > 0 else DONE

    def leave(self, *_: object) -> None:
        """Nothing to leave."""

    def close(self) -> None:
        """Nothing to close."""


class Sink:
    """A client that takes everything."""

    paused = False

    def write(self, *_: object) -> None:
        """Take."""

    async def drain(self) -> None:
        """Have room."""

    def finish(self, *_: object) -> None:
        """Be content."""


def run() -> dict[str, float]:
    """Measure one request, and one frame."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, float]:
    clock = SystemClock()
    executor = Executor(clock, lambda: 0.5)

    exchange, admission = Instant(), Unlimited()

    async def execute() -> None:
        for _ in range(CALLS):
            await executor.run(Job(ATTEMPTS, LEAVES, exchange, 1e18, [], admission))

    async def relayed() -> None:
        reader = ChatStream(repair=False, include_usage=False)
        record = AttemptRecord(0, "m", "p")
        await relay(OpenStream(Ready(FRAMES), LEAF, record, Splitter(1 << 24), reader, CHAT), Sink(), clock)

    return {
        "execute_instant_ns": await _best(execute, CALLS),
        "relay_frame_ns": await _best(relayed, FRAMES),
    }


async def _best(work: Callable[[], Awaitable[None]], count: int) -> float:
    rounds = []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        await work()
        rounds.append((time.perf_counter() - started_s) / count * 1e9)
    return min(rounds)
