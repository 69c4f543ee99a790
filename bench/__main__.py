"""Run the benchmarks and write down what, where and when: `make bench`, or `python -m bench decide` for one of them.

A benchmark is a module in this folder with `run() -> dict[str, float]`: what was measured -> seconds for one call. What
has the word "ratio" in its name is a plain number, a comparison the benchmark made itself.

A time says little on another machine, so each is also given as a multiple of an empty Python call on this one, measured
before and after. `results/latest.json` is the last run that was committed.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import sys
import timeit
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
LATEST = HERE / "results" / "latest.json"
CALLS, ROUNDS = 200_000, 15


def empty_call_s() -> float:
    """Measure the yardstick: calling a function that does nothing, loop included."""

    def empty() -> None:
        pass

    return min(timeit.repeat(empty, number=CALLS, repeat=ROUNDS)) / CALLS


def benchmarks() -> list[str]:
    """Return the names of all benchmarks of this folder."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def measure(names: list[str]) -> dict[str, dict[str, float]]:
    """Run the named benchmarks: name -> what was measured -> seconds, or a ratio."""
    return {name: importlib.import_module(f"bench.{name}").run() for name in names}


def report(measured: dict[str, dict[str, float]], yardstick_s: float) -> dict[str, Any]:
    """Put the numbers together with what they depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python -m bench",
        "machine": {"system": platform.platform(), "cpu": cpu(), "cores": os.cpu_count()},
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "empty_call_ns": round(yardstick_s * 1e9, 1),
        "results": {
            name: {label: result(label, value, yardstick_s) for label, value in rows.items()}
            for name, rows in measured.items()
        },
    }


def result(label: str, value: float, yardstick_s: float) -> dict[str, float]:
    """Give one number its unit."""
    if "ratio" in label:
        return {"ratio": round(value, 3)}
    return {"us": round(value * 1e6, 3), "empty_calls": round(value / yardstick_s, 1)}


def cpu() -> str:
    """Return the processor's own name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def table(results: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Lay the numbers out for reading."""
    laid = Table("benchmark", "measured")
    for column in ("us a call", "empty calls", "ratio"):
        laid.add_column(column, justify="right")
    for name, rows in results.items():
        for label, row in rows.items():
            cells = (f"{row[unit]:g}" if unit in row else "" for unit in ("us", "empty_calls", "ratio"))
            laid.add_row(name, label, *cells)
    return laid


def main(names: list[str]) -> None:
    """Measure, print, and keep the whole run; a run of some benchmarks only is printed and not kept."""
    before_s = empty_call_s()
    measured = measure(names or benchmarks())
    found = report(measured, min(before_s, empty_call_s()))  # the quieter of two moments: others use this machine too
    console = Console()
    console.print(table(found["results"]))
    console.print(f"{found['machine']['cpu']}, {found['python']}; an empty call takes {found['empty_call_ns']} ns")
    if not names:
        LATEST.parent.mkdir(exist_ok=True)
        LATEST.write_text(json.dumps(found, indent=2) + "\n")
        console.print(f"written to {os.path.relpath(LATEST)}")


if __name__ == "__main__":
    main(sys.argv[1:])
