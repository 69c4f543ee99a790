"""Probes: now and then the keeper asks each upstream that has an address of its own whether it is there.

What it hears goes to `/health/providers` and the gauge `lumen_provider_up`. Requests never look at it: whether an
upstream gets one is decided by its breaker, which has seen real calls. No credential is sent, and one upstream is asked
after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from lumen_gateway import __version__
from lumen_gateway.clock import Clock
from lumen_gateway.config.schema import Config, Provider
from lumen_gateway.errors import Failure
from lumen_gateway.records import Origin
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Gauge, Labels

HEALTH_PATHS = {"ollama": "/api/version", "tei": "/health", "vllm": "/health"}
"""Kinds that tell how they are, by what to put behind the base URL: up means 2xx there. Of any other, being answered
at all is all that can be learned without a key."""


LOOK_AGAIN_S = 5.0
"""While probes are off: how soon a document that turns them on is noticed. Its interval may be 0 until then."""


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last probe of a provider found."""

    status: Literal["up", "down", "unknown"]
    checked_at: float | None = None  # seconds since the epoch
    latency_ms: float | None = None  # until the head of the answer; None where none came
    detail: str | None = None  # what is wrong


UNKNOWN = Health("unknown")


class Target(msgspec.Struct, frozen=True):
    """What is asked of one provider."""

    provider: str
    origin: Origin
    path: str
    wants_2xx: bool

    @property
    def payload(self) -> bytes:
        """The whole request; its connection is used once."""
        host = f"[{self.origin.host}]" if ":" in self.origin.host else self.origin.host
        return (
            f"GET {self.path} HTTP/1.1\r\nhost: {host}:{self.origin.port}\r\nuser-agent: lumen/{__version__}\r\n"
            "accept: */*\r\naccept-encoding: identity\r\nconnection: close\r\n\r\n"
        ).encode()


class Answer(Protocol):
    """The head of an answer."""

    status: int

    def close(self) -> None:
        """Cut the connection."""
        ...


class Transport(Protocol):
    """What reaches upstreams; `transport/client.py` is the real one."""

    async def send(self, origin: Origin, payload: bytes, until: float) -> Answer:
        """Return once the answer's head is there. Raises Failure."""
        ...


class Probes:
    """Asks the providers of the document that is served, for as long as the document says so."""

    def __init__(self, config: Callable[[], Config], transport: Callable[[], Transport], clock: Clock) -> None:
        self._config = config
        self._make_transport = transport  # at the first probe: a keeper that never asks needs none
        self._transport: Transport | None = None
        self._clock = clock
        self._found: dict[Target, Health] = {}

    async def run(self) -> None:
        """Probe until cancelled. What a reload changes counts from the next round on."""
        while True:
            targets = _targets(self._config())
            self._found = {target: self._found[target] for target in targets if target in self._found}
            for target in targets:
                self._take(target, await self._ask(target))
            resilience = self._config().resilience
            enabled = resilience.health_check_enabled
            await self._clock.sleep(resilience.health_check_interval_ms / 1000 if enabled else LOOK_AGAIN_S)

    def results(self) -> dict[str, Health]:
        """Return what is known of each provider of the document."""
        found = {target.provider: self._found.get(target, UNKNOWN) for target in _targets(self._config())}
        return {provider.name: found.get(provider.name, UNKNOWN) for provider in self._config().providers}

    def gauge(self) -> Gauge:
        """Return the same as a metric, without the providers of which nothing is known."""
        known = {name: health.status for name, health in self.results().items() if health.status != "unknown"}
        values: dict[Labels, float] = {(name,): float(status == "up") for name, status in known.items()}
        return Gauge("lumen_provider_up", "1 if the last probe found the provider up, else 0.", ("provider",), values)

    async def _ask(self, target: Target) -> Health:
        if self._transport is None:
            self._transport = self._make_transport()
        started_s, checked_at = self._clock.monotonic(), self._clock.wall()
        timeout_s = target.origin.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._transport.send(target.origin, target.payload, started_s + timeout_s)
        except (Failure, TimeoutError) as exc:
            detail = exc.message if isinstance(exc, Failure) else f"no answer within {timeout_s:g} s"
            return Health("down", checked_at, detail=detail)
        answer.close()
        latency_ms = round((self._clock.monotonic() - started_s) * 1000, 3)
        if target.wants_2xx and not 200 <= answer.status < 300:
            return Health("down", checked_at, latency_ms, f"answered {answer.status} at {target.path}")
        return Health("up", checked_at, latency_ms)

    def _take(self, target: Target, health: Health) -> None:
        """Keep a result, and log it where it is news."""
        before = self._found.get(target, UNKNOWN)
        self._found[target] = health
        if health.status == "down" and before.status != "down":
            log.event(
                log.WARNING,
                "provider.down",
                f'provider "{target.provider}" does not hold up to its probe',
                provider=target.provider,
                detail=health.detail,
            )
        elif health.status == "up" and before.status == "down":
            log.event(log.INFO, "provider.up", f'provider "{target.provider}" is up again', provider=target.provider)


def _targets(config: Config) -> list[Target]:
    if not config.resilience.health_check_enabled:
        return []
    return [
        _target(provider, provider.base_url, provider.connect_timeout_ms or config.resilience.connect_timeout_ms)
        for provider in config.providers
        if provider.base_url is not None
    ]


def _target(provider: Provider, base_url: str, timeout_ms: int) -> Target:
    parts = urlsplit(base_url)
    assert parts.hostname is not None, "the document was checked"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    origin = Origin(parts.scheme, parts.hostname, port, timeout_ms / 1000)
    health = HEALTH_PATHS.get(provider.kind)
    if health is None:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Target(provider.name, origin, path, wants_2xx=False)
    root = parts.path.rstrip("/")
    if provider.kind == "vllm":
        root = root.removesuffix("/v1")  # its API stands below /v1, its health beside it
    return Target(provider.name, origin, root + health, wants_2xx=True)
