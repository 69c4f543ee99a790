"""A neutral request as the body of a chat upstream, for a client of another dialect.

What this dialect has no place for is left out of the body, and `uncarried` names it: a strict provider refuses by that.
Cache markers alone go unnamed, since without them the answer is the same.

Source: OpenAI API reference, "Create chat completion"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.dialects.chat_calls import write_call
from lumen_gateway.dialects.chat_names import sent_name
from lumen_gateway.dialects.chat_parts import DIALECT, is_written, write_parts
from lumen_gateway.dialects.chat_thinking import write_thinking
from lumen_gateway.dialects.neutral import (
    NO_RAW,
    Native,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Turn,
)

_encode = msgspec.json.Encoder().encode

Message = dict[str, object]

_LOW_TOKENS, _MEDIUM_TOKENS = 2048, 8192  # budgets up to these are called low and medium effort
_SHOWN_BELOW = "[see the next user message]"


def write_request(request: neutral.Request, model: Raw, rules: ChatRules) -> bytes:
    """Write the body of one attempt. `model` is the upstream's id as JSON."""
    fields: dict[str, object] = {"model": model, "messages": list(_write_messages(request.turns))}
    if request.max_tokens is not None:
        fields[rules.max_tokens_field or "max_tokens"] = request.max_tokens
    _write_values(fields, request)
    _write_tools(fields, request)
    if request.format is not None:
        fields["response_format"] = _write_format(request.format)
    if request.reasoning is not None and (effort := effort_of(request.reasoning)):
        fields["reasoning_effort"] = effort
    if request.stream:
        fields["stream"] = True
        if rules.include_usage:
            fields["stream_options"] = {"include_usage": True}
    return _encode(fields)


def _write_values(fields: dict[str, object], request: neutral.Request) -> None:
    for name in ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"):
        value = getattr(request, name)
        if value is not None:
            fields[name] = value
    if request.stop:
        fields["stop"] = request.stop
    if request.user:
        fields["user"] = request.user


def _write_tools(fields: dict[str, object], request: neutral.Request) -> None:
    tools = [_write_tool(tool) for tool in request.tools if _is_known(tool)]
    if not tools:  # upstreams refuse the other two alone
        return
    fields["tools"] = tools
    if request.tool_choice is not None:
        fields["tool_choice"] = _write_choice(request.tool_choice)
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls


def _is_known(tool: neutral.Tool) -> bool:
    return tool.native == NO_RAW or tool.dialect == DIALECT


def _write_tool(tool: neutral.Tool) -> Raw | dict[str, object]:
    if tool.native != NO_RAW:
        return tool.native
    function: dict[str, object] = {"name": sent_name(tool.name)}
    if tool.description:
        function["description"] = tool.description
    if tool.schema != NO_RAW:
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _write_choice(choice: neutral.ToolChoice) -> object:
    return choice.mode if choice.mode != "tool" else {"type": "function", "function": {"name": sent_name(choice.tool)}}


def _write_format(wanted: neutral.Format) -> dict[str, object]:
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    schema: dict[str, object] = {"name": wanted.name or "answer", "schema": wanted.schema}
    if wanted.description:
        schema["description"] = wanted.description
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": schema}


def effort_of(reasoning: neutral.Reasoning) -> str:
    """Return the word for it, "" for none: to be silent about reasoning is how most upstreams are told not to."""
    if reasoning.effort:
        return "high" if reasoning.effort == "max" else reasoning.effort
    if not reasoning.enabled or reasoning.budget_tokens is None:
        return ""
    if reasoning.budget_tokens <= _LOW_TOKENS:
        return "low"
    return "medium" if reasoning.budget_tokens <= _MEDIUM_TOKENS else "high"


def _write_messages(turns: Iterable[Turn]) -> Iterator[Message]:
    """Yield the messages. What a tool showed besides text opens the user message after its results, or is one."""
    shown: list[object] = []
    for turn in turns:
        if turn.role == "tool":
            for part in turn.parts:
                if isinstance(part, ToolResult):
                    yield _write_result(part, shown)
            continue
        if turn.role != "user" and shown:
            yield {"role": "user", "content": shown}
            shown = []
        match turn.role:
            case "system" if texts := _texts(turn.parts):
                yield _named(turn, "\n\n".join(texts))
            case "user":
                yield _named(turn, _content([*shown, *write_parts(turn.parts)]))
                shown = []
            case "assistant":
                yield from _write_assistant(turn)
    if shown:
        yield {"role": "user", "content": shown}


def _named(turn: Turn, content: object) -> Message:
    message: Message = {"role": turn.role, "content": content}
    if turn.name:
        message["name"] = turn.name
    return message


def _texts(parts: Iterable[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


def _content(parts: list[object]) -> object:
    """Return the plain text of one text or none, which every server takes; else the list."""
    match parts:
        case []:
            return ""
        case [{"type": "text", "text": text}]:
            return text
    return parts


def _write_result(result: ToolResult, shown: list[object]) -> Message:
    """Return the text of a result; move what else is in it behind, with a word on whose it is."""
    texts = _texts(result.parts)
    moved = write_parts(part for part in result.parts if not isinstance(part, Text))
    if moved:
        shown += [{"type": "text", "text": f"[shown by the tool call {result.call_id}]"}, *moved]
        texts.append(_SHOWN_BELOW)
    return {"role": "tool", "tool_call_id": result.call_id, "content": "\n".join(texts)}


def _write_assistant(turn: Turn) -> Iterator[Message]:
    """Yield the turn, unless there is nothing in it that may stand alone: upstreams refuse an empty one."""
    texts = _texts(turn.parts)
    calls = [write_call(part, sent_name(part.name)) for part in turn.parts if isinstance(part, ToolCall)]
    refusals = [part.text for part in turn.parts if isinstance(part, Refusal)]
    if not (texts or calls or refusals):
        return
    message = _named(turn, "".join(texts) if texts else None)
    message |= write_thinking(part for part in turn.parts if isinstance(part, Thinking))
    if refusals:
        message["refusal"] = "".join(refusals)
    if calls:
        message["tool_calls"] = calls
    yield message


def uncarried(request: neutral.Request) -> list[str]:
    """Return the names of set fields that this dialect has no place for, for strict providers to refuse."""
    names = ["top_k"] if request.top_k is not None else []
    if not all(map(_is_known, request.tools)):
        names.append("tools")
    for turn in request.turns:
        for part in turn.parts:
            names += _lost_of_result(part) if isinstance(part, ToolResult) else _lost(part, turn.role)
    return list(dict.fromkeys(names))


def _lost_of_result(result: ToolResult) -> Iterator[str]:
    if result.is_error:
        yield "messages.content.is_error"
    for part in result.parts:
        yield from _lost(part, "user")


def _lost(part: Part, role: neutral.Role) -> Iterator[str]:
    if isinstance(part, Text) or (role == "user" and is_written(part)):
        return
    if role == "assistant" and isinstance(part, Thinking | ToolCall | Refusal):
        return
    yield "messages.content" if isinstance(part, Native) else f"messages.content.{type(part).__name__.lower()}"
