"""What a chat client asks beside its messages, as arguments of a neutral request.

A field of the wrong type, or with no neutral counterpart, is left out and named in `unmapped`, for strict providers to
refuse. Only tools must be readable, since a model without the tools it was promised answers something else.

Source: OpenAI API reference, "Create chat completion"; OpenRouter, "Reasoning tokens"; Anthropic, "Extended thinking".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from lumen_gateway.dialects.client_fields import Taken
from lumen_gateway.dialects.neutral import NO_RAW, Format, Raw, Reasoning, Tool, ToolChoice
from lumen_gateway.dialects.spans import Fields

_UNSET = frozenset((b"null", b"false", b"[]", b"{}", b'""'))
_READ_BY_OTHERS = frozenset(
    {"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
)


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: Raw = NO_RAW
    strict: bool | None = None
    cache_control: Raw = NO_RAW


class _Tool(msgspec.Struct, frozen=True):
    type: str = "function"
    function: _Function | None = None
    cache_control: Raw = NO_RAW


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Choice(msgspec.Struct, frozen=True):
    function: _Named


class _Schema(msgspec.Struct, frozen=True):
    name: str = ""
    description: str | None = None
    schema: Raw = NO_RAW
    strict: bool | None = None


class _Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema = _Schema()


class _Reasoning(msgspec.Struct, frozen=True):
    """`reasoning` as OpenRouter has it, `thinking` as Anthropic and those who follow."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool = True
    type: str = ""
    budget_tokens: int | None = None


_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_functions = msgspec.json.Decoder(list[_Function]).decode
_decode_choice = msgspec.json.Decoder(str | _Choice).decode
_decode_old_choice = msgspec.json.Decoder(str | _Named).decode
_decode_stop = msgspec.json.Decoder(str | list[Any]).decode
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_reasoning = msgspec.json.Decoder(_Reasoning).decode
_decode_text = msgspec.json.Decoder(str).decode

_decode_int = msgspec.json.Decoder(int).decode
_decode_float = msgspec.json.Decoder(float).decode

_VALUES: dict[str, Callable[[Raw], Any]] = {
    "parallel_tool_calls": msgspec.json.Decoder(bool).decode,
    "temperature": _decode_float,
    "top_p": _decode_float,
    "top_k": _decode_int,
    "seed": _decode_int,
    "presence_penalty": _decode_float,
    "frequency_penalty": _decode_float,
    "user": _decode_text,
}
"""Fields that are carried as they are, under their own names."""

_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral's word
}


class Parameters(Taken):
    """The top-level fields of one request. `asked` is what they say, `unmapped` names what could not be read."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(
            {name: raw for name, raw in fields.items() if name not in _READ_BY_OTHERS and bytes(raw) != b"null"}
        )

    def read(self) -> None:
        """Read everything, each field once.

        Raises: msgspec.ValidationError for tools that are none.
        """
        if not self._left:
            return
        self._ask("tools", self._tools())
        self._ask("tool_choice", self._tool_choice())
        self._ask("stop", self._stop())
        self._ask("format", self._format())
        self._ask("reasoning", self._reasoning())
        for name, decode in _VALUES.items():
            self._ask(name, self._take(name, decode))
        self.unmapped += [name for name, raw in self._left.items() if bytes(raw) not in _UNSET]

    def _tools(self) -> Sequence[Tool] | None:
        tools = [_read_tool(raw) for raw in _decode_list(self._left.pop("tools", b"[]"))]
        tools += [_read_function(function) for function in _decode_functions(self._left.pop("functions", b"[]"))]
        return tools or None

    def _tool_choice(self) -> ToolChoice | None:
        choice = self._take("tool_choice", _decode_choice)
        if isinstance(choice, _Choice):
            return ToolChoice("tool", choice.function.name)
        if choice is not None:
            return self._mode("tool_choice", choice)
        old = self._take("function_call", _decode_old_choice)
        if isinstance(old, _Named):
            return ToolChoice("tool", old.name)
        return None if old is None else self._mode("function_call", old)

    def _mode(self, field: str, word: str) -> ToolChoice | None:
        mode = _MODES.get(word)
        if mode is None:
            self.unmapped.append(field)
            return None
        return ToolChoice(mode)

    def _stop(self) -> Sequence[str] | None:
        stop = self._take("stop", _decode_stop)
        if stop is None:
            return None
        items = [stop] if isinstance(stop, str) else stop
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            self.unmapped.append("stop")
        return texts or None

    def _format(self) -> Format | None:
        wanted = self._take("response_format", _decode_format)
        if wanted is None or wanted.type == "text":
            return None
        schema = wanted.json_schema
        return Format(wanted.type, schema.name, schema.schema, schema.strict, schema.description or "")

    def _reasoning(self) -> Reasoning | None:
        """Return the first word given: OpenAI's effort, OpenRouter's object, Anthropic's object."""
        effort = self._take("reasoning_effort", _decode_text)
        objects = [self._take(name, _decode_reasoning) for name in ("reasoning", "thinking")]
        if effort:
            return Reasoning(effort, enabled=effort != "none")
        return next((_read_reasoning(wanted) for wanted in objects if wanted is not None), None)


def _read_tool(raw: Raw) -> Tool:
    tool = _decode_tool(raw)
    if tool.function is None:
        return Tool(tool.type, native=raw, dialect="chat")
    return _read_function(tool.function, tool.cache_control)


def _read_function(function: _Function, cache: Raw = NO_RAW) -> Tool:
    return Tool(
        function.name,
        function.description or "",
        function.parameters,
        function.strict,
        function.cache_control if cache == NO_RAW else cache,
    )


def _read_reasoning(wanted: _Reasoning) -> Reasoning:
    budget = wanted.max_tokens if wanted.budget_tokens is None else wanted.budget_tokens
    enabled = wanted.enabled and wanted.type != "disabled" and wanted.effort != "none"
    return Reasoning(wanted.effort or "", budget, enabled)
