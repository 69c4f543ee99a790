"""A neutral request as OpenAI Responses, for a Responses upstream of a client of another dialect.

Nothing is to be kept by the upstream (`store` is false), since no client of another dialect could ask for it again.
What this dialect has no place for is left out of the body, and `uncarried` names it: a strict provider refuses by that.
Cache markers go unnamed, since without them the answer is the same. Answers are written by `responses_writer`.

Source: OpenAI API reference, "Create a model response"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_from_neutral import effort_of
from lumen_gateway.dialects.chat_names import sent_name
from lumen_gateway.dialects.neutral import (
    NO_RAW,
    Native,
    Part,
    Raw,
    Refusal,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Turn,
)
from lumen_gateway.dialects.responses_parts import DIALECT, Wire, is_written, write_parts

_ANY_OBJECT = Raw(b'{"type":"object","properties":{}}')
_encode = msgspec.json.Encoder().encode


def write_request(request: Request, model: Raw) -> bytes:
    """Return the body for a Responses upstream; `model` is its id as JSON.

    Shape: system turns, wherever they stood, are the instructions; if there is nothing else, they are the input, since
           a request without one is refused.
    """
    system = [
        part.text for turn in request.turns if turn.role == "system" for part in turn.parts if isinstance(part, Text)
    ]
    items = [item for turn in request.turns if turn.role != "system" for item in _items(turn)]
    instructions = "\n\n".join(system)
    body: Wire = {"model": model, "input": items or instructions, "store": False}
    if items and instructions:
        body["instructions"] = instructions
    return _encode(body | _options(request) | _tools(request))


def _options(request: Request) -> Wire:
    fields: Wire = {
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "user": request.user or None,
        "stream": request.stream or None,
        "text": None if request.format is None else {"format": _write_format(request.format)},
        "reasoning": None if request.reasoning is None else _write_reasoning(request.reasoning),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _write_format(wanted: neutral.Format) -> Wire:
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    form: Wire = {"type": "json_schema", "name": wanted.name or "answer", "schema": wanted.schema}
    if wanted.description:
        form["description"] = wanted.description
    if wanted.strict is not None:
        form["strict"] = wanted.strict
    return form


def _write_reasoning(reasoning: neutral.Reasoning) -> Wire | None:
    effort = effort_of(reasoning)
    return {"effort": effort} if effort else None


def _tools(request: Request) -> Wire:
    tools = [_write_tool(tool) for tool in request.tools if _is_known(tool)]
    if not tools:
        return {}
    fields: Wire = {"tools": tools}
    if request.tool_choice is not None:
        fields["tool_choice"] = _write_choice(request.tool_choice)
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _is_known(tool: neutral.Tool) -> bool:
    return tool.native == NO_RAW or tool.dialect == DIALECT


def _write_tool(tool: neutral.Tool) -> Wire | Raw:
    """Return a tool. Unset, `strict` would be true here, and schemas that other dialects take be refused."""
    if tool.native != NO_RAW:
        return tool.native
    schema = _ANY_OBJECT if tool.schema == NO_RAW else tool.schema
    fields: Wire = {"type": "function", "name": sent_name(tool.name), "parameters": schema}
    if tool.description:
        fields["description"] = tool.description
    return fields | {"strict": tool.strict or False}


def _write_choice(choice: neutral.ToolChoice) -> object:
    return choice.mode if choice.mode != "tool" else {"type": "function", "name": sent_name(choice.tool)}


def _items(turn: Turn) -> Iterator[Wire | Raw]:
    """Yield the items of a turn; one that says nothing has none."""
    match turn.role:
        case "assistant":
            yield from _assistant(turn.parts)
        case "tool":
            for part in turn.parts:
                if isinstance(part, ToolResult):
                    output = write_parts(part.parts)
                    yield {"type": "function_call_output", "call_id": part.call_id, "output": output}
        case _:
            if content := write_parts(turn.parts):
                yield {"type": "message", "role": "user", "content": content}


def _assistant(parts: Sequence[Part]) -> Iterator[Wire | Raw]:
    said: list[Wire] = []
    for part in parts:
        if isinstance(part, Text | Refusal):
            said += [{"type": "output_text", "text": part.text} if isinstance(part, Text) else _refusal(part)]
            continue
        if said:
            yield {"type": "message", "role": "assistant", "content": said}
            said = []
        match part:
            case ToolCall():
                name = sent_name(part.name)
                yield {"type": "function_call", "call_id": part.id, "name": name, "arguments": part.arguments}
            case Native(dialect=dialect, block=block) if dialect == DIALECT:
                yield block
    if said:
        yield {"type": "message", "role": "assistant", "content": said}


def _refusal(part: Refusal) -> Wire:
    return {"type": "refusal", "refusal": part.text}


def uncarried(request: Request) -> list[str]:
    """Return the names of set fields that this dialect has no place for."""
    values = {
        "top_k": request.top_k is not None,
        "stop": bool(request.stop),
        "seed": request.seed is not None,
        "presence_penalty": bool(request.presence_penalty),
        "frequency_penalty": bool(request.frequency_penalty),
        "tools": not all(map(_is_known, request.tools)),
    }
    names = [name for name, lost in values.items() if lost]
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
    """Yield the name of a part that has no place; thinking without proof goes unnamed, as no model is shown it."""
    match part:
        case Text():
            return
        case Thinking(signature="", redacted=""):
            return
        case ToolCall() | Refusal() if role == "assistant":
            return
        case Native() if part.dialect == DIALECT:
            return
        case _ if role == "user" and is_written(part):
            return
    yield "messages.content" if isinstance(part, Native) else f"messages.content.{type(part).__name__.lower()}"
