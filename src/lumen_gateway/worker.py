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
from collections.abc import Callable, Iterator

from uvicorn.config import Config as ServerConfig
from uvicorn.server import Server

from lumen_gateway import control
from lumen_gateway.fastlane import FastLane, LaneSettings
from lumen_gateway.gateway import Gateway

Compose = Callable[[control.Load, Gateway | None], Gateway]
DRAIN_S = 30
KEEP_ALIVE_S = 75  # nginx's own; above the idle timers of usual load balancers


class Site(Server):
    """uvicorn's server without its signal handling: it re-raises SIGTERM, and our keeper already decides."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def work(listener: socket.socket, channel: socket.socket, compose: Compose) -> None:
    """Serve until told to drain. `compose` makes a gateway of the first document and swaps later ones into it."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=channel)
    first = await control.receive(reader)
    if not isinstance(first, control.Load):
        return
    gateway = compose(first, None)
    lane = functools.partial(FastLane, settings=LaneSettings(gateway, first.config.server.body_limit))
    site = Site(
        ServerConfig(
            _no_app,
            http=lane,  # type: ignore[arg-type]  # uvicorn asks for a class and calls it as a factory
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, functools.partial(setattr, site, "should_exit", True))
    await control.send(writer, control.Loaded(first.hash))
    orders = loop.create_task(_obey(reader, writer, site, lambda load: compose(load, gateway)), name="orders")
    try:
        await site.serve(sockets=[listener])
    finally:
        orders.cancel()
        await asyncio.gather(orders, return_exceptions=True)
        writer.close()


async def _obey(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: Site, swap: Callable[[control.Load], Gateway]
) -> None:
    """Follow the keeper's orders; its silence for good is the last of them."""
    while True:
        message = await control.receive(reader)
        if isinstance(message, control.Load):
            swap(message)
            await control.send(writer, control.Loaded(message.hash))
        else:
            site.should_exit = True
            return


async def _no_app(_scope: object, _receive: object, _send: object) -> None:
    """Stand where uvicorn wants an ASGI app; the fast lane never calls it.

    uvicorn calls it once without arguments, to see whether it is a factory, and takes the TypeError for a no.
    """
    raise AssertionError("the fast lane serves every request")
