"""Metrics: what one request counts, what several processes add up to, and that Prometheus can read it.

The exposition is read back by a parser of its own, as strict as Prometheus' text format 0.0.4 is: a family has one HELP
and one TYPE before its samples, its samples stand together, no series comes twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.control import Counted, encode
from lumen_gateway.execution.breaker import State as Circuit
from lumen_gateway.records import AttemptRecord, RequestRecord, Usage
from lumen_gateway.telemetry.metrics import (
    BUCKETS_S,
    EXACT_STATUSES,
    MAX_COMBINATIONS,
    Counter,
    Gauge,
    Histogram,
    Metrics,
    State,
    render,
)

Labels = tuple[tuple[str, str], ...]
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
NUMBER = re.compile(r"-?(\d+(\.\d+)?(e[+-]?\d+)?)|[+-]Inf|NaN", re.IGNORECASE)


class Family(NamedTuple):
    """One metric as a scraper sees it."""

    kind: str
    text: str
    samples: dict[tuple[str, Labels], float]


def parse(exposition: bytes) -> dict[str, Family]:
    """Read an exposition, or fail where Prometheus would or should."""
    text = exposition.decode()
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    lines = text.split("\n")[:-1]
    position = 0
    while position < len(lines):
        help_line, type_line = lines[position], lines[position + 1]
        _, _, name, said = help_line.split(" ", 3)
        assert help_line.startswith("# HELP ")
        assert NAME.fullmatch(name)
        assert type_line.startswith(f"# TYPE {name} ")
        assert name not in families, f"{name} comes twice"
        family = families[name] = Family(type_line.rpartition(" ")[2], said, {})
        assert family.kind in {"counter", "gauge", "histogram"}
        position += 2
        while position < len(lines) and not lines[position].startswith("#"):
            sample, labels, value = parse_sample(lines[position])
            suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
            assert sample in {name + suffix for suffix in suffixes}
            assert (sample, labels) not in family.samples, f"{sample}{labels} comes twice"
            family.samples[sample, labels] = value
            position += 1
    return families


def parse_sample(line: str) -> tuple[str, Labels, float]:
    name = NAME.match(line)
    assert name, line
    rest, labels = line[name.end() :], list[tuple[str, str]]()
    if rest.startswith("{"):
        rest = rest[1:]
        while True:
            label = LABEL.match(rest)
            assert label, line
            labels.append((label[1], re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), label[2])))
            rest = rest[label.end() :]
            if rest.startswith("}"):
                break
            assert rest.startswith(","), line
            rest = rest[1:]
        rest = rest[1:]
    assert rest.startswith(" "), line
    assert NUMBER.fullmatch(rest[1:]), line
    assert len({label for label, _ in labels}) == len(labels), line
    return name[0], tuple(labels), float(rest[1:])


def metrics(*labels: str, breakers: Iterable[tuple[str, str, Circuit]] = ()) -> Metrics:
    return Metrics(lambda: breakers, labels)


def values(of: Metrics, name: str) -> dict[Labels, float]:
    """Return one family's samples by label values; those of a histogram are its counts."""
    family = parse(render(of))[name]
    wanted = f"{name}_count" if family.kind == "histogram" else name
    return {labels: value for (sample, labels), value in family.samples.items() if sample == wanted}


def served(**labels: str) -> Labels:
    return tuple({"capability": "chat", "model": "m", "provider": "p", **labels}.items())


REPORTED = Usage(100, 20, cached=64, reasoning=5, origin="reported")


def attempt(index: int = 0, leaf: str = "m", provider: str = "p", **more: object) -> AttemptRecord:
    return msgspec.structs.replace(AttemptRecord(index, leaf, provider, started_s=10.0, ended_s=11.0), **more)


def request(*attempts: AttemptRecord, status: int = 200, **more: object) -> RequestRecord:
    record = RequestRecord("r", "chat", "v", started_s=10.0, ended_s=10.3, status=status, attempts=list(attempts))
    return msgspec.structs.replace(record, **more)


# One request.


def test_tokens_are_counted_by_leaf_and_direction() -> None:
    counted = metrics()
    counted.record(request(attempt(usage=REPORTED)))
    assert values(counted, "lumen_tokens_total") == {
        served(direction="input", estimated="false"): 100,
        served(direction="output", estimated="false"): 20,
    }
    assert values(counted, "lumen_token_breakdown_total") == {served(kind="cached"): 64, served(kind="reasoning"): 5}
    assert values(counted, "lumen_tokens_estimated_total") == {(): 0}


def test_estimated_tokens_are_marked() -> None:
    counted = metrics()
    counted.record(request(attempt(usage=Usage(7, 3, origin="estimated"))))
    assert values(counted, "lumen_tokens_estimated_total") == {(): 10}
    assert values(counted, "lumen_tokens_total")[served(direction="output", estimated="true")] == 3


def test_metadata_labels_stand_on_every_token_metric_and_absent_ones_are_empty() -> None:
    counted = metrics("team", "stage")
    counted.record(request(attempt(usage=REPORTED), metadata={"team": "blue", "other": "x"}))
    for name in ("lumen_tokens_total", "lumen_token_breakdown_total"):
        assert all(labels[-2:] == (("team", "blue"), ("stage", "")) for labels in values(counted, name))


@pytest.mark.parametrize(
    ("sent", "label"),
    [(True, "true"), (5.0, "5"), (0.25, "0.25"), (1234567.0, "1234567"), ("", ""), (-1e300, "-1e+300")],
)
def test_metadata_value_reads_as_the_client_wrote_it(sent: str | float | bool, label: str) -> None:
    counted = metrics("x")
    counted.record(request(attempt(usage=REPORTED), metadata={"x": sent}))
    assert {labels[-1] for labels in values(counted, "lumen_tokens_total")} == {("x", label)}


def test_clients_cannot_make_series_without_end() -> None:
    counted = metrics("x")
    for number in range(MAX_COMBINATIONS + 5):
        counted.record(request(attempt(usage=Usage(1, 1, origin="reported")), metadata={"x": f"{number}"}))
    found = values(counted, "lumen_tokens_total")
    assert len(found) == 2 * (MAX_COMBINATIONS + 1)
    assert found[served(direction="input", estimated="false", x="other")] == 5


def test_fallback_counts_each_attempt_the_way_and_what_served() -> None:
    counted = metrics()
    first = attempt(outcome="rate_limited", escape="rate_limited")
    counted.record(request(first, attempt(1, "n", "q", usage=REPORTED), virtual_model="v"))
    assert values(counted, "lumen_attempts_total") == {
        (("provider", "p"), ("model", "m"), ("outcome", "rate_limited")): 1,
        (("provider", "q"), ("model", "n"), ("outcome", "ok")): 1,
    }
    assert values(counted, "lumen_fallbacks_total") == {(("virtual_model", "v"), ("trigger", "rate_limited")): 1}
    assert values(counted, "lumen_virtual_model_requests_total") == {(("virtual_model", "v"), ("model_used", "n")): 1}
    assert list(values(counted, "lumen_request_duration_seconds")) == [
        served(model="n", provider="q", status="200"),
    ]


def test_failed_request_is_timed_by_the_last_leaf_and_serves_no_virtual_model() -> None:
    counted = metrics()
    counted.record(request(attempt(outcome="provider_error"), status=502, virtual_model="v"))
    assert values(counted, "lumen_request_duration_seconds") == {served(status="502"): 1}
    assert values(counted, "lumen_virtual_model_requests_total") == {}


def test_request_that_reached_no_leaf_has_no_leaf_to_be_counted_under() -> None:
    counted = metrics()
    counted.record(request(status=404))
    assert values(counted, "lumen_request_duration_seconds") == {}


def test_first_output_is_timed_from_the_request() -> None:
    counted = metrics()
    counted.record(request(attempt(first_output_s=10.2), stream=True))
    family = parse(render(counted))["lumen_time_to_first_output_seconds"]
    labels: Labels = (("provider", "p"), ("model", "m"))
    assert family.samples["lumen_time_to_first_output_seconds_sum", labels] == pytest.approx(0.2)


def test_frames_that_were_withheld_are_counted() -> None:
    counted = metrics()
    counted.record(request(attempt(dropped_frames=2)))
    assert values(counted, "lumen_stream_frames_dropped_total") == {(("provider", "p"), ("model", "m")): 2}


@pytest.mark.parametrize(("status", "label"), [(200, "200"), (499, "499"), (204, "2xx"), (431, "4xx"), (529, "5xx")])
def test_status_is_exact_where_it_tells_something(status: int, label: str) -> None:
    counted = metrics()
    counted.answered("POST", "/v1/chat/completions", status, 0.1)
    [labels] = values(counted, "lumen_http_request_duration_seconds")
    assert labels == (("method", "POST"), ("path", "/v1/chat/completions"), ("status", label))
    assert (status in EXACT_STATUSES) == (label == str(status))


@pytest.mark.parametrize("method", ["PROPFIND", "", "get", "QUERY"])
def test_method_that_is_none_of_the_seven_is_other(method: str) -> None:
    counted = metrics()
    counted.answered(method, "unmatched", 404, 0.1)
    [labels] = values(counted, "lumen_http_request_duration_seconds")
    assert labels[0] == ("method", "other")


# The exposition.


def test_everything_there_is_can_be_read() -> None:
    counted = metrics("team", breakers=[("p", "m", Circuit.OPEN)])
    counted.record(
        request(attempt(usage=REPORTED, first_output_s=10.1), virtual_model="v", metadata={"team": 'a"\\\n'})
    )
    counted.answered("GET", "/health", 200, 0.0001)
    counted.metadata_rejected()
    counted.add(counted.state())
    extra = Counter("lumen_extra_total", "Extra.")
    families = parse(render(counted, counters=[extra], gauges=[Gauge("lumen_up", "Up.", ("x",), {("y",): 1})]))
    assert {name: family.kind for name, family in families.items()} == {
        "lumen_tokens_total": "counter",
        "lumen_tokens_estimated_total": "counter",
        "lumen_token_breakdown_total": "counter",
        "lumen_virtual_model_requests_total": "counter",
        "lumen_attempts_total": "counter",
        "lumen_fallbacks_total": "counter",
        "lumen_stream_frames_dropped_total": "counter",
        "lumen_metadata_rejected_total": "counter",
        "lumen_extra_total": "counter",
        "lumen_request_duration_seconds": "histogram",
        "lumen_http_request_duration_seconds": "histogram",
        "lumen_time_to_first_output_seconds": "histogram",
        "lumen_circuit_state": "gauge",
        "lumen_up": "gauge",
    }
    assert all(family.text.endswith(".") for family in families.values())


def test_nothing_counted_yet_can_be_read_too() -> None:
    assert parse(render(metrics("team")))["lumen_metadata_rejected_total"].samples == {
        ("lumen_metadata_rejected_total", ()): 0
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_label_value_comes_back_as_it_was(value: str) -> None:
    counter = Counter("x_total", "X.", ("a", "b"))
    counter.add((value, "behind"))
    [(sample, labels)] = parse(render(metrics(), counters=[counter]))["x_total"].samples
    assert (sample, labels) == ("x_total", (("a", value), ("b", "behind")))


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_histogram_is_cumulative_and_ends_at_its_count(durations: list[float]) -> None:
    histogram = Histogram("x_seconds", "X.", ("a",))
    for seconds in durations:
        histogram.observe(("y",), seconds)
    lines = [parse_sample(line) for line in histogram.samples()]
    *buckets, total, count = lines
    assert [labels for _, labels, _ in buckets] == [(("a", "y"), ("le", str(edge))) for edge in (*BUCKETS_S, "+Inf")]
    for (_, _, found), edge in zip(buckets, (*BUCKETS_S, float("inf")), strict=True):
        assert found == sum(seconds <= edge for seconds in durations)
    assert total[:2] == ("x_seconds_sum", (("a", "y"),))
    assert total[2] == pytest.approx(sum(durations))
    assert count == ("x_seconds_count", (("a", "y"),), len(durations))


def test_sum_of_a_long_life_still_grows() -> None:
    histogram = Histogram("x_seconds", "X.", ())
    histogram.observe((), 1e9)
    before = parse_sample(list(histogram.samples())[-2])[2]
    histogram.observe((), 0.25)
    assert parse_sample(list(histogram.samples())[-2])[2] - before == 0.25


# Several processes.


def sent(state: State) -> State:
    """Send a state to the keeper and back out of its message."""
    counted = msgspec.msgpack.decode(encode(Counted(1, state))[4:], type=Counted)
    return counted.state


def test_counts_of_several_workers_add_up_after_their_way_to_the_keeper() -> None:
    total = metrics("team")
    for _ in range(3):
        worker = metrics("team")
        worker.record(request(attempt(usage=REPORTED, first_output_s=10.2), metadata={"team": "blue"}))
        worker.answered("POST", "/v1/chat/completions", 200, 0.3)
        total.add(sent(worker.state()))
    assert values(total, "lumen_tokens_total")[served(direction="input", estimated="false", team="blue")] == 300
    assert list(values(total, "lumen_time_to_first_output_seconds").values()) == [3]
    family = parse(render(total))["lumen_http_request_duration_seconds"]
    assert [v for (sample, _), v in family.samples.items() if sample.endswith("_sum")] == [pytest.approx(0.9)]


CIRCUITS: list[tuple[list[Circuit], int]] = [
    ([Circuit.CLOSED], 0),
    ([Circuit.CLOSED, Circuit.HALF_OPEN], 2),
    ([Circuit.HALF_OPEN, Circuit.OPEN, Circuit.CLOSED], 1),
]


def over_keys(states: list[Circuit]) -> Metrics:
    total = metrics()
    total.add(sent(metrics(breakers=[("p", "m", state) for state in states]).state()))
    return total


def over_workers(states: list[Circuit]) -> Metrics:
    total = metrics()
    for state in states:
        total.add(sent(metrics(breakers=[("p", "m", state)]).state()))
    return total


@pytest.mark.parametrize("over", [over_keys, over_workers])
@pytest.mark.parametrize(("states", "shown"), CIRCUITS)
def test_circuit_shows_the_state_that_keeps_most_away(
    over: Callable[[list[Circuit]], Metrics], states: list[Circuit], shown: int
) -> None:
    assert values(over(states), "lumen_circuit_state") == {(("provider", "p"), ("model", "m")): shown}


def test_circuit_is_shown_as_it_is_when_asked() -> None:
    breakers = [("p", "m", Circuit.CLOSED)]
    counted = metrics(breakers=breakers)
    for state in (Circuit.OPEN, Circuit.HALF_OPEN, Circuit.CLOSED):
        breakers[:] = [("p", "m", state)]
        total = metrics()
        total.add(sent(counted.state()))
        assert list(values(total, "lumen_circuit_state").values()) == [state]
