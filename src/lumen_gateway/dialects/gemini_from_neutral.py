"""The neutral form as a Gemini request. There are no Gemini clients, so answers are only read, in `gemini_answer`.

The system prompt stands apart, turns of one role are one content, and the results of a round of calls are a content of
their own, in the order of the calls: they are told apart by nothing but their names and places. What this dialect has
no place for is left out of the body, and `uncarried` names it: a strict provider refuses by that.

Source: Gemini API reference, "GenerateContentRequest"; docs/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lumen_gateway.dialects.gemini_names import sent_name
from lumen_gateway.dialects.gemini_parts import Wire, write_part, write_result
from lumen_gateway.dialects.gemini_schema import cleaned
from lumen_gateway.dialects.gemini_thinking import can_think, thinking_config, wants_signatures
from lumen_gateway.dialects.neutral import NO_RAW, Format, Native, Part, Raw, Request, Tool, ToolCall, ToolResult, Turn

MAX_STOPS = 5
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}
_UNSIGNED = "skip_thought_signature_validator"  # Google's own word for a call that its model has not made
_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode


def write_request(request: Request, model: Raw) -> bytes:
    """Return the body for a model; its id, as JSON, stands in the path.

    Shape:  system turns, wherever they stood, are the system prompt; if there is nothing else, they are what the user
            says.
    Raises: Failure `LM-2004` for a picture or document that is not inline.
    """
    name = _decode_text(model)
    system = _write_parts(part for turn in request.turns if turn.role == "system" for part in turn.parts)
    contents = _contents(request.turns, signed=wants_signatures(name))
    if not contents and system:
        system, contents = [], [{"role": "user", "parts": system}]
    body: Wire = {"contents": contents}
    if system:
        body["systemInstruction"] = {"parts": system}
    if tools := [_declaration(tool) for tool in request.tools if tool.native == NO_RAW]:
        body["tools"] = [{"functionDeclarations": tools}]
        if choice := _calling(request):
            body["toolConfig"] = {"functionCallingConfig": choice}
    if config := _config(request, name):
        body["generationConfig"] = config
    return _encode(body)


def _write_parts(parts: Iterable[Part]) -> list[Wire]:
    return [wire for part in parts if (wire := write_part(part)) is not None]


def _contents(turns: Sequence[Turn], *, signed: bool) -> list[Wire]:
    contents: list[Wire] = []
    calls: dict[str, str] = {}  # id of a call -> its tool, in the order of the calls
    last, gathered = "", list[Wire]()
    for turn in _joined(turns):
        calls.update((part.id, part.name) for part in turn.parts if isinstance(part, ToolCall))
        parts = _results(turn, calls) if turn.role == "tool" else _write_parts(turn.parts)
        if not parts:
            continue
        if turn.role == last:  # what stood between them said nothing
            gathered += parts
            continue
        last, gathered = turn.role, parts
        contents.append({"role": "model" if last == "assistant" else "user", "parts": gathered})
    if signed:
        for content in contents:
            _sign(content["parts"])
    return contents


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns but the system's, neighbours of one role as one."""
    joined: list[Turn] = []
    for turn in turns:
        if turn.role == "system":
            continue
        if joined and joined[-1].role == turn.role:
            joined[-1] = Turn(turn.role, [*joined[-1].parts, *turn.parts])
        else:
            joined.append(turn)
    return joined


def _results(turn: Turn, calls: dict[str, str]) -> list[Wire]:
    places = {id_: place for place, id_ in enumerate(calls)}
    results = [part for part in turn.parts if isinstance(part, ToolResult)]
    results.sort(key=lambda result: places.get(result.call_id, len(places)))
    return [
        wire
        for result in results
        for wire in write_result(result, calls.get(result.call_id) or result.name or result.call_id)
    ]


def _sign(parts: object) -> None:
    """Mark the first call of a turn as foreign if it has no signature. The calls beside it have none of their own."""
    assert isinstance(parts, list)
    for part in parts:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", _UNSIGNED)
            return


def _declaration(tool: Tool) -> Wire:
    fields: Wire = {"name": sent_name(tool.name)}
    if tool.description:
        fields["description"] = tool.description
    if tool.schema != NO_RAW:
        fields["parametersJsonSchema"] = cleaned(tool.schema)
    return fields


def _calling(request: Request) -> Wire | None:
    choice = request.tool_choice
    if choice is None:
        return None
    only: Wire = {"allowedFunctionNames": [sent_name(choice.tool)]} if choice.mode == "tool" else {}
    return {"mode": _MODES[choice.mode], **only}


def _config(request: Request, model: str) -> Wire:
    values = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
        "stopSequences": list(request.stop[:MAX_STOPS]) or None,
        "seed": request.seed,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
    }
    config: Wire = {name: value for name, value in values.items() if value is not None}
    if request.format is not None:
        config |= _write_format(request.format)
    if request.reasoning is not None and can_think(model):
        config["thinkingConfig"] = thinking_config(request.reasoning, model)
    return config


def _write_format(form: Format) -> Wire:
    fields: Wire = {"responseMimeType": "application/json"}
    if form.kind == "json_schema" and form.schema != NO_RAW:
        fields["responseJsonSchema"] = cleaned(form.schema)
    return fields


def uncarried(request: Request, model: Raw) -> list[str]:
    """Return the names of set fields that this dialect, or this model, has no place for."""
    reasoning = request.reasoning
    values = {
        "parallel_tool_calls": request.parallel_tool_calls is False and bool(request.tools),
        "stop": len(request.stop) > MAX_STOPS,
        "tools": any(tool.native != NO_RAW for tool in request.tools),
        "tools.strict": any(tool.strict for tool in request.tools),
        "reasoning": reasoning is not None and reasoning.enabled and not can_think(_decode_text(model)),
        "messages.content": any(isinstance(part, Native) for turn in request.turns for part in turn.parts),
    }
    return [name for name, lost in values.items() if lost]
