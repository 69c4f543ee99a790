"""Anthropic Messages, the stream: relayed as bytes, read along frame by frame.

The reader decides about each frame whether it goes on, and keeps what the executor asks of a stream: has it had output,
is this an error, has it ended, what did it use. It offers what `chat_stream.ChatStream` offers, in the same words, so
that either can stand in the same place. When to commit, and what an error leads to, is decided elsewhere.

Source: Anthropic API reference, "Streaming messages".
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import NO_ERROR, ended_well, is_error
from lumen_gateway.dialects.messages_answer import Counts, finish_word
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.records import Usage

NO_BLOCK = msgspec.Raw(b"null")
_DELTA = b"event: content_block_delta\ndata: {"


class Message(msgspec.Struct, frozen=True, gc=False):
    """What `message_start` says of the answer."""

    id: Any = None
    model: Any = None
    usage: Any = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """The `delta` of a block, or of the message."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    signature: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    stop_details: Any = None

    def is_output(self) -> bool:
        """Say whether it brings anything; of a kind unknown here, a citation for one, it does."""
        if self.type in {"text_delta", "thinking_delta", "input_json_delta", "signature_delta"}:
            return bool(self.text or self.thinking or self.partial_json or self.signature)
        return True


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream; which members it has depends on its `type`."""

    type: str = ""
    index: int = 0
    message: Message | None = None
    content_block: msgspec.Raw = NO_BLOCK
    delta: Step | None = None
    usage: Any = None
    error: msgspec.Raw = NO_ERROR


class _Opening(msgspec.Struct, frozen=True):
    type: Any = None
    text: Any = None
    thinking: Any = None


class _ErrorOnly(msgspec.Struct, frozen=True):
    type: Any = None
    error: msgspec.Raw = NO_ERROR


_decode_event = msgspec.json.Decoder(Event).decode
_decode_events = msgspec.json.Decoder(Event).decode_lines
_decode_opening = msgspec.json.Decoder(_Opening).decode
_decode_error_only = msgspec.json.Decoder(_ErrorOnly).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class MessagesStream:
    """Reads one upstream stream.

    `output`: text, thinking, its signature, a tool call or any block of another kind has come; `output_frames` counts
    the frames with any. `error`: the payload of the first error, whatever form it had; `error_shown`: clients take that
    frame, as forwarded, for an error. `done`: `message_stop` was seen; nothing after it is read or forwarded.
    `finished`: a stop reason was seen. `dropped`: data frames withheld because they are not JSON. `opening`: the data
    of `message_start`, for whoever wants to know the answer's own names. `event`: what the last frame read turned out
    to be, for whoever translates it; None if that was nothing to go by.
    """

    sequence = 0  # events have no numbers here

    __slots__ = (
        "_counted",
        "_counts",
        "_finish",
        "done",
        "dropped",
        "error",
        "error_shown",
        "event",
        "finished",
        "opening",
        "output",
        "output_frames",
    )

    def __init__(self) -> None:
        self.output = False
        self.output_frames = 0
        self.error: bytes | None = None
        self.error_shown = False
        self.opening = b""
        self.done = False
        self.finished = False
        self.dropped = 0
        self.event: Event | None = None
        self._finish: tuple[str, ...] = ()
        self._counts = Counts()
        self._counted = False  # the output is counted to its end

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """Why it stopped, in the words of chat; nothing while it has not."""
        return self._finish

    @property
    def filtered(self) -> bool:
        """Whether the model's refusal ended it before any output."""
        return not self.output and "content_filter" in self._finish

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        return not self.output and (self.done or self.finished) and ended_well(self._finish)

    @property
    def usage(self) -> Usage | None:
        """What it used: as reported once it has ended, until then the input as reported and a token for each frame."""
        usage = self._counts.usage()
        if usage is None or self._counted or self.output_frames <= usage.output:
            return usage
        return msgspec.structs.replace(usage, output=self.output_frames, origin="estimated")

    def read(self, frame: Frame) -> bytes | None:
        """Take one frame; return the bytes to forward, None for a frame that is withheld.

        Shape: the frame's own bytes, but for an error in a form that no SDK would see. Withheld are frames after
               `message_stop` and frames that are not JSON.
        """
        self.event = None
        if self.done:
            return None
        data = frame.data
        if data is None:
            return frame.raw
        try:
            event = _decode_event(data)
        except msgspec.ValidationError:
            return self._read_odd(frame, data)
        except UNREADABLE:
            return self._read_broken(frame, data)
        if frame.event == b"error" or event.type == "error" or is_error(event.error):
            return self._fail(frame, data)
        self.event = event
        self._take(event, data)
        return frame.raw

    def end(self) -> bytes:
        """Return the terminator if the upstream has left it out."""
        return b"" if self.done else STOP

    def read_block(self, block: bytes) -> bytes | None:
        """Take many frames at once, if all are pieces of blocks; None, with nothing changed, if `read` must look.

        Exact: no JSON value can span the line feeds between two frames, so each of the lines is one frame's value.
        """
        if self.done or self.error is not None or not (block.startswith(_DELTA) and block.endswith(b"}\n\n")):
            return None
        try:
            events = _decode_events(block[len(_DELTA) - 1 : -2].replace(b"\n\n" + _DELTA, b"\n{"))
        except UNREADABLE:
            return None
        if len(events) != block.count(b"\n\n"):
            return None
        frames = 0
        for event in events:
            if event.type != "content_block_delta" or event.error is not NO_ERROR or event.delta is None:
                return None
            frames += event.delta.is_output()
        self._count_output(frames)
        return block

    def _take(self, event: Event, data: bytes) -> None:
        kind = event.type
        if kind == "content_block_delta":
            self._count_output(event.delta is not None and event.delta.is_output())
        elif kind == "content_block_start":
            self._count_output(_is_output(event.content_block))
        elif kind == "message_start":
            self.opening = self.opening or data
            if event.message is not None:
                self._counts.take(event.message.usage)
        elif kind == "message_delta":
            self._counts.take(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self._finish = (finish_word(event.delta.stop_reason),)
                self.finished = self._counted = True
        elif kind == "message_stop":
            self.done = True

    def _count_output(self, frames: int) -> None:
        self.output = self.output or frames > 0
        self.output_frames += frames

    def _fail(self, frame: Frame, data: bytes) -> bytes:
        if self.error is None:
            self.error, self.error_shown = data, True
        if frame.event == b"error" and b"data:" in frame.raw:
            return frame.raw
        return b"event: error\ndata: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"  # SDKs go by the event's name

    def _read_odd(self, frame: Frame, data: bytes) -> bytes | None:
        """Not an event, but JSON perhaps: then the client's to judge, unless it says that it is an error."""
        try:
            _check_json(data)
            told = _decode_error_only(data)
            if frame.event == b"error" or told.type == "error" or is_error(told.error):
                return self._fail(frame, data)
        except msgspec.ValidationError:  # no object
            return self._fail(frame, data) if frame.event == b"error" else frame.raw
        except UNREADABLE:
            return self._read_broken(frame, data)
        return frame.raw

    def _read_broken(self, frame: Frame, data: bytes) -> bytes | None:
        if frame.event == b"error":
            return self._fail(frame, data)
        self.dropped += 1
        return None


def _is_output(content_block: msgspec.Raw) -> bool:
    """Say whether a block is output as soon as it opens: a tool call and the like are, empty text is not yet."""
    try:
        opening = _decode_opening(content_block)
    except msgspec.DecodeError:
        return False
    return opening.type not in {"text", "thinking"} or bool(opening.text or opening.thinking)
