"""The official `openai` SDK as a client of the running program: only its base URL differs.

Its own retries are off: they would hide what the gateway answers. The synchronous client runs in a thread, since the
upstream runs in the test's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from tests.process.program import PATIENCE_S, Program

from lumen_gateway.records import Usage
from lumen_gateway.simulator import Reply, Upstream, auto, error, json_reply, stream
from lumen_gateway.simulator.reply import STREAM_HEADERS, Answering, Call

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENT = """
resilience = { retry_max_attempts = 1, circuit_failure_threshold = 1000 }

[[providers]]
name = "sim"
kind = "openai"
base_url = "URL/v1"
api_key_env = "SIM_KEY"
models = [
  { id = "vendor/chat-1", upstream_id = "chat-1", capabilities = ["chat"], release_date = "2025-01-31" },
  { id = "tools", capabilities = ["chat"] },
  { id = "endless", capabilities = ["chat"] },
  { id = "fraying", capabilities = ["chat"] },
  { id = "busy", capabilities = ["chat"] },
  { id = "down", capabilities = ["chat"] },
  { id = "short", capabilities = ["chat"] },
]

[[virtual_models]]
id = "team/assistant"
capability = "chat"
strategy = "fallback"
description = "What the team uses"
targets = [{ model = "down" }, { model = "vendor/chat-1" }]
"""

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
USAGE = Usage(11, 7, origin="reported")
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def tool_call(call: Call) -> Reply:
    """Answer with a tool call, its arguments in two pieces if streamed."""
    begun = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":'}}
    if not call.field("stream"):
        whole = {**begun, "function": {"name": "add", "arguments": '{"a":1}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [whole]}
        return json_reply(chunk("chat.completion", message=message, finish_reason="tool_calls"))
    deltas: list[dict[str, Any]] = [
        {"delta": {"role": "assistant", "tool_calls": [{"index": 0, **begun}]}},
        {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    frames = [b"data: " + msgspec.json.encode(chunk("chat.completion.chunk", **delta)) + b"\n\n" for delta in deltas]
    return Reply(headers=STREAM_HEADERS, frames=(*frames, b"data: [DONE]\n\n"))


def chunk(kind: str, **choice: Any) -> dict[str, Any]:
    return {"id": "c", "object": kind, "created": 1, "model": "tools", "choices": [{"index": 0, **choice}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    script: dict[str, Answering] = {
        "chat-1": auto("Hello, how are you?", usage=USAGE),
        "tools": tool_call,
        "endless": stream(["word "] * 50_000, frame_delay_s=0.01),
        "fraying": stream(["Hel", "lo"], done=False, stop="end"),
        "busy": error(429, retry_after=2),
        "down": error(503),
        "short": error(400, "context_length_exceeded"),
    }
    async with Upstream(script) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    document = DOCUMENT.replace("URL", upstream.url)
    async with Program(tmp_path_factory.mktemp("sdk"), document, SIM_KEY="sk-of-the-gateway") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway: Program) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=gateway.url, api_key="sk-of-the-client", max_retries=0) as client:
        yield client


async def test_unstreamed_answer(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="vendor/chat-1", messages=MESSAGES)
    assert answer.choices[0].message.content == "Hello, how are you?"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "chat-1"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (11, 7)


async def test_headers_of_a_raw_answer_say_who_served(client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="team/assistant", messages=MESSAGES, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-lumen-route"] == "team/assistant>vendor/chat-1"
    assert raw.headers["x-lumen-fallback-from"] == "down"
    assert raw.parse()._request_id == raw.headers["x-request-id"] == "mine-1"


async def test_upstream_gets_the_gateways_key_and_never_the_clients(client: AsyncOpenAI, upstream: Upstream) -> None:
    await client.chat.completions.create(model="vendor/chat-1", messages=MESSAGES)
    headers = upstream.calls[-1].headers
    assert headers["authorization"] == "Bearer sk-of-the-gateway"
    assert "sk-of-the-client" not in str(headers)
    assert not [name for name in headers if name.startswith("x-stainless")]


@pytest.mark.parametrize("model", ["vendor/chat-1", "team/assistant"])
async def test_stream_without_usage_has_no_usage_chunk(client: AsyncOpenAI, model: str) -> None:
    chunks = [
        chunk async for chunk in await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
    ]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello, how are you?"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.usage for chunk in chunks} == {None}


async def test_stream_with_usage_ends_with_its_chunk(client: AsyncOpenAI) -> None:
    opened = await client.chat.completions.create(
        model="team/assistant", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *others, last = [chunk async for chunk in opened]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in others) == "Hello, how are you?"
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (11, 7, 18)


async def test_tools_go_up_and_calls_come_back(client: AsyncOpenAI, upstream: Upstream) -> None:
    answer = await client.chat.completions.create(
        model="tools", messages=MESSAGES, tools=[TOOL], tool_choice="required", parallel_tool_calls=False
    )
    sent = upstream.calls[-1].json()
    assert (sent["tools"], sent["tool_choice"], sent["parallel_tool_calls"]) == ([TOOL], "required", False)
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function"
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "add", '{"a":1}')


async def test_streamed_tool_call_is_put_together_by_the_sdk(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="tools", messages=MESSAGES, tools=[TOOL]) as opened:
        answer = await opened.get_final_completion()
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "add", '{"a":1}')


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("model", "exception", "code"),
    [
        ("nobody", openai.NotFoundError, "LM-2001"),
        ("short", openai.BadRequestError, "LM-2012"),
        ("busy", openai.RateLimitError, "LM-3001"),
        ("down", openai.InternalServerError, "LM-3003"),
    ],
)
async def test_error_raises_the_sdks_own_exception_with_our_code(
    client: AsyncOpenAI, model: str, exception: type[openai.APIStatusError], code: str, streamed: bool
) -> None:
    with pytest.raises(exception) as caught:
        await client.chat.completions.create(model=model, messages=MESSAGES, stream=streamed)
    assert caught.value.code == code
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["code"] == code
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]
    if model == "busy":
        assert caught.value.response.headers["retry-after"] == "2"


async def test_field_of_the_wrong_type_is_a_bad_request(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="vendor/chat-1", messages="Hello")  # type: ignore[arg-type]
    assert caught.value.code == "LM-1001"


async def test_sdk_that_retries_takes_our_502_for_a_passing_failure(client: AsyncOpenAI, upstream: Upstream) -> None:
    before = len(upstream.calls)
    with pytest.raises(openai.InternalServerError):
        await client.with_options(max_retries=1).chat.completions.create(model="down", messages=MESSAGES)
    assert len(upstream.calls) == before + 2


async def test_stream_that_breaks_raises_behind_its_first_words(client: AsyncOpenAI) -> None:
    opened = await client.chat.completions.create(model="fraying", messages=MESSAGES, stream=True)
    said: list[str] = []

    async def listen() -> None:
        async for chunk in opened:
            said.extend(choice.delta.content or "" for choice in chunk.choices)

    with pytest.raises(openai.APIError) as caught:
        await listen()
    assert "".join(said) == "Hello"
    assert caught.value.code == "LM-3010"


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    models = {model.id: model async for model in client.models.list()}
    assert list(models)[:1] == ["vendor/chat-1"]
    assert list(models)[-1:] == ["team/assistant"]
    assert models["vendor/chat-1"].owned_by == "sim"
    assert models["vendor/chat-1"].created == 1738281600


@pytest.mark.parametrize("model_id", ["vendor/chat-1", "team/assistant", "tools"])
async def test_model_is_shown_whatever_its_id_holds(client: AsyncOpenAI, model_id: str) -> None:
    assert (await client.models.retrieve(model_id)).id == model_id


async def test_unknown_model_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("vendor/nobody")
    assert caught.value.code == "LM-2001"


async def test_closing_a_stream_closes_the_upstreams_socket(client: AsyncOpenAI, upstream: Upstream) -> None:
    opened = await client.chat.completions.create(model="endless", messages=MESSAGES, stream=True)
    async for chunk in opened:
        if chunk.choices[0].delta.content:
            break
    call = upstream.calls[-1]
    assert not call.over.is_set()
    await opened.close()
    async with asyncio.timeout(PATIENCE_S):
        await call.over.wait()
    assert call.peer_closed_at is not None


async def test_synchronous_client_works_alike(gateway: Program) -> None:
    def converse() -> tuple[str | None, str, list[str]]:
        with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as client:
            whole = client.chat.completions.create(model="team/assistant", messages=MESSAGES)
            opened = client.chat.completions.create(model="team/assistant", messages=MESSAGES, stream=True)
            said = "".join(chunk.choices[0].delta.content or "" for chunk in opened)
            return whole.choices[0].message.content, said, [model.id for model in client.models.list()]

    whole, streamed, models = await asyncio.to_thread(converse)
    assert whole == streamed == "Hello, how are you?"
    assert "team/assistant" in models


@pytest.mark.parametrize("model", ["vendor/chat-1", "team/assistant"])
async def test_response_says_what_a_chat_upstream_said(client: AsyncOpenAI, model: str) -> None:
    answer = await client.responses.create(model=model, input="Hello", instructions="Be kind.")
    assert answer.output_text == "Hello, how are you?"
    assert answer.status == "completed"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("model", ["vendor/chat-1", "team/assistant"])
async def test_streamed_response_is_numbered_without_a_gap_and_adds_up(client: AsyncOpenAI, model: str) -> None:
    async with client.responses.stream(model=model, input="Hello") as opened:
        events = [event async for event in opened if hasattr(event, "sequence_number")]
        final = await opened.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == "Hello, how are you?"
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("streamed", [False, True])
async def test_response_calls_a_tool(client: AsyncOpenAI, streamed: bool) -> None:
    tools: list[Any] = [{"type": "function", "name": "add", "parameters": TOOL["function"]["parameters"]}]
    if streamed:
        async with client.responses.stream(model="tools", input="Add", tools=tools) as opened:
            final = await opened.get_final_response()
            calls = [item for item in final.output if item.type == "function_call"]
    else:
        answer = await client.responses.create(model="tools", input="Add", tools=tools)
        calls = [item for item in answer.output if item.type == "function_call"]  # type: ignore[misc]
    assert [(call.name, call.arguments, call.call_id) for call in calls] == [("add", '{"a":1}', "call_1")]


async def test_streamed_response_that_breaks_is_an_error_and_no_end(client: AsyncOpenAI) -> None:
    last = ""

    async def listen() -> None:
        nonlocal last
        async for event in await client.responses.create(model="fraying", input="Hello", stream=True):
            last = event.type

    with pytest.raises(openai.APIError) as caught:
        await listen()
    assert last == "response.output_text.delta"
    assert caught.value.code == "LM-3010"


async def test_failed_response_is_the_sdks_error_with_our_code(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        await client.responses.create(model="busy", input="Hello")
    assert caught.value.code == "LM-3001"
