"""OpenAI Responses, the answer: what a buffered body says, what usage means, how our own errors look.

An answer passes through as it came; this module only reads what decides about it, into the verdict all dialects share:
finish reasons are told in the words of `chat_answer`. Called by the attempt that got the body; streams are in
`responses_stream`.

Source: OpenAI API reference, "The response object".
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import NO_ERROR, Answer, ended_well, is_error
from lumen_gateway.dialects.chat_answer import read_usage as read_chat_usage
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_CALLS = frozenset({"function_call", "custom_tool_call"})
_encode = msgspec.json.Encoder().encode


class Part(msgspec.Struct, frozen=True):
    """A part of a message or of reasoning. What is no text of its own kind is output all the same."""

    type: Any = None
    text: Any = None
    refusal: Any = None

    def is_empty(self) -> bool:
        """Say whether it is of a kind that is words, without a word."""
        known = self.type in {"output_text", "refusal", "summary_text", "reasoning_text"}
        return known and not (self.text or self.refusal)

    def output_bytes(self) -> int:
        """Return the size of its text in UTF-8."""
        return sum(len(text.encode()) for text in (self.text, self.refusal) if isinstance(text, str))


class Item(msgspec.Struct, frozen=True):
    """An item of the output, as far as it decides about the answer."""

    type: Any = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: Any = None
    arguments: Any = None

    def parts(self) -> list[Part]:
        """Return all its parts."""
        return [*(self.summary or ()), *(self.content or ())]

    def is_empty(self) -> bool:
        """Say whether nothing here reaches a reader: a message or reasoning without a word. Any other is output."""
        if self.type not in {"message", "reasoning"}:
            return False
        return not self.encrypted_content and all(part.is_empty() for part in self.parts())


class _Incomplete(msgspec.Struct, frozen=True):
    reason: Any = None


class Body(msgspec.Struct, frozen=True):
    """A response object: a whole answer, or what the last event of a stream holds."""

    id: Any = None
    model: Any = None
    status: Any = None
    output: list[Item] | None = None
    incomplete_details: _Incomplete | None = None
    usage: Any = None
    error: msgspec.Raw = NO_ERROR

    def finish_reasons(self) -> tuple[str, ...]:
        """Return why it ended, in the words of chat; nothing for one that has not."""
        if self.status == "incomplete":
            reason = self.incomplete_details and self.incomplete_details.reason
            return (_INCOMPLETE.get(reason, "unknown") if isinstance(reason, str) else "unknown",)
        if self.status not in {"completed", None}:
            return ()
        return ("tool_calls" if any(item.type in _CALLS for item in self.output or ()) else "stop",)

    def has_output(self) -> bool:
        """Say whether any of its items is output."""
        return not all(item.is_empty() for item in self.output or ())


_decode_body = msgspec.json.Decoder(Body).decode


def read_answer(body: bytes) -> Answer:
    """Read a 200's body.

    Raises: Failure `MALFORMED` when it is not a JSON object with a list `output` and is no error either.
    """
    try:
        answer = _decode_body(body)
    except UNREADABLE:
        raise malformed() from None
    usage = read_usage(answer.usage)
    if is_error(answer.error) or answer.status == "failed":
        return Answer(error=body, usage=usage)
    if answer.output is None:
        raise malformed()
    finishes, output = answer.finish_reasons(), answer.has_output()
    parts = [part for item in answer.output for part in item.parts()]
    return Answer(
        usage=usage,
        finish_reasons=finishes,
        has_output=output,
        filtered=not output and "content_filter" in finishes,
        empty=not output and bool(finishes) and ended_well(finishes),  # one that runs in the background is not over
        output_bytes=0 if usage is not None else sum(part.output_bytes() for part in parts),
    )


def malformed() -> Failure:
    """Return the failure of an upstream whose answer is none."""
    return Failure(Kind.MALFORMED, "The upstream's answer is not a response.")


def read_usage(usage: object) -> Usage | None:
    """Return what a `usage` object reports; None if that is nothing.

    Units:  tokens. The cache's are part of the input, reasoning part of the output; where a total shows otherwise
            (xAI), reasoning is added.
    Source: OpenAI API reference, "The response object", `usage`.
    """
    if not isinstance(usage, dict):
        return None
    return read_chat_usage(
        {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        }
    )


def error_frame(code: str, message: str, type: str, sequence: int = 0) -> bytes:  # noqa: A002 - as in `Dialect`
    """Return the error as the last event of a stream, numbered as the next one.

    Shape: as documented, flat, and as an `error` object too, without which OpenAI's SDK takes the stream for over.
    """
    message = message.encode("utf-8", "replace").decode()  # a lone surrogate is what no JSON text can carry
    error = {"code": code, "message": message, "param": None}
    event = {"type": "error", **error, "error": {"type": type, **error}, "sequence_number": sequence}
    return b"event: error\ndata: " + _encode(event) + b"\n\n"


def write_usage(usage: Usage | None) -> dict[str, object] | None:
    """Return the counts as this API has them. Shape: estimates are marked, which is ours."""
    if usage is None:
        return None
    marks = {"estimated": True} if usage.origin == "estimated" else {}
    return marks | {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output,
    }
