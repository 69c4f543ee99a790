"""Neutral parts as the parts of a Gemini request.

Pictures and documents go inline, or by the address of a file that Google keeps itself; what would have to be fetched
from elsewhere, or is kept by another vendor, is refused, since the question would be about something the model cannot
see. Thinking of earlier turns has no place: the model does not take it back.

Source: Gemini API reference, "Part"; Gemini docs, "Thought signatures".
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects.gemini_names import sent_name
from lumen_gateway.dialects.neutral import Document, Image, Part, Raw, Refusal, Text, ToolCall, ToolResult
from lumen_gateway.errors import Failure, Kind

Wire = dict[str, object]

_FILES = ("gs://", "https://generativelanguage.googleapis.com/")
_MEDIA_TYPES = {
    **{name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "heic", "heif")},
    "jpg": "image/jpeg",
    "pdf": "application/pdf",
}
_PDF = "application/pdf"
_EMPTY_OBJECT = Raw(b"{}")
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def write_part(part: Part) -> Wire | None:
    """Return the part; None for text without a letter and for what this dialect has no place for.

    Raises: Failure `LM-2004` for a picture or document that is not inline.
    """
    match part:
        case Text(text=text) | Refusal(text=text):
            return {"text": text} if text else None
        case Image():
            return _write_file(part, part.media_type)
        case Document(text=text, name=name) if text:
            return {"text": f"{name}\n\n{text}" if name else text}
        case Document():
            return _write_file(part, part.media_type or _PDF)
        case ToolCall():
            return _write_call(part)
    return None


def _write_file(part: Image | Document, media_type: str) -> Wire:
    if part.data:
        return {"inlineData": {"mimeType": media_type, "data": part.data}}
    if not part.url.startswith(_FILES):
        raise Failure(
            Kind.IMAGE_NOT_INLINE, "the model's provider fetches nothing: send images and files as data: URIs"
        )
    known = part.media_type or _MEDIA_TYPES.get(part.url.rpartition(".")[2].lower())
    return {"fileData": {"fileUri": part.url, **({"mimeType": known} if known else {})}}


def _write_call(call: ToolCall) -> Wire:
    part: Wire = {"functionCall": {"name": sent_name(call.name), "args": _object(call.arguments) or _EMPTY_OBJECT}}
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part


def write_result(result: ToolResult, name: str) -> list[Wire]:
    """Return what a tool answered to a call of that name, and behind it the pictures and files among it."""
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    others = [wire for part in result.parts if not isinstance(part, Text) and (wire := write_part(part)) is not None]
    response = _write_response("\n".join(texts), is_error=result.is_error)
    return [{"functionResponse": {"name": sent_name(name), "response": response}}, *others]


def _write_response(text: str, *, is_error: bool) -> Raw | Wire:
    if is_error:
        return {"error": text}
    return _object(text) or {"result": text}


def _object(text: str) -> Raw | None:
    """Return the text if it is a JSON object."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Raw(text.encode())
