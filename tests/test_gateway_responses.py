"""Responses at the gateway: through, translated, refused, and broken off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.dialects.responses_wire import events, response_of
from tests.execution.staging import reset
from tests.house import ANSWER, JSON, ROLE, STREAM, WORD, House, answer, compose, headers_of, stream
from tests.lanes import Client

DOCUMENT = """
[resilience]
retry_max_attempts = 1
[[providers]]
name = "open"
kind = "openai"
base_url = "http://open.test/v1"
[[providers.models]]
id = "gpt"
capabilities = ["chat"]
[[providers]]
name = "newer"
kind = "openai"
base_url = "http://newer.test/v1"
[[providers.models]]
id = "gpt-new"
capabilities = ["chat"]
apis = ["responses"]
"""
RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}
USAGE = {"input_tokens": 9, "output_tokens": 3}
RESPONSE = b'{"id":"resp_1", "status":"completed","output":[%b],"usage":%b,"new":[1.50]}' % (
    msgspec.json.encode(ITEM),
    msgspec.json.encode(USAGE),
)


def event(kind: str, number: int, **fields: Any) -> bytes:
    payload = {"type": kind, "sequence_number": number, **fields}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(payload))


OPENED = event("response.created", 0, response={"id": "resp_1", "model": "gpt-x", "status": "in_progress"})
SAID = event("response.output_text.delta", 1, output_index=0, delta="hello")
CLOSED = event("response.completed", 2, response={"status": "completed", "output": [ITEM], "usage": USAGE})


class Mixed(House):
    """A house on the document above."""

    def __init__(self, **script: Any) -> None:
        super().__init__(**script)
        self.gateway.snapshot = compose(DOCUMENT).snapshot

    async def send(self, path: str, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        """Ask at a path and let everything happen that needs no waiting."""
        client: Client = self.connect()
        body = msgspec.json.encode(fields)
        head = b"POST %b HTTP/1.1\r\nhost: gateway\r\n%bcontent-length: %d\r\n\r\n" % (path.encode(), JSON, len(body))
        client.send(head + body)
        await self.clock.advance(0)
        [(status, answered, told)] = client.answers
        return status, headers_of(answered), told

    def sent(self) -> bytes:
        """Return what an upstream got."""
        return self.transport.sent[-1][1]


async def test_response_passes_through_byte_for_byte() -> None:
    house = Mixed(newer=answer(RESPONSE))
    fields: dict[str, Any] = {"model": "gpt-new", "input": "hi", "previous_response_id": "resp_0", "odd": [1]}
    status, _, body = await house.send(RESPONSES, **fields)
    assert (status, body) == (200, RESPONSE)
    assert house.sent().startswith(b"POST /v1/responses HTTP/1.1\r\n")
    assert msgspec.json.decode(house.sent().partition(b"\r\n\r\n")[2]) == fields
    assert (house.record.attempts[0].usage.input, house.record.attempts[0].usage.output) == (9, 3)


async def test_events_pass_through_byte_for_byte() -> None:
    pieces = (OPENED, b": odd\n\n", SAID, event("response.new_kind", 2, odd=1), CLOSED)
    house = Mixed(newer=stream(*pieces))
    assert (await house.send(RESPONSES, model="gpt-new", input="hi", stream=True))[2] == b"".join(pieces)
    assert house.record.attempts[0].usage.output == 3


async def test_chat_upstream_answers_a_responses_client() -> None:
    status, _, body = await Mixed(open=answer(ANSWER)).send(RESPONSES, model="gpt", input="hi")
    (item,) = msgspec.json.decode(body)["output"]
    assert (status, item["content"][0]["text"]) == (200, "hello")
    _, _, streamed = await Mixed(open=stream(*STREAM)).send(RESPONSES, model="gpt", input="hi", stream=True)
    assert response_of(streamed)["output"][0]["content"][0]["text"] == "hello"


async def test_responses_upstream_answers_a_chat_client() -> None:
    messages = [{"role": "user", "content": "hi"}]
    house = Mixed(newer=answer(RESPONSE))
    _, _, body = await house.send(CHAT, model="gpt-new", messages=messages)
    assert msgspec.json.decode(body)["choices"][0]["message"]["content"] == "hello"
    house = Mixed(newer=stream(OPENED, SAID, CLOSED))
    _, _, streamed = await house.send(CHAT, model="gpt-new", messages=messages, stream=True)
    assert b'"hello"' in streamed
    assert streamed.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "nobody", "input": "hi"}, 404, "LM-2001"),
        ({"model": "gpt"}, 400, "LM-1001"),
        ({"model": "gpt", "input": "hi", "previous_response_id": "resp_0"}, 400, "LM-1001"),
    ],
)
async def test_refusals_come_in_openais_envelope(fields: dict[str, Any], status: int, code: str) -> None:
    house = Mixed()
    told, _, body = await house.send(RESPONSES, **fields)
    assert (told, msgspec.json.decode(body)["error"]["code"]) == (status, code)
    assert house.transport.sent == []


@pytest.mark.parametrize(
    ("model", "host", "pieces"), [("gpt", "open", (ROLE, WORD)), ("gpt-new", "newer", (OPENED, SAID))]
)
async def test_stream_that_breaks_ends_in_one_error_event(model: str, host: str, pieces: tuple[bytes, ...]) -> None:
    script: dict[str, Any] = {host: stream(*pieces, reset())}
    _, _, body = await Mixed(**script).send(RESPONSES, model=model, input="hi", stream=True)
    *_, last = events(body)
    assert (last["type"], last["code"]) == ("error", "LM-3010")


async def test_failure_the_upstream_tells_after_output_is_told_once() -> None:
    failed = event("response.failed", 2, response={"status": "failed", "error": {"code": "server_error"}})
    house = Mixed(newer=stream(OPENED, SAID, failed))
    _, _, body = await house.send(RESPONSES, model="gpt-new", input="hi", stream=True)
    assert body == OPENED + SAID + failed
    assert house.record.attempts[0].outcome == "provider_error"
