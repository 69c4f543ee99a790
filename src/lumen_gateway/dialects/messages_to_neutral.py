"""What a Messages client asks, and what an Anthropic upstream answers, in the neutral form, for the other's dialect.

Messages and tools must be what they claim to be, or the client is told so; another field of the wrong type, or with no
neutral counterpart, is left out and named in `unmapped`; not so where it only saves work, as a cache marker does.
Between two speakers of this dialect nothing of this runs: `messages` passes the bytes through. Streams are read by
`messages_deltas`.

Source: Anthropic API reference, "Create a Message"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.client_fields import Taken
from lumen_gateway.dialects.messages import Message, MessagesRequest
from lumen_gateway.dialects.messages_answer import read_usage
from lumen_gateway.dialects.messages_parts import DIALECT, read_content
from lumen_gateway.dialects.neutral import NO_RAW, Part, Raw, Tool, ToolCall, ToolResult, Turn
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import Failure, Kind, invalid

FINISHES: dict[str, neutral.Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
}

_UNSET = frozenset((b"null", b"false", b"[]", b"{}", b'""'))
_MODES: dict[str, Literal["auto", "none", "required", "tool"]] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
    "tool": "tool",
}


class _Tool(msgspec.Struct, frozen=True):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = NO_RAW
    strict: bool | None = None
    cache_control: Raw = NO_RAW


class _Choice(msgspec.Struct, frozen=True):
    type: Literal["auto", "none", "any", "tool"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Thinking(msgspec.Struct, frozen=True):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None


class _Format(msgspec.Struct, frozen=True):
    type: Literal["json_schema"]
    schema: Raw


class _Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    format: _Format | None = None


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: str | None = None


class _Asides(msgspec.Struct, frozen=True):
    """What a document has beside its content."""

    type: Any = None
    citations: Any = None
    context: Any = None

    def names(self) -> list[str]:
        """Return the names of what is asked here, if this is a document."""
        if self.type != "document":
            return []
        cited = isinstance(self.citations, dict) and self.citations.get("enabled")
        return ["messages.content.citations"] * bool(cited) + ["messages.content.context"] * bool(self.context)


_decode_content = msgspec.json.Decoder(str | list[Raw]).decode
_decode_asides = msgspec.json.Decoder(str | list[_Asides]).decode
_decode_tools = msgspec.json.Decoder(list[Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_choice = msgspec.json.Decoder(_Choice).decode
_decode_thinking = msgspec.json.Decoder(_Thinking).decode
_decode_output = msgspec.json.Decoder(_Output).decode
_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_VALUES: dict[str, tuple[str, Callable[[Raw], Any]]] = {
    "stream": ("stream", msgspec.json.Decoder(bool).decode),
    "max_tokens": ("max_tokens", msgspec.json.Decoder(int).decode),
    "temperature": ("temperature", msgspec.json.Decoder(float).decode),
    "top_p": ("top_p", msgspec.json.Decoder(float).decode),
    "top_k": ("top_k", msgspec.json.Decoder(int).decode),
    "stop_sequences": ("stop", msgspec.json.Decoder(list[str]).decode),
}
"""Fields that are carried as they are: their neutral names, and how they are read."""


def read_request(request: MessagesRequest) -> neutral.Request:
    """Return what a client asks for.

    Shape:  the system prompt is the first turn; the results of tools stand in a turn before what else the user says.
            A turn may be without parts.
    Raises: Failure `LM-1001` for messages, system prompt or tools that are none; it never says what they hold.
    """
    turns, parameters = _read_turns(request), _Parameters(request)
    unmapped = [*parameters.unmapped, *_lost_of_documents(request)]
    return neutral.Request(turns=turns, **parameters.asked, unmapped=unmapped)


def _read_turns(request: MessagesRequest) -> list[Turn]:
    turns: list[Turn] = []
    names: dict[str, str] = {}  # id of a call -> its tool
    system = request.fields.get("system", NO_RAW)
    if system != NO_RAW and (parts := _read("system", system)):
        turns.append(Turn("system", parts))
    for index, message in enumerate(request.messages()):
        turns += _read_message(message, f"messages[{index}].content", names)
    return turns


def _read_message(message: Message, place: str, names: dict[str, str]) -> list[Turn]:
    parts = _read(place, message.content)
    names.update((part.id, part.name) for part in parts if isinstance(part, ToolCall))
    results: list[Part] = [
        msgspec.structs.replace(part, name=names.get(part.call_id, ""))
        for part in parts
        if isinstance(part, ToolResult)
    ]
    if not results:
        return [Turn(message.role, parts)]
    said = [part for part in parts if not isinstance(part, ToolResult)]
    return [Turn("tool", results), Turn(message.role, said)] if said else [Turn("tool", results)]


def _read(place: str, content: Raw) -> list[Part]:
    try:
        return read_content(_decode_content(content))
    except (msgspec.DecodeError, RecursionError):
        raise invalid(f"`{place}` holds a block that is not what its `type` says.") from None


def _lost_of_documents(request: MessagesRequest) -> list[str]:
    """Return the names of what is asked about documents beside their reading, which other dialects cannot do."""
    if b'"document"' not in bytes(request.fields["messages"]):
        return []
    contents = [_decode_asides(message.content) for message in request.messages()]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    return list(dict.fromkeys(name for block in blocks for name in block.names()))


class _Parameters(Taken):
    """What is asked beside the conversation. `asked` is what it says, `unmapped` names what could not be read."""

    def __init__(self, request: MessagesRequest) -> None:
        super().__init__(
            {
                name: raw
                for name, raw in request.fields.items()
                if name not in {"model", "messages", "system", "cache_control"} and bytes(raw) not in _UNSET
            }
        )
        for name, (ours, decode) in _VALUES.items():
            self._ask(ours, self._take(name, decode))
        self._ask("tools", _read_tools(self._left.pop("tools", Raw(b"[]"))) or None)
        self._read_choice()
        self._read_output()
        metadata = self._take("metadata", _decode_metadata)
        self._ask("user", metadata and metadata.user_id)
        self.unmapped += self._left

    def _read_choice(self) -> None:
        choice = self._take("tool_choice", _decode_choice)
        if choice is None:
            return
        self._ask("tool_choice", neutral.ToolChoice(_MODES[choice.type], choice.name))
        if choice.disable_parallel_tool_use is not None:
            self._ask("parallel_tool_calls", not choice.disable_parallel_tool_use)

    def _read_output(self) -> None:
        thinking = self._take("thinking", _decode_thinking)
        output = self._take("output_config", _decode_output) or _Output()
        if thinking is not None or output.effort:
            enabled = thinking is None or thinking.type != "disabled"
            budget = None if thinking is None else thinking.budget_tokens
            self._ask("reasoning", neutral.Reasoning(output.effort or "", budget, enabled))
        if output.format is not None:
            self._ask("format", neutral.Format("json_schema", schema=output.format.schema))


def _read_tools(raw: Raw) -> list[Tool]:
    try:
        return [_read_tool(tool) for tool in _decode_tools(raw)]
    except msgspec.ValidationError:
        raise invalid("`tools` must be a list of tools, each with a `name` and an `input_schema`.") from None


def _read_tool(raw: Raw) -> Tool:
    tool = _decode_tool(raw)
    if tool.type not in {None, "custom"}:  # a tool the vendor runs or has trained
        return Tool(tool.name, native=raw, dialect=DIALECT, cache=tool.cache_control)
    return Tool(tool.name, tool.description or "", tool.input_schema, tool.strict, tool.cache_control)


class _Details(msgspec.Struct, frozen=True):
    explanation: str | None = None


class _Body(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: _Details | None = None
    usage: Any = None


_decode_body = msgspec.json.Decoder(_Body).decode


def read_answer(body: bytes) -> neutral.Answer:
    """Return an upstream's answer. What a refusal says in its details is part of it.

    Raises: Failure `MALFORMED` when it is no message.
    """
    try:
        answer = _decode_body(body)
        parts = read_content(answer.content)
    except UNREADABLE:
        raise Failure(Kind.MALFORMED, "The upstream's answer is not a message.") from None
    if answer.stop_details is not None and answer.stop_details.explanation:
        parts.append(neutral.Refusal(text=answer.stop_details.explanation))
    return neutral.Answer(
        id=answer.id,
        model=answer.model,
        parts=parts,
        finish=read_finish(answer.stop_reason),
        stop_sequence=answer.stop_sequence or "",
        usage=read_usage(answer.usage),
    )


def read_finish(stop_reason: str | None) -> neutral.Finish:
    """Return why it ended; a reason not known here is a plain stop."""
    return FINISHES.get(stop_reason or "", "stop")
