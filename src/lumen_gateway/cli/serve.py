"""`lumen serve`: serve a document until told to stop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click
import uvloop

from lumen_gateway.admin.site import Access, is_loopback
from lumen_gateway.app import prepare, worker_command
from lumen_gateway.config.sources import FileSource
from lumen_gateway.documents import Documents
from lumen_gateway.keeper import Keeper, listen
from lumen_gateway.redact import Secret
from lumen_gateway.telemetry import log


@click.command("serve")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The document; default lumen.toml.")
@click.option("--host", help="Listen here instead of server.host.")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen here instead of server.port.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
def command(path: Path | None, host: str | None, port: int | None, workers: int) -> None:
    """Serve the gateway."""
    source = FileSource(path, os.environ)
    load, faults = prepare(source.read(), os.environ)
    for fault in faults:
        click.echo(fault, err=True)
    if load is None:
        raise SystemExit(1)
    server = load.config.server
    host, port = host or server.host, port or server.port
    try:
        listener = listen(host, port)
    except OSError as exc:
        said = f"cannot listen on {host}:{port}: {exc.strerror}; choose another with --port or server.port"
        click.echo(said, err=True)
        raise SystemExit(1) from exc
    log.setup(load.config.log_format, os.environ.get("LUMEN_LOG", "INFO"))
    log.event(log.INFO, "keeper.listening", f"serving on http://{host}:{port}", workers=workers)
    master_key = os.environ.get("LUMEN_MASTER_KEY", "").strip()
    access = Access(server.public_metrics or is_loopback(host), Secret(master_key) if master_key else None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        documents = Documents(source, lambda document: prepare(document, os.environ), load)
        runner.run(Keeper(listener, worker_command(load), documents, access).run(workers))
