"""The form between dialects: what a request, an answer and a stream say, whoever wrote it down.

A dialect reads its wire into this and writes its wire from this, so n client formats and m provider formats need n + m
modules. Between two speakers of one dialect it is not used at all: bytes pass through.

What only some dialects can hold has a place here and stays optional: signatures of thinking, cache markers, citations,
blocks that only their own vendor understands (`Native`). Text that is JSON on the wire (tool arguments, schemas) stays
text here, spelled as it came. Pure values; nothing is checked that the dialects have not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lumen_gateway.records import Usage

Raw = msgspec.Raw
NO_RAW = Raw(b"null")

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "error"]


class Part(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    """One piece of a turn. `cache` is the marker that ends a cached prefix, as its dialect wrote it."""

    cache: Raw = NO_RAW


class Text(Part, frozen=True, kw_only=True):
    """Words."""

    text: str
    citations: Raw = NO_RAW


class Image(Part, frozen=True, kw_only=True):
    """A picture: base64 `data` with its `media_type`, or a `url`, or a `file_id` of the vendor."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    detail: str = ""


class Document(Part, frozen=True, kw_only=True):
    """A file to read: base64 `data` with its `media_type`, plain `text`, a `url`, or a `file_id` of the vendor."""

    media_type: str = ""
    data: str = ""
    text: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""


class Thinking(Part, frozen=True, kw_only=True):
    """Reasoning shown by a model. `signature` proves it to its vendor; `redacted` holds what may not be read."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class ToolCall(Part, frozen=True, kw_only=True):
    """A model asks for a tool. `arguments` is a JSON object as text, "{}" where the model gave none."""

    id: str
    name: str
    arguments: str = "{}"
    signature: str = ""  # a thought signature that must come back with the call


class ToolResult(Part, frozen=True, kw_only=True):
    """What a tool answered: text and pictures."""

    call_id: str
    name: str = ""
    parts: Sequence[Part] = ()
    is_error: bool = False


class Refusal(Part, frozen=True, kw_only=True):
    """A model declines, in words of its own."""

    text: str


class Native(Part, frozen=True, kw_only=True):
    """A block only its own dialect understands, kept whole for a target that speaks it."""

    dialect: str
    block: Raw


class Turn(msgspec.Struct, frozen=True):
    """One message. Results of tools stand in turns of the role `tool`."""

    role: Role
    parts: Sequence[Part]
    name: str = ""


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call; `native` is a tool only its own dialect knows, kept whole."""

    name: str
    description: str = ""
    schema: Raw = NO_RAW  # JSON Schema of the arguments
    strict: bool | None = None
    cache: Raw = NO_RAW
    native: Raw = NO_RAW
    dialect: str = ""


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether tools must, may or must not be called; `tool` names the one that must."""

    mode: Literal["auto", "none", "required", "tool"]
    tool: str = ""


class Format(msgspec.Struct, frozen=True):
    """The form asked of the answer: any JSON object, or one that fits a schema."""

    kind: Literal["json_object", "json_schema"]
    name: str = ""
    schema: Raw = NO_RAW
    strict: bool | None = None
    description: str = ""


class Reasoning(msgspec.Struct, frozen=True):
    """How much thinking is asked for, in the one word or the one number the client gave."""

    effort: str = ""
    budget_tokens: int | None = None
    enabled: bool = True


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A chat request. None is unset; `unmapped` names the client's further fields, for strict providers to refuse."""

    turns: Sequence[Turn]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    format: Format | None = None
    reasoning: Reasoning | None = None
    user: str = ""
    stream: bool = False
    unmapped: Sequence[str] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. `stop_sequence` is the text that ended it, where the vendor says."""

    id: str
    model: str
    parts: Sequence[Part]
    finish: Finish
    stop_sequence: str = ""
    usage: Usage | None = None


# A stream is a row of these, in the order things happen. Blocks are numbered as the upstream opens them.


class Delta(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower):
    """One step of a streamed answer."""


class Start(Delta, frozen=True):
    """The answer begins."""

    id: str
    model: str
    usage: Usage | None = None


class TextDelta(Delta, frozen=True):
    """More words."""

    text: str


class ThinkingDelta(Delta, frozen=True):
    """More reasoning; `signature` and `redacted` come once, at its end or alone."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class RefusalDelta(Delta, frozen=True):
    """More of a refusal."""

    text: str


class CallDelta(Delta, frozen=True):
    """A tool call opens (`id` and `name` set), or its arguments go on. `index` counts calls by order of appearance."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    signature: str = ""


class NativeDelta(Delta, frozen=True):
    """A whole block only its own dialect understands."""

    dialect: str
    block: Raw


class Finished(Delta, frozen=True):
    """The answer ends; usage may still follow."""

    finish: Finish
    stop_sequence: str = ""


class Used(Delta, frozen=True):
    """What it used, the latest word counts."""

    usage: Usage
