"""Messages at the gateway: both dialects before both kinds of upstream, chains that mix them, and counted tokens."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from tests.dialects.anthropic_wire import events, message_of
from tests.execution.staging import Silence, reset
from tests.house import ANSWER, DONE, JSON, ROLE, STREAM, WORD, House, answer, compose, headers_of, stream
from tests.lanes import Client

from lumen_gateway.errors import Kind

DOCUMENT = """
[server]
SERVER
[resilience]
retry_max_attempts = 1
[[providers]]
name = "open"
kind = "openai"
base_url = "http://open.test/v1"
[[providers.models]]
id = "gpt"
upstream_id = "gpt-of-open"
capabilities = ["chat"]
modalities = ["text", "image"]
[[providers]]
name = "anthropic"
kind = "anthropic"
base_url = "http://anthropic.test"
[[providers.models]]
id = "claude"
upstream_id = "claude-of-anthropic"
capabilities = ["chat"]
modalities = ["text", "image"]
[[virtual_models]]
id = "open-first"
capability = "chat"
strategy = "fallback"
targets = [{ model = "gpt" }, { model = "claude" }]
[[virtual_models]]
id = "anthropic-first"
capability = "chat"
strategy = "fallback"
targets = [{ model = "claude" }, { model = "gpt" }]
[[virtual_models]]
id = "polite-claude"
capability = "chat"
strategy = "single"
targets = [{ model = "claude", overrides = { set = { temperature = 0.5, stop = ["x"] }, drop = ["top_p"] } }]
preset = { system_prompt = "Be polite." }
[[virtual_models]]
id = "polite-gpt"
capability = "chat"
strategy = "single"
targets = [{ model = "gpt", overrides = { set = { temperature = 0.5, seed = 7 }, default = { max_tokens = 5 } } }]
preset = { system_prompt = "Be polite.", system_prompt_mode = "replace" }
[[virtual_models]]
id = "switch"
capability = "chat"
strategy = "switch"
targets = [{ model = "gpt", when = { WHEN } }, { model = "claude" }]
"""
CHAT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
TOOL = {"name": "add", "input_schema": {"type": "object"}}
USAGE = {"input_tokens": 9, "output_tokens": 3}
MESSAGE = (
    b'{"id":"msg_1", "type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"hello"}],'
    b'"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":3},"new":[1.50]}'
)
COUNTED = b'{"input_tokens": 12}'


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


BEGUN: dict[str, Any] = {
    "id": "msg_1",
    "role": "assistant",
    "model": "claude-x",
    "content": [],
    "stop_reason": None,
    "usage": USAGE,
}
OPENED = event("message_start", message=BEGUN)
SAID = (
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
)
CLOSED = (
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=USAGE),
    event("message_stop"),
)
EVENTS = (OPENED, *SAID, *CLOSED)


class Mixed(House):
    """A house on the document above, with both kinds of upstream."""

    def __init__(self, server: str = "", when: str = "stream = true", **script: Any) -> None:
        super().__init__(**script)
        self.gateway.snapshot = compose(DOCUMENT.replace("SERVER", server).replace("WHEN", when)).snapshot

    async def send(self, path: str, model: str, headers: bytes = JSON, **fields: Any) -> Client:
        """Ask at a path and let everything happen that needs no waiting."""
        client, body = self.connect(), msgspec.json.encode({"model": model} | HELLO | fields)
        line = b"POST %b HTTP/1.1\r\nhost: gateway\r\n%bcontent-length: %d\r\n\r\n" % (
            path.encode(),
            headers,
            len(body),
        )
        client.send(line + body)
        await self.clock.advance(0)
        return client

    def sent(self, index: int = -1) -> dict[str, Any]:
        """Return the body that an upstream got."""
        body: dict[str, Any] = msgspec.json.decode(self.transport.sent[index][1].partition(b"\r\n\r\n")[2])
        return body


def only(client: Client) -> tuple[int, dict[str, str], bytes]:
    [(status, head, body)] = client.answers
    return status, headers_of(head), body


def error_of(client: Client) -> tuple[int, str, str]:
    """Return status, type and code of an error in Anthropic's envelope."""
    status, _, body = only(client)
    told = msgspec.json.decode(body)
    assert told["type"] == "error"
    assert set(told["error"]) == {"type", "message", "code"}
    return status, told["error"]["type"], told["error"]["code"]


def words(path: str, streamed: bool, body: bytes) -> str:
    """Return what an answer says, in either dialect, having held a Messages stream to its rules."""
    if path == MESSAGES:
        message = message_of(body) if streamed else msgspec.json.decode(body)
        return "".join(block["text"] for block in message["content"])
    if not streamed:
        return str(msgspec.json.decode(body)["choices"][0]["message"]["content"])
    assert body.endswith(DONE)
    data = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
    choices = [choice for chunk in map(msgspec.json.decode, data) for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


# --- through, and translated ------------------------------------------------------------------------------------------


async def test_message_passes_through_byte_for_byte() -> None:
    house = Mixed(anthropic=answer(MESSAGE))
    fields: dict[str, Any] = {"thinking": {"type": "disabled"}, "odd": [1, {"a": None}]}
    status, headers, body = only(await house.send(MESSAGES, "claude", JSON + b"x-request-id: mine\r\n", **fields))
    assert (status, body) == (200, MESSAGE)
    assert house.sent() == {"model": "claude-of-anthropic"} | HELLO | fields
    assert house.transport.sent[0][1].startswith(b"POST /v1/messages HTTP/1.1\r\nhost: anthropic.test\r\n")
    assert (headers["request-id"], headers["x-request-id"]) == ("mine", "mine")
    assert (headers["x-lumen-model-used"], headers["x-lumen-provider"]) == ("claude", "anthropic")


async def test_events_pass_through_byte_for_byte() -> None:
    pieces = (OPENED, event("ping"), *SAID, b": odd\n\n", event("new_kind", odd=1), *CLOSED)
    status, headers, body = only(await Mixed(anthropic=stream(*pieces)).send(MESSAGES, "claude", stream=True))
    assert (status, headers["content-type"], body) == (200, "text/event-stream", b"".join(pieces))


@pytest.mark.parametrize("streamed", [False, True])
async def test_message_from_a_chat_upstream_is_a_message(streamed: bool) -> None:
    house = Mixed(open=stream() if streamed else answer())
    status, headers, body = only(await house.send(MESSAGES, "gpt", stream=streamed, system="Be brief."))
    message = message_of(body) if streamed else msgspec.json.decode(body)
    assert status == 200
    assert message["content"] == [{"type": "text", "text": "hello"}]
    assert (message["stop_reason"], message["usage"]) == ("end_turn", USAGE)
    assert headers["x-lumen-model-used"] == "gpt"
    assert house.sent()["messages"] == [{"role": "system", "content": "Be brief."}, HELLO["messages"][0]]
    [attempt] = house.record.attempts
    assert (attempt.usage.input, attempt.usage.output, attempt.usage.origin) == (9, 3, "reported")


@pytest.mark.parametrize("streamed", [False, True])
async def test_completion_from_an_anthropic_upstream_is_a_completion(streamed: bool) -> None:
    house = Mixed(anthropic=stream(*EVENTS) if streamed else answer(MESSAGE))
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if streamed else {}
    status, headers, body = only(await house.send(CHAT, "claude", stream=streamed, **more))
    assert (status, words(CHAT, streamed, body)) == (200, "hello")
    assert b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12' in body
    assert b'"finish_reason":"stop"' in body
    assert "request-id" not in headers
    assert house.sent()["max_tokens"] == 50


# --- chains that mix both kinds ---------------------------------------------------------------------------------------


def good(host: str, streamed: bool) -> Any:
    if host == "open":
        return stream() if streamed else answer()
    return stream(*EVENTS) if streamed else answer(MESSAGE)


def overloaded(host: str, streamed: bool) -> Any:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "SECRET"}}
    if not streamed:
        return answer(msgspec.json.encode(error), status=529)
    opening, name = (ROLE, b"") if host == "open" else (OPENED, b"event: error\n")
    return stream(opening, b"%bdata: %b\n\n" % (name, msgspec.json.encode(error)))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(("first", "second"), [("open", "anthropic"), ("anthropic", "open")])
async def test_chain_falls_back_from_one_kind_to_the_other(path: str, first: str, second: str, streamed: bool) -> None:
    house = Mixed(**{first: overloaded(first, streamed), second: good(second, streamed)})
    status, headers, body = only(await house.send(path, f"{first}-first", stream=streamed))
    assert (status, words(path, streamed, body)) == (200, "hello")
    assert house.transport.asked == [first, second]
    assert (headers["x-lumen-virtual-model"], headers["x-lumen-provider"]) == (f"{first}-first", second)
    assert headers["x-lumen-fallback-index"] == "0"
    assert b"SECRET" not in body


@pytest.mark.parametrize("streamed", [False, True])
async def test_exhausted_chain_is_an_error_of_the_clients_dialect(streamed: bool) -> None:
    house = Mixed(open=Kind.UNREACHABLE, anthropic=overloaded("anthropic", streamed))
    client = await house.send(MESSAGES, "open-first", stream=streamed)
    assert error_of(client) == (502, "api_error", "LM-3003")
    assert only(client)[1]["x-lumen-fallback-exhausted"] == "true"
    assert b"SECRET" not in client.pipe.sent


# --- streams that start early or break --------------------------------------------------------------------------------


async def until_sent(client: Client, text: bytes) -> None:
    async with asyncio.timeout(10):
        while text not in client.pipe.sent:  # noqa: ASYNC110 - the heartbeat runs on the loop's own clock
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("model", ["open-first", "anthropic-first"])
async def test_slow_stream_is_kept_alive_and_says_who_serves_before_its_first_event(model: str) -> None:
    silent, hosts = stream(Silence(20), reset()), ("open", "anthropic")
    script: dict[str, Any] = {host: silent if model.startswith(host) else good(host, True) for host in hosts}
    house = Mixed("sse_heartbeat_ms = 1", **script)
    client = await house.send(MESSAGES, model, stream=True)
    await until_sent(client, b": ping\n\n")
    await house.clock.advance(3600)
    _, headers, body = only(client)
    assert "x-lumen-route" not in headers
    comments, _, frames = body.partition(b": x-lumen-route=")
    assert comments.replace(b": ping\n\n", b"") == b""
    assert words(MESSAGES, True, frames.partition(b"\n")[2]) == "hello"


@pytest.mark.parametrize(
    ("model", "host", "pieces"), [("gpt", "open", (ROLE, WORD)), ("claude", "anthropic", (OPENED, *SAID))]
)
async def test_stream_that_breaks_after_its_first_output_ends_in_one_error_event(
    model: str, host: str, pieces: tuple[bytes, ...]
) -> None:
    script: dict[str, Any] = {host: stream(*pieces, reset())}
    house = Mixed(**script)
    _, _, body = only(await house.send(MESSAGES, model, stream=True))
    *before, last = events(body)
    assert [each["type"] for each in before] == ["message_start", "content_block_start", "content_block_delta"]
    assert last["type"] == "error"
    assert (last["error"]["type"], last["error"]["code"]) == ("api_error", "LM-3010")
    assert (house.record.status, house.record.code) == (502, "LM-3010")


@pytest.mark.parametrize(("host", "model"), [("open", "gpt"), ("anthropic", "claude")])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_error_the_upstream_tells_after_output_is_told_once(path: str, host: str, model: str) -> None:
    opening = (ROLE, WORD) if host == "open" else (OPENED, *SAID)
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"full"}}'
    script: dict[str, Any] = {host: stream(*opening, b"event: error\ndata: " + error + b"\n\n")}
    house = Mixed(**script)
    _, _, body = only(await house.send(path, model, stream=True))
    assert body.count(b'"error":') == 1
    assert DONE not in body
    assert b"message_stop" not in body
    assert house.record.attempts[0].outcome == "provider_error"


async def test_chain_exhausted_behind_an_early_head_is_an_error_event() -> None:
    house = Mixed("sse_heartbeat_ms = 1", anthropic=stream(Silence(20), reset()), open=Kind.UNREACHABLE)
    client = await house.send(MESSAGES, "anthropic-first", stream=True)
    await until_sent(client, b": ping\n\n")
    await house.clock.advance(3600)
    status, _, body = only(client)
    [last] = events(body)
    assert (status, last["type"], last["error"]["code"]) == (200, "error", "LM-3004")


# --- presets, overrides, facts ----------------------------------------------------------------------------------------


async def test_preset_and_overrides_reach_an_anthropic_upstream() -> None:
    house = Mixed(anthropic=answer(MESSAGE))
    await house.send(MESSAGES, "polite-claude", system="Mine.", top_p=0.9, temperature=1)
    sent = house.sent()
    assert (sent["system"], sent["messages"]) == ("Be polite.\n\nMine.", HELLO["messages"])
    assert (sent["temperature"], sent["stop_sequences"], "top_p" in sent) == (0.5, ["x"], False)


async def test_preset_and_overrides_reach_a_chat_upstream() -> None:
    house = Mixed(open=answer())
    await house.send(MESSAGES, "polite-gpt", system=[{"type": "text", "text": "Mine."}], temperature=1)
    sent = house.sent()
    assert sent["messages"] == [{"role": "system", "content": "Be polite."}, *HELLO["messages"]]
    assert (sent["temperature"], sent["seed"], sent["max_tokens"]) == (0.5, 7, 50)


async def test_chat_preset_and_overrides_reach_an_anthropic_upstream() -> None:
    house = Mixed(anthropic=answer(MESSAGE))
    await house.send(CHAT, "polite-claude", temperature=1, stop="mine", top_p=0.9)
    sent = house.sent()
    assert (sent["system"], sent["temperature"], sent["stop_sequences"]) == ("Be polite.", 0.5, ["x"])
    assert "top_p" not in sent


@pytest.mark.parametrize(
    ("when", "fields"),
    [
        ("stream = true", {"stream": True}),
        ("has_tools = true", {"tools": [TOOL]}),
        ("has_images = true", {"messages": [{"role": "user", "content": [IMAGE]}]}),
        ("input_tokens = { gte = 100 }", {"system": "x" * 400}),
        ('"header.x-plan" = "gold"', {}),
        ('"metadata.team" = "red"', {}),
    ],
)
async def test_rules_see_what_a_messages_request_is(when: str, fields: dict[str, Any]) -> None:
    streamed = "stream" in fields
    house = Mixed(when=when, open=good("open", streamed), anthropic=answer(MESSAGE))
    said = b'x-plan: gold\r\nx-lumen-metadata: {"team":"red"}\r\n' if not fields else b""
    assert (await house.send(MESSAGES, "switch", JSON + said, **fields)).statuses == [200]
    assert (await house.send(MESSAGES, "switch")).statuses == [200]
    assert house.transport.asked == ["open", "anthropic"]


# --- what no upstream said, and what none was told --------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_that_nobody_reports_is_estimated_for_client_and_books_alike(streamed: bool) -> None:
    silent = (
        b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}'
    )
    house = Mixed(open=stream(*STREAM[:3], DONE) if streamed else answer(silent))
    _, _, body = only(await house.send(MESSAGES, "gpt", stream=streamed))
    usage = (message_of(body) if streamed else msgspec.json.decode(body))["usage"]
    [attempt] = house.record.attempts
    assert attempt.usage.origin == "estimated"
    assert usage == {"input_tokens": attempt.usage.input, "output_tokens": attempt.usage.output, "estimated": True}
    assert (usage["input_tokens"], usage["output_tokens"]) == (5, 1 if streamed else 2)


async def test_what_a_translation_drops_is_named_at_debug_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lumen")
    house = Mixed(open=[overloaded("open", False)], anthropic=answer(MESSAGE))
    await house.send(CHAT, "open-first", JSON + b"x-request-id: mine\r\n", logit_bias={"1": 13}, seed=1313)
    [line] = [record for record in caplog.records if getattr(record, "action", "") == "request.fields_lost"]
    assert line.getMessage() == 'provider "anthropic" is not told: logit_bias, seed'
    assert line.fields == {"request_id": "mine", "provider": "anthropic"}  # type: ignore[attr-defined]  # extras
    assert "13" not in line.getMessage()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "model", "fields", "told"),
    [
        (MESSAGES, "nobody", {}, (404, "not_found_error", "LM-2001")),
        (COUNT, "nobody", {}, (404, "not_found_error", "LM-2001")),
        (MESSAGES, "claude", {"messages": []}, (400, "invalid_request_error", "LM-1001")),
        (COUNT, "claude", {"messages": "hi"}, (400, "invalid_request_error", "LM-1001")),
        (MESSAGES, "", {}, (400, "invalid_request_error", "LM-1001")),
        ("/v1/messages/batches", "claude", {}, (404, "not_found_error", "LM-1003")),
    ],
)
async def test_refusals_come_in_anthropics_envelope(path: str, model: str, fields: Any, told: Any) -> None:
    house = Mixed()
    assert error_of(await house.send(path, model, **fields)) == told
    assert house.transport.sent == []


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_wrong_method_says_which_is_right(path: str) -> None:
    client = Mixed().connect()
    client.send(b"GET %b HTTP/1.1\r\nhost: gateway\r\n\r\n" % path.encode())
    assert error_of(client)[::2] == (405, "LM-1003")
    assert only(client)[1]["allow"] == "POST"


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (400, "invalid_request_error", (502, "api_error", "LM-3003")),
        (401, "authentication_error", (502, "api_error", "LM-3003")),
        (404, "not_found_error", (502, "api_error", "LM-3003")),
        (429, "rate_limit_error", (429, "rate_limit_error", "LM-3001")),
        (500, "api_error", (502, "api_error", "LM-3003")),
    ],
)
@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_upstreams_refusal_becomes_ours_without_its_text(path: str, status: int, kind: str, told: Any) -> None:
    body = msgspec.json.encode({"type": "error", "error": {"type": kind, "message": "SECRET"}})
    client = await Mixed(anthropic=answer(body, status=status)).send(path, "claude")
    if path == COUNT and status == 404:
        assert only(client)[0] == 200  # it does not count: we do
    else:
        assert error_of(client) == told
    assert b"SECRET" not in client.pipe.sent


# --- counted tokens ---------------------------------------------------------------------------------------------------


async def test_tokens_are_counted_by_the_upstream_that_would_answer() -> None:
    house = Mixed(anthropic=answer(COUNTED))
    status, headers, body = only(await house.send(COUNT, "claude", tools=[TOOL]))
    assert (status, body) == (200, COUNTED)
    assert house.transport.sent[0][1].startswith(b"POST /v1/messages/count_tokens HTTP/1.1\r\nhost: anthropic.test\r\n")
    assert b"\r\nanthropic-version: 2023-06-01\r\n" in house.transport.sent[0][1]
    assert house.sent() == {"model": "claude-of-anthropic"} | HELLO | {"tools": [TOOL]}
    assert (headers["x-lumen-model-used"], headers["content-type"]) == ("claude", "application/json")


async def test_tokens_are_estimated_where_the_upstream_speaks_chat() -> None:
    house = Mixed()
    status, headers, body = only(await house.send(COUNT, "gpt", system="Be brief."))
    assert (status, body) == (200, b'{"input_tokens":8}')
    assert headers["x-lumen-model-used"] == "gpt"
    assert house.transport.sent == []


async def test_count_falls_back_along_the_plan() -> None:
    house = Mixed(anthropic=Kind.UNREACHABLE)
    status, headers, body = only(await house.send(COUNT, "anthropic-first"))
    assert (status, body) == (200, b'{"input_tokens":5}')
    assert headers["x-lumen-route"] == "anthropic-first>gpt"
    assert headers["x-lumen-fallback-from"] == "claude"


@pytest.mark.parametrize("streamed", [False, True])
async def test_count_goes_where_the_rules_send_it_and_counts_the_preset(streamed: bool) -> None:
    house = Mixed(when="has_tools = true", anthropic=answer(COUNTED))
    assert only(await house.send(COUNT, "switch", tools=[TOOL]))[1]["x-lumen-model-used"] == "gpt"
    client = await house.send(COUNT, "polite-claude", stream=streamed)
    assert only(client)[2] == COUNTED
    assert house.sent()["system"] == "Be polite."
    assert "temperature" not in house.sent()


async def test_count_is_no_chat_in_metrics_and_uses_nothing() -> None:
    house = Mixed(anthropic=answer(COUNTED))
    await house.send(COUNT, "claude")
    assert house.counts.answers == [("POST", COUNT, 200)]
    assert (house.record.capability, house.record.attempts[0].usage.origin) == ("count_tokens", "unknown")
    assert house.books.ends == [[None]]


async def test_no_success_is_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    house = Mixed(anthropic=[answer(COUNTED), answer(MESSAGE)], open=answer())
    for path, model in ((COUNT, "claude"), (MESSAGES, "claude"), (MESSAGES, "gpt")):
        assert (await house.send(path, model)).statuses == [200]
    assert [record.levelname for record in caplog.records] == []


async def test_client_that_stays_asks_in_both_dialects_on_one_connection() -> None:
    house = Mixed(anthropic=[answer(MESSAGE), answer(MESSAGE)], open=[answer(ANSWER)])
    first = await house.send(MESSAGES, "claude")
    body = msgspec.json.encode({"model": "gpt"} | HELLO)
    first.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n%bcontent-length: %d\r\n\r\n" % (JSON, len(body)) + body
    )
    await house.clock.advance(0)
    assert [body for _, _, body in first.answers] == [MESSAGE, ANSWER]
    assert [("request-id" in headers_of(head)) for _, head, _ in first.answers] == [True, False]
