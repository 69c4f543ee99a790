"""The table of wires, and where overrides take effect in a translation."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from lumen_gateway.dialects.chat import OPEN
from lumen_gateway.dialects.codecs import WIRES
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.dialects.wire import CHAT, MESSAGES
from lumen_gateway.errors import Failure

DIALECTS = {"chat": CHAT, "messages": MESSAGES}
BODY = b'{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}'
MODEL = msgspec.Raw(b'"theirs"')


def warm(fields: Fields) -> None:
    fields["temperature"] = msgspec.Raw(b"0.5")
    fields.pop("stop", None)


def test_every_dialect_is_joined_to_every_other() -> None:
    assert set(WIRES) == set(itertools.product(DIALECTS, DIALECTS))


@pytest.mark.parametrize(("client", "upstream"), WIRES)
def test_overrides_reach_the_upstream_on_every_wire(client: str, upstream: str) -> None:
    body = BODY.replace(b"{", b'{"stop":["x"],' if client == "chat" else b'{"stop_sequences":["x"],', 1)
    sent = json.loads(WIRES[client, upstream].body(DIALECTS[client].parse(body), MODEL, OPEN, warm))
    assert (sent["model"], sent["temperature"]) == ("theirs", 0.5)
    assert not sent.keys() & {"stop", "stop_sequences"}
    assert sent.get("max_tokens", sent.get("max_completion_tokens")) == 50


def test_a_strict_provider_gets_no_request_of_which_something_would_be_lost() -> None:
    wire = WIRES["chat", "messages"]
    request = CHAT.parse(BODY.replace(b"{", b'{"logprobs":true,"n":2,', 1))
    assert b"logprobs" not in wire.body(request, MODEL, OPEN, None)
    with pytest.raises(Failure, match=r"logprobs.*n|n.*logprobs"):
        wire.body(request, MODEL, msgspec.structs.replace(OPEN, strict=True), None)


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
