"""Traces: a span for each request, and below it one for each attempt, sent to a collector by OpenTelemetry.

Spans are built from the request's record once that is complete. Only what must be known earlier is done earlier: whose
child the request is, and which span an upstream is told to be the child of. They hold ids, names, numbers and statuses;
never a prompt, an answer, a header's value or a key. Batches leave in a thread of OpenTelemetry's own, from a bounded
queue that drops what it cannot hold.

Loaded only where `telemetry.otlp_endpoint` is set; it needs the extra `otel`.

Source: OpenTelemetry semantic conventions for generative AI and HTTP; docs/tracing.md lists what is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lumen_gateway import __version__
from lumen_gateway.dialects.chat_answer import Identity
from lumen_gateway.dialects.trace_context import Fields, read_context
from lumen_gateway.execution.leaf import Leaf
from lumen_gateway.records import AttemptRecord, RequestRecord, Usage

FLUSH_S = 2.0  # what a stopping worker waits for its last spans
MAX_VALUE_CHARS = 256  # of one attribute: ids and names, some of them the upstream's own words

PROVIDER_NAMES = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Kinds that the convention has another word for; any other is called what it is."""

Values = Mapping[str, str | float | None]

_propagator = TraceContextTextMapPropagator()


def otlp(endpoint: str) -> SpanProcessor:
    """Return what sends spans to a collector; `OTEL_` variables say the rest, such as headers and queue size."""
    url = endpoint.rstrip("/")
    return BatchSpanProcessor(OTLPSpanExporter(url if url.endswith("/v1/traces") else f"{url}/v1/traces"))


class Tracing:
    """Makes requests into spans. One per worker; implements `gateway.Tracer`."""

    def __init__(self, processor: SpanProcessor) -> None:
        ours = Resource.create({"service.name": "lumen-gateway", "service.version": __version__})
        self._provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()),  # the operator's name for it wins
            span_limits=SpanLimits(max_attribute_length=MAX_VALUE_CHARS),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lumen_gateway", __version__)

    def begin(
        self, record: RequestRecord, headers: Iterable[tuple[bytes, bytes]], leaves: Mapping[str, Leaf]
    ) -> RequestSpans:
        """Open a request's span, in the client's own trace if its headers carry one."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in read_context(headers)}
        parent = _propagator.extract(carrier, Context())
        started_ns = _epoch_ns(record, record.started_s)
        root = self._tracer.start_span(record.capability, parent, SpanKind.SERVER, start_time=started_ns)
        return RequestSpans(self._tracer, root, record, leaves)

    def close(self) -> None:
        """Send what waits; a collector that does not take it in time does not get it."""
        thread = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        thread.start()
        thread.join(FLUSH_S)


class RequestSpans:
    """One request's spans; implements `gateway.RequestTrace`."""

    def __init__(self, tracer: Tracer, root: Span, record: RequestRecord, leaves: Mapping[str, Leaf]) -> None:
        self._tracer = tracer
        self._root = root
        self._record = record
        self._leaves = leaves
        self._below = set_span_in_context(root, Context())
        self._attempts: dict[int, Span] = {}

    def call(self, attempt: AttemptRecord) -> Fields:
        """Return the header fields that make an attempt the parent of what its upstream does."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, set_span_in_context(self._span(attempt), Context()))
        return [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]

    def answered(self, attempt: AttemptRecord, identity: Identity, finish_reasons: Sequence[str]) -> None:
        """Note what an answer says of itself."""
        span = self._span(attempt)
        _describe(span, {"gen_ai.response.id": identity.id, "gen_ai.response.model": identity.model})
        if finish_reasons:
            span.set_attribute("gen_ai.response.finish_reasons", tuple(finish_reasons))

    def finish(self) -> None:
        """Close and hand over every span: the request's record is complete."""
        record, root = self._record, self._root
        if not root.is_recording():  # the client, or the sampler, wants no spans of this one
            return
        for attempt in record.attempts:
            self._finish_attempt(attempt)
        root.update_name(f"{record.capability} {record.requested}".rstrip())
        _describe(root, _request_values(record))
        self._end(root, record.code, record.ended_s)

    def _span(self, attempt: AttemptRecord) -> Span:
        span = self._attempts.get(attempt.index)
        if span is None:
            name, started_ns = f"{self._record.capability} {attempt.leaf}", _epoch_ns(self._record, attempt.started_s)
            span = self._tracer.start_span(name, self._below, SpanKind.CLIENT, start_time=started_ns)
            self._attempts[attempt.index] = span
        return span

    def _finish_attempt(self, attempt: AttemptRecord) -> None:
        record, span = self._record, self._span(attempt)
        _describe(span, _attempt_values(record, attempt, self._leaves[attempt.leaf]))
        _describe(span, _usage_values(attempt.usage))
        error = None if attempt.outcome == "ok" else attempt.outcome
        self._end(span, error, record.ended_s if attempt.ended_s is None else attempt.ended_s)

    def _end(self, span: Span, error: str | None, ended_s: float) -> None:
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR)
        span.end(_epoch_ns(self._record, ended_s))


def _request_values(record: RequestRecord) -> Values:
    return {
        "gen_ai.operation.name": record.capability,
        "gen_ai.request.model": record.requested or None,
        "http.response.status_code": record.status,
        "lumen.request_id": record.request_id,
        "lumen.key_id": record.caller.key_id,
        "lumen.virtual_model": record.virtual_model,
        "lumen.route": record.attempts[-1].route if record.attempts else None,
    }


def _attempt_values(record: RequestRecord, attempt: AttemptRecord, leaf: Leaf) -> Values:
    return {
        "gen_ai.operation.name": record.capability,
        "gen_ai.provider.name": PROVIDER_NAMES.get(leaf.kind, leaf.kind),
        "gen_ai.request.model": attempt.leaf,
        "gen_ai.request.stream": record.stream or None,
        "gen_ai.response.time_to_first_chunk": (
            None if attempt.first_output_s is None else attempt.first_output_s - attempt.started_s
        ),
        "server.address": leaf.origin.host,
        "server.port": leaf.origin.port,
        "http.response.status_code": attempt.upstream_status,
        "http.request.resend_count": attempt.tries - 1 if attempt.tries > 1 else None,
        "lumen.provider": attempt.provider,
        "lumen.virtual_model": record.virtual_model,
        "lumen.route": attempt.route,
    }


def _usage_values(usage: Usage) -> Values:
    if usage.origin == "unknown":
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }


def _describe(span: Span, values: Values) -> None:
    """Set what is known."""
    span.set_attributes({name: value for name, value in values.items() if value is not None})


def _epoch_ns(record: RequestRecord, point_s: float) -> int:
    """Return a point on the monotonic clock as calendar time."""
    return round((record.started_wall_s + point_s - record.started_s) * 1e9)
