"""`docs/metrics.md` lists every metric with its type and labels, `docs/tracing.md` every attribute, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from lumen_gateway.telemetry.metrics import BUCKETS_S, EXACT_STATUSES, Counter, Histogram, Metrics

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
SOURCES = "".join(path.read_text() for path in (ROOT / "src" / "lumen_gateway").rglob("*.py"))
METADATA = "team"


class Row(NamedTuple):
    """One metric on the page."""

    kind: str
    labels: str


ROWS = {name: Row(*rest) for name, *rest in re.findall(r"^\| `(lumen_\w+)` \| (\w+) \| (.*?) \| .* \|$", PAGE, re.M)}
COUNTED = Metrics(lambda: (), [METADATA])


def said_labels(metric: Counter | Histogram) -> str:
    own = [f"`{label}`" for label in metric.labels if label != METADATA]
    return ", ".join([*own, "and metadata labels"] if METADATA in metric.labels else own) or "none"


def test_page_lists_every_metric_and_no_other() -> None:
    assert sorted(ROWS) == sorted(set(re.findall(r'"(lumen_[a-z_]+)"', SOURCES)) - {"lumen_gateway"})


@pytest.mark.parametrize("metric", [*COUNTED.counters(), *COUNTED.histograms()], ids=lambda metric: metric.name)
def test_page_says_type_and_labels(metric: Counter | Histogram) -> None:
    assert ROWS[metric.name] == Row(metric.kind, said_labels(metric))


def test_page_says_buckets_and_statuses() -> None:
    said = " ".join(PAGE.split())
    assert f"{', '.join(map(str, BUCKETS_S))}." in said
    *most, last = sorted(EXACT_STATUSES)
    assert f"{', '.join(map(str, most))} and {last}, else" in said


def test_tracing_page_lists_every_attribute_and_no_other() -> None:
    page = (ROOT / "docs" / "tracing.md").read_text()
    listed = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
    }
    source = (ROOT / "src" / "lumen_gateway" / "telemetry" / "trace.py").read_text()
    assert listed == set(re.findall(r'"((?:gen_ai|http|server|error|lumen)\.[\w.]+)"', source))
