"""Google Gemini's answer: its wire, what a whole body says, and what it means to a client of another dialect.

Verdicts are told in the words of `chat_answer`, as for every dialect. Of several candidates only the first is read.
A blocked prompt is an answer without candidates; it counts as one that a content filter ended. Signatures of thought
are kept for calls, which are refused without; a text's own is not: no client's dialect has a place for it that another
vendor's model would not take for its own.

Source: Gemini API reference, "GenerateContentResponse".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_answer import MAX_TOKENS, NO_ERROR, Answer, ended_well, finish_error, is_error
from lumen_gateway.dialects.chat_completion import made_up_id
from lumen_gateway.dialects.chat_names import Names
from lumen_gateway.dialects.neutral import Native, Raw, Text, Thinking, ToolCall
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

DIALECT = "gemini"

_FINISHES: dict[str, neutral.Finish] = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
FAILED_FINISHES = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "LANGUAGE",
        "NO_IMAGE",
        "IMAGE_OTHER",
        "OTHER",
    }
)
"""Finish reasons of a model that gave up: no policy, and no success either."""

_EMPTY_OBJECT = Raw(b"{}")
_ID_BYTES = 12


class _Call(msgspec.Struct, frozen=True):
    name: str = ""
    id: str | None = None
    args: Raw = _EMPTY_OBJECT


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _Call | None = None


class _Content(msgspec.Struct, frozen=True):
    parts: list[Raw] | None = None


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Feedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class Response(msgspec.Struct, frozen=True, rename="camel"):
    """A whole answer, or one piece of a stream: they have the same form."""

    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    model_version: str | None = None
    response_id: str | None = None
    error: Raw = NO_ERROR

    def parts(self) -> Sequence[Raw]:
        """Return the parts of the first candidate."""
        content = self.candidates[0].content if self.candidates else None
        return (content and content.parts) or ()

    def reason(self) -> str:
        """Return why it ended in the vendor's word, "" while it has not; a blocked prompt ends by SAFETY."""
        if self.candidates:
            return self.candidates[0].finish_reason or ""
        return "SAFETY" if self.prompt_feedback is not None and self.prompt_feedback.block_reason else ""


decode_response = msgspec.json.Decoder(Response).decode
_decode_part = msgspec.json.Decoder(_Part).decode


class Reader:
    """Turns parts into neutral ones, and numbers the calls of one answer on the way."""

    def __init__(self, names: Names) -> None:
        self.answer_id = ""
        self.calls = 0
        self._names = names

    def begin(self, response: Response, data: bytes) -> None:
        """Take the answer's id; one without gets an id of its content, which holds the growing count of its prompt."""
        digest = hashlib.blake2s(data, digest_size=_ID_BYTES)
        self.answer_id = response.response_id or digest.hexdigest()

    def read(self, raw: Raw) -> neutral.Part | None:
        """Return one part; None if nothing of it reaches a reader.

        Raises: msgspec.ValidationError for a part that is none.
        """
        part = _decode_part(raw)
        if part.function_call is not None:
            return self._read_call(part.function_call, part.thought_signature)
        if part.text is None:
            return Native(dialect=DIALECT, block=raw)
        if not part.text:
            return None
        return Thinking(text=part.text) if part.thought else Text(text=part.text)

    def _read_call(self, call: _Call, signature: str) -> ToolCall:
        id_ = call.id or made_up_id(self.answer_id, self.calls)
        self.calls += 1
        arguments = "{}" if bytes(call.args) == b"null" else bytes(call.args).decode()
        name = self._names.get(call.name, call.name)
        return ToolCall(id=id_, name=name, arguments=arguments, signature=signature)


def judge(body: bytes) -> Answer:
    """Return the verdict on a 200's body.

    Raises: Failure `MALFORMED` when it holds neither a candidate nor a reason why there is none, and no error either.
    """
    try:
        response = decode_response(body)
        parts = _read_parts(response, Reader({}))
    except UNREADABLE:
        raise _malformed() from None
    usage, reason = read_usage(response.usage_metadata), response.reason()
    if is_error(response.error):
        return Answer(error=body, usage=usage)
    if reason in FAILED_FINISHES:
        return Answer(error=finish_error(reason), usage=usage)
    if not (response.candidates or reason):
        raise _malformed()
    finishes = (read_finish(reason, calls=False),) if reason else ()
    return Answer(
        usage=usage,
        finish_reasons=finishes,
        has_output=bool(parts),
        filtered=not parts and "content_filter" in finishes,
        empty=not parts and ended_well(finishes),
        output_bytes=0 if usage is not None else sum(map(_text_bytes, parts)),
    )


def _text_bytes(part: neutral.Part) -> int:
    return len(part.text.encode()) if isinstance(part, Text | Thinking) else 0


def _read_parts(response: Response, reader: Reader) -> list[neutral.Part]:
    return [part for raw in response.parts() if (part := reader.read(raw)) is not None]


def _malformed() -> Failure:
    return Failure(Kind.MALFORMED, "The upstream's answer is no generated content.")


def read_answer(body: bytes, names: Names) -> neutral.Answer:
    """Return an answer that `judge` found sound; `names` are those of `own_names`."""
    response, reader = decode_response(body), Reader(names)
    reader.begin(response, body)
    parts = _read_parts(response, reader)
    return neutral.Answer(
        id=reader.answer_id,
        model=response.model_version or "",
        parts=parts,
        finish=read_finish(response.reason(), calls=reader.calls > 0),
        usage=read_usage(response.usage_metadata),
    )


def read_finish(reason: str, *, calls: bool) -> neutral.Finish:
    """Return why it ended: with calls a plain stop is theirs, and a reason not known here is a plain stop."""
    return _FINISHES.get(reason) or ("tool_calls" if calls else "stop")


def read_usage(usage: object) -> Usage | None:
    """Return what `usageMetadata` reports; None if that is nothing.

    Units:  tokens. Cached ones are part of `promptTokenCount`; thoughts stand beside `candidatesTokenCount`, and what
            tools brought in beside the prompt.
    Source: Gemini API reference, "UsageMetadata".
    """
    if not isinstance(usage, dict):
        return None
    thoughts = _count(usage, "thoughtsTokenCount")
    before = (_count(usage, "promptTokenCount") or 0) + (_count(usage, "toolUsePromptTokenCount") or 0)
    after = (_count(usage, "candidatesTokenCount") or 0) + (thoughts or 0)
    if before == after == 0:
        return None
    cached = _count(usage, "cachedContentTokenCount")
    return Usage(before, after, cached=cached, reasoning=thoughts, origin="reported")


def _count(usage: dict[str, object], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
