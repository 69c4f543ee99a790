"""What items of OpenAI Responses hold, in requests and answers alike: from the wire to neutral parts and back.

Reasoning whose proof another vendor made travels in `encrypted_content` under a mark of ours, so that it finds its way
back to where it is understood; what OpenAI has encrypted is shown only. Whose fault a malformed part is, is for the
callers to say: they get msgspec's error.

Source: OpenAI API reference, "Create a model response", `input`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lumen_gateway.dialects.neutral import Document, Image, Native, Part, Raw, Refusal, Text, Thinking

DIALECT = "responses"
Wire = dict[str, object]
Content = str | list[Raw] | None

_SIGNATURE, _REDACTED = "signature:", "redacted:"
_BASE64 = ";base64"
_PDF = "application/pdf"


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


class _Kind(msgspec.Struct, frozen=True):
    type: str


class Reasoning(msgspec.Struct, frozen=True):
    """An item of reasoning: a summary for the reader, or the words themselves, and what proves them."""

    summary: Sequence[_Part] | None = None
    content: Sequence[_Part] | None = None
    encrypted_content: str | None = None


_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_KNOWN = _TEXTS | {"refusal", "input_image", "input_file"}
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_part = msgspec.json.Decoder(_Part).decode


def read_content(content: Content) -> list[Part]:
    """Return content in either of its forms as parts; no text is no part.

    Raises: msgspec.ValidationError for a part that is not what its type says.
    """
    if isinstance(content, str):
        return [Text(text=content)] if content else []
    return [part for raw in content or () if (part := _read_part(raw)) is not None]


def _read_part(raw: Raw) -> Part | None:
    kind = _decode_kind(raw).type
    if kind not in _KNOWN:
        return Native(dialect=DIALECT, block=raw)
    part = _decode_part(raw)
    if kind in _TEXTS:
        return Text(text=part.text) if part.text else None
    if kind == "refusal":
        return Refusal(text=part.refusal) if part.refusal else None
    return _read_image(part) if kind == "input_image" else _read_file(part)


def _read_image(part: _Part) -> Image:
    url, detail = part.image_url or "", part.detail or ""
    if url.startswith("data:"):
        media_type, data = _split_data_uri(url)
        return Image(media_type=media_type, data=data, detail=detail)
    return Image(url=url, file_id=part.file_id or "", detail=detail)


def _read_file(part: _Part) -> Document:
    name, data = part.filename or "", part.file_data or ""
    if not data:
        return Document(url=part.file_url or "", file_id=part.file_id or "", name=name)
    media_type, data = _split_data_uri(data) if data.startswith("data:") else (_PDF, data)
    return Document(media_type=media_type, data=data, name=name)


def _split_data_uri(uri: str) -> tuple[str, str]:
    head, _, data = uri.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0]
    if not (media_type and data and head.endswith(_BASE64)):
        raise msgspec.ValidationError("not data:<media type>;base64,<data>")
    return media_type, data


def read_reasoning(item: Reasoning) -> Thinking | None:
    """Return reasoning, the words before their summary; None for what nobody here may read."""
    text = "".join(part.text for part in item.content or ()) or "\n\n".join(part.text for part in item.summary or ())
    proof = item.encrypted_content or ""
    if proof.startswith(_SIGNATURE):
        return Thinking(text=text, signature=proof.removeprefix(_SIGNATURE))
    if proof.startswith(_REDACTED):
        return Thinking(redacted=proof.removeprefix(_REDACTED))
    return Thinking(text=text) if text else None


def write_proof(part: Thinking) -> str | None:
    """Return what proves reasoning, under the mark by which `read_reasoning` knows it."""
    if part.redacted:
        return _REDACTED + part.redacted
    return _SIGNATURE + part.signature if part.signature else None


def is_written(part: Part) -> bool:
    """Say whether what a user, or a tool, says has a place for it."""
    match part:
        case Text() | Document():
            return True
        case Image():
            return bool(part.data or part.url or part.file_id)
        case Native():
            return part.dialect == DIALECT
    return False


def write_parts(parts: Iterable[Part]) -> str | list[Wire | Raw]:
    """Return what a user, or a tool, says: a plain text as it is, else the parts that have a place."""
    written = [_write_part(part) for part in parts if is_written(part)]
    match written:
        case []:
            return ""
        case [{"type": "input_text", "text": str(text)}]:
            return text
    return written


def _write_part(part: Part) -> Wire | Raw:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image():
            return _write_image(part)
        case Document():
            return _write_document(part)
        case Native(block=block):
            return block
    raise TypeError(f"{type(part).__name__} is no part of an input")


def _write_image(image: Image) -> Wire:
    wire: Wire = {"type": "input_image", "detail": image.detail or "auto"}
    if image.file_id:
        return wire | {"file_id": image.file_id}
    return wire | {"image_url": f"data:{image.media_type};base64,{image.data}" if image.data else image.url}


def _write_document(document: Document) -> Wire:
    if document.text:
        name = f"{document.name}\n\n" if document.name else ""
        return {"type": "input_text", "text": name + document.text}
    if document.file_id:
        return {"type": "input_file", "file_id": document.file_id}
    if document.url:
        return {"type": "input_file", "file_url": document.url}
    media_type = document.media_type or _PDF
    name = document.name or "document." + media_type.rpartition("/")[2]
    return {"type": "input_file", "filename": name, "file_data": f"data:{media_type};base64,{document.data}"}
