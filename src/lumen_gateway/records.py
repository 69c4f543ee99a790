"""Plain values that many rooms share: who calls, what was tried, what it used.

Filled in by the gateway and the executor, read by recorders (metrics today, rows and explain beside them).
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """Who sent the request. Anonymous while no keys exist."""

    key_id: str | None = None
    group_id: str | None = None
    group_name: str | None = None
    agent_id: str | None = None


ANONYMOUS = Caller()


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer. `cached`, `cache_write` and `reasoning` are upstream facts: absent stays None, never 0.

    Units: tokens. `input` includes cached and cache-write tokens, `output` includes reasoning tokens.
    """

    input: int = 0
    output: int = 0
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    origin: Literal["reported", "estimated", "unknown"] = "unknown"


NO_USAGE = Usage()


def added(first: Usage, second: Usage) -> Usage:
    """Return both together. What neither reports stays unknown; with an estimate in it the sum is an estimate."""
    if first is NO_USAGE:
        return second
    return Usage(
        first.input + second.input,
        first.output + second.output,
        _sum(first.cached, second.cached),
        _sum(first.cache_write, second.cache_write),
        _sum(first.reasoning, second.reasoning),
        "estimated" if "estimated" in (first.origin, second.origin) else second.origin,
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


class AttemptRecord(msgspec.Struct):
    """One entry of the plan that was entered: every retry on the same leaf is inside it."""

    index: int
    leaf: str
    provider: str
    key_label: str | None = None
    route: str | None = None
    outcome: str = "ok"  # "ok", "budget" for one skipped, or what `Kind.outcome` calls the failure
    escape: str | None = None  # the trigger name the executor followed away from here
    tries: int = 0
    upstream_status: int | None = None
    started_s: float = 0.0  # monotonic
    first_byte_s: float | None = None
    first_output_s: float | None = None
    ended_s: float | None = None
    usage: Usage = NO_USAGE
    cost_pico: int | None = None  # pico-dollars; None: no usage, or the model has no price
    dropped_frames: int = 0  # of a stream, withheld because they are not JSON


class RequestRecord(msgspec.Struct):
    """One request, from its first byte to its last, whatever became of it."""

    request_id: str
    capability: str = ""
    requested: str = ""
    virtual_model: str | None = None
    caller: Caller = ANONYMOUS
    metadata: dict[str, str | float | bool] | None = None
    stream: bool = False
    started_s: float = 0.0
    started_wall_s: float = 0.0
    ended_s: float = 0.0
    status: int = 0
    code: str | None = None  # LM code of the failure the client saw
    attempts: list[AttemptRecord] = []


class Recorder(Protocol):
    """Takes finished requests. Must not block, raise or await."""

    def record(self, request: RequestRecord) -> None:
        """Take one finished request."""
        ...


class Origin(msgspec.Struct, frozen=True):
    """Where an upstream listens; connections are pooled by it. For the scheme `unix` the host is a socket's path.

    Providers with their own connect timeout have their own pool.
    """

    scheme: str
    host: str
    port: int
    connect_timeout_s: float = 5.0
