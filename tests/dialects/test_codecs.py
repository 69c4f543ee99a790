"""The table of wires, and where overrides take effect in a translation."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from lumen_gateway.dialects.chat import OPEN
from lumen_gateway.dialects.codecs import WIRES
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.dialects.wire import CHAT, MESSAGES, RESPONSES, ClientRequest
from lumen_gateway.errors import Failure
from lumen_gateway.records import Usage

DIALECTS = {"chat": CHAT, "messages": MESSAGES}
BODY = b'{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}'
MODEL = msgspec.Raw(b'"theirs"')
SILENT = {
    "chat": b'{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}',
    "messages": b'{"type":"message","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn"}',
}


def warm(fields: Fields) -> None:
    fields["temperature"] = msgspec.Raw(b"0.5")
    fields.pop("stop", None)


def test_every_dialect_is_joined_to_every_other() -> None:
    clients = [*DIALECTS, "responses"]
    assert set(WIRES) == set(itertools.product(clients, [*clients, "gemini"]))


@pytest.mark.parametrize(("client", "upstream"), list(itertools.product(DIALECTS, DIALECTS)))
def test_overrides_reach_the_upstream_on_every_wire(client: str, upstream: str) -> None:
    body = BODY.replace(b"{", b'{"stop":["x"],' if client == "chat" else b'{"stop_sequences":["x"],', 1)
    sent = json.loads(WIRES[client, upstream].body(DIALECTS[client].parse(body), MODEL, OPEN, warm))
    assert (sent["model"], sent["temperature"]) == ("theirs", 0.5)
    assert not sent.keys() & {"stop", "stop_sequences"}
    assert sent.get("max_tokens", sent.get("max_completion_tokens")) == 50


@pytest.mark.parametrize("client", DIALECTS)
def test_overrides_reach_a_gemini_upstream_whoever_asks(client: str) -> None:
    body = BODY.replace(b"{", b'{"stop":["x"],' if client == "chat" else b'{"stop_sequences":["x"],', 1)
    sent = json.loads(WIRES[client, "gemini"].body(DIALECTS[client].parse(body), MODEL, OPEN, warm))
    assert sent["generationConfig"] == {"maxOutputTokens": 50, "temperature": 0.5}


@pytest.mark.parametrize("client", DIALECTS)
def test_gemini_answers_every_client_under_its_own_names(client: str) -> None:
    name = "1st " + "n" * 70
    function = {"name": name, "parameters": {"type": "object"}}
    tool = {"type": "function", "function": function} if client == "chat" else {"name": name, "input_schema": {}}
    request = DIALECTS[client].parse(json.dumps(json.loads(BODY) | {"tools": [tool]}).encode())
    wire = WIRES[client, "gemini"]
    (sent,) = json.loads(wire.body(request, MODEL, OPEN, None))["tools"][0]["functionDeclarations"]
    part = {"functionCall": {"name": sent["name"], "args": {"a": 1}}}
    answer = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
    data = json.dumps(answer).encode()
    forward, verdict = wire.answer(request, data, repair=False, created=0)
    stream = wire.stream(request, repair=False, created=0)
    streamed = stream.read(Frame(b"data: " + data + b"\n\n", b"", data)) or b""
    assert sent["name"] != name
    assert name.encode() in forward
    assert name.encode() in streamed
    assert verdict.has_output
    assert (stream.output, stream.finished, stream.done) == (True, True, False)


def test_a_strict_provider_gets_no_request_of_which_something_would_be_lost() -> None:
    wire = WIRES["chat", "messages"]
    request = CHAT.parse(BODY.replace(b"{", b'{"logprobs":true,"n":2,', 1))
    assert b"logprobs" not in wire.body(request, MODEL, OPEN, None)
    with pytest.raises(Failure, match=r"logprobs.*n|n.*logprobs"):
        wire.body(request, MODEL, msgspec.structs.replace(OPEN, strict=True), None)


@pytest.mark.parametrize(
    ("client", "upstream", "fields", "lost"),
    [
        ("chat", "messages", b'"logprobs":true,"seed":1,', ["logprobs", "seed"]),
        ("messages", "chat", b'"top_k":3,"container":"x",', ["container", "top_k"]),
        ("chat", "chat", b'"logprobs":true,"odd":1,', []),
        ("messages", "messages", b'"top_k":3,"odd":1,', ["reasoning_effort"]),
    ],
)
def test_what_does_not_reach_the_upstream_is_named(client: str, upstream: str, fields: bytes, lost: list[str]) -> None:
    def think(fields: Fields) -> None:
        fields["reasoning_effort"] = msgspec.Raw(b'"low"')

    request = DIALECTS[client].parse(BODY.replace(b"{", b"{" + fields, 1))
    wire = WIRES[client, upstream]
    assert wire.lost(request, MODEL, think if client == upstream else warm) == lost
    assert wire.lost(DIALECTS[client].parse(BODY), MODEL, None) == []


@pytest.mark.parametrize(("client", "upstream"), [("chat", "messages"), ("messages", "chat")])
def test_usage_that_no_upstream_reported_is_an_estimate_that_says_so(client: str, upstream: str) -> None:
    request, sizes = DIALECTS[client].parse(BODY), list[int]()

    def estimate(_: ClientRequest, size: int) -> Usage:
        sizes.append(size)
        return Usage(4, 2, origin="estimated")

    wire = WIRES[client, upstream]
    forward, _ = wire.answer(request, SILENT[upstream], repair=False, created=0, estimate=estimate)
    usage = json.loads(forward)["usage"]
    assert list(usage.values()) == ([4, 2, 6, True] if client == "chat" else [4, 2, True])
    assert usage["estimated"]
    assert sizes == [len("hello")]


def test_a_stream_whose_upstream_reported_nothing_ends_with_an_estimate() -> None:
    request = MESSAGES.parse(BODY)
    stream = WIRES["messages", "chat"].stream(
        request, repair=False, created=0, estimate=lambda _, frames: Usage(4, frames, origin="estimated")
    )
    for text in ("hel", "lo"):
        data = json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"content": text}}]}).encode()
        stream.read(Frame(b"data: " + data + b"\n\n", b"", data))
    assert b'"usage":{"input_tokens":4,"output_tokens":2,"estimated":true}' in stream.end()


def test_a_long_tool_name_goes_out_short_and_comes_back_long() -> None:
    name = "n" * 100
    tools = [{"name": name, "input_schema": {"type": "object"}}]
    request = MESSAGES.parse(json.dumps(json.loads(BODY) | {"tools": tools}).encode())
    wire = WIRES["messages", "chat"]
    short = json.loads(wire.body(request, MODEL, OPEN, None))["tools"][0]["function"]["name"]
    assert len(short) <= 64
    call = {"id": "1", "type": "function", "function": {"name": short, "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    forward, _ = wire.answer(request, json.dumps(answer).encode(), repair=False, created=0)
    assert [block["name"] for block in json.loads(forward)["content"]] == [name]


RESPONSES_PAIRS = [pair for pair in WIRES if "responses" in pair and "gemini" not in pair]
ALL = {**DIALECTS, "responses": RESPONSES}
ASKED = {
    "responses": b'{"model":"m","max_output_tokens":50,"temperature":1,"input":"hi"}',
    "chat": BODY,
    "messages": BODY,
}
SAID = SILENT | {"responses": b'{"output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}]}'}


@pytest.mark.parametrize(("client", "upstream"), RESPONSES_PAIRS)
def test_overrides_reach_the_upstream_from_and_to_responses(client: str, upstream: str) -> None:
    sent = json.loads(WIRES[client, upstream].body(ALL[client].parse(ASKED[client]), MODEL, OPEN, warm))
    assert (sent["model"], sent["temperature"]) == ("theirs", 0.5)
    assert sent["max_output_tokens" if upstream == "responses" else "max_tokens"] == 50


@pytest.mark.parametrize(("client", "upstream"), RESPONSES_PAIRS)
def test_answers_reach_the_client_from_and_to_responses(client: str, upstream: str) -> None:
    request = ALL[client].parse(ASKED[client])
    forward, verdict = WIRES[client, upstream].answer(request, SAID[upstream], repair=False, created=0)
    assert b'"hello"' in forward
    assert verdict.has_output
    assert isinstance(WIRES[client, upstream].stream(request, repair=False, created=0).end(), bytes)


@pytest.mark.parametrize("upstream", ["chat", "messages", "gemini"])
def test_state_that_another_upstream_kept_is_refused(upstream: str) -> None:
    request = RESPONSES.parse(b'{"model":"m","input":"hi","previous_response_id":"resp_1"}')
    with pytest.raises(Failure, match="`previous_response_id`"):
        WIRES["responses", upstream].body(request, MODEL, OPEN, None)
    assert b"resp_1" in WIRES["responses", "responses"].body(request, MODEL, OPEN, None)
