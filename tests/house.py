"""A whole gateway without sockets: a document, scripted upstreams, clocks turned by hand, and books that are kept."""

from __future__ import annotations

import asyncio
import tomllib
from decimal import Decimal
from typing import Any

import msgspec
from tests.execution.staging import ScriptedAnswer, ScriptedTransport
from tests.lanes import Client

from lumen_gateway import control
from lumen_gateway.app import composer
from lumen_gateway.call import Call
from lumen_gateway.config.schema import Config
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.gateway import Gateway
from lumen_gateway.records import Caller, RequestRecord
from lumen_gateway.routing.compile import compile_plan
from lumen_gateway.simulator import ManualClock
from lumen_gateway.telemetry.metrics import Metrics

PROVIDERS = """
[[providers]]
name = "a"
kind = "openai"
base_url = "http://a.test/v1"
[[providers.models]]
id = "a/m"
capabilities = ["chat"]
modalities = ["text", "image"]
cost_per_1m_input = 1
cost_per_1m_output = 2
[[providers]]
name = "b"
kind = "openai"
base_url = "http://b.test/v1"
[[providers.models]]
id = "b/m"
upstream_id = "m-of-b"
capabilities = ["chat"]
[[providers.models]]
id = "b/unstreamed"
capabilities = ["chat"]
stream = false
[[virtual_models]]
id = "smart"
capability = "chat"
strategy = "fallback"
targets = [{ model = "a/m" }, { model = "b/m" }]
[[virtual_models]]
id = "reverse"
capability = "chat"
strategy = "fallback"
targets = [{ model = "b/m" }, { model = "a/m" }]
[[virtual_models]]
id = "held"
capability = "chat"
strategy = "fallback"
commit = "complete"
targets = [{ model = "a/m" }, { model = "b/m" }]
[[virtual_models]]
id = "polite"
capability = "chat"
strategy = "single"
targets = [{ model = "a/m" }]
preset = { system_prompt = "Be polite." }
[[virtual_models]]
id = "by-team"
capability = "chat"
strategy = "switch"
targets = [{ model = "b/m", when = { "metadata.team" = "red" } }, { model = "a/m" }]
[[virtual_models]]
id = "hidden"
capability = "chat"
strategy = "single"
targets = [{ model = "a/m" }]
listed = false
"""
RESILIENCE = "[resilience]\nretry_max_attempts = 1\n"
JSON = b"content-type: application/json\r\n"
USAGE = '"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}'
ANSWER = (
    '{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},'
    '"finish_reason":"stop"}],' + USAGE + "}"
).encode()
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
COUNT = b'data: {"choices":[],' + USAGE.encode() + b"}\n\n"
DONE = b"data: [DONE]\n\n"
STREAM = (ROLE, WORD, STOP, COUNT, DONE)
EVENTS = ((b"content-type", b"text/event-stream"),)


def answer(*pieces: Any, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(*(pieces or (ANSWER,)), **more)


def stream(*pieces: Any) -> ScriptedAnswer:
    return ScriptedAnswer(*(pieces or STREAM), headers=EVENTS)


class Admission:
    """One reservation: counts how often it was closed, and how."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int] | None] = []  # (cost, tokens) for settle, None for release

    def top_up(self, leaf: str) -> bool:
        return True

    def settle(self, cost_pico: int, tokens: int) -> None:
        self.ends.append((cost_pico, tokens))

    def release(self) -> None:
        self.ends.append(None)


class Books:
    """A ledger that remembers its admissions."""

    def __init__(self) -> None:
        self.admissions: list[Admission] = []
        self.refusal: Failure | None = None

    def admit(self, caller: Caller, leaf: str) -> Admission:
        if self.refusal is not None:
            raise self.refusal
        self.admissions.append(Admission())
        return self.admissions[-1]

    @property
    def ends(self) -> list[list[tuple[int, int] | None]]:
        return [admission.ends for admission in self.admissions]


class Counts(Metrics):
    """Metrics that also keep what they were told."""

    def __init__(self) -> None:
        super().__init__(lambda: ())
        self.records: list[RequestRecord] = []
        self.answers: list[tuple[str, str, int]] = []
        self.rejected = 0

    def record(self, request: RequestRecord) -> None:
        super().record(request)
        self.records.append(request)

    def answered(self, method: str, template: str, status: int, seconds: float) -> None:
        super().answered(method, template, status, seconds)
        self.answers.append((method, template, status))

    def metadata_rejected(self) -> None:
        super().metadata_rejected()
        self.rejected += 1


class House:
    """A gateway over a script: what the upstreams `a` and `b` answer, in order."""

    def __init__(self, server: str = "", **script: Any) -> None:
        self.clock = ManualClock()
        self.gateway = compose(f"[server]\n{server}\n{RESILIENCE}{PROVIDERS}")
        self.transport = ScriptedTransport(self.clock, {host: _listed(replies) for host, replies in script.items()})
        self.books = Books()
        self.counts = Counts()
        self.gateway.transport = self.transport
        self.gateway.ledger = self.books
        self.gateway.telemetry = self.counts
        self.gateway.clock = self.gateway.executor.clock = self.clock
        self.gateway.executor.rand = self.gateway.draw = lambda: 0.5
        self.gateway.elsewhere = elsewhere
        self.body_limit = self.gateway.snapshot.server.body_limit

    def connect(self, **more: Any) -> Client:
        return Client(self.gateway, body_limit=self.body_limit, **more)

    async def post(self, body: bytes, headers: bytes = JSON, client: Client | None = None) -> Client:
        """Send a chat request and let everything happen that needs no waiting."""
        client = client or self.connect()
        client.send(chat(body, headers))
        await self.clock.advance(0)
        return client

    async def ask(self, model: str, client: Client | None = None, headers: bytes = JSON, **fields: Any) -> Client:
        return await self.post(question(model, **fields), headers, client)

    @property
    def record(self) -> RequestRecord:
        """The one record there is."""
        [record] = self.counts.records
        return record


def compose(text: str) -> Gateway:
    config = msgspec.convert(tomllib.loads(text, parse_float=Decimal), Config, builtin_types=(Decimal,))
    assert not (faults := compile_plan(config).faults), faults
    steps = composer("/nowhere")(control.Load("0" * 64, config, {}), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            gateway: Gateway = done.value
            return gateway


async def elsewhere(call: Call) -> None:
    """Stand for the keeper's site."""
    await asyncio.sleep(0)
    call.send(200, b"", b"from the keeper")


def question(model: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "hi"}]} | fields)


def chat(body: bytes, headers: bytes = JSON) -> bytes:
    line = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n"
    return line + headers + b"content-length: %d\r\n\r\n" % len(body) + body


def headers_of(head: bytes) -> dict[str, str]:
    lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
    return {name: value for name, _, value in lines}


def _listed(replies: ScriptedAnswer | Kind | list[ScriptedAnswer | Kind]) -> list[ScriptedAnswer | Kind]:
    return replies if isinstance(replies, list) else [replies]
