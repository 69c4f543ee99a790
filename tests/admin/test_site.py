"""The keeper's own site: who may read it, and what it answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from lumen_gateway.admin.site import Access, is_loopback, site
from lumen_gateway.documents import Condition
from lumen_gateway.redact import Secret
from lumen_gateway.supervise import WorkerState

KEY = "0123456789abcdef" * 4
GUARDED = Access(public=False, master_key=Secret(KEY))
OPEN = Access(public=True)
PATHS = ("/metrics", "/health/config", "/health/providers")


class Views:
    """A keeper that has something to show."""

    documents = SimpleNamespace(condition=Condition("ok", "h1", 1.0, ["server.port"]))
    probes = SimpleNamespace(results=lambda: {"p": {"status": "unknown"}})

    async def metrics(self) -> bytes:
        return b"lumen_fallbacks_total 1\n"

    def workers(self) -> list[WorkerState]:
        return [WorkerState(1, 42, "h1")]


ANYTHING: Any = Views()


class Broken(Views):
    """A keeper with a bug."""

    async def metrics(self) -> bytes:
        raise RuntimeError("oops")


class Answer:
    """What came back."""

    def __init__(self, messages: list[Message]) -> None:
        start, *pieces = messages
        self.status: int = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(piece["body"] for piece in pieces)

    @property
    def code(self) -> str:
        code: str = json.loads(self.body)["error"]["code"]
        return code


async def ask(
    path: str, access: Access = OPEN, *, method: str = "GET", views: Any = None, authorization: bytes | None = None
) -> Answer:
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        messages.append(message)

    headers = [(b"host", b"elsewhere.example")]
    if authorization is not None:
        headers.append((b"authorization", authorization))
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers, "server": None}
    app = site(views or ANYTHING, access)
    if isinstance(views, Broken):
        with pytest.raises(RuntimeError, match="oops"):  # Starlette passes it on, so that the server logs it
            await app(scope, receive, send)
    else:
        await app(scope, receive, send)
    return Answer(messages)


async def test_metrics_are_prometheus_text() -> None:
    answer = await ask("/metrics")
    assert (answer.status, answer.body) == (200, b"lumen_fallbacks_total 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_document_is_shown_with_who_serves_it() -> None:
    assert json.loads((await ask("/health/config")).body) == {
        "status": "ok",
        "hash": "h1",
        "applied_at": 1.0,
        "restart_needed": ["server.port"],
        "faults": [],
        "workers": [{"number": 1, "pid": 42, "hash": "h1"}],
    }


async def test_providers_are_shown() -> None:
    assert json.loads((await ask("/health/providers")).body) == {"p": {"status": "unknown"}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer " + KEY[:-1].encode(),
        b"Bearer " + KEY.encode() + b"0",
        b"Basic " + KEY.encode(),
        KEY.encode(),
        "Bearer schl\xfcssel".encode("latin-1"),
        b"Bearer \xff\xfe",
    ],
)
async def test_without_the_master_key_guarded_routes_stay_closed(path: str, authorization: bytes | None) -> None:
    answer = await ask(path, GUARDED, authorization=authorization)
    assert (answer.status, answer.code) == (401, "LM-4004")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER  "])
async def test_master_key_opens_guarded_routes(path: str, scheme: bytes) -> None:
    assert (await ask(path, GUARDED, authorization=scheme + KEY.encode())).status == 200


async def test_where_no_master_key_is_set_nobody_gets_in() -> None:
    closed = Access(public=False)
    for authorization in (None, b"Bearer ", b"Bearer None", b"Bearer " + KEY.encode()):
        assert (await ask("/metrics", closed, authorization=authorization)).status == 401


@pytest.mark.parametrize("path", ["/", "/admin/keys", "/metrics/", "//metrics", "/METRICS", "/openapi.json"])
async def test_other_paths_are_unknown_to_everybody_alike(path: str) -> None:
    for access in (OPEN, GUARDED):
        answer = await ask(path, access)
        assert (answer.status, answer.code) == (404, "LM-1003")
        assert "location" not in answer.headers


async def test_wrong_method_is_told_the_right_ones() -> None:
    answer = await ask("/metrics", method="POST")
    assert (answer.status, answer.code) == (405, "LM-1003")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_bug_is_told_without_its_details() -> None:
    answer = await ask("/metrics", views=Broken())
    assert (answer.status, answer.code) == (500, "LM-5001")
    assert b"oops" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_alone_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"])
def test_what_others_can_reach_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)
