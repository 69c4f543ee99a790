"""Names to addresses, off the loop, with a short memory.

An answer is kept for `ttl_s`; once it is older the next connection asks again, and the old answer serves on while
lookups fail. Lookups for one name are shared. The system's resolver runs in a thread and cannot be interrupted, so a
lookup that hangs is left behind with its shared task; whoever waits gives up after `timeout_s`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import msgspec

from lumen_gateway.errors import Failure, Kind

Lookup = Callable[[str], Awaitable[tuple[str, ...]]]

_RETRY_S = 1.0  # a failed lookup is not repeated sooner while an old answer serves


class _Known(msgspec.Struct):
    addresses: tuple[str, ...]
    fresh_until: float


class Resolver:
    """Addresses of a host, in the order to try them."""

    def __init__(self, *, lookup: Lookup | None = None, ttl_s: float = 30.0, timeout_s: float = 2.0) -> None:
        self._lookup = lookup or system_lookup
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def addresses(self, host: str) -> tuple[str, ...]:
        """Return at least one address. An IP literal is its own.

        Raises: Failure(UNREACHABLE) when the name has no address and never had one.
        """
        if is_literal(host):
            return (host,)
        known = self._known.get(host)
        if known is not None and asyncio.get_running_loop().time() < known.fresh_until:
            return known.addresses
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._ask(host))
        except (OSError, UnicodeError) as exc:  # TimeoutError is an OSError; UnicodeError is a name IDNA refuses
            if known is not None:
                known.fresh_until = asyncio.get_running_loop().time() + _RETRY_S
                return known.addresses
            raise Failure(Kind.UNREACHABLE, _reason(exc)) from exc

    async def aclose(self) -> None:
        """Abandon the lookups under way."""
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, host: str) -> asyncio.Task[tuple[str, ...]]:
        task = self._running.get(host)
        if task is None:
            loop = asyncio.get_running_loop()
            task = self._running[host] = loop.create_task(self._remember(host), name="dns lookup")
            task.add_done_callback(lambda done: self._forget(host, done))
        return task

    def _forget(self, host: str, task: asyncio.Task[tuple[str, ...]]) -> None:
        del self._running[host]
        if not task.cancelled():
            task.exception()  # everyone who cared has it; nobody waits for a lookup that outlived its callers

    async def _remember(self, host: str) -> tuple[str, ...]:
        addresses = await self._lookup(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        self._known[host] = _Known(addresses, asyncio.get_running_loop().time() + self._ttl_s)
        return addresses


def is_literal(host: str) -> bool:
    """Tell whether a host is an IPv4 or IPv6 address as it stands (without brackets)."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def system_lookup(host: str) -> tuple[str, ...]:
    """Ask the system, in its order (RFC 6724), each address once."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _reason(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "could not resolve the upstream's host name: the lookup took too long"
    return "could not resolve the upstream's host name: it has no address"
