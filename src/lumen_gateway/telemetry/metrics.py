"""What is counted, and how it reads as Prometheus text.

Plain integers in dictionaries: `prometheus-client` costs 1 to 4 microseconds an update, and twice that over several
processes. Labels hold only what the document names (leaves, providers, virtual models) or a closed set, so a client
cannot make series.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from lumen_gateway.execution.breaker import State as Circuit
from lumen_gateway.records import AttemptRecord, RequestRecord

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
EXACT_STATUSES = frozenset({200, 400, 401, 403, 404, 408, 409, 413, 422, 429, 499, 500, 502, 503, 504})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_COMBINATIONS = 1000  # of metadata label values, which clients choose

Labels = tuple[str, ...]


class State(msgspec.Struct, frozen=True):
    """What one process has counted, as it travels to the keeper: by metric name, then by label values."""

    counters: dict[str, dict[Labels, int]]
    histograms: dict[str, dict[Labels, tuple[list[int], list[float]]]]
    circuits: dict[Labels, int]  # (provider, model) -> the worst state among its keys


class Counter:
    """Monotonic counts by label values."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[Labels, int] = {} if labels else {(): 0}

    def add(self, values: Labels, amount: int = 1) -> None:
        """Count."""
        self.values[values] = self.values.get(values, 0) + amount

    def samples(self) -> Iterable[str]:
        """Return the lines of the exposition format."""
        for values, count in self.values.items():
            yield f"{self.name}{_labels(self.labels, values)} {count}"


class Histogram:
    """Durations in seconds by label values."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[Labels, tuple[list[int], list[float]]] = {}  # counts per bucket and beyond, and the sum

    def observe(self, values: Labels, seconds: float) -> None:
        """Sort one duration into its bucket."""
        found = self.values.get(values)
        if found is None:
            found = self.values[values] = ([0] * (len(BUCKETS_S) + 1), [0.0])
        found[0][bisect.bisect_left(BUCKETS_S, seconds)] += 1
        found[1][0] += seconds

    def merge(self, values: Labels, counts: list[int], total: list[float]) -> None:
        """Add another process's buckets and sum."""
        ours = self.values.setdefault(values, ([0] * len(counts), [0.0]))
        ours[0][:] = map(operator.add, ours[0], counts)
        ours[1][0] += total[0]

    def samples(self) -> Iterable[str]:
        """Return the lines of the exposition format; buckets are cumulative there."""
        for values, (counts, total) in self.values.items():
            running = 0
            for edge, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                running += count
                yield f"{self.name}_bucket{_labels((*self.labels, 'le'), (*values, str(edge)))} {running}"
            yield f"{self.name}_sum{_labels(self.labels, values)} {total[0]!r}"
            yield f"{self.name}_count{_labels(self.labels, values)} {running}"


class Gauge(msgspec.Struct, frozen=True):
    """Values as they are now, by label values."""

    name: str
    text: str
    labels: Labels
    values: Mapping[Labels, float]
    kind: str = "gauge"

    def samples(self) -> Iterable[str]:
        """Return the lines of the exposition format."""
        for values, value in self.values.items():
            yield f"{self.name}{_labels(self.labels, values)} {value:g}"


class Metrics:
    """Everything this process counts. `breakers` lists (provider, model, state) when asked.

    `metadata_labels` are keys of the metadata header that become labels of the token counters; their values come from
    clients, so past `MAX_COMBINATIONS` of them further ones count as "other".
    """

    def __init__(
        self, breakers: Callable[[], Iterable[tuple[str, str, Circuit]]], metadata_labels: Sequence[str] = ()
    ) -> None:
        self._breakers = breakers
        self.circuits: dict[Labels, int] = {}  # of other processes
        self._metadata_labels = tuple(metadata_labels)
        self._combinations: set[Labels] = set()
        served = ("capability", "model", "provider")
        self.tokens = Counter(
            "lumen_tokens_total", "Tokens by leaf.", (*served, "direction", "estimated", *metadata_labels)
        )
        self.estimated = Counter("lumen_tokens_estimated_total", "Tokens counted by estimate.")
        self.breakdown = Counter(
            "lumen_token_breakdown_total",
            "Tokens of a kind an upstream reported.",
            (*served, "kind", *metadata_labels),
        )
        self.virtual = Counter(
            "lumen_virtual_model_requests_total", "Served requests of virtual models.", ("virtual_model", "model_used")
        )
        self.attempts = Counter(
            "lumen_attempts_total", "Attempts by what became of them.", ("provider", "model", "outcome")
        )
        self.fallbacks = Counter("lumen_fallbacks_total", "Escapes taken, by trigger.", ("virtual_model", "trigger"))
        self.dropped_frames = Counter(
            "lumen_stream_frames_dropped_total",
            "Stream frames withheld because they are not JSON.",
            ("provider", "model"),
        )
        self.metadata = Counter("lumen_metadata_rejected_total", "Metadata headers dropped.")
        self.requests = Histogram("lumen_request_duration_seconds", "Whole requests.", (*served, "status"))
        self.http = Histogram(
            "lumen_http_request_duration_seconds",
            "HTTP answers; streams up to their head.",
            ("method", "path", "status"),
        )
        self.first_output = Histogram(
            "lumen_time_to_first_output_seconds", "Streams, from request to first output.", ("provider", "model")
        )

    def metadata_rejected(self) -> None:
        """A metadata header was dropped."""
        self.metadata.add(())

    def answered(self, method: str, template: str, status: int, seconds: float) -> None:
        """An HTTP answer was sent, on whatever route."""
        known = method if method in METHODS else "other"
        self.http.observe((known, template, _status(status)), seconds)

    def record(self, request: RequestRecord) -> None:
        """Count one finished request and its attempts."""
        for attempt in request.attempts:
            self.attempts.add((attempt.provider, attempt.leaf, attempt.outcome))
            if attempt.escape is not None and request.virtual_model is not None:
                self.fallbacks.add((request.virtual_model, attempt.escape))
            if attempt.dropped_frames:
                self.dropped_frames.add((attempt.provider, attempt.leaf), attempt.dropped_frames)
            if attempt.usage.origin != "unknown":
                self._count_tokens(request.capability, attempt, self._values(request.metadata))
        if not request.attempts:
            return
        last = request.attempts[-1]
        labels = (request.capability, last.leaf, last.provider, _status(request.status))
        self.requests.observe(labels, request.ended_s - request.started_s)
        if request.virtual_model is not None and request.status == 200:
            self.virtual.add((request.virtual_model, last.leaf))
        if last.first_output_s is not None:
            self.first_output.observe((last.provider, last.leaf), last.first_output_s - request.started_s)

    def _values(self, metadata: Mapping[str, object] | None) -> Labels:
        """Return a request's values of the metadata labels; what it does not name is empty."""
        if not self._metadata_labels:
            return ()
        values = tuple(_text((metadata or {}).get(label, "")) for label in self._metadata_labels)
        if values in self._combinations or len(self._combinations) < MAX_COMBINATIONS:
            self._combinations.add(values)
            return values
        return ("other",) * len(values)

    def _count_tokens(self, capability: str, attempt: AttemptRecord, metadata: Labels) -> None:
        usage, served = attempt.usage, (capability, attempt.leaf, attempt.provider)
        estimated = "true" if usage.origin == "estimated" else "false"
        self.tokens.add((*served, "input", estimated, *metadata), usage.input)
        self.tokens.add((*served, "output", estimated, *metadata), usage.output)
        if usage.origin == "estimated":
            self.estimated.add((), usage.input + usage.output)
        parts = (("cached", usage.cached), ("reasoning", usage.reasoning), ("cache_write", usage.cache_write))
        for kind, count in parts:
            if count:
                self.breakdown.add((*served, kind, *metadata), count)

    def state(self) -> State:
        """Return everything counted so far."""
        circuits: dict[Labels, int] = {}
        for provider, model, circuit in self._breakers():
            circuits[provider, model] = _worse(circuit, circuits.get((provider, model), Circuit.CLOSED))
        return State(
            {metric.name: metric.values for metric in self.counters()},
            {metric.name: metric.values for metric in self.histograms()},
            circuits,
        )

    def add(self, state: State) -> None:
        """Add what another process has counted."""
        for counter in self.counters():
            for values, count in state.counters.get(counter.name, {}).items():
                counter.add(values, count)
        for histogram in self.histograms():
            for values, (counts, total) in state.histograms.get(histogram.name, {}).items():
                histogram.merge(values, counts, total)
        for labels, circuit in state.circuits.items():
            self.circuits[labels] = _worse(circuit, self.circuits.get(labels, Circuit.CLOSED))

    def counters(self) -> Iterable[Counter]:
        """List the counters."""
        return (metric for metric in vars(self).values() if isinstance(metric, Counter))

    def histograms(self) -> Iterable[Histogram]:
        """List the histograms."""
        return (metric for metric in vars(self).values() if isinstance(metric, Histogram))


def render(metrics: Metrics, *, counters: Iterable[Counter] = (), gauges: Iterable[Gauge] = ()) -> bytes:
    """Return all metrics in Prometheus text."""
    circuits = Gauge("lumen_circuit_state", "0 closed, 1 open, 2 half-open.", ("provider", "model"), metrics.circuits)
    lines: list[str] = []
    families: list[Counter | Histogram | Gauge] = [
        *metrics.counters(),
        *counters,
        *metrics.histograms(),
        circuits,
        *gauges,
    ]
    for metric in families:
        lines += (f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}")
        lines += metric.samples()
    return ("\n".join(lines) + "\n").encode()


def _text(value: object) -> str:
    """Write a metadata value as JSON would, without the quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _worse(one: int, other: int) -> int:
    """Return the state that keeps more requests away: open, half-open, closed."""
    return max(one, other, key=(Circuit.CLOSED, Circuit.HALF_OPEN, Circuit.OPEN).index)


def _status(status: int) -> str:
    return str(status) if status in EXACT_STATUSES else f"{status // 100}xx"


def _labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
