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
HEALTH = b"GET /health HTTP/1.1\r\nhost: %b\r\n\r\n" % HOST.encode()
WIDTH = 100  # where the output is no terminal
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
            document, port = _document(Path(folder), (north, south)), _free_port()
            async with _gateway(document, port) as gateway:
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
    console.print(_table(rows))
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


def _free_port() -> int:
    """Return the port of the docs, or any other when that is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, PORT))
        except OSError:
            probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def _gateway(document: Path, port: int) -> AsyncIterator[Process]:
    """Run `lumen serve`; drain it on the way out.

    A session of its own keeps the terminal's Ctrl-C from reaching it a second time, which would cut requests off. Its
    standard input is a pipe that ends with this process, however that comes about.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUMEN_")}  # no overlay
    arguments = ("serve", "-c", str(document), "--host", HOST, "--port", str(port))
    with document.with_suffix(".log").open("w+") as log:
        process = await asyncio.create_subprocess_exec(
            *GATEWAY, *arguments, stdin=PIPE, stdout=log, stderr=log, env=environ, start_new_session=True
        )
        try:
            if not await _answers(process, port):
                log.seek(0)
                raise click.ClickException(f"the gateway did not start:\n{log.read()}")
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


async def _answers(process: Process, port: int) -> bool:
    """Return whether the gateway answers before it ends or the time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    return await _is_healthy(port)
                await asyncio.sleep(0.02)
    return False


async def _is_healthy(port: int) -> bool:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(HEALTH)
        return (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()


# --- what is shown ----------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header in ("request", "route", "attempts", "served by"):
        table.add_column(header)
    for header in ("tokens", "cost", "ms"):
        table.add_column(header, justify="right")
    for row in rows:
        table.add_row(*_cells(row), style=None if row.good else "red")
    return table


def _cells(row: Row) -> tuple[str | Text, ...]:
    seen, usage = row.seen, row.usage
    return (
        Text(row.request, "bold"),
        seen.route or "-",
        Text("\n").join(_attempt(leaf, outcomes) for leaf, *outcomes in seen.attempts),
        seen.served_by,
        "-" if usage is None else f"{usage.input}+{usage.output}",
        "-" if row.cost_pico is None else f"${row.cost_pico / 1e12:.6f}",
        f"{row.seconds * 1000:.0f}",
    )


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
