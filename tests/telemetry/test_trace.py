"""Spans of one request: what they say and never say, whose children they are, and that sending them disturbs nobody."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.dialects.chat_answer import Identity
from lumen_gateway.dialects.trace_context import Fields, is_parent
from lumen_gateway.execution.leaf import Leaf, Timeouts
from lumen_gateway.records import AttemptRecord, Caller, Origin, RequestRecord, Usage
from lumen_gateway.telemetry import trace
from lumen_gateway.telemetry.trace import PROVIDER_NAMES, RequestSpans, Tracing, otlp

WALL_S, STARTED_S = 1_700_000_000.0, 50.0
Headers = Iterable[tuple[bytes, bytes]]
CLIENT_TRACE, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def leaf(leaf_id: str, kind: str = "openai") -> Leaf:
    return Leaf(
        id=leaf_id,
        provider=f"of-{leaf_id}",
        origin=Origin("https", f"{leaf_id}.test", 8443),
        heads={"chat": b""},
        model=msgspec.Raw(b'"upstream"'),
        credentials=(),
        rules=ChatRules(),
        timeouts=Timeouts(1.0, 1.0, 1.0, 1.0),
        prices=None,
        repair=False,
        streams=True,
        images=True,
        forward_headers=frozenset(),
        kind=kind,
    )


LEAVES = {"a": leaf("a"), "b": leaf("b", "mistral")}


def record(**more: Any) -> RequestRecord:
    begun = RequestRecord("req-1", "chat", started_s=STARTED_S, started_wall_s=WALL_S)
    return msgspec.structs.replace(begun, **more)


def attempt(index: int = 0, leaf_id: str = "a", **more: Any) -> AttemptRecord:
    made = AttemptRecord(index, leaf_id, f"of-{leaf_id}", route=f"v>{leaf_id}", tries=1, started_s=STARTED_S + index)
    return msgspec.structs.replace(made, ended_s=STARTED_S + index + 0.5, **more)


class Desk:
    """A tracer whose spans stay here."""

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self.kept))

    def begin(self, request: RequestRecord, headers: Headers = ()) -> RequestSpans:
        return self.tracing.begin(request, headers, LEAVES)

    def trace(self, request: RequestRecord, headers: Headers = ()) -> list[ReadableSpan]:
        """Trace a request whose record is complete already, and return its spans, the request's own last."""
        self.begin(request, headers).finish()
        return list(self.kept.get_finished_spans())


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.tracing.close()


def values(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def sent(fields: Fields) -> dict[bytes, bytes]:
    return dict(fields)


# What spans say.


def test_request_that_was_answered_at_once(desk: Desk) -> None:
    usage = Usage(100, 20, cached=64, reasoning=5, origin="reported")
    request = record(
        requested="v", virtual_model="v", caller=Caller(key_id="key-7"), status=200, ended_s=STARTED_S + 2.0,
        attempts=[attempt(upstream_status=200, usage=usage)],
    )  # fmt: skip
    spans = desk.begin(request)
    spans.call(request.attempts[0])
    spans.answered(request.attempts[0], Identity("chatcmpl-1", "gpt-4o-2024"), ["stop"])
    spans.finish()
    child, root = desk.kept.get_finished_spans()
    assert (root.name, root.kind, root.status.status_code) == ("chat v", SpanKind.SERVER, StatusCode.UNSET)
    assert values(root) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "v",
        "http.response.status_code": 200,
        "lumen.request_id": "req-1",
        "lumen.key_id": "key-7",
        "lumen.virtual_model": "v",
        "lumen.route": "v>a",
    }
    assert (child.name, child.kind, child.status.status_code) == ("chat a", SpanKind.CLIENT, StatusCode.UNSET)
    assert values(child) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "a",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "gpt-4o-2024",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "server.address": "a.test",
        "server.port": 8443,
        "http.response.status_code": 200,
        "lumen.provider": "of-a",
        "lumen.virtual_model": "v",
        "lumen.route": "v>a",
    }
    assert ids(child)[0] == ids(root)[0]
    assert parent_of(child) == ids(root)[1]
    assert parent_of(root) is None


def test_times_are_those_of_the_record_on_the_calendar(desk: Desk) -> None:
    child, root = desk.trace(record(status=200, ended_s=STARTED_S + 3.25, attempts=[attempt(1)]))
    assert (root.start_time, root.end_time) == (WALL_S * 1e9, (WALL_S + 3.25) * 1e9)
    assert (child.start_time, child.end_time) == ((WALL_S + 1) * 1e9, (WALL_S + 1.5) * 1e9)


def test_fallback_has_a_child_for_each_attempt_and_fails_only_those_that_did(desk: Desk) -> None:
    failed = attempt(outcome="rate_limited", upstream_status=429, tries=3)
    first, second, root = desk.trace(record(status=200, attempts=[failed, attempt(1, "b", upstream_status=200)]))
    assert [span.status.status_code for span in (first, second, root)] == [
        StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET,
    ]  # fmt: skip
    assert values(first)["error.type"] == "rate_limited"
    assert values(first)["http.response.status_code"] == 429
    assert values(first)["http.request.resend_count"] == 2
    assert values(second)["gen_ai.provider.name"] == "mistral_ai"
    assert "http.request.resend_count" not in values(second)
    assert "gen_ai.usage.input_tokens" not in values(first)


def test_stream_says_so_and_when_its_first_output_came(desk: Desk) -> None:
    child, _ = desk.trace(record(status=200, stream=True, attempts=[attempt(first_output_s=STARTED_S + 0.25)]))
    assert values(child)["gen_ai.request.stream"] is True
    assert values(child)["gen_ai.response.time_to_first_chunk"] == 0.25


def test_failed_request_is_an_error_by_its_code(desk: Desk) -> None:
    _, root = desk.trace(record(requested="v", status=502, code="LM-3003", attempts=[attempt(outcome="timeout")]))
    assert root.status.status_code is StatusCode.ERROR
    assert values(root)["error.type"] == "LM-3003"
    assert values(root)["http.response.status_code"] == 502


def test_request_for_an_unknown_model_does_not_name_what_the_client_wrote(desk: Desk) -> None:
    [root] = desk.trace(record(status=404, code="LM-2001"))
    assert root.name == "chat"
    assert "gen_ai.request.model" not in values(root)
    assert values(root)["error.type"] == "LM-2001"


def test_attempt_that_never_called_has_its_span_too(desk: Desk) -> None:
    child, _ = desk.trace(record(status=503, code="LM-3020", attempts=[attempt(outcome="circuit_open", tries=0)]))
    assert values(child)["error.type"] == "circuit_open"


def test_attempt_that_was_cut_off_ends_with_its_request(desk: Desk) -> None:
    cut = attempt(outcome="client_left")
    cut.ended_s = None
    child, root = desk.trace(record(status=499, code="LM-6001", ended_s=STARTED_S + 1.0, attempts=[cut]))
    assert child.end_time == root.end_time


def test_upstreams_own_words_are_cut_short(desk: Desk) -> None:
    request = record(status=200, attempts=[attempt()])
    spans = desk.begin(request)
    spans.answered(request.attempts[0], Identity("i" * 10_000, "m" * 10_000), ["r" * 10_000])
    spans.finish()
    child, _ = desk.kept.get_finished_spans()
    for name in ("gen_ai.response.id", "gen_ai.response.model"):
        assert len(values(child)[name]) == 256
    assert [len(reason) for reason in values(child)["gen_ai.response.finish_reasons"]] == [256]


def test_provider_names_are_those_of_the_convention() -> None:
    semconv = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {each.value for each in semconv.GenAiProviderNameValues}
    assert set(PROVIDER_NAMES.values()) <= known
    assert not PROVIDER_NAMES.keys() & known


# Whose children they are.

PARENT = (b"traceparent", f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-01".encode())


def test_clients_trace_is_continued_and_its_state_goes_on(desk: Desk) -> None:
    request = record(status=200, attempts=[attempt()])
    spans = desk.begin(request, [PARENT, (b"tracestate", b"vendor=opaque,other=1")])
    told = sent(spans.call(request.attempts[0]))
    spans.finish()
    child, root = desk.kept.get_finished_spans()
    assert ids(root)[0] == ids(child)[0] == CLIENT_TRACE
    assert parent_of(root) == CLIENT_SPAN
    assert told[b"traceparent"] == f"00-{CLIENT_TRACE}-{ids(child)[1]}-01".encode()
    assert told[b"tracestate"] == b"vendor=opaque,other=1"


@pytest.mark.parametrize("parents", [[b"garbage"], [PARENT[1], PARENT[1]], [PARENT[1].upper()]])
def test_malformed_context_begins_a_trace_of_our_own(desk: Desk, parents: list[bytes]) -> None:
    request = record(status=200, attempts=[attempt()])
    spans = desk.begin(request, [*((b"traceparent", parent) for parent in parents), (b"tracestate", b"a=1")])
    told = sent(spans.call(request.attempts[0]))
    assert CLIENT_TRACE.encode() not in told[b"traceparent"]
    assert is_parent(told[b"traceparent"])
    assert b"tracestate" not in told


def test_client_that_does_not_sample_gets_no_spans_and_upstreams_are_told_so(desk: Desk) -> None:
    request = record(status=200, attempts=[attempt()])
    spans = desk.begin(request, [(b"traceparent", f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-00".encode())])
    told = sent(spans.call(request.attempts[0]))
    spans.answered(request.attempts[0], Identity("i", "m"), ["stop"])
    spans.finish()
    assert desk.kept.get_finished_spans() == ()
    assert told[b"traceparent"].startswith(f"00-{CLIENT_TRACE}-".encode())
    assert told[b"traceparent"].endswith(b"-00")


def test_every_try_of_an_attempt_has_the_same_parent_and_every_attempt_its_own(desk: Desk) -> None:
    request = record(status=200, attempts=[attempt(), attempt(1, "b")])
    spans = desk.begin(request)
    first, again, second = (sent(spans.call(request.attempts[index]))[b"traceparent"] for index in (0, 0, 1))
    assert first == again != second
    spans.finish()
    assert len(desk.kept.get_finished_spans()) == 3


# How they are sent.


def test_service_is_named_after_us_unless_the_operator_says_otherwise(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [root] = desk.trace(record(status=200))
    assert root.resource.attributes["service.name"] == "lumen-gateway"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=edge,deployment.environment.name=staging")
    [root] = Desk().trace(record(status=200))
    assert root.resource.attributes["service.name"] == "edge"
    assert root.resource.attributes["deployment.environment.name"] == "staging"


def test_sampler_is_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    desk = Desk()
    assert desk.trace(record(status=200)) == []
    assert len(desk.trace(record(status=200), [PARENT])) == 1


def test_collector_that_does_not_answer_holds_up_neither_requests_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setattr(trace, "FLUSH_S", 0.2)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts into its backlog, never reads
        processor = otlp(f"http://127.0.0.1:{silent.getsockname()[1]}")
        tracing = Tracing(processor)
        began_s = time.monotonic()
        for _ in range(50):
            tracing.begin(record(status=200), [], LEAVES).finish()
        assert time.monotonic() - began_s < 5.0  # an export alone would wait for ten
        tracing.close()
        assert time.monotonic() - began_s < 5.0
        assert isinstance(processor, BatchSpanProcessor)
        processor.span_exporter.shutdown()
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)  # what it has to say of the collector is said in this test


def test_worker_that_traces_nothing_does_not_load_opentelemetry() -> None:
    code = "import sys, lumen_gateway.app; print(sorted(name for name in sys.modules if 'opentelemetry' in name))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"
