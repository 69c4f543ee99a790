"""The official `anthropic` SDK as a client of the running program, and the `openai` SDK before an Anthropic upstream.

Only their base URLs differ. Their own retries are off: they would hide what the gateway answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import msgspec
import openai
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, TextBlock, ToolParam, ToolUseBlock
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionToolParam
from tests.process.program import PATIENCE_S, Program

from lumen_gateway.records import Usage
from lumen_gateway.simulator import Reply, Upstream, auto, error, json_reply, stream
from lumen_gateway.simulator.reply import STREAM_HEADERS, Answering, Call

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = """
[server]
sse_heartbeat_ms = 50
[resilience]
retry_max_attempts = 1
circuit_failure_threshold = 1000

[[providers]]
name = "chat"
kind = "openai"
base_url = "URL/v1"
api_key_env = "CHAT_KEY"
models = [
  { id = "gpt", upstream_id = "gpt-1", capabilities = ["chat"], modalities = ["text", "image"] },
  { id = "gpt-tools", capabilities = ["chat"] },
  { id = "gpt-fraying", capabilities = ["chat"] },
  { id = "gpt-endless", capabilities = ["chat"] },
  { id = "busy", capabilities = ["chat"] },
  { id = "down", capabilities = ["chat"] },
  { id = "short", capabilities = ["chat"] },
]

[[providers]]
name = "anthropic"
kind = "anthropic"
base_url = "URL"
api_key_env = "ANTHROPIC_KEY"
models = [
  { id = "claude", upstream_id = "claude-1", capabilities = ["chat"], modalities = ["text", "image"] },
  { id = "claude-tools", capabilities = ["chat"] },
  { id = "claude-fraying", capabilities = ["chat"] },
  { id = "claude-slow", capabilities = ["chat"] },
  { id = "claude-full", capabilities = ["chat"] },
]

[[virtual_models]]
id = "team/assistant"
capability = "chat"
strategy = "fallback"
targets = [{ model = "down" }, { model = "claude-full" }, { model = "gpt" }]

[[virtual_models]]
id = "team/claude"
capability = "chat"
strategy = "fallback"
targets = [{ model = "down" }, { model = "claude" }]
"""

HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
PNG = "iVBORw0KGgo="
USAGE = Usage(11, 7, cached=4, origin="reported")
ADD: ToolParam = {
    "name": "add",
    "description": "Adds",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
ADD_IN_CHAT: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "add", "description": "Adds", "parameters": {**ADD["input_schema"]}},
}


# --- upstreams --------------------------------------------------------------------------------------------------------


def chat_calls(call: Call) -> Reply:
    """Answer with two tool calls at once, streamed by turns; with words once their results are there."""
    if any(message["role"] == "tool" for message in call.field("messages")):
        return auto("It is 3.", usage=USAGE)(call)
    begun = [{"id": f"call_{n}", "type": "function", "function": {"name": "add", "arguments": ""}} for n in (0, 1)]
    if not call.field("stream"):
        calls = [each | {"function": {"name": "add", "arguments": f'{{"a":{n}}}'}} for n, each in enumerate(begun)]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return json_reply(chunk(message=message, finish_reason="tool_calls"))
    pieces = [{"index": n, **each} for n, each in enumerate(begun)]
    pieces += [{"index": n, "function": {"arguments": part}} for part in ('{"a":', None) for n in (0, 1) if part]
    pieces += [{"index": n, "function": {"arguments": f"{n}}}"}} for n in (0, 1)]
    deltas: list[dict[str, Any]] = [{"delta": {"tool_calls": [piece]}} for piece in pieces]
    deltas.append({"delta": {}, "finish_reason": "tool_calls"})
    frames = [b"data: " + msgspec.json.encode(chunk(**delta)) + b"\n\n" for delta in deltas]
    return Reply(headers=STREAM_HEADERS, frames=(*frames, b"data: [DONE]\n\n"))


def chunk(**choice: Any) -> dict[str, Any]:
    return {"id": "c", "object": "x", "created": 1, "model": "tools", "choices": [{"index": 0, **choice}]}


def message(*content: dict[str, Any], stop: str = "end_turn", **more: Any) -> Callable[[Call], Reply]:
    """Answer with these blocks, whole or streamed, as Anthropic does."""
    usage = {"input_tokens": 7, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    head: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "stop_sequence": None,
    }

    def events() -> list[bytes]:
        opening = head | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        told = [event("message_start", message=opening), event("ping")]
        for index, block in enumerate(content):
            told += streamed_block(index, block)
        told.append(event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 7}))
        return [*told, event("message_stop")]

    def answer(call: Call) -> Reply:
        if call.field("stream"):
            return Reply(headers=STREAM_HEADERS, frames=tuple(events()), **more)
        whole = head | {"content": content, "stop_reason": stop, "usage": usage | {"output_tokens": 7}}
        return json_reply(whole | {"container": None, "new_field": [1, 2]})

    return answer


def streamed_block(index: int, block: dict[str, Any]) -> list[bytes]:
    if block["type"] == "text":
        opening: dict[str, Any] = block | {"text": ""}
        deltas = [{"type": "text_delta", "text": f"{word} "} for word in block["text"].split(" ")]
        deltas[-1]["text"] = deltas[-1]["text"].rstrip()
    else:
        opening, arguments = block | {"input": {}}, json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in (arguments[:3], arguments[3:])]
    told = [event("content_block_start", index=index, content_block=opening)]
    told += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return [*told, event("content_block_stop", index=index)]


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


SAID = message({"type": "text", "text": "Hello, how are you?"})
CALLS = message(
    {"type": "text", "text": "I add."},
    {"type": "tool_use", "id": "toolu_0", "name": "add", "input": {"a": 0}},
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
    stop="tool_use",
)
FULL = json_reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529)
FRAYING = (
    event("message_start", message={"id": "m", "model": "x", "role": "assistant", "content": [], "usage": {}}),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"}),
)


def anthropic_calls(call: Call) -> Reply:
    """Answer with two tool calls; with words once their results are there."""
    done = any(
        isinstance(turn["content"], list) and turn["content"][0]["type"] == "tool_result" for turn in turns(call)
    )
    return (message({"type": "text", "text": "It is 3."}) if done else CALLS)(call)


def turns(call: Call) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = call.field("messages")
    return messages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    def claude(call: Call) -> Reply:
        return json_reply({"input_tokens": 2095}) if call.path.endswith("/count_tokens") else SAID(call)

    script: dict[str, Answering] = {
        "gpt-1": auto("Hello, how are you?", usage=USAGE),
        "gpt-tools": chat_calls,
        "gpt-fraying": stream(["Hel", "lo"], done=False, stop="end"),
        "gpt-endless": stream(["word "] * 50_000, frame_delay_s=0.01),
        "busy": error(429, retry_after=2),
        "down": error(503),
        "short": error(400, "context_length_exceeded"),
        "claude-1": claude,
        "claude-tools": anthropic_calls,
        "claude-fraying": Reply(headers=STREAM_HEADERS, frames=FRAYING, stop="reset"),
        "claude-slow": message({"type": "text", "text": "at last"}, delay_s=0.3),
        "claude-full": FULL,
    }
    async with Upstream(script) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    document = DOCUMENT.replace("URL", upstream.url)
    folder = tmp_path_factory.mktemp("sdk")
    async with Program(folder, document, CHAT_KEY="sk-of-chat", ANTHROPIC_KEY="sk-of-anthropic") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway: Program) -> AsyncIterator[AsyncAnthropic]:
    root = gateway.url.removesuffix("/v1")
    async with AsyncAnthropic(base_url=root, api_key="sk-of-the-client", max_retries=0) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def chat_client(gateway: Program) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=gateway.url, api_key="sk-of-the-client", max_retries=0) as client:
        yield client


async def ask(client: AsyncAnthropic, model: str, streamed: bool, **fields: Any) -> anthropic.types.Message:
    """Ask for a message; a stream is put together by the SDK."""
    asked: dict[str, Any] = {"model": model, "max_tokens": 100, "messages": HELLO} | fields
    if not streamed:
        answer: anthropic.types.Message = await client.messages.create(**asked)
        return answer
    async with client.messages.stream(**asked) as opened:
        return await opened.get_final_message()


def text_of(answer: anthropic.types.Message) -> str:
    return "".join(block.text for block in answer.content if isinstance(block, TextBlock))


# --- both kinds of upstream -------------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("streamed", [False, True])


@BOTH
@pytest.mark.parametrize(("model", "serves"), [("gpt", "gpt-1"), ("claude", "claude-1"), ("team/claude", "claude-1")])
async def test_message_is_the_same_whoever_wrote_it(
    client: AsyncAnthropic, model: str, serves: str, streamed: bool
) -> None:
    answer = await ask(client, model, streamed)
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", serves)
    assert (text_of(answer), answer.stop_reason) == ("Hello, how are you?", "end_turn")
    used = answer.usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (7, 4, 7)


@BOTH
@pytest.mark.parametrize("model", ["gpt-tools", "claude-tools"])
async def test_parallel_tool_calls_come_back_with_their_results(
    client: AsyncAnthropic, upstream: Upstream, model: str, streamed: bool
) -> None:
    asked = await ask(client, model, streamed, tools=[ADD], tool_choice={"type": "any"})
    calls = [block for block in asked.content if isinstance(block, ToolUseBlock)]
    assert asked.stop_reason == "tool_use"
    assert [(call.name, call.input) for call in calls] == [("add", {"a": 0}), ("add", {"a": 1})]
    assert len({call.id for call in calls}) == 2
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "3"} for call in calls]
    turns: list[Any] = [*HELLO, {"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
    answer = await ask(client, model, streamed, tools=[ADD], messages=turns)
    assert text_of(answer) == "It is 3."
    sent = upstream.calls[-1].json()["messages"]
    if model == "gpt-tools":
        assert [turn["role"] for turn in sent] == ["user", "assistant", "tool", "tool"]
        assert [turn["tool_call_id"] for turn in sent[2:]] == [call["id"] for call in sent[1]["tool_calls"]]
    else:
        assert sent[-1] == turns[-1]


async def test_tools_choice_and_limits_reach_a_chat_upstream_in_its_words(
    client: AsyncAnthropic, upstream: Upstream
) -> None:
    choice = {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    more = {"stop_sequences": ["x"], "extra_body": {"temperature": 0.5}}  # which the SDK does not offer any more
    await ask(client, "gpt-tools", False, tools=[ADD], tool_choice=choice, **more)
    sent = upstream.calls[-1].json()
    assert sent["tools"] == [ADD_IN_CHAT]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert (sent["parallel_tool_calls"], sent["stop"], sent["temperature"]) == (False, ["x"], 0.5)
    assert (sent["max_tokens"], "system" in sent) == (100, False)


async def test_images_and_system_reach_a_chat_upstream(client: AsyncAnthropic, upstream: Upstream) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    content = [{"type": "text", "text": "What is it?"}, image]
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    await ask(client, "gpt", False, system=[cached], messages=[{"role": "user", "content": content}])
    system, user = upstream.calls[-1].json()["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user["content"][0] == {"type": "text", "text": "What is it?"}
    assert user["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"


@BOTH
@pytest.mark.parametrize(
    ("model", "exception", "kind", "code"),
    [
        ("nobody", anthropic.NotFoundError, "not_found_error", "LM-2001"),
        ("short", anthropic.BadRequestError, "invalid_request_error", "LM-2012"),
        ("busy", anthropic.RateLimitError, "rate_limit_error", "LM-3001"),
        ("down", anthropic.InternalServerError, "api_error", "LM-3003"),
        ("claude-full", anthropic.InternalServerError, "api_error", "LM-3003"),
    ],
)
async def test_error_raises_the_sdks_own_exception_with_our_code(
    client: AsyncAnthropic, model: str, exception: type[anthropic.APIStatusError], kind: str, code: str, streamed: bool
) -> None:
    with pytest.raises(exception) as caught:
        await ask(client, model, streamed)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", kind, code)
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]
    if model == "busy":
        assert caught.value.response.headers["retry-after"] == "2"


@pytest.mark.parametrize("model", ["gpt-fraying", "claude-fraying"])
async def test_stream_that_breaks_raises_behind_its_first_words(client: AsyncAnthropic, model: str) -> None:
    said: list[str] = []

    async def listen() -> None:
        async with client.messages.stream(model=model, max_tokens=9, messages=HELLO) as opened:
            async for text in opened.text_stream:
                said.append(text)  # noqa: PERF401 - kept one by one: it raises in the middle

    with pytest.raises(anthropic.APIStatusError) as caught:
        await listen()
    assert "".join(said) == "Hello"
    body: Any = caught.value.body
    assert (body["type"], body["error"]["code"]) == ("error", "LM-3010")


@BOTH
async def test_chain_over_both_kinds_says_who_served(client: AsyncAnthropic, streamed: bool) -> None:
    asked: dict[str, Any] = {"model": "team/assistant", "max_tokens": 9, "messages": HELLO, "stream": streamed}
    raw = await client.messages.with_raw_response.create(**asked, extra_headers={"x-request-id": "mine-1"})
    headers = raw.headers
    assert (headers["x-lumen-route"], headers["x-lumen-fallback-from"]) == ("team/assistant>gpt", "down")
    assert headers["x-lumen-fallback-index"] == "1"
    assert headers["request-id"] == "mine-1"
    await raw.http_response.aclose()


async def test_slow_stream_is_kept_alive_by_comments_that_the_sdk_passes_over(
    client: AsyncAnthropic, gateway: Program
) -> None:
    assert text_of(await ask(client, "claude-slow", True)) == "at last"
    body = {"model": "claude-slow", "max_tokens": 9, "messages": HELLO, "stream": True}
    answer = await gateway.client.post("/v1/messages", json=body)
    assert answer.text.startswith(": ping\n\n")
    assert ": x-lumen-model-used=claude-slow" in answer.text


async def test_closing_a_stream_closes_the_upstreams_socket(client: AsyncAnthropic, upstream: Upstream) -> None:
    async with client.messages.stream(model="gpt-endless", max_tokens=9, messages=HELLO) as opened:
        async for _ in opened.text_stream:
            break
        call = upstream.calls[-1]
        assert not call.over.is_set()
    async with asyncio.timeout(PATIENCE_S):
        await call.over.wait()
    assert call.peer_closed_at is not None


@pytest.mark.parametrize(("model", "tokens"), [("claude", 2095), ("gpt", 4 + 2), ("team/claude", 4 + 2)])
async def test_tokens_are_counted_exactly_or_estimated(client: AsyncAnthropic, model: str, tokens: int) -> None:
    """The first target decides: that of `team/claude` speaks chat."""
    assert (await client.messages.count_tokens(model=model, messages=HELLO)).input_tokens == tokens


async def test_counting_for_nobody_is_not_found(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.count_tokens(model="nobody", messages=HELLO)


# --- passing through --------------------------------------------------------------------------------------------------


@BOTH
async def test_anthropic_upstream_gets_its_key_and_never_the_clients(
    client: AsyncAnthropic, upstream: Upstream, streamed: bool
) -> None:
    await ask(client, "claude", streamed)
    headers = upstream.calls[-1].headers
    assert (headers["x-api-key"], "authorization" in headers) == ("sk-of-anthropic", False)
    assert "sk-of-the-client" not in str(headers)
    assert not [name for name in headers if name.startswith("x-stainless")]
    await ask(client, "gpt", streamed)
    headers = upstream.calls[-1].headers
    assert (headers["authorization"], "x-api-key" in headers) == ("Bearer sk-of-chat", False)


async def test_version_and_betas_of_the_client_reach_the_upstream(
    client: AsyncAnthropic, gateway: Program, upstream: Upstream
) -> None:
    own = {"anthropic-version": "2099-01-01", "anthropic-beta": "a-2025-01-01,b-2025-01-01"}
    for fields in (own, {"anthropic-version": "2099-01-01"}):
        await ask(client, "claude", False, extra_headers=fields)
        assert fields.items() <= upstream.calls[-1].headers.items()
    body = {"model": "claude", "max_tokens": 9, "messages": HELLO}
    await gateway.client.post("/v1/messages", json=body)
    assert upstream.calls[-1].headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in upstream.calls[-1].headers


async def test_bytes_pass_through_untouched_both_ways(gateway: Program, upstream: Upstream) -> None:
    body = b'{ "model" : "claude","messages":[{"role":"user","content":"h\\u00e9"}] , "max_tokens":9,"new":{"a":1.50}}'
    answer = await gateway.client.post("/v1/messages", content=body, headers={"content-type": "application/json"})
    sent = upstream.calls[-1]
    assert (sent.path, answer.content) == ("/v1/messages", SAID(sent).body)
    assert b'"messages":[{"role":"user","content":"h\\u00e9"}]' in sent.body
    assert b'"new":{"a":1.50}' in sent.body
    streamed = await gateway.client.post(
        "/v1/messages", content=body.replace(b"{ ", b'{"stream":true,', 1), headers={"content-type": "application/json"}
    )
    assert streamed.content == b"".join(SAID(upstream.calls[-1]).frames or ())


# --- the openai SDK before an Anthropic upstream ----------------------------------------------------------------------


@BOTH
async def test_openai_client_reads_a_completion(chat_client: AsyncOpenAI, upstream: Upstream, streamed: bool) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    if streamed:
        options = {"include_usage": True}
        async with chat_client.chat.completions.stream(
            model="team/claude",
            messages=messages,
            stream_options=options,  # type: ignore[arg-type]  # a plain dict
        ) as opened:
            answer: Any = await opened.get_final_completion()
    else:
        answer = await chat_client.chat.completions.create(model="team/claude", messages=messages)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello, how are you?", "stop")
    used = answer.usage
    assert (used.prompt_tokens, used.completion_tokens, used.prompt_tokens_details.cached_tokens) == (11, 7, 4)
    sent = upstream.calls[-1].json()
    assert (sent["system"], sent["messages"]) == ("Be brief.", [{"role": "user", "content": "Hello"}])
    assert sent["max_tokens"] > 0


@BOTH
async def test_openai_client_calls_tools(chat_client: AsyncOpenAI, upstream: Upstream, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    asked: dict[str, Any] = {"model": "claude-tools", "messages": messages, "tools": [ADD_IN_CHAT]}
    if streamed:
        async with chat_client.chat.completions.stream(**asked) as opened:
            answer: Any = await opened.get_final_completion()
    else:
        answer = await chat_client.chat.completions.create(**asked)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("I add.", "tool_calls")
    calls = choice.message.tool_calls
    assert [(call.id, json.loads(call.function.arguments)) for call in calls] == [
        ("toolu_0", {"a": 0}),
        ("toolu_1", {"a": 1}),
    ]
    assert upstream.calls[-1].json()["tools"] == [ADD]
    said = {"role": "assistant", "content": "I add.", "tool_calls": [call.model_dump() for call in calls]}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
    answered = await chat_client.chat.completions.create(**asked | {"messages": [*messages, said, *results]})
    assert answered.choices[0].message.content == "It is 3."
    assert [block["tool_use_id"] for block in turns(upstream.calls[-1])[-1]["content"]] == ["toolu_0", "toolu_1"]


@BOTH
async def test_openai_client_meets_its_own_errors(chat_client: AsyncOpenAI, streamed: bool) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await chat_client.chat.completions.create(
            model="claude-full", messages=[{"role": "user", "content": "x"}], stream=streamed
        )
    assert caught.value.code == "LM-3003"
