"""The neutral form as Anthropic Messages: the request for an Anthropic upstream, the answer for a Messages client.

For requests the wire is strict: turns alternate, the results of tools come first in the user's turn right behind the
calls, no text is blank, `max_tokens` is there. All of that is seen to here; what thinking and sampling a model takes
stands in `messages_limits`. Streams are written by `messages_writer`.

What this dialect has no place for is left out of the body, and `uncarried` names it: a strict provider refuses by that.
Thinking of earlier turns that nothing proves goes unnamed, since the model would not be shown it either.

Source: Anthropic API reference, "Create a Message"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.messages_limits import cut, limits
from lumen_gateway.dialects.messages_parts import DIALECT, Wire, write_call, write_part, write_parts
from lumen_gateway.dialects.neutral import (
    NO_RAW,
    Native,
    Part,
    Raw,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
)
from lumen_gateway.records import Usage

_ANY_MODEL = Raw(b'""')
_ANY_OBJECT = Raw(b'{"type":"object"}')
_CHOICES = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}
_STOP_REASONS: dict[neutral.Finish, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
    "error": "end_turn",  # never seen: an answer that failed is no answer
}
_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode


def write_request(request: Request, model: Raw) -> bytes:
    """Return the body for an Anthropic upstream; `model` is its id as JSON.

    Shape: system turns, wherever they stood, are the system prompt; if there is nothing else, they are what the user
           says, since a request without a message is refused.
    """
    system = [part for turn in request.turns if turn.role == "system" for part in turn.parts if isinstance(part, Text)]
    messages = _messages(turn for turn in request.turns if turn.role != "system")
    if not messages and (blocks := write_parts(system)):
        system, messages = [], [{"role": "user", "content": blocks}]
    body: Wire = {"model": model, "messages": messages}
    if prompt := _system(system):
        body["system"] = prompt
    body |= limits(request, _decode_text(model)) | _options(request)
    if request.format is not None and request.format.kind == "json_schema":
        form = {"format": {"type": "json_schema", "schema": request.format.schema}}
        effort = body.get("output_config")
        body["output_config"] = {**effort, **form} if isinstance(effort, dict) else form
    return _encode(body)


def _options(request: Request) -> Wire:
    fields: Wire = {}
    if tools := [wire for tool in request.tools if (wire := _tool(tool)) is not None]:
        fields["tools"] = tools
        if choice := _choice(request):
            fields["tool_choice"] = choice
    if stop := [text for text in request.stop if text.strip()]:
        fields["stop_sequences"] = stop
    if request.user:
        fields["metadata"] = {"user_id": request.user}
    if request.stream:
        fields["stream"] = True
    return fields


def _system(texts: Sequence[Text]) -> str | list[Wire | Raw]:
    """Return the texts joined by a blank line, or as blocks where one of them ends a cached prefix."""
    if any(text.cache != NO_RAW for text in texts):
        return write_parts(texts)
    return "\n\n".join(text.text for text in texts if text.text.strip())


class _Message(msgspec.Struct, frozen=True):
    """A message being put together. Results of tools must come before all else."""

    role: str
    results: list[Wire | Raw]
    others: list[Wire | Raw]

    def content(self) -> object:
        """Return its blocks; a single plain text as the string it is."""
        match [*self.results, *self.others]:
            case [{"type": "text", "text": text, **more}] if not more:
                return text
            case blocks:
                return blocks


def _messages(turns: Iterable[Turn]) -> list[Wire]:
    """Return the turns as messages that alternate; a turn that says nothing is left out."""
    messages: list[_Message] = []
    for turn in turns:
        role = "assistant" if turn.role == "assistant" else "user"
        for part in turn.parts:
            block = write_part(part) if _has_place(part, turn.role) else None
            if block is None:
                continue
            if not messages or messages[-1].role != role:
                messages.append(_Message(role, [], []))
            last = messages[-1]
            (last.results if isinstance(part, ToolResult) else last.others).append(block)
    return [{"role": message.role, "content": message.content()} for message in messages]


def _tool(tool: Tool) -> Wire | Raw | None:
    if tool.native != NO_RAW:
        return tool.native if tool.dialect == DIALECT else None
    fields: Wire = {"name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    fields["input_schema"] = _ANY_OBJECT if tool.schema == NO_RAW else tool.schema
    if tool.cache != NO_RAW:
        fields["cache_control"] = tool.cache
    return fields


def _choice(request: Request) -> Wire | None:
    choice = request.tool_choice
    single = request.parallel_tool_calls is False
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if single else None
    fields: Wire = {"type": _CHOICES[choice.mode]}
    if choice.mode == "tool":
        fields["name"] = choice.tool
    if single and choice.mode != "none":
        fields["disable_parallel_tool_use"] = True
    return fields


def uncarried(request: Request, model: Raw = _ANY_MODEL) -> list[str]:
    """Return the names of set fields that this dialect, or this model, has no place for."""
    values = {
        "seed": request.seed is not None,
        "presence_penalty": bool(request.presence_penalty),
        "frequency_penalty": bool(request.frequency_penalty),
        "response_format": request.format is not None and request.format.kind == "json_object",
        "tools": any(tool.native != NO_RAW and tool.dialect != DIALECT for tool in request.tools),
        "tools.strict": any(tool.strict for tool in request.tools),
    }
    names = [name for name, lost in values.items() if lost] + cut(request, _decode_text(model))
    names += [_name(part) for turn in request.turns for part in turn.parts if not _has_place(part, turn.role)]
    return list(dict.fromkeys(names))


def _has_place(part: Part, role: neutral.Role) -> bool:
    """Say whether a turn of this role may hold such a part."""
    match part:
        case Text():
            return True
        case Native():
            return part.dialect == DIALECT and role != "system"
        case Thinking() | ToolCall() | Refusal():
            return role == "assistant"
        case ToolResult():
            return role == "tool"
    return role in {"user", "tool"}


def _name(part: Part) -> str:
    return "messages.content" if isinstance(part, Native) else f"messages.content.{type(part).__name__.lower()}"


def write_answer(answer: neutral.Answer) -> bytes:
    """Return the answer as a Messages client reads it.

    Shape: thinking that nothing proves is shown all the same; only what is empty as well is left out.
    """
    blocks = [block for part in answer.parts if (block := _write_said(part)) is not None]
    calls = any(isinstance(part, ToolCall) for part in answer.parts)
    return _encode(
        {
            "id": answer.id,
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": blocks,
            "stop_reason": stop_reason(answer.finish, answer.stop_sequence, calls=calls),
            "stop_sequence": answer.stop_sequence or None,
            "usage": write_usage(answer.usage),
        }
    )


def _write_said(part: Part) -> Wire | Raw | None:
    match part:
        case Thinking(text=text, signature="", redacted="") if text:
            return {"type": "thinking", "thinking": text, "signature": ""}
        case Text(text=text) | Refusal(text=text) if text and not text.strip():
            return {"type": "text", "text": text}  # blank, but said
        case ToolCall():
            return write_call(part, part.id)  # it comes back as it went
    return write_part(part)


def stop_reason(finish: neutral.Finish, stop_sequence: str, *, calls: bool) -> str:
    """Return why it ended in this dialect's words. Calls want their results, though some upstreams say a plain stop."""
    if finish == "stop" and calls:
        return "tool_use"
    if finish == "stop" and stop_sequence:
        return "stop_sequence"
    return _STOP_REASONS[finish]


def write_usage(usage: Usage | None) -> dict[str, object]:
    """Return the counts as this API has them: the cache's tokens stand beside `input_tokens`, not in it.

    Shape: estimates are marked, which is ours. Without counts there are zeros: the API's clients look for a `usage`.
    """
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached, written = usage.cached or 0, usage.cache_write or 0
    fields: dict[str, object] = {"input_tokens": max(usage.input - cached - written, 0)}
    if usage.cache_write is not None:
        fields["cache_creation_input_tokens"] = usage.cache_write
    if usage.cached is not None:
        fields["cache_read_input_tokens"] = usage.cached
    fields["output_tokens"] = usage.output
    if usage.reasoning is not None:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.origin == "estimated":
        fields["estimated"] = True
    return fields
