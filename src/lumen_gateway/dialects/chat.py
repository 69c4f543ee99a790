"""OpenAI Chat Completions, the request: what a client sent, and the body each attempt sends upstream.

Between two speakers of this dialect a request passes through: the upstream's body is the client's with a few top-level
spans exchanged, everything else byte for byte. What comes back is the matter of `chat_answer`, `chat_stream` and
`chat_repair`.

Source: OpenAI API reference, "Create chat completion"; docs/providers.md, "What is edited on the way".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from lumen_gateway.dialects import client_fields, spans
from lumen_gateway.dialects.spans import Fields

_NULL = msgspec.Raw(b"null")
_TRUE = msgspec.Raw(b"true")
_NOTHING = (_NULL, msgspec.Raw(b"[]"))
_SYSTEM = msgspec.Raw(b'"system"')
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')

_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_decode_objects = msgspec.json.Decoder(list[Fields]).decode
_decode_object = msgspec.json.Decoder(Fields).decode


class _Part(msgspec.Struct, frozen=True):
    type: Any = "text"
    text: Any = None
    image_url: msgspec.Raw = _NULL

    def is_text(self) -> bool:
        return self.type == "text" and self.image_url == _NULL


class _Image(msgspec.Struct, frozen=True):
    detail: Any = None


_decode_content = msgspec.json.Decoder(str | list[_Part] | None).decode
_decode_image = msgspec.json.Decoder(_Image).decode


class Message(msgspec.Struct, frozen=True):
    """One turn as the client wrote it; only `role` is promised. `content` is decoded by who needs it."""

    role: str
    content: msgspec.Raw = _NULL

    def text(self) -> str:
        """Return the text of all text parts, put together. A part with an image is never text."""
        content = self._decoded()
        if isinstance(content, str):
            return content
        return "".join(part.text for part in content if part.is_text() and isinstance(part.text, str))

    def image_details(self) -> list[str]:
        """Return the `detail` of each image, "auto" where none is given. Whatever has `image_url` is an image."""
        content = self._decoded()
        if isinstance(content, str):
            return []
        return [_detail(part.image_url) for part in content if part.image_url != _NULL]

    def _decoded(self) -> str | list[_Part]:
        try:
            return _decode_content(self.content) or ""
        except msgspec.DecodeError:  # a shape this gateway does not know: the upstream's to judge
            return ""


def _detail(image_url: msgspec.Raw) -> str:
    try:
        detail = _decode_image(image_url).detail
    except msgspec.DecodeError:
        detail = None
    return detail if isinstance(detail, str) else "auto"


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Typed(msgspec.Struct, frozen=True):
    """The fields that are read here, and must therefore be what they are; every other is the upstream's to judge."""

    messages: list[Message] = []
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    n: _Count | None = None
    temperature: float | None = None
    top_p: float | None = None


_WANTED = {
    "messages": "a non-empty list of objects, each with a `role` that is a string",
    "model": "a string",
    "stream": "true or false",
    "stream_options": "an object with `include_usage` a boolean",
    "temperature": "a number",
    "top_p": "a number",
}
_decode_typed = msgspec.json.Decoder(_Typed).decode
_decode_messages = msgspec.json.Decoder(list[Message]).decode


class ChatRequest:
    """A client's request: its top-level fields as bytes, and the few values that routing and accounting read.

    Shape: `model` is "" when absent; `max_output_tokens` is None when unset; `n` is 1 when unset. JSON null is unset.
    """

    __slots__ = (
        "_has_images",
        "_typed",
        "fields",
        "include_usage",
        "max_output_tokens",
        "model",
        "n",
        "stream",
    )

    def __init__(self, fields: Fields, typed: _Typed) -> None:
        self.fields = fields
        self.model = typed.model or ""
        self.stream = typed.stream or False
        self.n = typed.n or 1
        options = typed.stream_options
        self.include_usage = options is not None and options.include_usage is True
        tokens = typed.max_completion_tokens
        self.max_output_tokens = typed.max_tokens if tokens is None else tokens
        self._typed = typed
        self._has_images: bool | None = None

    def messages(self) -> list[Message]:
        """Return the turns; never empty."""
        return self._typed.messages

    def has_images(self) -> bool:
        """Say whether any part of any message has an `image_url`."""
        if self._has_images is None:
            self._has_images = b'"image_url"' in bytes(self.fields["messages"]) and any(
                message.image_details() for message in self._typed.messages
            )
        return self._has_images

    def has_tools(self) -> bool:
        """Say whether the client offers tools, in today's or the old `functions` form."""
        fields = self.fields
        return fields.get("tools", _NULL) not in _NOTHING or fields.get("functions", _NULL) not in _NOTHING


def parse_request(body: bytes) -> ChatRequest:
    """Read a client's body far enough to route it.

    Raises: Failure `LM-1001` naming the field at fault, never what it holds.
    """
    fields = spans.split(body)
    typed = client_fields.read(_decode_typed, body, _WANTED, "messages")
    if not typed.messages:
        raise client_fields.wrong("messages", _WANTED)
    return ChatRequest(fields, typed)


def with_messages(request: ChatRequest, messages: msgspec.Raw) -> ChatRequest:
    """Return the request with other messages; the rest is shared."""
    typed = msgspec.structs.replace(request._typed, messages=_decode_messages(messages))
    return ChatRequest(request.fields | {"messages": messages}, typed)


class ChatRules(msgspec.Struct, frozen=True):
    """What an upstream makes of the fields on which compatible servers differ."""

    include_usage: bool = True  # takes stream_options.include_usage
    developer: bool = False  # takes the role `developer`; others are sent `system`
    max_tokens_field: str | None = None  # the only one of max_tokens and max_completion_tokens it honours
    strict: bool = False  # refuse what a translation cannot carry, instead of leaving it out


OPEN = ChatRules()
_MAX_TOKENS_FIELDS = ("max_tokens", "max_completion_tokens")


def upstream_body(
    request: ChatRequest, model: msgspec.Raw, rules: ChatRules, edit: Callable[[Fields], None] | None = None
) -> bytes:
    """Write the body of one attempt, from the client's own and nothing an earlier attempt changed.

    Shape:  `model` is the upstream's id as JSON; `edit` changes the copied fields in place, before the rules apply.
    Source: docs/providers.md, "What is edited on the way".
    """
    fields = request.fields.copy()
    fields["model"] = model
    if edit is not None:
        edit(fields)
    if request.stream:
        _ask_for_usage(fields, rules)
    if not rules.developer:
        _rename_developer(fields)
    if rules.max_tokens_field is not None:
        fields = _with_max_tokens(fields, rules.max_tokens_field)
    return spans.join(fields)


def _ask_for_usage(fields: Fields, rules: ChatRules) -> None:
    options = fields.get("stream_options", _NULL)
    if options == _NULL:
        if rules.include_usage:
            fields["stream_options"] = _INCLUDE_USAGE
        return
    merged = _decode_object(options)
    if rules.include_usage:
        if merged.get("include_usage") == _TRUE:
            return
        merged["include_usage"] = _TRUE
    else:
        merged.pop("include_usage", None)
    if merged:
        fields["stream_options"] = msgspec.Raw(_encode(merged))
    else:
        del fields["stream_options"]


def _rename_developer(fields: Fields) -> None:
    if b'"developer"' not in bytes(fields["messages"]):
        return
    messages = _decode_objects(fields["messages"])
    for message in messages:
        if _decode_text(message["role"]) == "developer":
            message["role"] = _SYSTEM
    fields["messages"] = msgspec.Raw(_encode(messages))


def _with_max_tokens(fields: Fields, wanted: str) -> Fields:
    """Return the fields with the limit under the wanted name, in its place; of two limits the wanted one stays."""
    (other,) = (name for name in _MAX_TOKENS_FIELDS if name != wanted)
    if other not in fields:
        return fields
    if fields.get(wanted, _NULL) != _NULL:
        del fields[other]
        return fields
    fields.pop(wanted, None)
    return {wanted if name == other else name: value for name, value in fields.items()}
