"""A whole chat completion and the neutral answer, both ways.

`read_answer` takes what an upstream of this dialect answered to a client of another; `write_answer` is the reverse.
Whether an answer is one at all, or an error, is `chat_answer`'s to say before. How an answer ends and what it used is
spelled here for streams as well.

Source: OpenAI API reference, "The chat completion object"; docs/providers.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_answer import read_usage
from lumen_gateway.dialects.chat_calls import Call, Function, write_call
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.chat_parts import Content, read_content
from lumen_gateway.dialects.chat_thinking import Reasoned, write_thinking
from lumen_gateway.dialects.neutral import Finish, Part, Raw, Refusal, Text, Thinking, ToolCall
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage


class _Message(Reasoned, frozen=True, kw_only=True):
    content: Content | dict[str, Raw] = None  # an object: the JSON that was asked for, from Cloudflare
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    finish_reason: Any = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    id: Any = None
    model: Any = None
    usage: Any = None


_decode = msgspec.json.Decoder(_Completion).decode
_encode = msgspec.json.Encoder().encode


def read_answer(body: bytes, names: Names = NO_NAMES) -> neutral.Answer:
    """Return the first choice of a chat completion, tools under the client's own names.

    Raises: Failure `MALFORMED` when it is none.
    """
    try:
        completion = _decode(body)
        answer_id = name_of(completion.id)
        choice = completion.choices[0] if completion.choices else _Choice()
        parts = _read_message(choice.message or _Message(), answer_id, names)
    except UNREADABLE:
        raise Failure(Kind.MALFORMED, "The upstream's answer is not a chat completion.") from None
    return neutral.Answer(
        id=answer_id,
        model=name_of(completion.model),
        parts=parts,
        finish=read_finish(choice.finish_reason, calls=_has(parts, ToolCall), refused=_has(parts, Refusal)),
        usage=read_usage(completion.usage),
    )


def _read_message(message: _Message, answer_id: str, names: Names) -> list[Part]:
    content = message.content
    said = read_content(_encode(content).decode() if isinstance(content, dict) else content)
    parts: list[Part] = [*message.thinking(), *said]
    if message.refusal:
        parts.append(Refusal(text=message.refusal))
    calls = list(message.tool_calls or ())
    if message.function_call is not None:
        calls.append(Call(function=message.function_call))
    for index, call in enumerate(calls):
        if call.function is not None:
            read = call.function.read(call.id or made_up_id(answer_id, index), call.signature())
            parts.append(msgspec.structs.replace(read, name=names.get(read.name, read.name)))
    return parts


def name_of(value: object) -> str:
    """Return what an answer calls itself or its model, "" where that is no text."""
    return value if isinstance(value, str) else ""


def made_up_id(answer_id: str, index: int) -> str:
    """Return an id for a call that came without one: unique among the calls of a conversation as answers' ids are."""
    return f"call_{answer_id}_{index}"


def _has(parts: list[Part], kind: type[Part]) -> bool:
    return any(isinstance(part, kind) for part in parts)


def write_answer(answer: neutral.Answer, created: int) -> bytes:
    """Return the chat completion a client gets.

    Shape: one choice. Texts are put together; what only its own dialect understands is left out.
    Units: `created` in seconds since the epoch.
    """
    texts = [part.text for part in answer.parts if isinstance(part, Text)]
    calls = [write_call(part, part.name) for part in answer.parts if isinstance(part, ToolCall)]
    refusals = [part.text for part in answer.parts if isinstance(part, Refusal)]
    content = "".join(texts) if texts or not (calls or refusals) else None
    message: dict[str, object] = {
        "role": "assistant",
        "content": content,
        "refusal": "".join(refusals) or None,
        **write_thinking(part for part in answer.parts if isinstance(part, Thinking)),
    }
    if calls:
        message["tool_calls"] = calls
    finish = write_finish(answer.finish, calls=bool(calls), refused=bool(refusals))
    completion = {
        "id": answer.id,
        "object": "chat.completion",
        "created": created,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if answer.usage is not None:
        completion["usage"] = write_usage(answer.usage)
    return _encode(completion)


_READ_FINISH: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral: the context is full
    "content_filter": "content_filter",
}
_WRITE_FINISH: dict[Finish, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "stop",
    "error": "error",
}


def read_finish(reason: object, *, calls: bool, refused: bool) -> Finish:
    """Return how an answer ended. Whether its calls ended it shows in them: several servers call each end a stop."""
    cut = _READ_FINISH.get(reason) if isinstance(reason, str) else None
    if cut is not None:
        return cut
    if calls:
        return "tool_calls"
    return "refusal" if refused else "stop"


def write_finish(finish: Finish, *, calls: bool, refused: bool) -> str:
    """Return the finish reason. A refusal told in `refusal` is a stop here; one without words is as a filter's."""
    if calls and finish == "stop":
        return "tool_calls"
    if refused and finish == "refusal":
        return "stop"
    return _WRITE_FINISH[finish]


def write_usage(usage: Usage) -> dict[str, object]:
    """Return a `usage` object: details only where they are known, a mark where the counts are estimates."""
    written: dict[str, object] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    prompt = {"cached_tokens": usage.cached, "cache_creation_tokens": usage.cache_write}
    if known := {name: tokens for name, tokens in prompt.items() if tokens is not None}:
        written["prompt_tokens_details"] = known
    if usage.reasoning is not None:
        written["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    if usage.origin == "estimated":
        written["estimated"] = True
    return written
