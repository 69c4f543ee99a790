"""An upstream's chat stream as neutral deltas, for a client of another dialect.

Each frame goes through `ChatStream` first, which knows errors, the end and usage whatever the client's dialect is; what
is left are chunks, and what they say is told here. Only the first choice is read.

Source: OpenAI API reference, "The chat completion chunk object"; docs/providers.md, "What is edited on the way".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_calls import NO_ARGUMENTS, Call, Function
from lumen_gateway.dialects.chat_completion import made_up_id, name_of, read_finish
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.chat_parts import Content, read_content
from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.chat_thinking import Reasoned
from lumen_gateway.dialects.neutral import CallDelta, Delta, RefusalDelta, Text, TextDelta, Thinking, ThinkingDelta
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.dialects.sse import Frame


class _Delta(Reasoned, frozen=True, kw_only=True):
    content: Content = None
    refusal: Any = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct, frozen=True):
    index: int | None = 0
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, frozen=True):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_NO_CHUNK = _Chunk()
_NOTHING = Function()


class ChatDeltas:
    """Reads one stream.

    `state` is the stream as the executor looks at it: error, end, usage, output. `names` are those of `own_names`.
    """

    __slots__ = ("_calls", "_finished", "_refused", "_shown", "_started", "state")

    def __init__(self, names: Names = NO_NAMES) -> None:
        self.state = ChatStream(repair=False, include_usage=True)
        self._started = False
        self._finished = False
        self._refused = False
        self._shown = False  # bare reasoning text has come, which a block with a signature would repeat
        self._calls = _Calls(names)

    def read(self, frame: Frame) -> list[Delta]:
        """Return what a frame says; nothing for an error, a comment, or what comes after the end.

        Shape: Start first; a call without arguments gets "{}"; Finished once, after it only Used.
        """
        state = self.state
        usage = state.usage
        deltas: list[Delta] = []
        if state.read(frame) is None or frame.data is None or state.done or state.error is not None:
            return deltas
        try:
            chunk = _decode(frame.data)
        except UNREADABLE:
            chunk = _NO_CHUNK  # JSON of another form: it says nothing
        for choice in chunk.choices or ():
            if not choice.index and not self._finished:
                self._read_choice(chunk, choice, deltas)
        if state.usage is not None and state.usage is not usage:
            deltas.append(neutral.Used(state.usage))
        return deltas

    def _read_choice(self, chunk: _Chunk, choice: _Choice, deltas: list[Delta]) -> None:
        if not self._started:
            self._started = True
            start = neutral.Start(name_of(chunk.id), name_of(chunk.model))
            self._calls.answer_id = start.id
            deltas.append(start)
        if choice.delta is not None:
            self._read_delta(choice.delta, deltas)
        if choice.finish_reason:
            self._finished = True
            deltas += self._calls.end()
            finish = read_finish(choice.finish_reason, calls=bool(self._calls), refused=self._refused)
            deltas.append(neutral.Finished(finish))

    def _read_delta(self, delta: _Delta, deltas: list[Delta]) -> None:
        if delta.has_thinking():
            self._read_thinking(delta, deltas)
        if isinstance(delta.content, str):
            if delta.content:
                deltas.append(TextDelta(delta.content))
        elif delta.content:
            deltas += _read_parts(delta.content)
        if delta.refusal and isinstance(delta.refusal, str):
            self._refused = True
            deltas.append(RefusalDelta(delta.refusal))
        for piece in delta.tool_calls or ():
            deltas += self._calls.read(piece)
        if delta.function_call is not None:
            deltas += self._calls.read(Call(function=delta.function_call))

    def _read_thinking(self, delta: _Delta, deltas: list[Delta]) -> None:
        """Tell bare text as it comes; of a block that repeats it only what is new, which is its proof."""
        if shown := delta.shown():
            self._shown = True
            deltas.append(ThinkingDelta(shown))
        for block in delta.blocks():
            text = "" if self._shown else block.text
            if text or block.signature or block.redacted:
                deltas.append(ThinkingDelta(text, block.signature, block.redacted))
            if block.signature:
                self._shown = False


def _read_parts(content: Content) -> Iterator[Delta]:
    try:
        parts = read_content(content)
    except msgspec.ValidationError:
        return
    for part in parts:
        if isinstance(part, Text):
            yield TextDelta(part.text)
        elif isinstance(part, Thinking):
            yield ThinkingDelta(part.text, part.signature, part.redacted)


class _OpenCall:
    """One tool call while it comes in. It opens once its name is known; what came before that waits."""

    __slots__ = ("arguments", "id", "index", "name", "number", "signature")

    def __init__(self, index: int, number: int, call_id: str) -> None:
        self.index = index
        self.number = number  # the upstream's own
        self.id = call_id
        self.name = ""
        self.arguments = ""
        self.signature = ""


class _Calls:
    """The tool calls of one answer, numbered as they appear, whatever numbers the upstream gave them."""

    def __init__(self, names: Names) -> None:
        self.answer_id = ""
        self._names = names
        self._all: list[_OpenCall] = []
        self._latest: dict[int, _OpenCall] = {}  # under each of the upstream's own numbers

    def __bool__(self) -> bool:
        return bool(self._all)

    def read(self, piece: Call) -> list[Delta]:
        """Return what a piece of a call says."""
        call = self._call_of(piece)
        function = piece.function or _NOTHING
        arguments, signature = function.text(), piece.signature()
        if call.name:
            call.arguments = call.arguments or arguments
            return [CallDelta(call.index, arguments=arguments, signature=signature)] if arguments or signature else []
        call.name = function.name or ""
        call.arguments += arguments
        call.signature = call.signature or signature
        if not call.name:
            return []
        call_id = call.id or made_up_id(self.answer_id, call.index)
        return [CallDelta(call.index, call_id, self._names.get(call.name, call.name), call.arguments, call.signature)]

    def _call_of(self, piece: Call) -> _OpenCall:
        """Return the call of a piece: the latest under its number, unless the piece says that it is another.

        Some servers number all calls 0 or none, and tell them apart by their ids; some have no ids either, and then a
        name opens a call.
        """
        number = piece.index or 0
        call = self._latest.get(number)
        if call is not None and piece.id and call.id and piece.id != call.id:
            call = next((known for known in self._all if (known.number, known.id) == (number, piece.id)), None)
        elif piece.index is None and not piece.id and piece.function is not None and piece.function.name:
            call = None
        if call is None:
            call = _OpenCall(len(self._all), number, piece.id or "")
            self._all.append(call)
        self._latest[number] = call
        return call

    def end(self) -> list[Delta]:
        """Return what is still to be said: that a call has no arguments."""
        return [
            CallDelta(call.index, arguments=NO_ARGUMENTS)
            for call in self._all
            if call.name and not call.arguments.strip()
        ]
