"""What one small unstreamed chat costs in the gateway, layer by layer, without sockets.

The connections on both sides are stand-ins that take and give bytes at once, so what is left is our own work: parsing
the request, writing the upstream's, reading its answer, and the whole way through the gateway (`forward`): all of
these, the decision, the executor, the answer's headers and the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import timeit
import tomllib
from collections.abc import Callable
from decimal import Decimal
from typing import cast

import msgspec

from lumen_gateway import app, control, respond
from lumen_gateway.call import Call
from lumen_gateway.config.schema import Config
from lumen_gateway.dialects.chat import parse_request, upstream_body
from lumen_gateway.dialects.chat_answer import read_answer
from lumen_gateway.gateway import Gateway

DOCUMENT = """
[[providers]]
name = "p"
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
[[providers.models]]
id = "p/m"
capabilities = ["chat"]
cost_per_1m_input = 0.15
cost_per_1m_output = 0.6
[[providers.models]]
id = "p/spare"
capabilities = ["chat"]
[[virtual_models]]
id = "smart"
capability = "chat"
strategy = "fallback"
targets = [{ model = "p/m" }, { model = "p/spare" }]
"""
BODY = b'{"model": "smart", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0.5}'
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello there!"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}'
)
HEADERS = [
    (b"host", b"localhost:8080"),
    (b"authorization", b"Bearer sk-1"),
    (b"content-type", b"application/json"),
    (b"accept", b"*/*"),
    (b"content-length", b"%d" % len(BODY)),
]
CALLS, ROUNDS = 2_000, 9


class InstantAnswer:
    """A small answer, whole as soon as it is asked for."""

    status = 200
    first_byte_at = 0.0

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def header(self, *_: object) -> None:
        """Have none."""

    async def read_all(self, *_: object) -> bytes:
        """Return the body."""
        return ANSWER

    async def read_chunk(self, *_: object) -> bytes:
        """Be read whole."""
        raise NotImplementedError

    def leave(self, *_: object) -> None:
        """Nothing to leave."""

    def close(self) -> None:
        """Nothing to close."""


class InstantTransport:
    """Answers every call at once."""

    async def send(self, *_: object) -> InstantAnswer:
        """Answer."""
        return InstantAnswer()


class Lane:
    """A client's connection that swallows what is written."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.transport = cast("asyncio.Transport", self)
        self.paused = False

    def write(self, data: bytes) -> None:
        """Take."""

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    async def drain(self) -> None:
        """Have room."""

    def answered(self, call: Call) -> None:
        """Think nothing of it."""


def run() -> dict[str, float]:
    """Return nanoseconds for one call of each layer."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, float]:
    gateway, lane = _gateway(), Lane(asyncio.get_running_loop())
    request = parse_request(BODY)
    leaf = gateway.snapshot.leaves["p/m"]

    def chat() -> None:
        call = Call(lane, "POST", b"/v1/chat/completions", HEADERS)
        call.body = BODY
        call.request_id = respond.request_id(None)
        work = gateway.serve(call)
        assert work is not None
        with contextlib.suppress(StopIteration):
            work.send(None)
        assert call.status == 200

    return {
        "parse_ns": _best(lambda: parse_request(BODY)),
        "upstream_body_ns": _best(lambda: upstream_body(request, leaf.model, leaf.rules, None)),
        "read_answer_ns": _best(lambda: read_answer(ANSWER)),
        "forward_ns": _best(chat),
    }


def _gateway() -> Gateway:
    config = msgspec.convert(tomllib.loads(DOCUMENT, parse_float=Decimal), Config, builtin_types=(Decimal,))
    steps = app.composer("")(control.Load("", config, {}), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            gateway: Gateway = done.value
            gateway.transport = InstantTransport()
            return gateway


def _best(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e9
