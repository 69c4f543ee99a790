"""OpenAI Responses, the stream: relayed as bytes, read along event by event.

The reader decides about each frame whether it goes on, and keeps what the executor asks of a stream, in the words of
`chat_stream.ChatStream`, so that either can stand in the same place. When to commit, and what an error leads to, is
decided elsewhere.

Source: OpenAI API reference, "Streaming events" of Responses.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import NO_ERROR, ended_well, is_error, wrap_error
from lumen_gateway.dialects.responses_answer import Body, Item, read_usage
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.records import Usage

NO_ITEM = msgspec.Raw(b"null")
_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"response.failed", "error"})


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream; which members it has depends on its `type`."""

    type: str = ""
    sequence_number: Any = None
    output_index: int = 0
    summary_index: int = 0
    delta: Any = None
    item: msgspec.Raw = NO_ITEM
    response: Body | None = None
    error: msgspec.Raw = NO_ERROR
    code: Any = None
    message: Any = None

    def failure(self, data: bytes) -> bytes:
        """Return what failed, in the envelope that all other errors have."""
        if self.response is not None and is_error(self.response.error):
            return wrap_error(self.response.error)
        if is_error(self.error):
            return data
        return _encode({"error": {"code": self.code, "message": self.message}})


_decode_event = msgspec.json.Decoder(Event).decode
_decode_item = msgspec.json.Decoder(Item).decode
_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


class ResponsesStream:
    """Reads one upstream stream.

    `output`: text, reasoning, a refusal, a call or an item of another kind has come; `output_frames` counts the frames
    with any. `error`: the payload of the first error; `error_shown`: it was forwarded, and clients know it for one.
    `done`: `response.completed` or `response.incomplete` was seen; nothing after it is read or forwarded. `dropped`:
    data frames withheld because they are not JSON. `opening`: what the first event calls the answer and its model,
    as an answer would. `sequence`: the number that the next event has. `event`: what the last frame read turned
    out to be, for whoever translates it; None if that was nothing to go by.
    """

    __slots__ = (
        "_response",
        "done",
        "dropped",
        "error",
        "error_shown",
        "event",
        "opening",
        "output",
        "output_frames",
        "sequence",
    )

    def __init__(self) -> None:
        self.output = False
        self.output_frames = 0
        self.error: bytes | None = None
        self.error_shown = False
        self.opening = b""
        self.done = False
        self.dropped = 0
        self.sequence = 0
        self.event: Event | None = None
        self._response: Body | None = None  # with which it ended

    @property
    def finished(self) -> bool:
        """Whether the answer is complete: it is when its last event says so."""
        return self.done

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """Why it ended, in the words of chat; nothing while it has not."""
        return self._response.finish_reasons() if self.done and self._response is not None else ()

    @property
    def filtered(self) -> bool:
        """Whether a content filter ended it before any output."""
        return not self.output and "content_filter" in self.finish_reasons

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        return not self.output and self.done and ended_well(self.finish_reasons)

    @property
    def usage(self) -> Usage | None:
        """What it used, which the last event tells."""
        return None if self._response is None else read_usage(self._response.usage)

    def read(self, frame: Frame) -> bytes | None:
        """Take one frame; return the bytes to forward, None for a frame that is withheld.

        Shape: the frame's own bytes, but for an error that no SDK would see. Withheld are frames after the last event
               and frames that are not JSON.
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
        if type(event.sequence_number) is int:
            self.sequence = event.sequence_number + 1
        if frame.event == b"error" or event.type in _FAILURES or is_error(event.error):
            return self._fail(frame, data, event)
        self.event = event
        self._take(event)
        return frame.raw

    def read_block(self, block: bytes) -> bytes | None:  # noqa: ARG002 - events differ too much to be taken in rows
        """Have every frame looked at."""
        return None

    def end(self) -> bytes:
        """Return nothing: without its last event a stream is not over."""
        return b""

    def _take(self, event: Event) -> None:
        kind = event.type
        if kind.endswith(".delta"):
            self._count_output(bool(event.delta))
        elif kind == "response.output_item.added":
            self._count_output(_is_output(event.item))
        elif kind == "response.output_item.done":
            self.output = self.output or _is_output(event.item)
        elif kind in _ENDS:
            self.done = True
            self._response = event.response
            self.output = self.output or (event.response is not None and event.response.has_output())
        elif kind == "response.created":
            self.opening = self.opening or _names(event)

    def _count_output(self, output: bool) -> None:
        self.output = self.output or output
        self.output_frames += output

    def _fail(self, frame: Frame, data: bytes, event: Event | None) -> bytes:
        if self.error is None:
            self.error, self.error_shown = data if event is None else event.failure(data), True
            self._response = None if event is None else event.response
        if event is not None and event.type in _FAILURES:
            return frame.raw
        return b"event: error\ndata: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"  # SDKs go by the event's name

    def _read_odd(self, frame: Frame, data: bytes) -> bytes | None:
        """Not an event, but JSON perhaps: then the client's to judge, unless its name says that it is an error."""
        try:
            _check_json(data)
        except UNREADABLE:
            return self._read_broken(frame, data)
        return self._fail(frame, data, None) if frame.event == b"error" else frame.raw

    def _read_broken(self, frame: Frame, data: bytes) -> bytes | None:
        if frame.event == b"error":
            return self._fail(frame, data, None)
        self.dropped += 1
        return None


def _names(event: Event) -> bytes:
    body = event.response
    return b"" if body is None else _encode({"id": body.id, "model": body.model})


def _is_output(item: msgspec.Raw) -> bool:
    """Say whether an item is output as it stands: a call and the like are, an empty message is not yet."""
    try:
        return not _decode_item(item).is_empty()
    except msgspec.DecodeError:
        return False
