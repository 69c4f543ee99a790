"""`lumen serve`: serve a document until told to stop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click
import uvloop

from lumen_gateway import control
from lumen_gateway.app import prepare
from lumen_gateway.config.load import read_document
from lumen_gateway.keeper import Keeper, listen
from lumen_gateway.telemetry import log


@click.command("serve")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The document; default lumen.toml.")
@click.option("--host", help="Listen here instead of server.host.")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen here instead of server.port.")
def command(path: Path | None, host: str | None, port: int | None) -> None:
    """Serve the gateway."""
    load = _load(path, lambda line: click.echo(line, err=True))
    if load is None:
        raise SystemExit(1)
    server = load.config.server
    host, port = host or server.host, port or server.port
    try:
        listener = listen(host, port)
    except OSError as exc:
        click.echo(
            f"cannot listen on {host}:{port}: {exc.strerror}; choose another with --port or server.port", err=True
        )
        raise SystemExit(1) from exc
    log.setup(load.config.log_format, os.environ.get("LUMEN_LOG", "INFO"))
    log.event(20, "keeper.listening", f"serving on http://{host}:{port}")
    worker = [sys.executable, "-m", "lumen_gateway.app"]
    keeper = Keeper(listener, worker, load, lambda: _reload(path))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(keeper.run())


def _load(path: Path | None, say: Callable[[str], None]) -> control.Load | None:
    """Read and check the document, saying every fault; None if it cannot be served."""
    document = read_document(path, os.environ)
    load, faults = prepare(document, os.environ)
    for fault in faults:
        say(document.locate(fault))
    return load


def _reload(path: Path | None) -> control.Load | None:
    load = _load(path, lambda line: log.event(30, "config.fault", line))
    if load is None:
        log.event(30, "config.refused", "the document was not applied; the last good one keeps serving")
    return load
