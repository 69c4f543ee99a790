"""`lumen upstream`: the simulator alone, to point a gateway or a client at."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import click

from lumen_gateway.simulator.reply import Call, Replies
from lumen_gateway.simulator.script import ScriptError, load
from lumen_gateway.simulator.upstream import Upstream


@click.command("upstream", short_help="Run a scripted upstream for tests.")
@click.option("--script", type=click.Path(path_type=Path), required=True, help="TOML or JSON file of replies.")
@click.option("--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="0 picks a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
def command(script: Path, port: int, host: str) -> None:
    """Run a scripted upstream for tests.

    Answers every call as the script says and prints one line for each, until interrupted. The format of a script is in
    docs/simulator.md. Exits with 1 if the script cannot be played or the port is taken.
    """
    try:
        asyncio.run(_serve(load(script), host, port))
    except ScriptError as exc:
        raise click.ClickException(str(exc)) from exc
    except OSError as exc:
        # asyncio wraps the system's words in its own; a name that does not resolve has a negative number
        reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror or str(exc)
        said = f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port"
        raise click.ClickException(said) from exc


async def _serve(replies: Replies, host: str, port: int) -> None:
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    async with Upstream(replies, host=host, port=port, on_call=_print) as upstream:
        click.echo(f"listening on {upstream.url}")
        await interrupted.wait()
    count = len(upstream.calls)
    click.echo(f"{count} call{'s' if count != 1 else ''} answered")


def _print(call: Call) -> None:
    """One line a call. Headers and prompts are left out: they may be real."""
    model = call.field("model")
    named = f" model={model}" if isinstance(model, str) else ""
    streamed = " stream" if call.field("stream") is True else ""
    click.echo(f"{call.method} {call.path}{named}{streamed} -> {call.status}")
