"""Run the benchmarks and write down what, where and when: `make bench`, or `python -m bench decide` for one of them.

A benchmark is a module in this folder with `run() -> dict[str, float]`. The end of a name is its unit: `_ns`
nanoseconds of one call, `_mb` megabytes, `_s` seconds; with `ratio` in it, it is a plain number.

A time says little on another machine, so nanoseconds are also given as multiples of an empty Python call on this
one, measured in the same run. `results/latest.json` is the last whole run that was committed.
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

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
LATEST = HERE / "results" / "latest.json"
CALLS, ROUNDS = 200_000, 15


def empty_call_ns() -> float:
    """Measure the yardstick: calling a function that does nothing, loop included."""

    def empty() -> None:
        pass

    return min(timeit.repeat(empty, number=CALLS, repeat=ROUNDS)) / CALLS * 1e9


def benchmarks() -> list[str]:
    """Return the names of all benchmarks of this folder."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def measure(console: Console, names: list[str]) -> dict[str, float]:
    """Run the named benchmarks one after the other, saying which."""
    measured: dict[str, float] = {}
    for name in names:
        console.print(f"measuring {name} ...", style="dim")
        measured |= importlib.import_module(f"bench.{name}").run()
    return measured


def conditions() -> dict[str, object]:
    """Return what numbers depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python -m bench",
        "system": platform.platform(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def cpu() -> str:
    """Return the processor's own name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def table(measured: dict[str, float], yardstick_ns: float) -> Table:
    """Lay the numbers out for reading."""
    laid = Table("measured")
    laid.add_column("value", justify="right")
    laid.add_column("empty calls", justify="right")
    for name, value in measured.items():
        in_calls = f"{value / yardstick_ns:.1f}" if name.endswith("_ns") else ""
        laid.add_row(name, f"{value:,.0f}" if name.endswith("_ns") else f"{value:,.2f}", in_calls)
    return laid


def main(names: list[str]) -> None:
    """Measure, print, and keep the whole run; a run of some benchmarks only is printed and not kept."""
    console = Console()
    yardstick_ns = empty_call_ns()
    measured = {"empty_call_ns": yardstick_ns} | measure(console, names or benchmarks())
    console.print(table(measured, yardstick_ns))
    if not names:
        LATEST.parent.mkdir(exist_ok=True)
        rounded = {name: round(value, 3) for name, value in measured.items()}
        LATEST.write_text(json.dumps(conditions() | rounded, indent=2) + "\n")
        console.print(f"written to {os.path.relpath(LATEST)}")


if __name__ == "__main__":
    main(sys.argv[1:])
