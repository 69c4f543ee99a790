"""A worker process: serves the data plane from sockets and documents its keeper gives it.

It reads no file but the listener's certificate and key, holds no master key and imports no database or web framework.
Signals that a terminal sends to the whole group are the keeper's business; a worker drains when told to, or when its
keeper is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import signal
import socket
from collections.abc import Callable, Generator, Iterator

from uvicorn.config import Config as ServerConfig

from lumen_gateway import control
from lumen_gateway.fastlane import FastLane, LaneSettings
from lumen_gateway.gateway import Gateway
from lumen_gateway.serving import DRAIN_S, Site
from lumen_gateway.telemetry import log

SLICE_S = 0.002  # of composing, before requests have their turn again
NEVER = 1_000_000  # collections of the middle generation before a full one
KEEP_ALIVE_S = 75  # nginx's own; above the idle timers of usual load balancers

Compose = Callable[[control.Load, Gateway | None], Generator[None, None, Gateway]]
"""Make a gateway of a document, or swap the document into the one that runs; in slices, to serve in between."""


async def work(listener: socket.socket, channel: socket.socket, compose: Compose) -> None:
    """Serve until told to drain."""
    reader, writer = await asyncio.open_connection(sock=channel)
    try:
        first = await control.receive(reader)
        if isinstance(first, control.Load):
            await _serve(listener, reader, writer, first, compose)
    finally:
        writer.close()


async def _serve(
    listener: socket.socket,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    first: control.Load,
    compose: Compose,
) -> None:
    with _long_lived():
        gateway = _whole(compose(first, None))
    site = _site(gateway, first)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, site.stop, DRAIN_S)
    orders = Orders(reader, writer, gateway, site, compose)
    async with asyncio.TaskGroup() as tasks:
        following = [
            tasks.create_task(orders.follow(), name="orders"),
            tasks.create_task(orders.keep_up(), name="newest document"),
        ]
        await control.send(writer, control.Loaded(first.hash))
        await site.serve(sockets=[listener])
        for task in following:
            task.cancel()
    with contextlib.suppress(ConnectionError, TimeoutError):
        await control.send(writer, control.Counted(0, gateway.telemetry.state()))
    if gateway.tracer is not None:
        gateway.tracer.close()


class Orders:
    """The worker's end of the channel: what the keeper wants, done beside the requests.

    A document that arrives while another is being composed takes its place; questions are answered in between.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gateway: Gateway,
        site: Site,
        compose: Compose,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._gateway = gateway
        self._site = site
        self._compose = compose
        self._newest: control.Load | None = None  # to be composed
        self._news = asyncio.Event()

    async def follow(self) -> None:
        """Obey until the keeper is gone, which is its last order: drain."""
        try:
            while (message := await control.receive(self._reader)) is not None:
                match message:
                    case control.Load():
                        self._newest = message
                        self._news.set()
                    case control.Report():
                        counted = control.Counted(message.number, self._gateway.telemetry.state())
                        await control.send(self._writer, counted)
                    case control.Drain():
                        self._site.stop(message.within_s)
                    case _:
                        raise ValueError("an order that is none")
        except (ConnectionError, TimeoutError, ValueError) as exc:
            log.event(log.ERROR, "worker.alone", f"lost the keeper: {exc or type(exc).__name__}; draining")
        self._site.stop(DRAIN_S)

    async def keep_up(self) -> None:
        """Swap in the newest document, again and again. One that cannot be composed leaves the old one serving."""
        while True:
            await self._news.wait()
            load, self._newest = self._newest, None
            self._news.clear()
            assert load is not None
            try:
                if await self._swap(load):
                    await control.send(self._writer, control.Loaded(load.hash))
            except (ConnectionError, TimeoutError):
                return  # `follow` sees the same
            except Exception:  # noqa: BLE001 - a bug in composing must not end a worker that serves
                log.broken("worker.compose", "the document could not be composed; the last good one keeps serving")

    async def _swap(self, load: control.Load) -> bool:
        """Compose a document into the running gateway; False if a newer one came in the meantime."""
        clock = asyncio.get_running_loop().time
        with _long_lived():
            pause_at_s = clock() + SLICE_S
            for _ in self._compose(load, self._gateway):
                if clock() >= pause_at_s:
                    await asyncio.sleep(0)
                    if self._news.is_set():
                        return False
                    pause_at_s = clock() + SLICE_S
        return True


def _site(gateway: Gateway, load: control.Load) -> Site:
    server = load.config.server
    settings = LaneSettings(gateway, server.body_limit)
    config = ServerConfig(
        _no_app,
        http=functools.partial(FastLane, settings=settings),  # type: ignore[arg-type]  # called as a factory
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=server.tls_cert_file,
        ssl_keyfile=server.tls_key_file,
    )
    return Site(config, gateway.cut)


def _whole(steps: Generator[None, None, Gateway]) -> Gateway:
    """Compose in one go, while there is nobody to serve yet."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            gateway: Gateway = done.value
            return gateway


@contextlib.contextmanager
def _long_lived() -> Iterator[None]:
    """Keep the collector off what a document becomes: it lives until the next one and has no cycles.

    Of a document with 10,000 virtual models a full collection takes 0.3 s, in which no request is served.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(young, middle, old)


async def _no_app(scope: object, receive: object, send: object) -> None:  # noqa: ARG001 - uvicorn counts them
    """Stand where uvicorn wants an ASGI app; the fast lane never calls it."""
    raise AssertionError("the fast lane serves every request")
