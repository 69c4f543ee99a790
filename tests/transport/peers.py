"""What the transport tests put on the other side: certificates and names."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from lumen_gateway.transport.connect import tls_context
from lumen_gateway.transport.resolve import Resolver

CERTIFICATES = Path(__file__).parent / "tls"
PATIENCE_S = 20.0  # never reached; a fault shows as a failure then, not as a hanging test


def server_tls(certificate: str) -> ssl.SSLContext:
    """Return what a server shows: `localhost`, or `expired`, which is the same but for its dates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    return context


@functools.cache  # reading the system's authorities takes longer than most tests
def trusting(certificate: str) -> ssl.SSLContext:
    """Return the client's own context, with this certificate among its authorities."""
    context = tls_context()
    context.load_verify_locations(CERTIFICATES / f"{certificate}.pem")
    return context


def resolving(*addresses: str) -> Resolver:
    """Return a resolver that gives these for every name."""

    async def lookup(host: str) -> tuple[str, ...]:
        return addresses

    return Resolver(lookup=lookup)
