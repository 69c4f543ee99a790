"""The content of a Chat Completions message: text or a list of parts, from the wire to neutral parts and back.

Whose fault an unreadable part is, the client's or an upstream's, is for the callers to say: they get msgspec's error.

Source: OpenAI API reference, "Create chat completion", content parts; Mistral API reference, thinking chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
)

DIALECT = "chat"
FILE_OF_ANTHROPIC = "anthropic-file:"
_BASE64 = ";base64"
_PDF = "application/pdf"

Content = str | list[Raw] | None


class DataUriError(msgspec.ValidationError):
    """A `data:` URI without a media type or without base64 data."""


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str
    detail: str | None = None


class _File(msgspec.Struct, frozen=True):
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class _Words(msgspec.Struct, frozen=True):
    text: str = ""


class _Wire(msgspec.Struct, frozen=True):
    """One part. `thinking` and `data` are those of Anthropic's blocks, or Mistral's chunks, inside a content list."""

    type: str = "text"
    text: str | None = None
    image_url: str | _ImageUrl | None = None
    file: _File | None = None
    refusal: str | None = None
    thinking: str | list[_Words] | None = None
    signature: str | None = None
    data: str | None = None
    cache_control: Raw = NO_RAW


class _Kind(msgspec.Struct, frozen=True):
    type: Any = None


_decode_part = msgspec.json.Decoder(_Wire).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_KINDS = frozenset({"text", "image_url", "file", "refusal", "thinking", "redacted_thinking"})


def read_content(content: Content) -> list[Part]:
    """Return what the content holds; nothing for no text or an empty one.

    Raises: msgspec.ValidationError for a part that is not what its type says.
    """
    if not content:
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    return [part for raw in content if (part := _read_part(raw)) is not None]


def _read_part(raw: Raw) -> Part | None:
    try:
        wire = _decode_part(raw)
    except msgspec.ValidationError:
        if _decode_kind(raw).type in _KINDS:
            raise
        return Native(dialect=DIALECT, block=raw)
    cache = wire.cache_control
    if wire.image_url is not None:
        return _read_image(wire.image_url, cache)
    match wire.type:
        case "text":
            return Text(text=wire.text, cache=cache) if wire.text else None
        case "refusal":
            return Refusal(text=wire.refusal, cache=cache) if wire.refusal else None
        case "thinking" | "redacted_thinking":
            return _read_thinking(wire)
        case "file" if wire.file is not None:
            return _read_file(wire.file, cache)
    return Native(dialect=DIALECT, block=raw)


def _read_thinking(wire: _Wire) -> Thinking | None:
    thinking = wire.thinking or ""
    text = thinking if isinstance(thinking, str) else "".join(words.text for words in thinking)
    if not (text or wire.signature or wire.data):
        return None
    return Thinking(text=text, signature=wire.signature or "", redacted=wire.data or "")


def _read_image(image: str | _ImageUrl, cache: Raw = NO_RAW) -> Image:
    """Return an image by its URL: inline data, a file of Anthropic's, or a place to fetch it from."""
    url, detail = (image, None) if isinstance(image, str) else (image.url, image.detail)
    if url.startswith("data:"):
        media_type, data = _split_data_uri(url)
        return Image(media_type=media_type, data=data, detail=detail or "", cache=cache)
    if url.startswith(FILE_OF_ANTHROPIC):
        return Image(file_id=url.removeprefix(FILE_OF_ANTHROPIC), cache=cache)
    return Image(url=url, detail=detail or "", cache=cache)


def _read_file(file: _File, cache: Raw) -> Document:
    name, content = file.filename or "", file.file_data or ""
    if file.file_id:
        return Document(file_id=file.file_id, name=name, cache=cache)
    if content.startswith("data:"):
        media_type, data = _split_data_uri(content)
        return Document(media_type=media_type, data=data, name=name, cache=cache)
    if content.startswith(("https://", "http://")):
        return Document(url=content, name=name, cache=cache)
    return Document(media_type=_PDF, data=content, name=name, cache=cache)


def _split_data_uri(uri: str) -> tuple[str, str]:
    """Return the media type, without parameters, and the base64 text.

    Raises: DataUriError if it is not `data:<type>;base64,<data>` with both in it.
    """
    head, _, data = uri.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0]
    if not (media_type and data and head.endswith(_BASE64)):
        raise DataUriError("not data:<media type>;base64,<data>")
    return media_type, data


def is_written(part: Part) -> bool:
    """Say whether a user's message has a place for it; what would have to be fetched first has none."""
    match part:
        case Text():
            return True
        case Image():
            return bool(part.data or part.url)
        case Document():
            return bool(part.data or part.text or part.file_id)
        case Native():
            return part.dialect == DIALECT
    return False


def write_parts(parts: Iterable[Part]) -> list[dict[str, object] | Raw]:
    """Return the parts of a user's message, without those that have no place in one."""
    return [_write_part(part) for part in parts if is_written(part)]


def _write_part(part: Part) -> dict[str, object] | Raw:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image():
            return _write_image(part)
        case Document():
            return _write_document(part)
        case Native(block=block):
            return block
    raise TypeError(f"{type(part).__name__} is no part of a user's message")


def _write_image(image: Image) -> dict[str, object]:
    url = f"data:{image.media_type};base64,{image.data}" if image.data else image.url
    detail = {"detail": image.detail} if image.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _write_document(document: Document) -> dict[str, object]:
    """Return a file, or for plain text the text under its name."""
    if document.text:
        name = f"{document.name}\n\n" if document.name else ""
        return {"type": "text", "text": name + document.text}
    if document.file_id:
        return {"type": "file", "file": {"file_id": document.file_id}}
    name = document.name or "document." + document.media_type.rpartition("/")[2]
    data = f"data:{document.media_type};base64,{document.data}"
    return {"type": "file", "file": {"filename": name, "file_data": data}}
