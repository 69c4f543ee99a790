"""Wiring: from a document to running objects.

`prepare` turns a document into what the keeper sends its workers; `composer` makes gateways of that, or swaps it into
the one that runs. `python -m lumen_gateway.app` is the worker process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Generator, Mapping
from decimal import Decimal

import msgspec
import uvloop
from blake3 import blake3

from lumen_gateway import __version__, control
from lumen_gateway.accounting.ledger import Unlimited
from lumen_gateway.accounting.prices import Prices, prices_of
from lumen_gateway.clock import SystemClock
from lumen_gateway.config.load import Document
from lumen_gateway.config.schema import Config, Model, Provider, Resilience
from lumen_gateway.elsewhere import Elsewhere
from lumen_gateway.execution.breaker import BreakerPolicy
from lumen_gateway.execution.executor import Executor
from lumen_gateway.execution.leaf import Credential, Leaf, Timeouts
from lumen_gateway.execution.retry import RetryPolicy
from lumen_gateway.gateway import Gateway, Snapshot, Tracer
from lumen_gateway.providers import table
from lumen_gateway.records import Origin
from lumen_gateway.redact import Secret
from lumen_gateway.routing.compile import compile_plan, compile_slices
from lumen_gateway.routing.listing import list_models
from lumen_gateway.telemetry import log
from lumen_gateway.telemetry.metrics import Metrics
from lumen_gateway.transport.client import Client
from lumen_gateway.worker import Compose, work

COLLECT_AFTER = 10_000
"""New objects before a worker looks for garbage. Python's own 700 come from a few requests, and nearly all are gone."""
FORWARDED = frozenset(
    {b"anthropic-beta", b"anthropic-version", b"openai-beta", b"traceparent", b"tracestate", b"idempotency-key"}
)
"""Client headers every upstream may see; a provider's `forward_headers` adds to them."""


def prepare(document: Document, environ: Mapping[str, str]) -> tuple[control.Load | None, list[str]]:
    """Compile a document: what workers need to serve it, or None; and every fault, said with its place."""
    if document.draft is not None:
        document = document.with_faults(compile_plan(document.draft).faults)
    faults = [document.locate(fault) for fault in document.faults]
    if document.config is None:
        return None, faults
    secrets, unusable = _secrets(document.config, environ)
    digest = blake3(document.text.encode()).hexdigest()
    return control.Load(digest, document.config, secrets), faults + unusable


def composer(keeper_socket: str) -> Compose:
    """Return what makes gateways of documents in a worker."""

    def compose(load: control.Load, running: Gateway | None) -> Generator[None, None, Gateway]:
        snapshot = yield from _snapshot(load)
        if running is None:
            return _gateway(load, snapshot, keeper_socket)
        parts = list(running.snapshot.plan.entries.values())
        running.snapshot = snapshot
        running.executor.retain({key.key for leaf in snapshot.leaves.values() for key in leaf.credentials})
        while parts:  # let go of a little at a time: freeing a large plan takes as long as many requests
            parts.pop()
            yield
        return running

    return compose


def _gateway(load: control.Load, snapshot: Snapshot, keeper_socket: str) -> Gateway:
    clock, transport = SystemClock(), Client()
    executor = Executor(clock, random.random)
    return Gateway(
        snapshot,
        executor,
        transport,
        Metrics(executor.states, load.config.telemetry.metadata_labels),
        Unlimited(),
        clock,
        random.random,
        Elsewhere(keeper_socket, transport, clock).relay,
        _tracer(load.config),
    )


def _tracer(config: Config) -> Tracer | None:
    """OpenTelemetry is loaded only where spans are sent: a worker that traces nothing is 10 MB lighter without it."""
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return None
    from lumen_gateway.telemetry.trace import Tracing, otlp  # noqa: PLC0415 - see above

    return Tracing(otlp(endpoint))


def _snapshot(load: control.Load) -> Generator[None, None, Snapshot]:
    """Compile a document that the keeper has found sound, a model at a time."""
    config = load.config
    plan = yield from compile_slices(config)
    leaves: dict[str, Leaf] = {}
    for provider, model in config.models():
        yield
        leaves[model.id] = _leaf(config, provider, model, load.secrets)
    listing: dict[str, bytes] = {}
    for entry in list_models(config):
        yield
        listing[entry["id"]] = msgspec.json.encode(entry)
    models = b'{"object":"list","data":[' + b",".join(listing.values()) + b"]}"
    return Snapshot(load.hash, plan, leaves, config.server, *_policies(config.resilience), models, listing)


def _policies(resilience: Resilience) -> tuple[RetryPolicy, BreakerPolicy]:
    retry = RetryPolicy(resilience.retry_max_attempts, resilience.retry_base_ms / 1000, resilience.retry_max_ms / 1000)
    return retry, BreakerPolicy(resilience.circuit_failure_threshold, resilience.circuit_cooldown_ms / 1000)


def _leaf(config: Config, provider: Provider, model: Model, secrets: Mapping[str, str]) -> Leaf:
    kind = table.KINDS[provider.kind]
    upstream_id = model.upstream_id or model.id
    endpoints = {
        api: table.endpoint(kind, provider.base_url, upstream_id, provider.api_version, api=api)
        for api in model.apis or table.apis(kind, provider.base_url)
    }
    endpoint, speaks_messages = next(iter(endpoints.values())), endpoints.get("messages")
    connect_ms = provider.connect_timeout_ms or config.resilience.connect_timeout_ms
    return Leaf(
        id=model.id,
        provider=provider.name,
        kind=provider.kind,
        origin=Origin(endpoint.scheme, endpoint.host, endpoint.port, connect_ms / 1000),
        heads={api: _head(endpoint) for api, endpoint in endpoints.items()},
        count_head=None if speaks_messages is None else _head(speaks_messages, table.COUNT_PATH),
        stream_heads={
            api: _head(table.endpoint(kind, provider.base_url, upstream_id, api=api, stream=True))
            for api in endpoints
            if api in table.STREAM_PATHS
        },
        fields=table.DEFAULT_FIELDS,
        model=msgspec.Raw(msgspec.json.encode(upstream_id)),
        credentials=_credentials(kind, provider, model, secrets),
        rules=table.chat_rules(kind, provider.base_url, upstream_id, strict=provider.strict),
        timeouts=_timeouts(config, provider),
        prices=_prices(model),
        repair=kind.repair if provider.repair is None else provider.repair,
        streams=model.stream,
        images="image" in model.modalities,
        forward_headers=FORWARDED | {name.lower().encode() for name in provider.forward_headers},
    )


def _head(endpoint: table.Endpoint, below: str = "") -> bytes:
    """Write the request's head up to where credential, forwarded headers and length go."""
    return (
        f"POST {endpoint.path}{below} HTTP/1.1\r\n"
        f"host: {endpoint.authority}\r\n"
        f"user-agent: lumen/{__version__}\r\n"
        "accept: application/json, text/event-stream\r\n"
        "accept-encoding: identity\r\n"
        "content-type: application/json\r\n"
    ).encode()


def _credentials(
    kind: table.Kind, provider: Provider, model: Model, secrets: Mapping[str, str]
) -> tuple[Credential, ...]:
    """One entry per key. An unset key is left out of the request, and the upstream says what it thinks of that."""

    def credential(label: str | None, variable: str | None, weight: int) -> Credential:
        value = secrets.get(variable or "")
        headers = table.key_line(kind, Secret(value)) if value else Secret(b"")
        return Credential((provider.name, label, model.id), label, weight, headers)

    if not provider.keys:
        return (credential(None, provider.api_key_env, 1),)
    return tuple(credential(key.label, key.api_key_env, key.weight) for key in provider.keys)


def _timeouts(config: Config, provider: Provider) -> Timeouts:
    server = config.server
    return Timeouts(
        first_token_s=(provider.first_token_timeout_ms or server.first_token_timeout_ms) / 1000,
        response_s=(provider.response_timeout_ms or server.response_timeout_ms) / 1000,
        idle_s=(provider.stream_idle_timeout_ms or server.stream_idle_timeout_ms) / 1000,
        total_s=(provider.total_timeout_ms or config.resilience.total_timeout_ms) / 1000,
    )


def _prices(model: Model) -> Prices | None:
    costs = (
        model.cost_per_1m_input,
        model.cost_per_1m_output,
        model.cost_per_1m_cached_input,
        model.cost_per_1m_cache_write,
    )
    return prices_of(*(None if usd is None else Decimal(usd) for usd in costs))


def _secrets(config: Config, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the provider keys that are set, without white space around them; "" and a warning for one no header takes.

    A file read into a variable brings its line end along. Inside of a key one would end the header that carries it.
    """
    secrets: dict[str, str] = {}
    faults: list[str] = []
    for name in sorted(_variables(config)):
        value = environ.get(name, "").strip()
        if not value:
            continue
        secrets[name] = value if value.isprintable() else ""
        if not secrets[name]:
            faults.append(f"{name}: warning: holds a line break or another character that no key has; it is not used")
    return secrets, faults


def _variables(config: Config) -> set[str]:
    """Environment variables that hold the document's provider keys."""
    named = {provider.api_key_env for provider in config.providers}
    named |= {key.api_key_env for provider in config.providers for key in provider.keys}
    return {name for name in named if name is not None}


def worker_command(load: control.Load) -> list[str]:
    """Return how a worker process is started; the keeper adds what it passes."""
    level = (os.environ.get("LUMEN_LOG") or "INFO").upper()
    return [sys.executable, "-m", "lumen_gateway.app", load.config.log_format, level]


def main() -> None:
    """Run a worker process: log format and level, then the keeper's socket, the listener and the channel."""
    for of_the_terminal in (signal.SIGINT, signal.SIGHUP):
        signal.signal(of_the_terminal, signal.SIG_IGN)
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    log_format, level, keeper_socket, listener, channel = sys.argv[1:]
    log.setup("json" if log_format == "json" else "pretty", level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            work(socket.socket(fileno=int(listener)), socket.socket(fileno=int(channel)), composer(keeper_socket))
        )


if __name__ == "__main__":
    main()
