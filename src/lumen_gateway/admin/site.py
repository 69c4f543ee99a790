"""The keeper's own site: everything that is not the data plane, reached through the workers' relay.

Routes are closed unless listed as open, decided on the matched route. `/metrics`, `/health/providers` and
`/health/config` are open where only this machine can reach them, or when the operator says so, else they take the
master key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lumen_gateway import respond
from lumen_gateway.documents import Documents
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.redact import Secret
from lumen_gateway.telemetry.probes import Probes


class Access(msgspec.Struct, frozen=True):
    """Who may read the open routes: anyone who gets here, or the holder of the master key."""

    public: bool
    master_key: Secret | None = None

    def admits(self, authorization: str) -> bool:
        """Decide on a request's Authorization header."""
        if self.public:
            return True
        scheme, _, given = authorization.partition(" ")
        return self.master_key is not None and scheme == "Bearer" and self.master_key.matches(given.strip().encode())


class Views(Protocol):
    """What the site shows."""

    documents: Documents
    probes: Probes

    async def metrics(self) -> bytes:
        """Return all metrics in Prometheus text."""
        ...


def site(views: Views, access: Access) -> Starlette:
    """Return the keeper's app."""

    async def metrics(_: Request) -> Response:
        return Response(await views.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def config(_: Request) -> Response:
        return _json(views.documents.condition)

    async def providers(_: Request) -> Response:
        return _json(views.probes.results())

    def guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def check(request: Request) -> Response:
            if access.admits(request.headers.get("authorization", "")):
                return await endpoint(request)
            return failed(Failure(Kind.UNAUTHENTICATED, "this route takes the master key as a bearer token"))

        return check

    return Starlette(
        routes=[
            Route("/metrics", guarded(metrics)),
            Route("/health/config", guarded(config)),
            Route("/health/providers", guarded(providers)),
        ],
        exception_handlers={HTTPException: _refused},
    )


def is_loopback(host: str) -> bool:
    """Whether a bind address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def failed(failure: Failure) -> Response:
    """Return an error answer in our envelope."""
    status, headers, body = respond.failure_answer(failure)
    lines = (line.partition(b": ") for line in headers.split(b"\r\n") if line)
    return Response(body, status, {name.decode(): value.decode() for name, _, value in lines})


async def _refused(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if exc.status_code == 405:
        allow = (exc.headers or {}).get("Allow", "")
        return failed(Failure(Kind.WRONG_METHOD, f"this route takes {allow} only", headers=(("allow", allow),)))
    return failed(Failure(Kind.NO_SUCH_ROUTE, "there is no such route; chat is at POST /v1/chat/completions"))


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
