"""Anthropic Messages, the answer: what a buffered body says, what usage means, how our own errors look.

An answer passes through as it came; this module only reads what decides about it, into the verdict all dialects share:
finish reasons are told in the words of `chat_answer`. Called by the attempt that got the body; streams are in
`messages_stream`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import NO_ERROR, Answer, Identity, ended_well, is_error
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

DONE = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_encode = msgspec.json.Encoder().encode


class _Block(msgspec.Struct, frozen=True):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None

    def is_empty(self) -> bool:
        """Say whether nothing here reaches a reader: text or thinking without a word. Any other block is output."""
        return self.type in {"text", "thinking"} and not (self.text or self.thinking or self.signature)

    def output_bytes(self) -> int:
        return sum(len(text.encode()) for text in (self.text, self.thinking) if isinstance(text, str))


class _Body(msgspec.Struct, frozen=True):
    type: Any = None
    content: list[_Block] | None = None
    stop_reason: Any = None
    usage: Any = None
    error: msgspec.Raw = NO_ERROR


_decode_body = msgspec.json.Decoder(_Body).decode


def read_answer(body: bytes) -> Answer:
    """Read a 200's body.

    Raises: Failure `MALFORMED` when it is not a JSON object with a list `content` and is no error either.
    """
    try:
        answer = _decode_body(body)
    except UNREADABLE:
        raise _malformed() from None
    if answer.type == "error" or is_error(answer.error):
        return Answer(error=body, usage=read_usage(answer.usage))
    if answer.content is None:
        raise _malformed()
    finishes = (finish_word(answer.stop_reason),) if answer.stop_reason else ()
    blocks = [block for block in answer.content if not block.is_empty()]
    usage = read_usage(answer.usage)
    return Answer(
        usage=usage,
        finish_reasons=finishes,
        has_output=bool(blocks),
        filtered=not blocks and "content_filter" in finishes,
        empty=not blocks and ended_well(finishes),
        output_bytes=0 if usage is not None else sum(block.output_bytes() for block in blocks),
    )


def _malformed() -> Failure:
    return Failure(Kind.MALFORMED, "The upstream's answer is not a message.")


def finish_word(stop_reason: object) -> str:
    """Return a stop reason in the words of chat; one that has none there as it is."""
    return _FINISHES.get(stop_reason, stop_reason) if isinstance(stop_reason, str) else "unknown"


class _Named(msgspec.Struct, frozen=True):
    id: str | None = None
    model: str | None = None
    message: Identity | None = None


_decode_named = msgspec.json.Decoder(_Named).decode


def read_identity(body: bytes) -> Identity:
    """Read what an answer, or a stream's first frame, calls itself and its model, where that is there and is text."""
    try:
        named = _decode_named(body)
    except UNREADABLE:
        return Identity()
    return named.message or Identity(named.id, named.model)


class Counts(msgspec.Struct):
    """The numbers of a `usage` object, as far as they have been told. A stream tells them in two parts."""

    input: int = 0
    output: int = 0
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def take(self, usage: object) -> None:
        """Take over what a `usage` object says. A zero never takes back what was told before."""
        if not isinstance(usage, dict):
            return
        details = usage.get("output_tokens_details")
        thinking = details.get("thinking_tokens") if isinstance(details, dict) else None
        self.input = _latest(self.input, usage.get("input_tokens")) or 0
        self.output = _latest(self.output, usage.get("output_tokens")) or 0
        self.cached = _latest(self.cached, usage.get("cache_read_input_tokens"))
        self.cache_write = _latest(self.cache_write, usage.get("cache_creation_input_tokens"))
        self.reasoning = _latest(self.reasoning, thinking)

    def usage(self) -> Usage | None:
        """Return them as the gateway counts: reads and writes of the cache are input. None while all are 0."""
        total = self.input + (self.cached or 0) + (self.cache_write or 0)
        if total == self.output == 0:
            return None
        return Usage(total, self.output, self.cached, self.cache_write, self.reasoning, "reported")


def _latest(known: int | None, told: object) -> int | None:
    return (told or known or 0) if type(told) is int and told >= 0 else known


def read_usage(usage: object) -> Usage | None:
    """Return what a `usage` object reports; None if that is nothing.

    Units:  tokens. Thinking is part of `output_tokens`; the cache's tokens are not part of `input_tokens`.
    Source: Anthropic API reference, "usage".
    """
    counts = Counts()
    counts.take(usage)
    return counts.usage()


class _Count(msgspec.Struct, frozen=True):
    input_tokens: int


_decode_count = msgspec.json.Decoder(_Count).decode


def check_count(body: bytes) -> None:
    """Make sure that an answer is a count of tokens.

    Raises: Failure `MALFORMED`.
    """
    try:
        _decode_count(body)
    except UNREADABLE:
        raise Failure(Kind.MALFORMED, "The upstream's answer is not a count of tokens.") from None


def count_body(input_tokens: int) -> bytes:
    """Return a count of tokens as the API tells it."""
    return b'{"input_tokens":%d}' % input_tokens


def error_body(code: str, message: str, type: str, status: int = 0) -> bytes:  # noqa: A002 - the wire's own name for it
    """Return the error envelope of this dialect; our code stands beside the API's own type of error.

    Shape: `type` decides where no `status` does: a stream's error has none.
    """
    error = {"type": _error_type(type, status), "message": message, "code": code}
    try:
        return _encode({"type": "error", "error": error})
    except UnicodeEncodeError:  # a lone surrogate, which no JSON text can carry
        return error_body(code, message.encode("utf-8", "replace").decode(), type, status)


def error_frame(code: str, message: str, type: str, status: int = 0) -> bytes:  # noqa: A002 - the wire's own name for it
    """Return the error as the last frame of a stream."""
    return b"event: error\ndata: " + error_body(code, message, type, status) + b"\n\n"


def _error_type(ours: str, status: int) -> str:
    if status in _ERROR_TYPES:
        return _ERROR_TYPES[status]
    if status >= 500 or ours != "invalid_request":
        return "api_error"
    return "invalid_request_error"
