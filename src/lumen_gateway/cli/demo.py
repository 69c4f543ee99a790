"""`lumen demo`: every strategy against simulated providers that fail in every way, as a table; then it keeps serving.

The gateway is a `lumen serve` of its own. What is asked and what is to become of it stands in `scenes.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import threading
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lumen_gateway.cli import main
from lumen_gateway.cli.scenes import HOST, OK, Notes, Provider, Row, Stage

PORT = 8080
START_S = 20.0
LISTENING = "serving on http://"  # in the gateway's log
HEALTH = b"GET /health HTTP/1.1\r\nhost: %b\r\n\r\n" % HOST.encode()
WIDTH = 100  # that the whole table takes, and where the output is no terminal
COLUMNS = ("request", "route", "attempts", "served by", "tokens", "cost", "ms")
NUMBERS = frozenset({"tokens", "cost", "ms"})
DOCUMENT = Path(__file__).with_name("demo.toml")
PORTS = {"north": 9101, "south": 9102}  # that stand in it
GATEWAY = (sys.executable, "-c", "from lumen_gateway.cli.demo import serve; serve()")


@click.command("demo", short_help="Try every strategy against simulated providers.")
@click.option("--once", is_flag=True, help="End after the table; with 1 unless everything went as scripted.")
def command(once: bool) -> None:
    """Try every strategy against simulated providers.

    Starts two simulated providers and a gateway, lets the providers fail in every way while requests come in, shows
    what became of each, and keeps serving until Ctrl-C. Needs no key and calls nothing outside this machine.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    try:
        good = asyncio.run(_demo(console, once))
    except (KeyboardInterrupt, asyncio.CancelledError):
        good = not once
    raise SystemExit(0 if good else 1)


async def _demo(console: Console, once: bool) -> bool:
    """Show the table; unless `once`, serve until interrupted. Return whether all went as scripted."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGINT does the same by itself
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    notes: Notes = []
    with tempfile.TemporaryDirectory(prefix="lumen-demo-") as folder:
        async with Provider("north", notes) as north, Provider("south", notes) as south:
            document = _document(Path(folder), (north, south))
            async with _gateway(document) as (gateway, port):
                good = await _play(console, Stage((north, south), notes, document, port))
                if not once:
                    console.print(_invitation(document, port), soft_wrap=True, highlight=False)
                    await gateway.wait()
    return good


async def _play(console: Console, stage: Stage) -> bool:
    try:
        rows = await stage.play_all()
    finally:
        await stage.close()
    console.print()
    console.print(_table(rows, narrow=console.width < WIDTH))
    console.print()
    good = sum(row.good for row in rows)
    console.print(f"{good} of {len(rows)} went as scripted.\n", style="green" if good == len(rows) else "bold red")
    return good == len(rows)


# --- the gateway ------------------------------------------------------------------------------------------------------


def _document(folder: Path, providers: Sequence[Provider]) -> Path:
    """Write the demo's document with the addresses its providers have."""
    text = DOCUMENT.read_text()
    for provider in providers:
        text = text.replace(f"{HOST}:{PORTS[provider.name]}", f"{HOST}:{provider.port}")
    path = folder / "lumen.toml"
    path.write_text(text)
    return path


def _free_port(wanted: int) -> int:
    """Return the wanted port, or any other when that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def _gateway(document: Path) -> AsyncIterator[tuple[Process, int]]:
    """Run `lumen serve` on a free port; drain it on the way out."""
    log = document.with_suffix(".log")
    async with contextlib.AsyncExitStack() as stack:
        for wanted in (PORT, 0):  # a second demo may take a port between our look and our gateway's start
            port = _free_port(wanted)
            process = await stack.enter_async_context(_process(document, port, log))
            if await _answers(process, port, log):
                break
        else:
            raise click.ClickException(f"the gateway did not start:\n{log.read_text()}")
        yield process, port


@contextlib.asynccontextmanager
async def _process(document: Path, port: int, log: Path) -> AsyncIterator[Process]:
    """Start a gateway; drain it on the way out.

    A session of its own keeps the terminal's Ctrl-C from reaching it a second time, which would cut requests off. Its
    standard input is a pipe that ends with this process, however that comes about.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUMEN_")}  # no overlay
    arguments = ("serve", "-c", str(document), "--host", HOST, "--port", str(port))
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            *GATEWAY, *arguments, stdin=PIPE, stdout=output, stderr=output, env=environ, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def serve() -> None:
    """Be `lumen`, in a process of the demo's own, and drain when the demo is gone."""
    threading.Thread(target=_outlive_nobody, name="demo is gone", daemon=True).start()
    main()


def _outlive_nobody() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


async def _answers(process: Process, port: int, log: Path) -> bool:
    """Return whether the gateway answers before it ends or the time is over.

    What answers on the port is ours only once our log says that we have it.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while process.returncode is None:
                if _has_the_port(log):
                    return await _is_healthy(port)
                await asyncio.sleep(0.02)
    return False


def _has_the_port(log: Path) -> bool:
    return LISTENING in log.read_text()


async def _is_healthy(port: int) -> bool:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(HEALTH)
        return (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()


# --- what is shown ----------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], *, narrow: bool) -> Table:
    """Draw the rows. A narrow table leaves out what its other columns let one guess."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    names = ("request", "route", "attempts", "cost", "ms") if narrow else COLUMNS
    for name in names:
        table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")
    for row in rows:
        cells = _cells(row, narrow=narrow)
        table.add_row(*(cells[name] for name in names), style=None if row.good else "red")
    return table


def _cells(row: Row, *, narrow: bool) -> dict[str, str | Text]:
    seen, usage = row.seen, row.usage
    no_route = seen.served_by if narrow else "-"
    return {
        "request": Text(row.request, "bold"),
        "route": seen.route or no_route,
        "attempts": Text("\n").join(_attempt(leaf, outcomes) for leaf, *outcomes in seen.attempts),
        "served by": seen.served_by,
        "tokens": "-" if usage is None else f"{usage.input}+{usage.output}",
        "cost": "-" if row.cost_pico is None else f"${row.cost_pico / 1e12:.6f}",
        "ms": f"{row.seconds * 1000:.0f}",
    }


def _attempt(leaf: str, outcomes: Sequence[str]) -> Text:
    """Write one attempt: `north/big 500 x2`, or `not called` for a leaf that was left alone."""
    line = Text(leaf)
    for outcome, times in Counter(outcomes or ["not called"]).items():
        many = "" if times == 1 else f" \N{MULTIPLICATION SIGN}{times}"
        line.append(f" {outcome}{many}", "green" if outcome == OK else "yellow")
    return line


def _invitation(document: Path, port: int) -> str:
    return f"""\
Serving on http://{HOST}:{port} until Ctrl-C. Try it; for a minute north is left alone, as it asked for:

  curl -i http://{HOST}:{port}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "smart", "messages": [{{"role": "user", "content": "Hello"}}]}}'

The document: {document}"""
