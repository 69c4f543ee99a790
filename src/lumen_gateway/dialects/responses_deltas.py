"""A Responses stream as neutral deltas, for a client of another dialect.

Every frame is judged by the same reader that stands in a pass-through stream; what it has parsed is put into the
neutral form here. Calls are numbered anew in the order they open. What an item holds when it is done is told then if
it was not told before: compatible servers send some items whole.

Source: OpenAI API reference, "Streaming events" of Responses.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lumen_gateway.dialects.chat_completion import name_of
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    Native,
    NativeDelta,
    Part,
    Raw,
    Refusal,
    RefusalDelta,
    Start,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Used,
)
from lumen_gateway.dialects.responses_parts import DIALECT
from lumen_gateway.dialects.responses_stream import Event, ResponsesStream
from lumen_gateway.dialects.responses_to_neutral import read_finish, read_output
from lumen_gateway.dialects.sse import Frame

_PARAGRAPH = "\n\n"  # between the parts of a summary


class ResponsesDeltas:
    """Reads one upstream stream; `state` is what has become of it. `names` are those of `own_names`."""

    def __init__(self, names: Names = NO_NAMES) -> None:
        self.state = ResponsesStream()
        self._names = names
        self._calls: dict[int, int] = {}  # number of an item -> number of its call
        self._told: set[int] = set()  # numbers of the items of which something was told

    def read(self, frame: Frame) -> list[Delta]:
        """Take one frame; return the steps it brings, none for most that are no output."""
        self.state.read(frame)
        event = self.state.event
        if event is None:
            return []
        if event.type.endswith(".delta"):
            return self._continue(event)
        match event.type:
            case "response.output_item.added":
                return self._open(event)
            case "response.output_item.done":
                return self._close(event)
            case "response.reasoning_summary_part.added" if event.summary_index > 0:
                return [ThinkingDelta(_PARAGRAPH)]
            case "response.created" if event.response is not None:
                return [Start(name_of(event.response.id), name_of(event.response.model))]
            case "response.completed" | "response.incomplete":
                return list(self._end(event))
        return []

    def _continue(self, event: Event) -> list[Delta]:
        text, number = event.delta, event.output_index
        if not (text and isinstance(text, str)):
            return []
        delta: Delta
        match event.type:
            case "response.output_text.delta":
                delta = TextDelta(text)
            case "response.refusal.delta":
                delta = RefusalDelta(text)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                delta = ThinkingDelta(text)
            case "response.function_call_arguments.delta" if number in self._calls:
                delta = CallDelta(self._calls[number], arguments=text)
            case _:
                return []
        self._told.add(number)
        return [delta]

    def _open(self, event: Event) -> list[Delta]:
        return [
            CallDelta(self._number(event.output_index), part.id, part.name)
            for part in self._parts(event.item)
            if isinstance(part, ToolCall)
        ]

    def _number(self, item: int) -> int:
        return self._calls.setdefault(item, len(self._calls))

    def _close(self, event: Event) -> list[Delta]:
        """Tell what is not told yet."""
        if event.output_index in self._told:
            return []
        return [self._whole(event.output_index, part) for part in self._parts(event.item)]

    def _whole(self, item: int, part: Part) -> Delta:
        match part:
            case Text(text=text):
                return TextDelta(text)
            case Refusal(text=text):
                return RefusalDelta(text)
            case Thinking(text=text, signature=signature, redacted=redacted):
                return ThinkingDelta(text, signature, redacted)
            case ToolCall(id=id_, name=name, arguments=arguments) if item not in self._calls:
                return CallDelta(self._number(item), id_, name, arguments)
            case ToolCall(arguments=arguments):
                return CallDelta(self._calls[item], arguments=arguments)
            case Native(block=block):
                return NativeDelta(DIALECT, block)
        raise TypeError(f"{type(part).__name__} is nothing a model puts out")

    def _parts(self, item: Raw) -> list[Part]:
        try:
            return read_output(item, self._names)
        except msgspec.DecodeError:
            return []

    def _end(self, event: Event) -> Iterator[Delta]:
        body, usage = event.response, self.state.usage
        if body is not None:
            details = body.incomplete_details
            yield Finished(read_finish(body.status, details and details.reason, calls=bool(self._calls)))
        if usage is not None:
            yield Used(usage)
