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
from lumen_gateway.supervise import WorkerState
from lumen_gateway.telemetry.probes import Probes

_UNKNOWN_CALLER = Failure(
    Kind.UNAUTHENTICATED,
    "this route takes the key in LUMEN_MASTER_KEY as a bearer token",
    headers=(("www-authenticate", "Bearer"),),
)


class Access(msgspec.Struct, frozen=True):
    """Who may read the open routes: anyone who gets here, or the holder of the master key. Without one nobody may."""

    public: bool
    master_key: Secret | None = None

    def admits(self, authorization: str) -> bool:
        """Decide on a request's Authorization header, as text in Latin-1. Source: RFC 9110 11.1; RFC 6750 2.1."""
        if self.public:
            return True
        scheme, _, given = authorization.partition(" ")
        if self.master_key is None or scheme.lower() != "bearer":
            return False
        return self.master_key.matches(given.strip().encode("latin-1"))


class Views(Protocol):
    """What the site shows."""

    documents: Documents
    probes: Probes

    async def metrics(self) -> bytes:
        """Return all metrics in Prometheus text."""
        ...

    def workers(self) -> list[WorkerState]:
        """Return how each worker stands."""
        ...


def site(views: Views, access: Access) -> Starlette:
    """Return the keeper's app."""

    async def metrics(_: Request) -> Response:
        return Response(await views.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def config(_: Request) -> Response:
        return _json({**msgspec.structs.asdict(views.documents.condition), "workers": views.workers()})

    async def providers(_: Request) -> Response:
        return _json(views.probes.results())

    def guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def check(request: Request) -> Response:
            if access.admits(request.headers.get("authorization", "")):
                return await endpoint(request)
            return failed(_UNKNOWN_CALLER)

        return check

    app = Starlette(
        routes=[
            Route("/metrics", guarded(metrics)),
            Route("/health/config", guarded(config)),
            Route("/health/providers", guarded(providers)),
        ],
        exception_handlers={HTTPException: _refused, Exception: _crashed},
    )
    app.router.redirect_slashes = False  # it would redirect to whatever the Host header says
    return app


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


async def _crashed(_: Request, exc: Exception) -> Response:  # noqa: ARG001 - Starlette's signature; it logs `exc`
    return failed(Failure(Kind.INTERNAL, "the gateway failed; its log has the details"))


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
