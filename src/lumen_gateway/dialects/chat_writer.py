"""Neutral deltas as the chat stream a client reads, its upstream being of another dialect.

What stays the same in a chunk is written once; the rest of a frame is one small value. The error at the end of a stream
that failed is `chat_answer.error_frame`.

Source: OpenAI API reference, "The chat completion chunk object"; docs/providers.md.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects.chat_answer import DONE
from lumen_gateway.dialects.chat_calls import write_signature
from lumen_gateway.dialects.chat_completion import write_finish, write_usage
from lumen_gateway.dialects.chat_thinking import write_block
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finish,
    Finished,
    RefusalDelta,
    Start,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Used,
)
from lumen_gateway.records import Usage

_encode = msgspec.json.Encoder().encode


class ChatWriter:
    """Writes one stream: `write` for each delta, then `end`.

    Units: `created` in seconds since the epoch.
    """

    sequence = 0  # events have no numbers here

    __slots__ = (
        "_calls",
        "_created",
        "_finished",
        "_head",
        "_include_usage",
        "_refused",
        "_tail",
        "_thought",
        "_usage",
    )

    def __init__(self, created: int, include_usage: bool) -> None:
        self._created = created
        self._include_usage = include_usage
        self._head = b""
        self._tail = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._thought: list[str] = []  # the text of the block that is being thought, for the proof at its end
        self._calls = False
        self._refused = False
        self._finished = False
        self._usage: Usage | None = None

    def write(self, delta: Delta) -> bytes:
        """Return the frames for a delta; none for usage, which goes out at the end, and for what only others know."""
        match delta:
            case TextDelta(text=text):
                return self._chunk(b'{"content":' + _encode(text) + b"}")
            case CallDelta():
                self._calls = True
                return self._chunk(_encode({"tool_calls": [_write_call(delta)]}))
            case ThinkingDelta():
                return self._chunk(_encode(self._write_thinking(delta)))
            case RefusalDelta(text=text):
                self._refused = True
                return self._chunk(_encode({"refusal": text}))
            case Start():
                return self._start(delta)
            case Finished(finish=finish):
                return self._finish(finish)
            case Used(usage=usage):
                self._usage = usage
        return b""

    def end(self) -> bytes:
        """Return what is due after the last delta of a stream that ended well."""
        finish = b"" if self._finished else self._finish("stop")
        return finish + self._usage_chunk() + DONE

    def _start(self, start: Start) -> bytes:
        names = _encode(
            {"id": start.id, "object": "chat.completion.chunk", "created": self._created, "model": start.model}
        )
        self._head = b"data: " + names[:-1] + b',"choices":['
        self._usage = start.usage or self._usage
        return self._chunk(b'{"role":"assistant","content":""}')

    def _chunk(self, delta: bytes, finish: bytes = b"null") -> bytes:
        begun = b"" if self._head else self._start(Start("", ""))  # an upstream that did not say so
        return begun + self._head + b'{"index":0,"delta":' + delta + b',"finish_reason":' + finish + self._tail

    def _write_thinking(self, delta: ThinkingDelta) -> dict[str, object]:
        """Return the delta: bare text as it comes, and with its proof the whole block, as it must come back."""
        fields: dict[str, object] = {}
        if delta.text:
            self._thought.append(delta.text)
            fields["reasoning_content"] = delta.text
        if delta.signature:
            text = "".join(self._thought)
            self._thought.clear()
            fields["thinking_blocks"] = [write_block(Thinking(text=text, signature=delta.signature))]
        elif delta.redacted:
            fields["thinking_blocks"] = [write_block(Thinking(redacted=delta.redacted))]
        return fields

    def _finish(self, finish: Finish) -> bytes:
        self._finished = True
        reason = write_finish(finish, calls=self._calls, refused=self._refused)
        return self._chunk(b"{}", _encode(reason))

    def _usage_chunk(self) -> bytes:
        if not self._include_usage or self._usage is None:
            return b""
        return self._head + b'],"usage":' + _encode(write_usage(self._usage)) + b"}\n\n"


def _write_call(delta: CallDelta) -> dict[str, object]:
    if not delta.name:
        function = {"arguments": delta.arguments}
        return {"index": delta.index, "function": function, **write_signature(delta.signature)}
    return {
        "index": delta.index,
        "id": delta.id,
        "type": "function",
        "function": {"name": delta.name, "arguments": delta.arguments},
        **write_signature(delta.signature),
    }
