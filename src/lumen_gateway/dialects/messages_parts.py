"""The content blocks of Anthropic Messages, in requests and answers alike: from the wire to neutral parts and back.

A block of a kind that only this dialect has (server tools and their results, search results, uploads) is kept whole.
Whose fault a malformed block is, is for the callers to say: they get msgspec's error.

Source: Anthropic API reference, "Create a Message", content blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from lumen_gateway.dialects.neutral import (
    NO_RAW,
    Document,
    Image,
    Native,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

DIALECT = "messages"
Wire = dict[str, object]

_EMPTY_OBJECT = Raw(b"{}")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_CITED_HERE = re.compile(rb'"type":\s*"\w+_location"')


class _Source(msgspec.Struct, frozen=True):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


_NO_SOURCE = _Source()


class _Block(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    citations: Raw = NO_RAW
    cache_control: Raw = NO_RAW
    thinking: str = ""
    signature: str = ""
    data: str = ""
    source: _Source = _NO_SOURCE
    title: str | None = None
    id: str = ""
    name: str = ""
    input: Raw = _EMPTY_OBJECT
    tool_use_id: str = ""
    content: str | list[Raw] | None = None
    is_error: bool | None = False


class _Kind(msgspec.Struct, frozen=True):
    type: str


_KNOWN = frozenset({"text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"})
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def read_content(content: str | Sequence[Raw] | None) -> list[Part]:
    """Return content in either of its forms as parts; no text is no part.

    Raises: msgspec.ValidationError for a block that is not what its type says.
    """
    if isinstance(content, str):
        return [Text(text=content)] if content else []
    return [read_block(raw) for raw in content or ()]


def read_block(raw: Raw) -> Part:
    """Return one block as a part.

    Raises: msgspec.ValidationError, as above.
    """
    if _decode_kind(raw).type not in _KNOWN:
        return Native(dialect=DIALECT, block=raw)
    block = _decode_block(raw)
    cache = block.cache_control
    match block.type:
        case "text":
            return Text(text=block.text, citations=block.citations, cache=cache)
        case "image":
            source = block.source
            return Image(
                media_type=source.media_type, data=source.data, url=source.url, file_id=source.file_id, cache=cache
            )
        case "document":
            return _read_document(block, raw)
        case "thinking":
            return Thinking(text=block.thinking, signature=block.signature)
        case "redacted_thinking":
            return Thinking(redacted=block.data)
        case "tool_use":
            return ToolCall(id=block.id, name=block.name, arguments=bytes(block.input).decode(), cache=cache)
    return ToolResult(
        call_id=block.tool_use_id, parts=read_content(block.content), is_error=block.is_error or False, cache=cache
    )


def _read_document(block: _Block, raw: Raw) -> Part:
    source, name, cache = block.source, block.title or "", block.cache_control
    match source.type:
        case "base64":
            return Document(media_type=source.media_type, data=source.data, name=name, cache=cache)
        case "text":
            return Document(media_type=source.media_type, text=source.data, name=name, cache=cache)
        case "url" | "file":
            return Document(url=source.url, file_id=source.file_id, name=name, cache=cache)
    return Native(dialect=DIALECT, block=raw)  # made of blocks of its own


def write_parts(parts: Iterable[Part]) -> list[Wire | Raw]:
    """Return the blocks for parts, those left out that the API would refuse or that are another dialect's own."""
    return [block for part in parts if (block := write_part(part)) is not None]


def write_part(part: Part) -> Wire | Raw | None:
    """Return the block for a part.

    Shape: None for blank text, for thinking without proof, since what is unsigned is refused, and for blocks of another
           dialect.
    """
    if isinstance(part, Native):
        return part.block if part.dialect == DIALECT else None
    block = _write(part)
    if block is not None and part.cache != NO_RAW:
        block["cache_control"] = part.cache
    return block


def _write(part: Part) -> Wire | None:
    match part:
        case Text() | Refusal():
            return _write_text(part)
        case Image():
            return {"type": "image", "source": _write_source(part, part.media_type)}
        case Document():
            title: Wire = {"title": part.name} if part.name else {}
            return {"type": "document", "source": _write_document_source(part), **title}
        case Thinking(redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case Thinking(signature=signature) if signature:
            return {"type": "thinking", "thinking": part.text, "signature": signature}
        case ToolCall():
            return write_call(part, call_id(part.id))
        case ToolResult():
            return _write_result(part)
    return None


def _write_text(part: Text | Refusal) -> Wire | None:
    if not part.text.strip():
        return None
    block: Wire = {"type": "text", "text": part.text}
    if isinstance(part, Text) and _CITED_HERE.search(bytes(part.citations)):  # another dialect's have another form
        block["citations"] = part.citations
    return block


def _write_source(part: Image | Document, media_type: str) -> Wire:
    if part.data:
        return {"type": "base64", "media_type": media_type, "data": part.data}
    if part.file_id:
        return {"type": "file", "file_id": part.file_id}
    return {"type": "url", "url": part.url}


def _write_document_source(part: Document) -> Wire:
    if part.text:
        return {"type": "text", "media_type": "text/plain", "data": part.text}
    return _write_source(part, part.media_type or "application/pdf")


def _write_result(part: ToolResult) -> Wire:
    block: Wire = {"type": "tool_result", "tool_use_id": call_id(part.call_id)}
    content = write_parts(part.parts)
    if content:
        block["content"] = content
    if part.is_error:
        block["is_error"] = True
    return block


def write_call(part: ToolCall, id_: str) -> Wire:
    """Return the block for a call, under an id."""
    return {"type": "tool_use", "id": id_, "name": part.name, "input": read_input(part.arguments)}


def call_id(text: str) -> str:
    """Return a call's id in the characters this API takes in requests; other vendors use others."""
    return _NOT_IN_IDS.sub("_", text)


def read_input(arguments: str) -> Raw:
    """Return a call's arguments as the JSON object they must be here: `{}` for what is none."""
    try:
        _decode_object(arguments)
    except (msgspec.DecodeError, RecursionError):
        return _EMPTY_OBJECT
    return Raw(arguments.encode())
