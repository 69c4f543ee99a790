"""From an origin to an open connection: name, addresses in turn, TLS; each failure named by its phase."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import ssl

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.transport.connection import Connection, Owner
from lumen_gateway.transport.resolve import Resolver


def tls_context() -> ssl.SSLContext:
    """Verify certificates and names against the system's authorities, TLS 1.2 at least, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.cache
def shared_tls_context() -> ssl.SSLContext:
    """Return the process's one `tls_context`: reading the system's authorities takes a tenth of a second."""
    return tls_context()


class Connector:
    """Opens connections for an owner."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, resolver: Resolver, tls: ssl.SSLContext) -> None:
        self._loop = loop
        self._owner = owner
        self._resolver = resolver
        self._tls = tls

    async def open(self, origin: Origin, until: float) -> Connection:
        """Return a connection ready for its first exchange.

        Raises: Failure: CONNECT_TIMEOUT after the origin's connect timeout, FIRST_TOKEN_TIMEOUT if `until` comes first,
            else UNREACHABLE.
        """
        connect_until = self._loop.time() + origin.connect_timeout_s
        deadline = min(connect_until, until)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._try_addresses(origin, deadline)
        except TimeoutError as exc:
            if until < connect_until:
                message = "the upstream did not start its answer in time: still connecting"
                raise Failure(Kind.FIRST_TOKEN_TIMEOUT, message) from exc
            raise Failure(Kind.CONNECT_TIMEOUT, "could not connect to the upstream in time") from exc

    async def _try_addresses(self, origin: Origin, deadline: float) -> Connection:
        """Try each address once; one that is silent costs no more than its share of the time left."""
        if origin.scheme == "unix":
            return await self._open_unix(origin)
        *others, last = await self._resolver.addresses(origin.host)
        for tried, address in enumerate(others):
            share_s = (deadline - self._loop.time()) / (len(others) + 1 - tried)
            try:
                async with asyncio.timeout(share_s):
                    return await self._try_one(origin, address)
            except OSError:  # refused, without a route, silent (TimeoutError), bad TLS: the next one may do
                continue
        try:
            return await self._try_one(origin, last)
        except OSError as exc:
            raise _failure("upstream", exc) from exc

    async def _open_unix(self, origin: Origin) -> Connection:
        try:
            _, connection = await self._loop.create_unix_connection(
                lambda: Connection(self._loop, self._owner, origin), origin.host
            )
        except OSError as exc:
            raise _failure("socket", exc) from exc
        return connection

    async def _try_one(self, origin: Origin, address: str) -> Connection:
        secure = origin.scheme == "https"
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._loop, self._owner, origin),
            address,
            origin.port,
            ssl=self._tls if secure else None,
            server_hostname=origin.host if secure else None,
        )
        return connection


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def _failure(target: str, exc: OSError) -> Failure:
    """Name what kept us from connecting; what this process or machine ran out of is no fault of the upstream."""
    kind = Kind.INTERNAL if exc.errno in _OURS else Kind.UNREACHABLE
    return Failure(kind, f"could not connect to the {target}: {_reason(exc)}")


def _reason(exc: OSError) -> str:
    match exc:
        case ssl.SSLCertVerificationError():
            return f"its TLS certificate was refused ({exc.verify_message.rstrip('.')})"
        case ssl.SSLError():
            return "the TLS handshake failed"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | ConnectionAbortedError():
            return "the connection was reset"
        case _:
            return os.strerror(exc.errno).lower() if exc.errno else "network error"
