"""Neutral deltas as an Anthropic stream, for a Messages client before an upstream of another dialect.

This wire shows one block after the other, each opened, filled and closed, with numbers that only grow. Other wires may
open several calls at once and fill them by turns, or go on with text while a call is not yet whole. So blocks stand in
a queue: the first is on the wire and goes out as it comes, those behind it wait. It gives way as soon as something
waits and it is whole, which for a call means arguments that are a JSON object; at the end every block is.

Source: Anthropic API reference, "Streaming messages".
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.messages_answer import DONE
from lumen_gateway.dialects.messages_from_neutral import stop_reason, write_usage
from lumen_gateway.dialects.messages_parts import DIALECT, Wire
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
from lumen_gateway.records import Usage

_Kind = Literal["text", "thinking", "tool_use", "whole"]
_TEXT: Wire = {"type": "text", "text": ""}
_THINKING: Wire = {"type": "thinking", "thinking": "", "signature": ""}

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class _Block:
    """One block: on the wire, or waiting for its turn."""

    __slots__ = ("arguments", "closed", "kind", "opening", "waiting")

    def __init__(self, kind: _Kind, opening: Wire | Raw) -> None:
        self.kind = kind
        self.opening = opening
        self.waiting: list[bytes] = []  # deltas that could not go out yet
        self.arguments: list[str] = []  # of a call
        self.closed = kind == "whole"  # takes nothing more

    def is_whole(self) -> bool:
        """Say whether nothing more can come, once something else has."""
        if self.kind != "tool_use":
            return True
        if not (self.arguments and self.arguments[-1].rstrip().endswith("}")):
            return False
        try:
            _decode_object("".join(self.arguments))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class MessagesWriter:
    """Writes one stream. What `write` and `end` return, put together, is the stream."""

    sequence = 0  # events have no numbers here

    def __init__(self) -> None:
        self._started = False
        self._index = 0  # of the block on the wire, which is the first of the queue
        self._queue: deque[_Block] = deque()
        self._calls: dict[int, _Block] = {}
        self._finish: neutral.Finish = "stop"
        self._stop_sequence = ""
        self._usage: Usage | None = None

    def write(self, delta: Delta) -> bytes:
        """Take one step; return what of the stream it brings, b"" for what has to wait or has no place here."""
        match delta:
            case TextDelta(text=text) | RefusalDelta(text=text):
                return self._extend("text", b'"text_delta","text":', text) if text else b""
            case ThinkingDelta():
                return self._think(delta)
            case CallDelta():
                return self._call(delta)
            case NativeDelta(dialect=dialect, block=block):
                return self._add(_Block("whole", block)) if dialect == DIALECT else b""
            case Start(id=id_, model=model, usage=usage):
                return self._start(id_, model, usage)
            case Finished(finish=finish, stop_sequence=stop_sequence):
                self._finish, self._stop_sequence = finish, stop_sequence
            case Used(usage=usage):
                self._usage = usage
        return b""

    def end(self) -> bytes:
        """Close what is open and return the end of the stream: why it stopped, what it used, the terminator."""
        out = self._begin()
        while self._queue:
            out += self._next()
        reason = stop_reason(self._finish, self._stop_sequence, calls=bool(self._calls))
        step = {"stop_reason": reason, "stop_sequence": self._stop_sequence or None}
        out += _event("message_delta", delta=step, usage=write_usage(self._usage))
        return out + DONE

    def _begin(self) -> bytes:
        return b"" if self._started else self._start("", "", None)

    def _start(self, id_: str, model: str, usage: Usage | None) -> bytes:
        if self._started:
            return b""
        self._started = True
        head = {"id": id_, "type": "message", "role": "assistant", "model": model, "content": []}
        end = {"stop_reason": None, "stop_sequence": None, "usage": write_usage(usage)}
        self._usage = usage or self._usage
        return _event("message_start", message=head | end)

    def _think(self, delta: ThinkingDelta) -> bytes:
        """Show thinking. A signature closes its block: what follows belongs to another."""
        out = b""
        if delta.redacted:
            out += self._add(_Block("whole", {"type": "redacted_thinking", "data": delta.redacted}))
        if delta.text:
            out += self._extend("thinking", b'"thinking_delta","thinking":', delta.text)
        if delta.signature:
            out += self._extend("thinking", b'"signature_delta","signature":', delta.signature)
            self._queue[-1].closed = True
        return out

    def _extend(self, kind: Literal["text", "thinking"], delta: bytes, text: str) -> bytes:
        """Put text into the last block if it is of that kind, else into a new one."""
        out = b""
        if not self._queue or self._queue[-1].kind != kind or self._queue[-1].closed:
            out = self._add(_Block(kind, _TEXT if kind == "text" else _THINKING))
        return out + self._fill(self._queue[-1], delta, text)

    def _call(self, delta: CallDelta) -> bytes:
        out = b""
        block = self._calls.get(delta.index)
        if block is None:
            opening: Wire = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
            block = self._calls[delta.index] = _Block("tool_use", opening)
            out = self._add(block)
        if not delta.arguments or block.closed:
            return out
        block.arguments.append(delta.arguments)
        out += self._fill(block, b'"input_json_delta","partial_json":', delta.arguments)
        return out + self._advance()

    def _fill(self, block: _Block, delta: bytes, text: str) -> bytes:
        piece = delta + _encode(text)
        if block is self._queue[0]:
            return self._step(piece)
        block.waiting.append(piece)
        return b""

    def _add(self, block: _Block) -> bytes:
        """Queue a block; open it if it is the first, or let those before it give way."""
        self._queue.append(block)
        if len(self._queue) == 1:
            return self._begin() + self._open()
        return self._advance()

    def _advance(self) -> bytes:
        out = b""
        while len(self._queue) > 1 and self._queue[0].is_whole():
            out += self._next()
        return out

    def _next(self) -> bytes:
        """Close the first block and open the one behind it."""
        block = self._queue[0]
        out = b""
        if block.kind == "tool_use" and not block.arguments:
            out = self._step(b'"input_json_delta","partial_json":"{}"')
        out += _event("content_block_stop", index=self._index)
        block.closed = True
        self._queue.popleft()
        self._index += 1
        return out + self._open() if self._queue else out

    def _open(self) -> bytes:
        block = self._queue[0]
        out = _event("content_block_start", index=self._index, content_block=block.opening)
        out += b"".join(map(self._step, block.waiting))
        block.waiting.clear()
        return out

    def _step(self, delta: bytes) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b}}\n\n'
            % (self._index, delta)
        )


def _event(kind: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))
