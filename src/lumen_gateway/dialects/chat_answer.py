"""OpenAI Chat Completions, the answer: what a buffered body says, what usage means, how our own errors look.

An answer passes through as it came; this module only reads what decides about it: did it carry output, is it an error
under a status of 200, what did it use. Called by the attempt that got the body; streams are in `chat_stream`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

DONE = b"data: [DONE]\n\n"
NO_ERROR = msgspec.Raw(b"null")
FAILED_FINISHES = frozenset({"error", "insufficient_system_resource", "abort"})
"""Finish reasons of an upstream that gave up: OpenRouter and Mistral, DeepSeek (overloaded), SGLang."""
MAX_TOKENS = 1_000_000_000  # of one answer; a larger count is no count, and sums must stay within 64 bits

_encode = msgspec.json.Encoder().encode


class Output(msgspec.Struct, frozen=True, gc=False):
    """The part of a `message` or `delta` that is output: any of these, not empty."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None

    def is_empty(self) -> bool:
        """Say whether nothing here reaches a reader: no text, reasoning, tool call, refusal or audio."""
        return not (
            self.content
            or self.reasoning_content
            or self.reasoning
            or self.tool_calls
            or self.refusal
            or self.audio
            or self.function_call
            or self.reasoning_details
        )

    def output_bytes(self) -> int:
        """Return the size of its text in UTF-8."""
        texts = (self.content, self.reasoning_content or self.reasoning, self.refusal)
        return sum(len(text) if text.isascii() else len(text.encode()) for text in texts if isinstance(text, str))


class _Choice(msgspec.Struct, frozen=True):
    message: Output | None = None
    finish_reason: Any = None
    error: msgspec.Raw = NO_ERROR


class _Body(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: msgspec.Raw = NO_ERROR


_decode_body = msgspec.json.Decoder(_Body).decode


class Answer(msgspec.Struct, frozen=True):
    """What a buffered answer turned out to be.

    `error` is what to classify instead of answering; the other fields then say what came before it.
    `filtered` and `empty` are both without output: ended by a content filter, or ended well with nothing in it.
    """

    usage: Usage | None = None
    finish_reasons: tuple[str, ...] = ()
    has_output: bool = False
    filtered: bool = False
    empty: bool = False
    error: bytes | None = None
    output_bytes: int = 0  # of text, for an estimate; 0 where usage is reported


def read_answer(body: bytes) -> Answer:
    """Read a 200's body.

    Raises: Failure `MALFORMED` when it is not a JSON object with a list `choices` and holds no `error` either.
    """
    try:
        answer = _decode_body(body)
    except UNREADABLE:
        raise _malformed() from None
    if is_error(answer.error):
        return Answer(error=body, usage=read_usage(answer.usage))
    if answer.choices is None:
        raise _malformed()
    finishes: list[str] = []
    messages: list[Output] = []
    for choice in answer.choices:
        if choice.finish_reason and isinstance(choice.finish_reason, str):
            finishes.append(choice.finish_reason)
        if choice.message is not None and not choice.message.is_empty():
            messages.append(choice.message)
    usage = read_usage(answer.usage)
    return Answer(
        usage=usage,
        finish_reasons=tuple(finishes),
        has_output=bool(messages),
        filtered=not messages and "content_filter" in finishes,
        empty=not messages and ended_well(finishes),
        error=_choice_error(answer.choices),
        output_bytes=0 if usage is not None and (usage.input or usage.output) else _text_bytes(messages),
    )


class Identity(msgspec.Struct, frozen=True):
    """What an answer, or any frame of a stream, calls itself and the model that made it. Only traces ask."""

    id: str | None = None
    model: str | None = None


_decode_identity = msgspec.json.Decoder(Identity).decode


def read_identity(body: bytes) -> Identity:
    """Read it where it is there and is text."""
    try:
        return _decode_identity(body)
    except UNREADABLE:
        return Identity()


def _text_bytes(messages: list[Output]) -> int:
    return sum(message.output_bytes() for message in messages)


def _malformed() -> Failure:
    return Failure(Kind.MALFORMED, "The upstream's answer is not a chat completion.")


def _choice_error(choices: list[_Choice]) -> bytes | None:
    for choice in choices:
        if choice.error is not NO_ERROR and is_error(choice.error):
            return wrap_error(choice.error)
        if isinstance(choice.finish_reason, str) and choice.finish_reason in FAILED_FINISHES:
            return finish_error(choice.finish_reason)
    return None


def is_error(value: msgspec.Raw) -> bool:
    """Say whether the value of an `error` member is one: not null, false or empty."""
    return value is not NO_ERROR and bytes(value) not in (b"null", b"false", b'""', b"{}", b"[]")


def wrap_error(value: msgspec.Raw) -> bytes:
    """Return an error envelope around the value, without the text that stood beside it."""
    return b'{"error":' + bytes(value) + b"}"


def finish_error(reason: str) -> bytes:
    """Return an error envelope for a finish reason that is a failure."""
    return _encode({"error": {"code": reason, "message": f"the upstream finished with {reason}"}})


def ended_well(finishes: Iterable[str]) -> bool:
    """Say whether every finish reason given is a plain stop."""
    return all(reason == "stop" for reason in finishes)


def read_usage(usage: object) -> Usage | None:
    """Return what a `usage` object reports; None if it holds neither count, or 0 for both: nothing costs nothing.

    Units:  tokens. Reasoning counts as output; vendors that report it beside `completion_tokens` (xAI) show it by a
            total that only adds up with it.
    Source: OpenAI API reference, "usage"; DeepSeek `prompt_cache_hit_tokens`; Moonshot `cached_tokens`;
            OpenRouter `cache_write_tokens`.
    """
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    prompt, completion = prompt or 0, completion or 0
    if prompt == completion == 0:
        return None
    before, after = _object(usage.get("prompt_tokens_details")), _object(usage.get("completion_tokens_details"))
    reasoning = _count(after.get("reasoning_tokens"))
    if reasoning and _count(usage.get("total_tokens")) == prompt + completion + reasoning:
        completion += reasoning
    return Usage(
        input=prompt,
        output=completion,
        cached=_first(before.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")),
        cache_write=_first(before.get("cache_creation_tokens"), before.get("cache_write_tokens")),
        reasoning=reasoning,
        origin="reported",
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _first(*values: object) -> int | None:
    return next((count for count in map(_count, values) if count is not None), None)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def error_body(code: str, message: str, type: str) -> bytes:  # noqa: A002 - the wire's own name for it
    """Return the error envelope of this dialect."""
    try:
        return _encode({"error": {"code": code, "message": message, "type": type}})
    except UnicodeEncodeError:  # a lone surrogate, which no JSON text can carry
        return error_body(code, message.encode("utf-8", "replace").decode(), type)


def error_frame(code: str, message: str, type: str) -> bytes:  # noqa: A002 - the wire's own name for it
    """Return the error as the last frame of a stream."""
    return b"data: " + error_body(code, message, type) + b"\n\n"
