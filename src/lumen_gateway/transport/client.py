"""The upstream client: one request out, one answer back.

Everything the gateway sends to an upstream goes through `Client.send`; the caller renders the whole request (head and
body) and owns the answer until it is read or closed. Retries, credentials and meaning are the caller's. The one
repetition made here: a kept connection that turns out closed before any byte of an answer is replaced by a fresh one,
once.
Redirects are never followed: they would carry credentials to a place nobody configured.
"""

from __future__ import annotations

import asyncio
import ssl

from lumen_gateway.records import Origin
from lumen_gateway.transport.answer import Answer
from lumen_gateway.transport.connect import Connector, shared_tls_context
from lumen_gateway.transport.connection import Dropped
from lumen_gateway.transport.pool import Pool
from lumen_gateway.transport.resolve import Resolver


class Client:
    """Sends requests from the running loop; one per process."""

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        max_idle: int = 128,
        max_idle_s: float = 30.0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._resolver = resolver if resolver is not None else Resolver()
        self.pool = Pool(loop, max_idle=max_idle, max_idle_s=max_idle_s)
        self._connector = Connector(loop, self.pool, self._resolver, tls if tls is not None else shared_tls_context())

    async def send(self, origin: Origin, payload: bytes, until: float) -> Answer:
        """Send a whole request and return its answer as soon as the head is in, whatever the status.

        Units:  `until` is a point on the loop's clock, for the answer's head; connecting has its own timeout beside it.
        Raises: Failure: UNREACHABLE, CONNECT_TIMEOUT, FIRST_TOKEN_TIMEOUT, MALFORMED. A cancelled call closes its
            socket.
        """
        connection = self.pool.take(origin)
        if connection is not None:
            try:
                return await connection.exchange(payload, until)
            except Dropped:  # closed while it lay idle, so the request was not taken up
                pass
        connection = await self._connector.open(origin, until)
        return await connection.exchange(payload, until)

    def close(self) -> None:
        """Close every connection now."""
        self.pool.close()

    async def aclose(self) -> None:
        """Close, and return when every socket and lookup has ended."""
        await self.pool.aclose()
        await self._resolver.aclose()
