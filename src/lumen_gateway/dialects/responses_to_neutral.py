"""What a Responses client asks, and what a Responses upstream answers, in the neutral form, for the other's dialect.

Items and tools must be what they claim to be, or the client is told so; another field of the wrong type, or with no
neutral counterpart, is named in `unmapped`. What only the upstream that keeps it could answer (`previous_response_id`,
conversations, stored prompts, items by reference) is refused. Streams are read by `responses_deltas`.

Source: OpenAI API reference, "Create a model response"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_calls import NO_ARGUMENTS
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.client_fields import Taken
from lumen_gateway.dialects.neutral import NO_RAW, Native, Part, Raw, Text, Tool, ToolCall, ToolResult, Turn
from lumen_gateway.dialects.responses import ResponsesRequest
from lumen_gateway.dialects.responses_answer import malformed, read_usage
from lumen_gateway.dialects.responses_parts import DIALECT, Content, Reasoning, read_content, read_reasoning
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.errors import invalid

_READ_ELSEWHERE = frozenset(
    {"model", "input", "instructions", "stream_options", "prompt_cache_key", "prompt_cache_retention"}
)  # the last three only save work
_KEPT_UPSTREAM = ("previous_response_id", "conversation", "prompt")
_UNSET = frozenset((b"null", b"false", b"[]", b"{}", b'""'))
_DEFAULTS = {"truncation": b'"disabled"', "service_tier": b'"auto"', "include": b'["reasoning.encrypted_content"]'}
_ROLES: dict[str, neutral.Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


class _Kind(msgspec.Struct, frozen=True):
    type: str = "message"


class _Message(msgspec.Struct, frozen=True):
    role: str = ""
    content: Content = None


class _Call(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    arguments: str = ""


class _Output(msgspec.Struct, frozen=True):
    call_id: str
    output: Content = None


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: Raw = NO_RAW
    strict: bool | None = None


class _Choice(msgspec.Struct, frozen=True):
    type: Literal["function"]
    name: str


class _Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str = ""
    schema: Raw = NO_RAW
    strict: bool | None = None
    description: str | None = None


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: _Format | None = None
    verbosity: str | None = None


class _Effort(msgspec.Struct, frozen=True):
    effort: str | None = None


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_output = msgspec.json.Decoder(_Output).decode
_decode_reasoning = msgspec.json.Decoder(Reasoning).decode
_decode_items = msgspec.json.Decoder(str | list[Raw] | None).decode
_decode_tools = msgspec.json.Decoder(list[Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_choice = msgspec.json.Decoder(Literal["auto", "none", "required"] | _Choice).decode
_decode_text = msgspec.json.Decoder(_Text).decode
_decode_effort = msgspec.json.Decoder(_Effort).decode
_VALUES: dict[str, tuple[str, Callable[[Raw], Any]]] = {
    "safety_identifier": ("user", msgspec.json.Decoder(str).decode),
    "user": ("user", msgspec.json.Decoder(str).decode),
    "stream": ("stream", msgspec.json.Decoder(bool).decode),
    "max_output_tokens": ("max_tokens", msgspec.json.Decoder(int).decode),
    "temperature": ("temperature", msgspec.json.Decoder(float).decode),
    "top_p": ("top_p", msgspec.json.Decoder(float).decode),
    "parallel_tool_calls": ("parallel_tool_calls", msgspec.json.Decoder(bool).decode),
}
"""Fields that are carried as they are: their neutral names, and how they are read."""


def read_request(request: ResponsesRequest) -> neutral.Request:
    """Return what a client asks for.

    Shape:  instructions are the first turn. What the assistant said and called, item by item, is one turn, and so are
            the results of calls that stand together.
    Raises: Failure `LM-1001` for items or tools that are none, and for what only a Responses upstream could know.
    """
    for name in _KEPT_UPSTREAM:
        if bytes(request.fields.get(name, NO_RAW)) not in _UNSET:
            raise invalid(
                f"`{name}` names what an upstream has kept, and the model asked for does not speak Responses: "
                "send the whole conversation in `input`."
            )
    parameters = _Parameters(request)
    return neutral.Request(turns=_read_turns(request), **parameters.asked, unmapped=parameters.unmapped)


def _read_turns(request: ResponsesRequest) -> list[Turn]:
    turns = _Turns()
    if request.instructions:
        turns.add("system", [Text(text=request.instructions)])
    items = _decode_items(request.fields.get("input", NO_RAW))
    if isinstance(items, str):
        turns.add("user", read_content(items))
        return turns.turns
    for index, raw in enumerate(items or ()):
        try:
            turns.take(raw)
        except (msgspec.DecodeError, RecursionError):
            raise invalid(f"`input[{index}]` is not what its `type` says.") from None
    return turns.turns


class _Turns:
    """Puts turns together, item by item."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._names: dict[str, str] = {}  # id of a call -> its tool

    def take(self, raw: Raw) -> None:
        """Take the next item.

        Raises: Failure `LM-1001` for an unknown role or an item by reference; msgspec.ValidationError.
        """
        match _decode_kind(raw).type:
            case "message":
                message = _decode_message(raw)
                if message.role not in _ROLES:
                    raise invalid("A message's `role` must be user, assistant, system or developer.")
                self.add(_ROLES[message.role], read_content(message.content))
            case "function_call_output":
                result = _decode_output(raw)
                name = self._names.get(result.call_id, "")
                self.add("tool", [ToolResult(call_id=result.call_id, name=name, parts=read_content(result.output))])
            case "item_reference":
                raise invalid("An `item_reference` names what an upstream has kept: send the item itself in `input`.")
            case kind:
                parts = read_item(kind, raw)
                self._names.update((part.id, part.name) for part in parts if isinstance(part, ToolCall))
                self.add("assistant", parts)

    def add(self, role: neutral.Role, parts: list[Part]) -> None:
        """Add parts to the last turn where they belong to it, else as a turn of their own."""
        if role in {"assistant", "tool"} and self.turns and self.turns[-1].role == role:
            parts = [*self.turns.pop().parts, *parts]
        self.turns.append(Turn(role, parts))


def read_item(kind: str, raw: Raw, names: Names = NO_NAMES) -> list[Part]:
    """Return what a model has put out, other than a message, as parts.

    Raises: msgspec.ValidationError.
    """
    match kind:
        case "function_call":
            call = _decode_call(raw)
            name = names.get(call.name, call.name)
            return [ToolCall(id=call.call_id, name=name, arguments=call.arguments.strip() or NO_ARGUMENTS)]
        case "reasoning":
            thinking = read_reasoning(_decode_reasoning(raw))
            return [] if thinking is None else [thinking]
    return [Native(dialect=DIALECT, block=raw)]


class _Parameters(Taken):
    """What is asked beside the conversation. `asked` is what it says, `unmapped` names what could not be read."""

    def __init__(self, request: ResponsesRequest) -> None:
        super().__init__(
            {
                name: raw
                for name, raw in request.fields.items()
                if name not in _READ_ELSEWHERE and bytes(raw) not in _UNSET and bytes(raw) != _DEFAULTS.get(name)
            }
        )
        for name, (ours, decode) in _VALUES.items():
            self._ask(ours, self._take(name, decode))
        if bytes(request.fields.get("parallel_tool_calls", NO_RAW)) == b"false":
            self._ask("parallel_tool_calls", False)
        self._ask("tools", _read_tools(self._left.pop("tools", Raw(b"[]"))) or None)
        self._read_choice()
        self._read_output()
        self.unmapped += self._left

    def _read_choice(self) -> None:
        choice = self._take("tool_choice", _decode_choice)
        if isinstance(choice, _Choice):
            self._ask("tool_choice", neutral.ToolChoice("tool", choice.name))
        elif choice is not None:
            self._ask("tool_choice", neutral.ToolChoice(choice))

    def _read_output(self) -> None:
        reasoning = self._take("reasoning", _decode_effort)
        if reasoning is not None and reasoning.effort:
            self._ask("reasoning", neutral.Reasoning(reasoning.effort, enabled=reasoning.effort != "none"))
        text = self._take("text", _decode_text) or _Text()
        if text.verbosity not in {None, "medium"}:
            self.unmapped.append("text.verbosity")
        form = text.format
        if form is not None and form.type != "text":
            self._ask("format", neutral.Format(form.type, form.name, form.schema, form.strict, form.description or ""))


def _read_tools(raw: Raw) -> list[Tool]:
    try:
        return [_read_tool(tool) for tool in _decode_tools(raw)]
    except msgspec.ValidationError:
        raise invalid(
            "`tools` must be a list of tools, each with a `type` and, if that is function, a `name`."
        ) from None


def _read_tool(raw: Raw) -> Tool:
    kind = _decode_kind(raw).type
    if kind != "function":  # a tool the vendor runs, or one without a schema
        return Tool(kind, native=raw, dialect=DIALECT)
    tool = _decode_tool(raw)
    return Tool(tool.name, tool.description or "", tool.parameters, tool.strict)


class _Incomplete(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Body(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""
    status: str | None = None
    output: list[Raw] | None = None
    incomplete_details: _Incomplete | None = None
    usage: Any = None


_decode_body = msgspec.json.Decoder(_Body).decode


def read_answer(body: bytes, names: Names = NO_NAMES) -> neutral.Answer:
    """Return an upstream's answer; `names` are the client's own names of tools by those that were sent.

    Raises: Failure `MALFORMED` when it is no response.
    """
    try:
        answer = _decode_body(body)
        parts = [part for raw in answer.output or () for part in read_output(raw, names)]
    except UNREADABLE:
        raise malformed() from None
    reason = answer.incomplete_details.reason if answer.incomplete_details is not None else None
    return neutral.Answer(
        id=answer.id,
        model=answer.model,
        parts=parts,
        finish=read_finish(answer.status, reason, calls=any(isinstance(part, ToolCall) for part in parts)),
        usage=read_usage(answer.usage),
    )


def read_output(raw: Raw, names: Names) -> list[Part]:
    """Return what an item of the output holds, messages included.

    Raises: msgspec.ValidationError.
    """
    kind = _decode_kind(raw).type
    return read_content(_decode_message(raw).content) if kind == "message" else read_item(kind, raw, names)


def read_finish(status: object, reason: object, *, calls: bool) -> neutral.Finish:
    """Return why it ended; a reason not known here is that of an answer cut short."""
    if status == "incomplete":
        return "content_filter" if reason == "content_filter" else "length"
    return "tool_calls" if calls else "stop"
