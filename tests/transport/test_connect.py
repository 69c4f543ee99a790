"""Opening a connection: each address in turn, TLS checked, every failure named by its phase and within its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.transport.peers import PATIENCE_S, resolving, server_tls, trusting

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Origin
from lumen_gateway.simulator import Upstream, completion
from lumen_gateway.transport.connect import Connector, tls_context
from lumen_gateway.transport.pool import Pool
from lumen_gateway.transport.resolve import Resolver

only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="all of 127/8 is local, and a full queue swallows connections, on Linux only"
)


def has_ipv6() -> bool:
    """Tell whether this machine has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class Opener:
    """A connector with its pool."""

    def __init__(self, resolver: Resolver | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = Pool(self.loop)
        self.connector = Connector(self.loop, self.pool, resolver or Resolver(), tls or trusting("localhost"))

    async def open(self, origin: Origin, within_s: float = PATIENCE_S) -> None:
        await self.connector.open(origin, self.loop.time() + within_s)

    async def failure(self, origin: Origin, within_s: float = PATIENCE_S) -> Failure:
        """Return the failure, having checked that no socket is left."""
        with pytest.raises(Failure) as caught:
            await self.open(origin, within_s)
        async with asyncio.timeout(PATIENCE_S):
            await self.pool.aclose()
        return caught.value


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with Upstream(completion("hi")) as upstream:
        yield upstream


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port that takes no more connections: its queue is full and nobody accepts."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port
        for filler in fillers:
            filler.close()


async def test_refused_connection_is_unreachable(closed_port: int) -> None:
    failure = await Opener().failure(Origin("http", "127.0.0.1", closed_port))
    assert failure.kind is Kind.UNREACHABLE
    assert failure.message == "could not connect to the upstream: connection refused"


async def test_running_out_of_descriptors_is_our_own_fault(up: Upstream) -> None:
    opener, held = Opener(), []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 256), limits[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        failure = await opener.failure(Origin("http", "127.0.0.1", up.port))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)
    assert failure.kind is Kind.INTERNAL
    assert failure.message == "could not connect to the upstream: too many open files"


async def test_name_without_an_address_is_unreachable() -> None:
    failure = await Opener(resolving()).failure(Origin("http", "a.test", 80))
    assert failure.kind is Kind.UNREACHABLE
    assert "host name" in failure.message


@only_linux
async def test_silence_ends_at_the_connect_timeout(black_hole: int) -> None:
    opener = Opener()
    began = opener.loop.time()
    failure = await opener.failure(Origin("http", "127.0.0.1", black_hole, connect_timeout_s=0.05))
    assert failure.kind is Kind.CONNECT_TIMEOUT
    assert 0.04 <= opener.loop.time() - began < PATIENCE_S


@only_linux
async def test_deadline_of_the_answer_decides_when_it_is_earlier(black_hole: int) -> None:
    failure = await Opener().failure(Origin("http", "127.0.0.1", black_hole, connect_timeout_s=PATIENCE_S), 0.05)
    assert failure.kind is Kind.FIRST_TOKEN_TIMEOUT


async def test_name_that_does_not_resolve_in_time_ends_at_the_connect_timeout() -> None:
    async def lookup(host: str) -> tuple[str, ...]:
        await asyncio.sleep(PATIENCE_S)
        return ()

    resolver = Resolver(lookup=lookup, timeout_s=PATIENCE_S)
    failure = await Opener(resolver).failure(Origin("http", "a.test", 80, connect_timeout_s=0.02))
    await resolver.aclose()
    assert failure.kind is Kind.CONNECT_TIMEOUT


@only_linux
async def test_addresses_are_tried_in_order_past_the_dead_ones(up: Upstream) -> None:
    dead = tuple(f"127.0.0.{number}" for number in range(2, 12))
    opener = Opener(resolving(*dead, "127.0.0.1"))
    await opener.open(Origin("http", "a.test", up.port))
    assert up.connections == 1
    await opener.pool.aclose()


@only_linux
async def test_silent_address_costs_only_its_share(black_hole: int) -> None:
    """The same port answers on one loopback address and swallows on another."""
    async with Upstream(completion("hi"), host="127.0.0.2", port=black_hole) as upstream:
        opener = Opener(resolving("127.0.0.1", "127.0.0.2"))
        await opener.open(Origin("http", "a.test", black_hole, connect_timeout_s=1.0))
        assert upstream.connections == 1
        await opener.pool.aclose()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
async def test_ipv6_literal_needs_no_resolver() -> None:
    async with Upstream(completion("hi"), host="::1") as upstream:
        opener = Opener(resolving())
        await opener.open(Origin("http", "::1", upstream.port))
        assert upstream.connections == 1
        await opener.pool.aclose()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_trusted_certificate_of_the_right_name_is_taken(host: str) -> None:
    async with Upstream(completion("hi"), tls=server_tls("localhost")) as upstream:
        opener = Opener(resolving("127.0.0.1"), trusting("localhost"))
        await opener.open(Origin("https", host, upstream.port))
        await opener.pool.aclose()


@pytest.mark.parametrize(
    ("certificate", "trusted", "host", "said"),
    [
        ("localhost", None, "localhost", "self-signed certificate"),
        ("localhost", "localhost", "other.test", "certificate is not valid for 'other.test'"),
        ("expired", "expired", "localhost", "certificate has expired"),
    ],
)
async def test_bad_certificate_is_refused_before_any_byte_is_sent(
    certificate: str, trusted: str | None, host: str, said: str
) -> None:
    async with Upstream(completion("hi"), tls=server_tls(certificate)) as upstream:
        tls = trusting(trusted) if trusted else tls_context()
        failure = await Opener(resolving("127.0.0.1"), tls).failure(Origin("https", host, upstream.port))
        assert failure.kind is Kind.UNREACHABLE
        assert "its TLS certificate was refused" in failure.message
        assert said in failure.message
        assert upstream.calls == []


async def test_peer_without_tls_is_unreachable(up: Upstream) -> None:
    failure = await Opener().failure(Origin("https", "127.0.0.1", up.port))
    assert failure.kind is Kind.UNREACHABLE
    assert "the TLS handshake failed" in failure.message or "reset" in failure.message  # the peer may hang up first


async def test_stalled_handshake_ends_at_the_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel connects, nobody speaks
        origin = Origin("https", "127.0.0.1", listener.getsockname()[1], connect_timeout_s=0.05)
        failure = await Opener().failure(origin)
    assert failure.kind is Kind.CONNECT_TIMEOUT


def test_defaults_verify_and_refuse_old_protocols() -> None:
    context = tls_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
