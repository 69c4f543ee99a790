"""The play of `lumen demo`: requests, what the providers do to them, and what is to become of each.

A scene is one request. Its script makes the providers fail, and is what the outcome is compared with. The outcome is
what anyone could see from outside: the answer with its headers, and the calls that reached the providers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lumen_gateway.accounting.prices import cost, prices_of
from lumen_gateway.config.load import read_document
from lumen_gateway.config.schema import Price
from lumen_gateway.records import Origin, Usage
from lumen_gateway.simulator.reply import STREAM_HEADERS, Call, Reply, auto, error, stream
from lumen_gateway.simulator.upstream import Upstream
from lumen_gateway.transport.answer import Answer
from lumen_gateway.transport.client import Client

HOST = "127.0.0.1"
ANSWER_S = 20.0
ANSWER_BYTES = 1 << 20

OK = "ok"
FAULTS: dict[str, Reply] = {
    "500": error(500),
    "429": error(429, "rate_limit_exceeded", retry_after=60),
    "too long": error(400, "context_length_exceeded"),
    "silence": Reply(stop="hang", stop_after_bytes=0),
    "SSE error": Reply(headers=STREAM_HEADERS, frames=(b'data: {"error": {"message": "overloaded"}}\n\n',)),
    "cut": stream([], done=False, stop="end"),  # before its first word
}
"""What a provider can do instead of answering."""

ANSWERS = {
    "big": auto("Here is what I found, with every detail.", usage=Usage(9, 24, origin="reported")),
    "mini": auto("In short: yes.", usage=Usage(9, 8, origin="reported")),
}

Attempts = tuple[tuple[str, ...], ...]
"""Leaves in the order they were tried, each with the outcomes of its calls. One without calls was left alone."""


class Seen(NamedTuple):
    """What became of a request."""

    route: str | None
    attempts: Attempts
    served_by: str  # a leaf; or status and code of an error


class Scene(NamedTuple):
    """A request and its script."""

    model: str
    attempts: Attempts
    note: str = ""  # what sets the request apart
    body: Mapping[str, Any] = {}
    headers: tuple[str, ...] = ()
    via: str = ""  # virtual models between the requested one and the leaf
    error: str | None = None  # status and code of the answer, where it is to be one

    @property
    def expected(self) -> Seen:
        """Return what is to become of it."""
        if self.error is not None:
            return Seen(None, self.attempts, self.error)
        leaf = self.attempts[-1][0]
        return Seen(f"{self.model}>{self.via}{leaf}", self.attempts, leaf)


STREAM = {"stream": True, "stream_options": {"include_usage": True}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "search", "parameters": {}}}]}
FREE = ('x-lumen-metadata: {"plan": "free"}',)
NORTH, SOUTH = ("north/big", OK), ("south/big", OK)

SCENES = (
    Scene("haiku", (("north/mini", OK),)),
    Scene("smart", (NORTH,)),
    Scene("smart", (("north/big", "500", OK),)),
    Scene("smart", (("north/big", "500", "500"), SOUTH)),
    Scene("smart", (("north/big", "too long"), SOUTH)),
    Scene("smart", (NORTH,), "stream", STREAM),
    Scene("smart", (("north/big", "silence"), SOUTH), "stream", STREAM),
    Scene("smart", (("north/big", "SSE error", "SSE error"), SOUTH), "stream", STREAM),
    Scene("smart", (("north/big", "cut", "cut"), SOUTH), "stream", STREAM),
    Scene("chat", (NORTH,), "tools", TOOLS, via="smart>"),
    Scene("chat", (("south/mini", OK),), "free", headers=FREE),
    Scene("chat", (("north/mini", OK),)),
    Scene("smart", (("north/big", "500", "500"), ("south/big", "500", "500")), error="502 LM-3003"),
    Scene("smart", (("north/big", "429"), SOUTH)),  # it asks for a minute's rest, ...
    Scene("smart", (("north/big",), SOUTH)),  # ... and gets it
)
SPLIT = "fast"
SPLIT_LEAVES = ("north/mini", "south/mini")  # three to one
SPLIT_REQUESTS = 60  # all of them on one side: once in thirty million demos


class Row(NamedTuple):
    """What the table shows of one request, or of many that were the same."""

    request: str
    seen: Seen
    good: bool  # everything went as scripted
    usage: Usage | None
    cost_pico: int | None
    seconds: float


Notes = list[tuple[str, str]]
"""Leaf and outcome of every call, in the order they came in."""


class Provider(Upstream):
    """A simulated provider: answers well, save where outcomes are queued for a leaf."""

    def __init__(self, name: str, notes: Notes) -> None:
        super().__init__(self._reply)
        self.name = name
        self.queued: dict[str, list[str]] = {}
        self._notes = notes

    def _reply(self, call: Call) -> Reply:
        model = str(call.field("model"))
        leaf = f"{self.name}/{model}"
        queue = self.queued.get(leaf)
        outcome = queue.pop(0) if queue else OK
        self._notes.append((leaf, outcome))
        return ANSWERS[model](call) if outcome == OK else FAULTS[outcome]


class Stage:
    """Plays scenes against a gateway on loopback. The providers write to `notes`."""

    def __init__(self, providers: Sequence[Provider], notes: Notes, document: Path, port: int) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._notes = notes
        config = read_document(document, {}).config
        assert config is not None, "the gateway has just read it"
        self._models = {model.id: model for _, model in config.models()}
        self._origin = Origin("http", HOST, port)
        self._client = Client()

    async def close(self) -> None:
        """Close the connections to the gateway."""
        await self._client.aclose()

    async def play_all(self) -> list[Row]:
        """Play every scene in order, and the split among them."""
        rows = [await self.play(scene) for scene in SCENES]
        rows.insert(1, await self.play_split())
        return rows

    async def play(self, scene: Scene) -> Row:
        """Send the scene's request while the providers follow its script."""
        for leaf, *outcomes in scene.attempts:
            self._providers[leaf.partition("/")[0]].queued[leaf] = outcomes
        loop = asyncio.get_running_loop()
        already, started_s = len(self._notes), loop.time()
        answer, body = await self._ask(scene)
        seconds = loop.time() - started_s
        attempts = _attempts(self._notes[already:], _header(answer, b"x-lumen-fallback-from"))
        served_by = _header(answer, b"x-lumen-model-used")
        seen = Seen(_header(answer, b"x-lumen-route"), attempts, served_by or f"{answer.status} {_code(body)}")
        usage = None if served_by is None else _usage(body)
        title = f"{scene.model} {scene.note}".rstrip()
        return Row(title, seen, seen == scene.expected, usage, self._cost(served_by, usage), seconds)

    async def play_split(self) -> Row:
        """Send one request many times, and make one row of it: each has to have gone where its answer says."""
        either = Scene(SPLIT, ((SPLIT_LEAVES[0], OK),))
        rows = [await self.play(either) for _ in range(SPLIT_REQUESTS)]
        counts = Counter(row.seen.served_by for row in rows)
        good = set(counts) == set(SPLIT_LEAVES) and all(
            row.seen == Scene(SPLIT, ((row.seen.served_by, OK),)).expected for row in rows
        )
        usages = [row.usage for row in rows if row.usage is not None]
        return Row(
            f"{SPLIT} \N{MULTIPLICATION SIGN}{SPLIT_REQUESTS}",
            Seen(f"{SPLIT}>...", tuple((leaf, *[OK] * counts[leaf]) for leaf in SPLIT_LEAVES), "both"),
            good,
            Usage(sum(usage.input for usage in usages), sum(usage.output for usage in usages), origin="reported"),
            sum(row.cost_pico or 0 for row in rows),
            sum(row.seconds for row in rows),
        )

    async def _ask(self, scene: Scene) -> tuple[Answer, bytes]:
        messages = [{"role": "user", "content": "What is known about the moon?"}]
        body = msgspec.json.encode({"model": scene.model, "messages": messages, **scene.body})
        lines = (
            "POST /v1/chat/completions HTTP/1.1",
            f"host: {HOST}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *scene.headers,
            "",
            "",
        )
        until = asyncio.get_running_loop().time() + ANSWER_S
        answer = await self._client.send(self._origin, "\r\n".join(lines).encode() + body, until)
        return answer, await answer.read_all(ANSWER_BYTES, until)

    def _cost(self, leaf: str | None, usage: Usage | None) -> int | None:
        """Price the answer as the document does. Units: pico-dollars."""
        if leaf is None or usage is None:
            return None
        model = self._models[leaf]
        prices = prices_of(_usd(model.cost_per_1m_input), _usd(model.cost_per_1m_output))
        return None if prices is None else cost(usage, prices)


def _usd(price: Price | None) -> Decimal | None:
    return None if price is None else Decimal(price)


def _header(answer: Answer, name: bytes) -> str | None:
    value = answer.header(name)
    return None if value is None else value.decode()


def _attempts(notes: Notes, first: str | None) -> Attempts:
    """Group calls by leaf. `first` is the leaf the gateway says it began with: without calls it was left alone."""
    grouped: list[tuple[str, ...]] = [
        (leaf, *(outcome for _, outcome in calls)) for leaf, calls in itertools.groupby(notes, key=lambda note: note[0])
    ]
    if first is not None and (not grouped or grouped[0][0] != first):
        return ((first,), *grouped)
    return tuple(grouped)


def _code(body: bytes) -> str:
    return str(msgspec.json.decode(body)["error"]["code"])


def _usage(body: bytes) -> Usage | None:
    """Return what an answer says it used; a stream says it in one of its last events."""
    events = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
    for document in reversed(events or [body]):
        told = msgspec.json.decode(document).get("usage")
        if told is not None:
            return Usage(told["prompt_tokens"], told["completion_tokens"], origin="reported")
    return None
