"""OpenAI Responses, the request: what a client sent, and the body a Responses upstream is sent for it.

Between two speakers of this dialect a request passes through: the upstream's body is the client's with a few top-level
spans exchanged, everything else byte for byte, state kept by the upstream (`previous_response_id`) included. What comes
back is the matter of `responses_answer` and `responses_stream`, other dialects that of `responses_to_neutral`.

Source: OpenAI API reference, "Create a model response"; docs/providers.md, "What is edited on the way".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from lumen_gateway.dialects import client_fields, spans
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.errors import invalid

Raw = msgspec.Raw

EDITABLE = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "top_logprobs": "top_logprobs",
    "user": "user",
    "metadata": "metadata",
    "store": "store",
    "service_tier": "service_tier",
}
"""Fields an operator may override, under the names overrides know them by -> their names here."""

_NULL = Raw(b"null")
_NOTHING = (_NULL, Raw(b"[]"))
_SYSTEM_ROLES = frozenset({"system", "developer"})
_IMAGE_TOKENS = 765
_LOW_DETAIL_TOKENS = 85
_ITEM_TOKENS = 4  # role and separators of one item
_BYTES_PER_TOKEN = 4

_encode = msgspec.json.Encoder().encode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode


class Part(msgspec.Struct, frozen=True):
    """What is counted of a content part, whatever else it holds."""

    type: Any = None
    text: Any = None
    detail: Any = None


class Item(msgspec.Struct, frozen=True):
    """What is read of an item of the input to route it. `content` and `output` are text or lists of parts."""

    type: Any = None
    role: Any = None
    content: Raw = _NULL
    output: Raw = _NULL
    arguments: Any = None

    def parts(self) -> list[Part]:
        """Return what it holds, as parts."""
        return [part for raw in (self.content, self.output) for part in _parts_of(raw)]

    def is_system(self) -> bool:
        """Say whether it is a message of the system's."""
        return self.role in _SYSTEM_ROLES


_decode_parts = msgspec.json.Decoder(str | list[Part] | None).decode


def _parts_of(raw: Raw) -> list[Part]:
    try:
        content = _decode_parts(raw)
    except msgspec.DecodeError:  # a shape this gateway does not know: the upstream's to judge
        return []
    return [Part("input_text", content)] if isinstance(content, str) else content or []


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Typed(msgspec.Struct, frozen=True):
    """The fields that are read here, and must therefore be what they are; every other is the upstream's to judge."""

    input: str | list[Item] | None = None
    instructions: str | None = None
    model: str | None = None
    stream: bool | None = None
    max_output_tokens: _Count | None = None
    temperature: float | None = None
    top_p: float | None = None


_WANTED = {
    "input": "a string or a list of objects, each an item",
    "instructions": "a string",
    "model": "a string",
    "stream": "true or false",
    "temperature": "a number",
    "top_p": "a number",
}
_WITHOUT_INPUT = ("previous_response_id", "conversation", "prompt")  # each brings an input of its own
_decode_typed = msgspec.json.Decoder(_Typed).decode
_decode_items = msgspec.json.Decoder(list[Item]).decode


class ResponsesRequest:
    """A client's request: its top-level fields as bytes, and the few values that routing and accounting read.

    Shape: `model` is "" when absent; `max_output_tokens` is None when unset; `n` is always 1, and usage is part of
           every answer. JSON null is unset.
    """

    __slots__ = ("_typed", "fields", "max_output_tokens", "model", "stream")

    include_usage = True
    n = 1

    def __init__(self, fields: Fields, typed: _Typed) -> None:
        self.fields = fields
        self.model = typed.model or ""
        self.stream = typed.stream or False
        self.max_output_tokens = typed.max_output_tokens
        self._typed = typed

    @property
    def instructions(self) -> str:
        """The system prompt, "" for none."""
        return self._typed.instructions or ""

    def items(self) -> list[Item]:
        """Return the input as items; a plain text is one message of the user's."""
        given = self._typed.input
        if isinstance(given, str):
            return [Item("message", "user", self.fields["input"])]
        return given or []

    def has_images(self) -> bool:
        """Say whether any item holds an image, be it what a tool has put out."""
        return b'"input_image"' in bytes(self.fields.get("input", _NULL)) and any(
            part.type == "input_image" for item in self.items() for part in item.parts()
        )

    def has_tools(self) -> bool:
        """Say whether the client offers tools."""
        return self.fields.get("tools", _NULL) not in _NOTHING


def parse_request(body: bytes) -> ResponsesRequest:
    """Read a client's body far enough to route it.

    Raises: Failure `LM-1001` naming the field at fault, never what it holds.
    """
    fields = spans.split(body)
    typed = client_fields.read(_decode_typed, body, _WANTED, "input")
    said = typed.input or (typed.instructions or "").strip()
    if not said and all(fields.get(name, _NULL) == _NULL for name in _WITHOUT_INPUT):
        raise invalid("`input` must hold text or at least one item.")
    return ResponsesRequest(fields, typed)


def estimate(request: ResponsesRequest) -> int:
    """Return the input tokens of a request, for an upstream that does not say.

    Shape: 4 an item, a quarter of the bytes of every text: instructions, messages, arguments of calls and what tools
           put out; 85 for an image of low detail and 765 for any other. Tools do not count.
    """
    total = _tokens(request.instructions)
    for item in request.items():
        total += _ITEM_TOKENS + _tokens(item.arguments)
        for part in item.parts():
            if part.type == "input_image":
                total += _LOW_DETAIL_TOKENS if part.detail == "low" else _IMAGE_TOKENS
            else:
                total += _tokens(part.text)
    return total


def _tokens(text: object) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN) if isinstance(text, str) else 0


def upstream_body(request: ResponsesRequest, model: Raw, edit: Callable[[Fields], None] | None = None) -> bytes:
    """Write the body of one attempt on a Responses upstream, from the client's own.

    Shape:  `model` is the upstream's id as JSON; `edit` as in `edit_fields`.
    Source: docs/providers.md, "What is edited on the way".
    """
    fields = request.fields.copy()
    fields["model"] = model
    if edit is not None:
        edit_fields(edit, fields)
    return spans.join(fields)


def edit_fields(edit: Callable[[Fields], None], fields: Fields) -> None:
    """Let the edit see the values under every name they go by, and take over what it has changed.

    Shape: `edit` changes a dict of the fields in `EDITABLE`, under the names it knows them by; what it does to other
           names has no place in this dialect and is left out.
    """
    before = {name: fields[ours] for name, ours in EDITABLE.items() if ours in fields}
    after = before.copy()
    edit(after)
    for name, ours in EDITABLE.items():
        value = after.get(name)
        if value == before.get(name):
            continue
        if value is None:
            fields.pop(ours, None)
        else:
            fields[ours] = value


def uneditable(request: ResponsesRequest, edit: Callable[[Fields], None]) -> list[str]:
    """Name what the edit sets and has no place in this dialect."""
    fields = {name: request.fields[ours] for name, ours in EDITABLE.items() if ours in request.fields}
    edit(fields)
    return [name for name in fields if name not in EDITABLE]


def edited(request: ResponsesRequest, edit: Callable[[Fields], None]) -> ResponsesRequest:
    """Return the request as the edit wants it."""
    fields = request.fields.copy()
    edit_fields(edit, fields)
    return parse_request(spans.join(fields))


def with_instructions(
    request: ResponsesRequest, prompt: str, mode: Literal["prepend", "replace", "if_absent"]
) -> ResponsesRequest:
    """Return the request with an operator's system prompt in its instructions; the rest is shared.

    Shape:  "prepend" puts it before the client's instructions. "replace" also removes messages of the system's.
    Source: docs/virtual-models.md, "Presets".
    """
    system = [item.is_system() for item in request.items()]
    if mode == "if_absent" and (request.instructions or any(system)):
        return request
    if mode == "prepend" and request.instructions:
        prompt = f"{prompt}\n\n{request.instructions}"
    fields = request.fields | {"instructions": Raw(_encode(prompt))}
    typed = msgspec.structs.replace(request._typed, instructions=prompt)
    if mode == "replace" and any(system):
        raws = zip(_decode_raws(fields["input"]), system, strict=True)
        fields["input"] = Raw(_encode([raw for raw, drop in raws if not drop]))
        typed = msgspec.structs.replace(typed, input=_decode_items(fields["input"]))
    return ResponsesRequest(fields, typed)
