"""Neutral deltas as a Responses stream, for a Responses client before an upstream of another dialect.

Every item that opens gets the next number. Of messages and reasoning one is open at a time: what follows closes it.
Calls stay open to the end, since some wires fill several by turns. The last event repeats the whole answer, which is
also how an answer that comes whole is written. Source: OpenAI API reference, "Streaming events" of Responses.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_calls import NO_ARGUMENTS
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    Part,
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
from lumen_gateway.dialects.responses_object import (
    response_id,
    write_call,
    write_message,
    write_reasoning,
    write_refusal,
    write_response,
    write_text,
)
from lumen_gateway.dialects.responses_parts import Wire
from lumen_gateway.records import Usage

_encode = msgspec.json.Encoder().encode


class _Item:
    """One item of the output. `kind` is that of its id; `parts` are the texts and refusals of a message."""

    __slots__ = ("call", "id", "index", "kind", "parts", "pieces", "proof")

    def __init__(self, kind: str, id_: str, index: int) -> None:
        self.kind = kind
        self.id = id_
        self.index = index
        self.parts: list[Wire] = []  # that are done
        self.pieces: list[str] = []  # of what is open: a part, a summary, the arguments of a call
        self.proof = Thinking()
        self.call = ToolCall(id="", name="", arguments="")

    def text(self) -> str:
        """Return what has come of it, or of its open part."""
        return "".join(self.pieces)

    def write(self, status: str) -> Wire:
        """Return the item as it stands."""
        match self.kind:
            case "msg":
                return write_message(self.id, status, self.parts)
            case "rs":
                return write_reasoning(self.id, msgspec.structs.replace(self.proof, text=self.text()))
        return write_call(self.id, status, msgspec.structs.replace(self.call, arguments=self.text()))


class ResponsesWriter:
    """Writes one stream. What `write` and `end` return, put together, is the stream.

    Shape: `sequence` is the number of the next event. What was asked is not repeated in the response.
    """

    def __init__(self, created: int) -> None:
        self.sequence = 0
        self._created = created
        self._named: Start | None = None  # what the answer calls itself
        self._items: list[_Item] = []
        self._open: _Item | None = None  # the message or the reasoning that is being written
        self._part = ""  # what the open part of a message is: output_text or refusal
        self._calls: dict[int, _Item] = {}
        self._finish: neutral.Finish = "stop"
        self._usage: Usage | None = None

    def write(self, delta: Delta) -> bytes:
        """Take one step; return what of the stream it brings, b"" for what has to wait or has no place here."""
        match delta:
            case TextDelta(text=text):
                return self._say("output_text", text) if text else b""
            case RefusalDelta(text=text):
                return self._say("refusal", text) if text else b""
            case ThinkingDelta():
                return self._think(delta)
            case CallDelta():
                return self._call(delta)
            case Start(id=id_, model=model, usage=usage):
                self._usage = usage
                return self._start(id_, model)
            case Finished(finish=finish):
                self._finish = finish
            case Used(usage=usage):
                self._usage = usage
        return b""

    def end(self) -> bytes:
        """Return the end of the stream: what is open is done, and the whole response follows."""
        out = self._begin() + self._close()
        for call in self._calls.values():
            out += self._close_call(call)
        response = self.response()
        return out + self._event(f"response.{response['status']}", response=response)

    def response(self) -> Wire:
        """Return the whole response, once everything is done."""
        output = [item.write(self._status(item)) for item in self._items]
        return write_response(self._named or Start("", ""), self._created, output, self._finish, self._usage)

    def _begin(self) -> bytes:
        return self._start("", "") if self._named is None else b""

    def _start(self, id_: str, model: str) -> bytes:
        if self._named is not None:
            return b""
        self._named = Start(response_id(id_), model)
        response = write_response(self._named, self._created, [], None, None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _status(self, item: _Item) -> str:
        cut = self._finish in {"length", "content_filter"} and item is self._items[-1]
        return "incomplete" if cut else "completed"

    def _add(self, kind: str, call: ToolCall | None = None) -> tuple[_Item, bytes]:
        """Open an item behind all others."""
        out = self._begin() + self._close()
        index = len(self._items)
        item = _Item(kind, f"{kind}_{'' if self._named is None else self._named.id}_{index}", index)
        if call is not None:
            item.call = call
        self._items.append(item)
        return item, out + self._event("response.output_item.added", output_index=index, item=item.write("in_progress"))

    def _say(self, kind: str, text: str) -> bytes:
        """Go on with the open message, in a part of this kind."""
        out = b""
        if self._open is None or self._open.kind != "msg":
            item, out = self._add("msg")
            self._open = item
        item = self._open
        if self._part != kind:
            out += self._close_part(item)
            self._part = kind
            out += self._of_part("response.content_part.added", item, part=_part(kind, ""))
        item.pieces.append(text)
        extra: Wire = {"logprobs": []} if kind == "output_text" else {}
        return out + self._of_part(f"response.{kind}.delta", item, delta=text, **extra)

    def _close_part(self, item: _Item) -> bytes:
        kind, text = self._part, item.text()
        if not kind:
            return b""
        done = {"text": text, "logprobs": []} if kind == "output_text" else {"refusal": text}
        part = _part(kind, text)
        out = self._of_part(f"response.{kind}.done", item, **done)
        out += self._of_part("response.content_part.done", item, part=part)
        item.parts.append(part)
        item.pieces.clear()
        self._part = ""
        return out

    def _think(self, delta: ThinkingDelta) -> bytes:
        """Show thinking. What proves it closes its item: what follows belongs to another."""
        out = b""
        if delta.redacted:
            self._open, out = self._add("rs")
            self._open.proof = Thinking(redacted=delta.redacted)
            out += self._close()
        if not (delta.text or delta.signature):
            return out
        if self._open is None or self._open.kind != "rs":
            item, added = self._add("rs")
            self._open, out = item, out + added
        item = self._open
        if delta.text:
            if not item.pieces:
                out += self._of_summary("response.reasoning_summary_part.added", item, part=_part("summary_text", ""))
            item.pieces.append(delta.text)
            out += self._of_summary("response.reasoning_summary_text.delta", item, delta=delta.text)
        if delta.signature:
            item.proof = Thinking(signature=delta.signature)
            out += self._close()
        return out

    def _close_summary(self, item: _Item) -> bytes:
        if not item.pieces:
            return b""
        text = item.text()
        out = self._of_summary("response.reasoning_summary_text.done", item, text=text)
        return out + self._of_summary("response.reasoning_summary_part.done", item, part=_part("summary_text", text))

    def _close(self) -> bytes:
        """Close the open message or reasoning."""
        item, self._open = self._open, None
        if item is None:
            return b""
        out = self._close_part(item) if item.kind == "msg" else self._close_summary(item)
        return out + self._done(item)

    def _done(self, item: _Item) -> bytes:
        return self._event("response.output_item.done", output_index=item.index, item=item.write(self._status(item)))

    def _call(self, delta: CallDelta) -> bytes:
        out = b""
        item = self._calls.get(delta.index)
        if item is None:
            item, out = self._add("fc", ToolCall(id=delta.id, name=delta.name, arguments=""))
            self._calls[delta.index] = item
        return out + self._fill(item, delta.arguments) if delta.arguments else out

    def _fill(self, item: _Item, arguments: str) -> bytes:
        item.pieces.append(arguments)
        return self._of_item("response.function_call_arguments.delta", item, delta=arguments)

    def _close_call(self, item: _Item) -> bytes:
        out = b"" if item.pieces else self._fill(item, NO_ARGUMENTS)
        name, arguments = item.call.name, item.text()
        out += self._of_item("response.function_call_arguments.done", item, name=name, arguments=arguments)
        return out + self._done(item)

    def _of_part(self, kind: str, item: _Item, **fields: object) -> bytes:
        return self._of_item(kind, item, content_index=len(item.parts), **fields)

    def _of_summary(self, kind: str, item: _Item, **fields: object) -> bytes:
        return self._of_item(kind, item, summary_index=0, **fields)

    def _of_item(self, kind: str, item: _Item, **fields: object) -> bytes:
        return self._event(kind, item_id=item.id, output_index=item.index, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        event = {"type": kind, "sequence_number": self.sequence, **fields}
        self.sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))


def _part(kind: str, text: str) -> Wire:
    match kind:
        case "output_text":
            return write_text(text)
        case "refusal":
            return write_refusal(text)
    return {"type": kind, "text": text}


def write_answer(answer: neutral.Answer, created: int) -> bytes:
    """Return the answer as a Responses client reads it. Units: `created` in seconds since the epoch."""
    writer = ResponsesWriter(created)
    writer.write(Start(answer.id, answer.model))
    for delta in _steps(answer.parts):
        writer.write(delta)
    writer.write(Finished(answer.finish))
    if answer.usage is not None:
        writer.write(Used(answer.usage))
    writer.end()
    return _encode(writer.response())


def _steps(parts: Iterable[Part]) -> Iterable[Delta]:
    for index, part in enumerate(parts):
        match part:
            case Text(text=text):
                yield TextDelta(text)
            case Refusal(text=text):
                yield RefusalDelta(text)
            case Thinking(text=text, signature=signature, redacted=redacted):
                yield ThinkingDelta(text, signature, redacted)
            case ToolCall(id=id_, name=name, arguments=arguments):
                yield CallDelta(index, id_, name, arguments)
