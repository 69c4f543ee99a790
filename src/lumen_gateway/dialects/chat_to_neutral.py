"""A chat client's request in the neutral form, for an upstream of another dialect.

Messages must be what they claim to be, or the client is told so; what is asked beside them is read by
`chat_parameters`. Between two speakers of this dialect nothing of this runs: `chat` passes the bytes through.

Source: OpenAI API reference, "Create chat completion"; docs/providers.md.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat import ChatRequest
from lumen_gateway.dialects.chat_calls import Call, Function
from lumen_gateway.dialects.chat_parameters import Parameters
from lumen_gateway.dialects.chat_parts import Content, DataUriError, read_content
from lumen_gateway.dialects.chat_thinking import Reasoned
from lumen_gateway.dialects.neutral import NO_RAW, Part, Raw, Turn
from lumen_gateway.errors import Failure, invalid

_ROLES: dict[str, neutral.Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",  # the old form of it
}


class _Message(Reasoned, frozen=True, kw_only=True):
    role: str
    content: Content = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    function_call: Function | None = None
    refusal: str | None = None
    audio: Raw = NO_RAW
    cache_control: Raw = NO_RAW


_decode_messages = msgspec.json.Decoder(list[_Message]).decode


def read_request(request: ChatRequest) -> neutral.Request:
    """Return what a client asks for.

    Shape:  the results of calls made together stand in one turn. A turn may be without parts.
    Raises: Failure `LM-1001` for messages or tools that are none; it never says what they hold.
    """
    parameters = Parameters(request.fields)
    turns = _Turns(parameters.unmapped)
    for index, message in enumerate(_messages(request)):
        try:
            turns.add(message)
        except DataUriError:
            raise invalid(
                f"`messages[{index}].content` holds a `data:` URI that is not `data:<media type>;base64,<data>`."
            ) from None
        except msgspec.ValidationError as exc:
            raise _odd(f"messages[{index}].content", exc) from None
    try:
        parameters.read()
    except msgspec.ValidationError as exc:
        raise _odd("tools", exc) from None
    if request.n > 1:
        parameters.unmapped.append("n")
    return neutral.Request(
        turns=turns.turns,
        max_tokens=request.max_output_tokens,
        stream=request.stream,
        unmapped=parameters.unmapped,
        **parameters.asked,
    )


def _messages(request: ChatRequest) -> list[_Message]:
    try:
        return _decode_messages(request.fields["messages"])
    except msgspec.ValidationError as exc:
        raise _odd("messages", exc) from None


def _odd(field: str, exc: msgspec.ValidationError) -> Failure:
    """Blame the field; msgspec's own words hold no values, but what it expects is our shape, not the client's."""
    path = str(exc).partition("at `$")[2].removesuffix("`")
    return invalid(f"`{field}{path}` is not what a chat request may hold there.")


class _Turns:
    """Puts turns together, message by message."""

    def __init__(self, unmapped: list[str]) -> None:
        self.turns: list[Turn] = []
        self._unmapped = unmapped
        self._results: list[Part] = []  # of the turn that is open while tools answer
        self._calls: dict[str, str] = {}  # id of every call -> its tool
        self._waiting: list[str] = []  # ids of the calls that no tool has answered yet

    def add(self, message: _Message) -> None:
        """Take the next message.

        Raises: Failure `LM-1001` for an unknown role or a tool's answer to nothing.
        """
        role = _ROLES.get(message.role)
        if role is None:
            raise invalid("A message's `role` must be system, developer, user, assistant, tool or function.")
        if role == "tool":
            self._add_result(message)
            return
        self._results = []
        parts = self._assistant(message) if role == "assistant" else read_content(message.content)
        calls = {part.id: part.name for part in parts if isinstance(part, neutral.ToolCall)}
        self._calls |= calls
        self._waiting = list(calls)
        if parts and message.cache_control != NO_RAW:
            parts[-1] = msgspec.structs.replace(parts[-1], cache=message.cache_control)
        self.turns.append(Turn(role, parts, message.name or ""))

    def _add_result(self, message: _Message) -> None:
        call_id = message.tool_call_id or self._answered_by(message)
        if call_id in self._waiting:
            self._waiting.remove(call_id)
        if not self._results:
            self.turns.append(Turn("tool", self._results))
        self._results.append(
            neutral.ToolResult(
                call_id=call_id,
                name=message.name or self._calls.get(call_id, ""),
                parts=read_content(message.content),
                cache=message.cache_control,
            )
        )

    def _answered_by(self, message: _Message) -> str:
        """Return the call that a message without an id answers: the first that waits, of its name if it has one.

        The old function messages never have an id; a few servers, and so their clients, do without as well.
        """
        for call_id in self._waiting:
            if message.name in (None, "", self._calls[call_id]):
                return call_id
        raise invalid("A message with the role `tool` must have the `tool_call_id` of the call it answers.")

    def _assistant(self, message: _Message) -> list[Part]:
        parts: list[Part] = [*message.thinking(), *read_content(message.content)]
        if message.refusal:
            parts.append(neutral.Refusal(text=message.refusal))
        for call in message.tool_calls or ():
            if call.function is None:
                self._unmapped.append("messages.tool_calls")
            else:
                parts.append(call.function.read(call.id or "", call.signature()))
        if message.function_call is not None:
            parts.append(message.function_call.read(f"call_{len(self.turns)}"))
        if message.audio != NO_RAW:
            self._unmapped.append("messages.audio")
        return parts
