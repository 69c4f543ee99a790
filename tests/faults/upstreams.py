"""Requests over real sockets: the executor and the upstream client against simulated upstreams that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from tests.execution.staging import TIMEOUTS, FakeClient, chain, job, leaf

from lumen_gateway.clock import SystemClock
from lumen_gateway.dialects.chat import parse_request
from lumen_gateway.dialects.wire import CHAT
from lumen_gateway.errors import DEFAULT_TRIGGERS, Failure, Trigger
from lumen_gateway.execution.breaker import BreakerPolicy
from lumen_gateway.execution.commit import StreamedChat
from lumen_gateway.execution.exchange import BufferedChat
from lumen_gateway.execution.executor import Executor
from lumen_gateway.execution.leaf import Leaf, Timeouts
from lumen_gateway.execution.relay import final_event, relay
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.records import AttemptRecord, Origin
from lumen_gateway.simulator import Replies, Upstream
from lumen_gateway.transport.client import Client

ONCE = RetryPolicy(max_tries=1)
NEVER_OPEN = BreakerPolicy(threshold=1_000_000)
PATIENCE_S = 20.0  # nothing waits that long unless it is broken


class Told(NamedTuple):
    """What a client got of one request, and what stands in the books."""

    body: bytes  # of a stream that failed before its commit, its error frame
    failure: Failure | None
    records: list[AttemptRecord]


class Site:
    """One gateway's worth of execution in front of an upstream that plays every model by name."""

    def __init__(self, upstream: Upstream, client: Client) -> None:
        self.upstream = upstream
        self.clock = SystemClock()
        self.executor = Executor(self.clock, lambda: 0.5)
        self.client = client

    def leaf(
        self, leaf_id: str, timeouts: Timeouts = TIMEOUTS, port: int | None = None, connect_s: float = 5.0
    ) -> Leaf:
        origin = Origin("http", self.upstream.host, port or self.upstream.port, connect_s)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream.test\r\n"
        return msgspec.structs.replace(leaf(leaf_id, timeouts=timeouts), origin=origin, heads={"chat": head})

    async def ask(
        self,
        *leaves: str | Leaf,
        stream: bool = False,
        complete: bool = False,
        total_s: float = 600.0,
        retry: RetryPolicy = ONCE,
        breaker: BreakerPolicy = NEVER_OPEN,
        triggers: Trigger = DEFAULT_TRIGGERS,
    ) -> Told:
        """Ask for a chain over these leaves."""
        targets = [self.leaf(each) if isinstance(each, str) else each for each in leaves]
        attempts = chain(*(each.id for each in targets), triggers=triggers)
        total_at_s = self.clock.monotonic() + total_s
        body = {"model": "v", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        call: dict[str, Any] = {
            "request": parse_request(msgspec.json.encode(body)),
            "attempts": attempts,
            "headers": [],
            "total_at_s": total_at_s,
            "transport": self.client,
            "clock": self.clock,
            "warn": lambda *_: None,
        }
        work: Any = job(
            StreamedChat(**call, complete=complete) if stream else BufferedChat(**call),
            attempts,
            targets,
            total_at_s=total_at_s,
            retry=retry,
            breaker=breaker,
        )
        outlet = FakeClient()
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await self.executor.run(work)
                if not stream:
                    return Told(answer, None, work.records)
                failure = await relay(answer, outlet, self.clock)
                return Told(outlet.got, failure, work.records)
        except Failure as failure:
            return Told(final_event(failure, CHAT) if stream else b"", failure, work.records)


@asynccontextmanager
async def site(replies: Replies) -> AsyncIterator[Site]:
    """Serve these replies by model; afterwards no connection may be left in use."""
    async with Upstream(replies) as upstream:
        client = Client()
        try:
            yield Site(upstream, client)
        finally:
            await client.aclose()
