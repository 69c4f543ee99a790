"""A trace through the running program: client, gateway, upstreams and collector see the same one, and metrics agree.

The collector is a simulated upstream that takes anything; what it got is read with OpenTelemetry's own messages.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.process.program import PATIENCE_S, Program

from lumen_gateway.dialects.trace_context import is_parent
from lumen_gateway.simulator import Replies, Reply, Upstream, auto, error

DOCUMENT = """
[telemetry]
otlp_endpoint = "COLLECTOR"

[resilience]
retry_max_attempts = 2
retry_base_ms = 1

[[providers]]
name = "north"
kind = "vllm"
base_url = "NORTH/v1"
api_key_env = "NORTH_KEY"
models = [
  { id = "broken", capabilities = ["chat"] },
  { id = "busy", capabilities = ["chat"] },
  { id = "good", upstream_id = "vendor-good", capabilities = ["chat"] },
]

[[virtual_models]]
id = "inner"
capability = "chat"
strategy = "fallback"
fallback_on = ["provider_error"]
targets = [{ model = "broken" }, { model = "busy" }]

[[virtual_models]]
id = "outer"
capability = "chat"
strategy = "fallback"
targets = [{ model = "inner" }, { model = "good" }]
"""
UNTRACED = DOCUMENT.replace('otlp_endpoint = "COLLECTOR"', "")
ANSWER = "between us"
REPLIES: Replies = {"broken": error(500), "busy": error(429, retry_after=60), "vendor-good": auto(ANSWER)}
SECRETS = ("a-key-of-north", "tell nobody", "hush-header", ANSWER)
CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Span(NamedTuple):
    """One span as the collector got it."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    failed: bool
    values: dict[str, Any]


def spans_of(collector: Upstream) -> list[Span]:
    requests = [ExportTraceServiceRequest.FromString(call.body) for call in collector.calls]
    return [
        Span(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.status.code == 2,
            {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        )
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


async def collected(collector: Upstream, count: int) -> list[Span]:
    """Return what the collector has once it is that many spans."""
    calls = 0
    async with asyncio.timeout(PATIENCE_S):
        while len(spans_of(collector)) < count:
            calls += 1
            await collector.called(calls)
    return spans_of(collector)


def parent_told(upstream: Upstream) -> list[str]:
    return [call.headers["traceparent"] for call in upstream.calls]


class Started(Protocol):
    """Makes a program that is not started yet."""

    def __call__(self, document: str, north: Upstream, collector: Upstream, *, delay_ms: int = 50) -> Program: ...


@pytest.fixture
def started(tmp_path: Path) -> Started:
    def start(document: str, north: Upstream, collector: Upstream, *, delay_ms: int = 50) -> Program:
        written = document.replace("COLLECTOR", collector.url).replace("NORTH/", f"{north.url}/")
        return Program(tmp_path, written, NORTH_KEY=SECRETS[0], OTEL_BSP_SCHEDULE_DELAY=str(delay_ms))

    return start


@pytest.mark.parametrize("stream", [False, True])
async def test_one_request_through_a_nested_fallback_is_one_trace_and_metrics_agree(
    started: Started, stream: bool
) -> None:
    headers = {"traceparent": CLIENT, "tracestate": "vendor=1", "x-request-id": "trace-me", "x-secret": SECRETS[2]}
    messages = [{"role": "user", "content": SECRETS[1]}]
    async with (
        Upstream(REPLIES) as north,
        Upstream(Reply(body=b"{}")) as collector,
        started(DOCUMENT, north, collector) as lumen,
    ):
        asked = await lumen.ask("outer", stream=stream, headers=headers, messages=messages)
        assert (asked.status, asked.route) == (200, "outer>good")
        broken, busy, good, root = await collected(collector, 4)
        metrics = (await lumen.client.get("/metrics")).text.splitlines()
        assert all(secret not in lumen.log for secret in SECRETS)

    assert {span.trace for span in (broken, busy, good, root)} == {CLIENT.split("-")[1]}
    assert (root.parent, root.name, root.kind, root.failed) == (CLIENT.split("-")[2], "chat outer", 2, False)
    assert root.values["lumen.request_id"] == "trace-me"
    assert root.values["lumen.virtual_model"] == "outer"
    assert root.values["lumen.route"] == good.values["lumen.route"] == "outer>good"
    assert root.values["http.response.status_code"] == 200
    assert [(span.name, span.kind, span.parent) for span in (broken, busy, good)] == [
        ("chat broken", 3, root.id),
        ("chat busy", 3, root.id),
        ("chat good", 3, root.id),
    ]
    assert [span.values.get("error.type") for span in (broken, busy, good)] == ["provider_error", "rate_limited", None]
    assert [span.failed for span in (broken, busy, good)] == [True, True, False]
    assert [span.values["http.response.status_code"] for span in (broken, busy, good)] == [500, 429, 200]
    assert broken.values["http.request.resend_count"] == 1
    assert good.values["gen_ai.response.model"] == "vendor-good"
    assert good.values["gen_ai.provider.name"] == "vllm"
    assert good.values["server.port"] == north.port

    # Each upstream call names the span of its attempt as its parent, in the client's trace, with the client's state.
    called = [broken.id, broken.id, busy.id, good.id]
    assert parent_told(north) == [f"00-{root.trace}-{span_id}-01" for span_id in called]
    assert {call.headers["tracestate"] for call in north.calls} == {"vendor=1"}

    # Nothing of what was said, and no secret, left for the collector.
    sent = b"".join(call.body for call in collector.calls)
    assert all(secret.encode() not in sent for secret in SECRETS)

    # The metrics count the same attempts, escapes and tokens.
    for line in (
        'lumen_attempts_total{provider="north",model="broken",outcome="provider_error"} 1',
        'lumen_attempts_total{provider="north",model="busy",outcome="rate_limited"} 1',
        'lumen_attempts_total{provider="north",model="good",outcome="ok"} 1',
        'lumen_fallbacks_total{virtual_model="outer",trigger="provider_error"} 1',
        'lumen_fallbacks_total{virtual_model="outer",trigger="rate_limited"} 1',
        'lumen_virtual_model_requests_total{virtual_model="outer",model_used="good"} 1',
        'lumen_request_duration_seconds_count{capability="chat",model="good",provider="north",status="200"} 1',
    ):
        assert line in metrics
    tokens = 'lumen_tokens_total{capability="chat",model="good",provider="north",direction="%s",estimated="false"} %d'
    assert tokens % ("input", good.values["gen_ai.usage.input_tokens"]) in metrics
    assert tokens % ("output", good.values["gen_ai.usage.output_tokens"]) in metrics


async def test_failed_and_refused_requests_have_their_trace_too(started: Started) -> None:
    async with (
        Upstream(REPLIES) as north,
        Upstream(Reply(body=b"{}")) as collector,
        started(DOCUMENT, north, collector) as lumen,
    ):
        exhausted = await lumen.ask("inner")
        unknown = await lumen.ask("no-such-model")
        *attempts, first, second = await collected(collector, 4)
    assert (exhausted.status, first.values["error.type"], first.failed) == (429, "LM-3001", True)
    assert (unknown.status, second.values["error.type"], second.failed) == (404, "LM-2001", True)
    assert {span.parent for span in attempts} == {first.id}
    assert (first.parent, second.parent) == ("", "")
    assert "no-such-model" not in second.name


async def test_last_spans_are_sent_before_the_program_ends(started: Started) -> None:
    async with Upstream(REPLIES) as north, Upstream(Reply(body=b"{}")) as collector:
        async with started(DOCUMENT, north, collector, delay_ms=3_600_000) as lumen:
            await lumen.ask("good")
            assert spans_of(collector) == []
        assert [span.name for span in spans_of(collector)] == ["chat good", "chat good"]


async def test_collector_that_is_down_or_refuses_disturbs_no_request(started: Started) -> None:
    async with (
        Upstream(REPLIES) as north,
        Upstream(error(503)) as collector,
        started(DOCUMENT, north, collector) as lumen,
    ):
        assert (await lumen.ask("good")).status == 200
        await asyncio.wait_for(collector.called(), PATIENCE_S)
        await collector.stop()
        assert (await lumen.ask("good")).status == 200


async def test_untraced_gateway_passes_the_clients_context_on_and_drops_a_malformed_one(started: Started) -> None:
    async with (
        Upstream(REPLIES) as north,
        Upstream(Reply(body=b"{}")) as collector,
        started(UNTRACED, north, collector) as lumen,
    ):
        await lumen.ask("good", headers={"traceparent": CLIENT, "tracestate": "vendor=1"})
        await lumen.ask("good", headers={"traceparent": f"{CLIENT}-", "tracestate": "vendor=1"})
        await lumen.ask("good", headers={"tracestate": "vendor=1"})
    kept, *dropped = north.calls
    assert (kept.headers["traceparent"], kept.headers["tracestate"]) == (CLIENT, "vendor=1")
    assert is_parent(CLIENT.encode())
    assert all(call.headers.keys().isdisjoint({"traceparent", "tracestate"}) for call in dropped)
    assert collector.calls == []
