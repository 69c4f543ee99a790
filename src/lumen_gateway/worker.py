"""A worker process: serves the data plane from sockets and documents its keeper gives it.

It never reads a file, holds no master key and imports no database or web framework. Signals that a terminal sends to
the whole group are the keeper's business; a worker drains when told to, or when its keeper is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import Callable, Generator, Iterator

from uvicorn.config import Config as ServerConfig
from uvicorn.server import Server

from lumen_gateway import control
from lumen_gateway.fastlane import FastLane, LaneSettings
from lumen_gateway.gateway import Gateway

DRAIN_S = 30
KEEP_ALIVE_S = 75  # nginx's own; above the idle timers of usual load balancers

Compose = Callable[[control.Load, Gateway | None], Generator[None, None, Gateway]]
"""Make a gateway of a document, or swap the document into the one that runs; in slices, to serve in between."""


class Site(Server):
    """uvicorn's server without its signal handling: it re-raises SIGTERM, and our keeper already decides."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def work(listener: socket.socket, channel: socket.socket, compose: Compose) -> None:
    """Serve until told to drain."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=channel)
    first = await control.receive(reader)
    if not isinstance(first, control.Load):
        return
    gateway = await _in_slices(compose(first, None))
    site = _site(gateway, first)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, functools.partial(setattr, site, "should_exit", True))
    await control.send(writer, control.Loaded(first.hash))
    orders = loop.create_task(_obey(reader, writer, gateway, site, compose), name="orders")
    try:
        await site.serve(sockets=[listener])
    finally:
        orders.cancel()
        await asyncio.gather(orders, return_exceptions=True)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await control.send(writer, control.Counted(0, gateway.telemetry.state()))
        writer.close()
        if gateway.tracer is not None:
            gateway.tracer.close()


def _site(gateway: Gateway, load: control.Load) -> Site:
    settings = LaneSettings(gateway, load.config.server.body_limit)
    return Site(
        ServerConfig(
            _no_app,
            http=functools.partial(FastLane, settings=settings),  # type: ignore[arg-type]  # called as a factory
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )


async def _obey(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gateway: Gateway, site: Site, compose: Compose
) -> None:
    """Follow the keeper's orders; its silence for good is the last of them."""
    while True:
        message = await control.receive(reader)
        match message:
            case control.Load():
                await _in_slices(compose(message, gateway))
                await control.send(writer, control.Loaded(message.hash))
            case control.Report():
                await control.send(writer, control.Counted(message.number, gateway.telemetry.state()))
            case _:
                site.should_exit = True
                return


async def _in_slices(steps: Generator[None, None, Gateway]) -> Gateway:
    """Run a composition one step at a time, serving requests in between."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            gateway: Gateway = done.value
            return gateway
        await asyncio.sleep(0)


async def _no_app(scope: object, receive: object, send: object) -> None:  # noqa: ARG001 - uvicorn counts them
    """Stand where uvicorn wants an ASGI app; the fast lane never calls it."""
    raise AssertionError("the fast lane serves every request")
