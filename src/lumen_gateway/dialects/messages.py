"""Anthropic Messages, the request: what a client sent, and the body an Anthropic upstream is sent for it.

Between two speakers of this dialect a request passes through: the upstream's body is the client's with a few top-level
spans exchanged, everything else byte for byte, so blocks and fields nobody here knows survive. What comes back is the
matter of `messages_answer` and `messages_stream`, other dialects that of `messages_neutral`.

Source: Anthropic API reference, "Create a Message"; docs/providers.md, "What is edited on the way".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from lumen_gateway.dialects import client_fields, spans
from lumen_gateway.dialects.spans import Fields

Raw = msgspec.Raw

DEFAULT_MAX_TOKENS = 4096
"""Sent where the client set no limit: the API has none of its own and refuses a request without."""

EDITABLE = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
}
"""Fields an operator may override, under the names overrides know them by -> their names here."""

_NULL = Raw(b"null")
_NOTHING = (_NULL, Raw(b"[]"))
_IMAGE_TOKENS = 765
_MESSAGE_TOKENS = 4  # role and separators of one message
_BYTES_PER_TOKEN = 4

_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode


class Block(msgspec.Struct, frozen=True):
    """What is counted of a content block, whatever else it holds."""

    type: Any = None
    text: Any = None
    input: Raw = _NULL
    content: Raw = _NULL


_decode_content = msgspec.json.Decoder(str | list[Block] | None).decode


def content_of(raw: Raw) -> list[Block]:
    """Return content as blocks, in either of its two forms; what is in neither has none."""
    try:
        content = _decode_content(raw)
    except msgspec.DecodeError:  # a shape this gateway does not know: the upstream's to judge
        return []
    return [Block("text", content)] if isinstance(content, str) else content or []


class Message(msgspec.Struct, frozen=True):
    """One turn as the client wrote it. `content` is a string or a list of blocks, decoded by who needs it."""

    role: Literal["user", "assistant", "system"]
    content: Raw

    def text(self) -> str:
        """Return the text of all text blocks, put together."""
        return "".join(block.text for block in content_of(self.content) if isinstance(block.text, str))


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Typed(msgspec.Struct, frozen=True):
    """The fields that are read here, and must therefore be what they are; every other is the upstream's to judge."""

    messages: list[Message] = []
    model: str | None = None
    stream: bool | None = None
    max_tokens: _Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: _Count | None = None
    stop_sequences: list[str] | None = None
    system: Raw = _NULL


_WANTED = {
    "messages": "a non-empty list of objects, each with a `role` (user or assistant) and a `content` "
    "that is a string or a list of blocks",
    "model": "a string",
    "stream": "true or false",
    "temperature": "a number",
    "top_p": "a number",
    "stop_sequences": "a list of strings",
    "system": "a string or a list of text blocks",
}
_decode_typed = msgspec.json.Decoder(_Typed).decode
_decode_messages = msgspec.json.Decoder(list[Message]).decode
_CONTENT = (b'"', b"[")  # what content may begin with


class MessagesRequest:
    """A client's request: its top-level fields as bytes, and the few values that routing and accounting read.

    Shape: `model` is "" when absent; `max_output_tokens` is None when unset, though the API wants it; `n` is always 1,
           and usage is part of every answer. JSON null is unset.
    """

    __slots__ = ("_has_images", "_typed", "fields", "max_output_tokens", "model", "stream")

    include_usage = True
    n = 1

    def __init__(self, fields: Fields, typed: _Typed) -> None:
        self.fields = fields
        self.model = typed.model or ""
        self.stream = typed.stream or False
        self.max_output_tokens = typed.max_tokens
        self._typed = typed
        self._has_images: bool | None = None

    def messages(self) -> list[Message]:
        """Return the turns; never empty."""
        return self._typed.messages

    def has_images(self) -> bool:
        """Say whether any message holds an image, be it inside a tool's result."""
        if self._has_images is None:
            self._has_images = b'"image"' in bytes(self.fields["messages"]) and any(
                _count_images(content_of(message.content)) for message in self._typed.messages
            )
        return self._has_images

    def has_tools(self) -> bool:
        """Say whether the client offers tools."""
        return self.fields.get("tools", _NULL) not in _NOTHING


def parse_request(body: bytes) -> MessagesRequest:
    """Read a client's body far enough to route it.

    Raises: Failure `LM-1001` naming the field at fault, never what it holds.
    """
    fields = spans.split(body)
    typed = client_fields.read(_decode_typed, body, _WANTED, "messages")
    messages = typed.messages
    if not messages or not all(bytes(message.content).startswith(_CONTENT) for message in messages):
        raise client_fields.wrong("messages", _WANTED)
    if typed.system != _NULL and not bytes(typed.system).startswith(_CONTENT):
        raise client_fields.wrong("system", _WANTED)
    return MessagesRequest(fields, typed)


def _count_images(blocks: list[Block]) -> int:
    return sum(
        1 if block.type == "image" else _count_images(content_of(block.content))
        for block in blocks
        if block.type in {"image", "tool_result"}
    )


def estimate(request: MessagesRequest) -> int:
    """Return the input tokens of a request, for an upstream that does not say.

    Shape: 4 a message, a quarter of the bytes of every text: the system prompt, messages, the input of tool calls and
           the text of their results; 765 an image. Tools do not count, and an image's bytes are never decoded.
    """
    system = content_of(request.fields.get("system", _NULL))
    total = _estimate_blocks(system)
    for message in request.messages():
        total += _MESSAGE_TOKENS + _estimate_blocks(content_of(message.content))
    return total


def _estimate_blocks(blocks: list[Block]) -> int:
    total = 0
    for block in blocks:
        if isinstance(block.text, str):
            total += _tokens(len(block.text.encode()))
        elif block.type == "image":
            total += _IMAGE_TOKENS
        elif block.type == "tool_use":
            total += _tokens(len(bytes(block.input)))
        elif block.type == "tool_result":
            total += _estimate_blocks(content_of(block.content))
    return total


def _tokens(size_bytes: int) -> int:
    return -(-size_bytes // _BYTES_PER_TOKEN)


def upstream_body(request: MessagesRequest, model: Raw, edit: Callable[[Fields], None] | None = None) -> bytes:
    """Write the body of one attempt on an Anthropic upstream, from the client's own.

    Shape:  `model` is the upstream's id as JSON; `edit` changes a dict of the fields in `EDITABLE`, under the names it
            knows them by; what it does to other names has no place in this dialect and is left out.
    Source: docs/providers.md, "What is edited on the way".
    """
    fields = request.fields.copy()
    fields["model"] = model
    if edit is not None:
        _apply(edit, fields)
    if fields.get("max_tokens", _NULL) == _NULL:
        fields["max_tokens"] = Raw(b"%d" % DEFAULT_MAX_TOKENS)
    return spans.join(fields)


def uneditable(request: MessagesRequest, edit: Callable[[Fields], None]) -> list[str]:
    """Return the names of the fields that an edit sets and that have no place in this dialect."""
    _, after = _edited(edit, request.fields)
    return [name for name in after if name not in EDITABLE]


def _edited(edit: Callable[[Fields], None], fields: Fields) -> tuple[Fields, Fields]:
    """Show the edit the client's values under every name they go by; return them before and after."""
    before = {name: fields[ours] for name, ours in EDITABLE.items() if ours in fields}
    after = before.copy()
    edit(after)
    return before, after


def counting_body(request: MessagesRequest, model: Raw) -> bytes:
    """Write the body that asks an Anthropic upstream how many tokens a request has: the client's own.

    Source: Anthropic API reference, "Count tokens in a Message".
    """
    return spans.join(request.fields | {"model": model})


def _apply(edit: Callable[[Fields], None], fields: Fields) -> None:
    """Take over what the edit changes."""
    before, after = _edited(edit, fields)
    for name, ours in EDITABLE.items():
        value = after.get(name)
        if value == before.get(name):
            continue
        if value is None:
            fields.pop(ours, None)
        else:
            fields[ours] = Raw(b"[" + bytes(value) + b"]") if bytes(value).startswith(b'"') else value


def with_system(
    request: MessagesRequest, prompt: str, mode: Literal["prepend", "replace", "if_absent"]
) -> MessagesRequest:
    """Return the request with an operator's system prompt in it; the rest is shared.

    Shape:  "prepend" puts it before the client's, in the client's own form: string or blocks. "replace" also removes
            turns of the role system.
    Source: docs/virtual-models.md, "Presets".
    """
    system, messages = request.fields.get("system", _NULL), request.fields["messages"]
    turns = any(message.role == "system" for message in request.messages())
    given = system != _NULL
    if mode == "if_absent" and (given or turns):
        return request
    fields = request.fields | {"system": Raw(_encode(prompt))}
    if mode == "replace":
        return _with_fields(request, fields, _without_system(request) if turns else messages)
    if given:
        fields["system"] = _before(prompt, system)
    return _with_fields(request, fields, messages)


def _before(prompt: str, system: Raw) -> Raw:
    if bytes(system).startswith(b'"'):
        return Raw(_encode(f"{prompt}\n\n{_decode_text(system)}"))
    return Raw(_encode([{"type": "text", "text": prompt}, *_decode_raws(system)]))


def _without_system(request: MessagesRequest) -> Raw:
    raws = zip(_decode_raws(request.fields["messages"]), request.messages(), strict=True)
    return Raw(_encode([raw for raw, message in raws if message.role != "system"]))


def _with_fields(request: MessagesRequest, fields: Fields, messages: Raw) -> MessagesRequest:
    typed = msgspec.structs.replace(request._typed, system=fields["system"])
    if messages is not fields["messages"]:
        fields["messages"] = messages
        typed = msgspec.structs.replace(typed, messages=_decode_messages(messages))
    return MessagesRequest(fields, typed)
