"""An Anthropic stream as neutral deltas, for a client of another dialect.

Every frame is judged by the same reader that stands in a pass-through stream; what it has parsed is put into the
neutral form here. Blocks are told apart by the upstream's own numbers, calls numbered anew in the order they open. A
call without arguments ends as `{}`; a block that only this dialect has comes whole, when it closes.

Source: Anthropic API reference, "Streaming messages".
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lumen_gateway.dialects.messages_answer import Counts
from lumen_gateway.dialects.messages_parts import DIALECT, read_input
from lumen_gateway.dialects.messages_stream import Event, MessagesStream
from lumen_gateway.dialects.messages_to_neutral import read_finish
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    NativeDelta,
    Raw,
    RefusalDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    Used,
)
from lumen_gateway.dialects.sse import Frame

_EMPTY_OBJECT = Raw(b"{}")


class _Opening(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = _EMPTY_OBJECT


_decode_opening = msgspec.json.Decoder(_Opening).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Block(msgspec.Struct):
    """A block that is open. `call` numbers a tool call, None for a block only this dialect has."""

    call: int | None
    opening: Raw
    input: str  # what it opened with; calls of some compatible servers come whole
    told: list[str]


class MessagesDeltas:
    """Reads one upstream stream; `state` is what has become of it."""

    def __init__(self) -> None:
        self.state = MessagesStream()
        self._blocks: dict[int, _Block] = {}
        self._calls = 0

    def read(self, frame: Frame) -> list[Delta]:
        """Take one frame; return the steps it brings, none for most that are no output."""
        self.state.read(frame)
        event = self.state.event
        if event is None:
            return []
        match event.type:
            case "content_block_delta":
                return self._continue(event)
            case "content_block_start":
                return self._open(event)
            case "content_block_stop":
                return self._close(event.index)
            case "message_start":
                return [_start(event)]
            case "message_delta":
                return list(self._end(event))
        return []

    def _open(self, event: Event) -> list[Delta]:
        try:
            opening = _decode_opening(event.content_block)
        except msgspec.ValidationError:
            return []
        match opening.type:
            case "text":
                return [TextDelta(opening.text)] if opening.text else []
            case "thinking":
                shown = opening.thinking or opening.signature
                return [ThinkingDelta(opening.thinking, opening.signature)] if shown else []
            case "redacted_thinking":
                return [ThinkingDelta(redacted=opening.data)]
        call = None
        if opening.type == "tool_use":
            call, self._calls = self._calls, self._calls + 1
        self._blocks[event.index] = _Block(call, event.content_block, bytes(opening.input).decode(), [])
        return [] if call is None else [CallDelta(call, opening.id, opening.name)]

    def _continue(self, event: Event) -> list[Delta]:
        step = event.delta
        if step is None:
            return []
        match step.type:
            case "text_delta" if isinstance(step.text, str) and step.text:
                return [TextDelta(step.text)]
            case "thinking_delta" if isinstance(step.thinking, str) and step.thinking:
                return [ThinkingDelta(step.thinking)]
            case "signature_delta" if isinstance(step.signature, str) and step.signature:
                return [ThinkingDelta(signature=step.signature)]
            case "input_json_delta" if isinstance(step.partial_json, str) and step.partial_json:
                return self._tell(event.index, step.partial_json)
        return []

    def _tell(self, index: int, arguments: str) -> list[Delta]:
        block = self._blocks.get(index)
        if block is None:
            return []
        block.told.append(arguments)
        return [] if block.call is None else [CallDelta(block.call, arguments=arguments)]

    def _close(self, index: int) -> list[Delta]:
        block = self._blocks.pop(index, None)
        if block is None:
            return []
        if block.call is None:
            return [NativeDelta(DIALECT, _whole(block))]
        return [] if block.told else [CallDelta(block.call, arguments=block.input)]

    def _end(self, event: Event) -> Iterator[Delta]:
        step, usage = event.delta, self.state.usage
        if step is not None and isinstance(step.stop_reason, str):
            if explanation := _explanation(step.stop_details):
                yield RefusalDelta(explanation)
            yield Finished(read_finish(step.stop_reason), _text(step.stop_sequence))
        if usage is not None:
            yield Used(usage)


def _whole(block: _Block) -> Raw:
    if not block.told:
        return block.opening
    return Raw(_encode(_decode_fields(block.opening) | {"input": read_input("".join(block.told))}))


def _explanation(details: object) -> str:
    return _text(details.get("explanation")) if isinstance(details, dict) else ""


def _start(event: Event) -> Start:
    message, counts = event.message, Counts()
    if message is None:
        return Start("", "")
    counts.take(message.usage)
    return Start(_text(message.id), _text(message.model), counts.usage())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
