"""`lumen serve`: serve a document until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from pathlib import Path

import click
import uvloop

from lumen_gateway.admin.site import Access, is_loopback
from lumen_gateway.app import prepare, worker_command
from lumen_gateway.config.master_key import read_master_key
from lumen_gateway.config.sources import FileSource
from lumen_gateway.documents import Documents
from lumen_gateway.keeper import Keeper, listen
from lumen_gateway.serving import DRAIN_S
from lumen_gateway.telemetry import log

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
MAX_DESCRIPTORS = 65_536  # 32,000 streams in a worker


@click.command("serve")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Default: lumen.toml, else config.toml.")
@click.option("--host", help="Listen here instead of server.host.")
@click.option("--port", type=click.IntRange(1, 65535), help="Listen here instead of server.port.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0, 3600),
    default=DRAIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How long requests may go on once told to stop.",
)
def command(path: Path | None, host: str | None, port: int | None, workers: int, drain_s: float) -> None:
    """Serve the gateway."""
    _occupy_standard_streams()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # never an end, not even while starting; the keeper takes it over
    source = FileSource(path, os.environ)
    load, faults = prepare(source.read(), os.environ)
    for fault in faults:
        click.echo(fault, err=True)
    if load is None:
        raise SystemExit(1)
    level = _log_level()
    _allow_descriptors()
    server = load.config.server
    host, port = host or server.host, port or server.port
    listener = _listen(host, port)
    log.setup(load.config.log_format, level)
    scheme = "https" if server.tls_cert_file else "http"
    log.event(log.INFO, "keeper.listening", f"serving on {scheme}://{_authority(host, port)}", workers=workers)
    access = Access(server.public_metrics or is_loopback(host), read_master_key(os.environ))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        documents = Documents(source, lambda document: prepare(document, os.environ), load)
        keeper = Keeper(listener, worker_command(load), documents, access, drain_s)
        if not runner.run(keeper.run(workers)):
            raise SystemExit(1)


def _log_level() -> str:
    level = (os.environ.get("LUMEN_LOG") or "INFO").upper()
    if level not in LOG_LEVELS:
        click.echo(f"LUMEN_LOG: is no log level; write one of {', '.join(LOG_LEVELS)}", err=True)
        raise SystemExit(1)
    return level


def _allow_descriptors() -> None:
    """Take all the system grants, workers included: a stream needs two, and the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and means less
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _occupy_standard_streams() -> None:
    """Leave none of 0, 1 and 2 closed: a socket in that place would not reach a worker, or be written to as a log."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as exc:
        said = f"cannot listen on {_authority(host, port)}: {exc.strerror}; choose another with --port or server.port"
        click.echo(said, err=True)
        raise SystemExit(1) from exc


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
