"""OpenAI Chat Completions, the stream: relayed as bytes, read along frame by frame.

The reader decides about each frame whether it goes on, and keeps what the executor asks of a stream: has it had output,
is this an error, has it ended, what did it use. Every data frame is parsed, into a struct that skips what nobody here
asks for; that is the price of never relaying broken JSON. When to commit, and what an error leads to, is decided
elsewhere.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lumen_gateway.dialects.chat_answer import (
    DONE,
    FAILED_FINISHES,
    NO_ERROR,
    Output,
    ended_well,
    finish_error,
    is_error,
    read_usage,
    wrap_error,
)
from lumen_gateway.dialects.chat_repair import FrameRepair
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.records import Usage

_ERROR_EVENTS = frozenset({b"error", b"response.failed"})
_DATA_LINE = re.compile(rb"(?:^|[\r\n])data")


class _Choice(msgspec.Struct, frozen=True, gc=False):
    index: int | None = 0
    delta: Output | None = None
    finish_reason: Any = None
    error: msgspec.Raw = NO_ERROR


class _Chunk(msgspec.Struct, frozen=True, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: msgspec.Raw = NO_ERROR


class _ErrorOnly(msgspec.Struct, frozen=True):
    error: msgspec.Raw = NO_ERROR


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_chunks = msgspec.json.Decoder(_Chunk).decode_lines
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode_error_only = msgspec.json.Decoder(_ErrorOnly).decode


class ChatStream:
    """Reads one upstream stream.

    `output`: text, reasoning, a tool call, a refusal or audio has come; `output_frames` counts the frames with any.
    `error`: the payload of the first error frame, whatever form it had; `error_shown`: that frame, as forwarded, is one
    that clients take for an error. `done`: `[DONE]` was seen; nothing after it is read or forwarded. `dropped`: data
    frames withheld because they are not JSON. `usage`: the last one reported.
    `opening`: the data of the first frame with choices, for whoever wants to know the answer's own names.
    """

    sequence = 0  # events have no numbers here

    __slots__ = (
        "_finishes",
        "_include_usage",
        "_open",
        "_repair",
        "done",
        "dropped",
        "error",
        "error_shown",
        "opening",
        "output",
        "output_frames",
        "usage",
    )

    def __init__(self, repair: bool, include_usage: bool) -> None:
        self.output = False
        self.output_frames = 0
        self.error: bytes | None = None
        self.error_shown = False
        self.opening = b""
        self.done = False
        self.dropped = 0
        self.usage: Usage | None = None
        self._finishes: dict[int | None, str] = {}
        self._open: set[int | None] = set()
        self._repair = FrameRepair() if repair else None
        self._include_usage = include_usage

    @property
    def finished(self) -> bool:
        """Whether there is a finish reason on every choice that started."""
        return bool(self._finishes) and not self._open

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """The finish reason of each choice that has one."""
        return tuple(self._finishes.values())

    @property
    def filtered(self) -> bool:
        """Whether a content filter ended it before any output."""
        return not self.output and "content_filter" in self._finishes.values()

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        return not self.output and (self.done or self.finished) and ended_well(self.finish_reasons)

    def read(self, frame: Frame) -> bytes | None:
        """Take one frame; return the bytes to forward, None for a frame that is withheld.

        Shape: the frame's own bytes, unless it was repaired. Withheld are frames after `[DONE]`, frames that are not
               JSON, and the usage-only chunk of a client that did not ask for one.
        """
        if self.done:
            return None
        data = frame.data
        if data is None:
            return frame.raw
        if data == b"[DONE]":
            self.done = True
            return frame.raw
        if frame.event in _ERROR_EVENTS:
            return self._read_error_event(frame.raw, data)
        try:
            chunk = _decode_chunk(data)
        except msgspec.ValidationError:
            return self._read_odd(frame.raw, data)
        except UNREADABLE:
            return self._read_broken(frame.raw, data)
        if chunk.error is not NO_ERROR and is_error(chunk.error):
            self._fail(data)
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage) or self.usage
        if chunk.choices:
            self.opening = self.opening or data
            self._count_output(self._read_choices(chunk.choices))
        elif chunk.usage and not self._include_usage and self.error is None:
            return None
        if self._repair is not None and _may_deviate(chunk) and (repaired := self._repair.repair(data)) is not None:
            return b"data: " + repaired + b"\n\n"
        return frame.raw

    def end(self) -> bytes:
        """Return the terminator if the upstream has left it out."""
        return b"" if self.done else DONE

    def read_block(self, block: bytes) -> bytes | None:
        """Take many frames at once, if they are all ordinary; None, with nothing changed, if `read` must look.

        Shape:  `block` is what one read of the upstream brought, with no partial frame before it. Ordinary is a row of
                `data: {...}` frames with choices, perhaps a last one with usage alone, perhaps `[DONE]` behind it.
        Exact:  no JSON value can span `}` line feed `{`, so as many values as frames means one value a frame.
        """
        if self._repair is not None or self.done or self.error is not None or not block.startswith(b"data: {"):
            return None
        body = block.removesuffix(DONE)
        if not body.endswith(b"}\n\n"):
            return None
        try:
            chunks = _decode_chunks(body[6:-2].replace(b"}\n\ndata: {", b"}\n{"))
        except UNREADABLE:
            return None
        if len(chunks) != body.count(b"\n\n") or not self._read_ordinary(chunks):
            return None
        self.opening = self.opening or body[6 : body.index(b"\n\n")]
        self.done = len(block) != len(body)
        last = chunks[-1]
        if not last.choices and last.usage and not self._include_usage:
            return body[: body.rfind(b"data: {")] + block[len(body) :]
        return block

    def _read_ordinary(self, chunks: list[_Chunk]) -> bool:
        """Take in a row of chunks; False at the first that is not ordinary, and `read` then takes them in anew."""
        frames, started = 0, self._open
        for chunk in chunks:
            choices = chunk.choices
            if choices and len(choices) == 1 and chunk.error is NO_ERROR and chunk.usage is None:
                choice = choices[0]  # most frames: one more piece of text
                delta = choice.delta
                if choice.finish_reason is None and choice.error is NO_ERROR and choice.index in started:
                    frames += delta is not None and (bool(delta.content) or not delta.is_empty())
                    continue
            if chunk.error is not NO_ERROR or not (choices or chunk is chunks[-1]):
                return False
            if chunk.usage is not None:
                self.usage = read_usage(chunk.usage) or self.usage
            if choices:
                frames += self._read_choices(choices)
        if self.error is not None:
            self.error = None
            return False
        self._count_output(frames)
        return True

    def _count_output(self, frames: int) -> None:
        self.output = self.output or frames > 0
        self.output_frames += frames

    def _read_choices(self, choices: list[_Choice]) -> bool:
        """Take in the choices of one frame; True if any of them has output."""
        output = False
        for choice in choices:
            delta = choice.delta
            if delta is not None and (delta.content or not delta.is_empty()):
                output = True
            if choice.finish_reason:
                self._finish(choice.index, choice.finish_reason)
            elif choice.index not in self._finishes:
                self._open.add(choice.index)
            if choice.error is not NO_ERROR and is_error(choice.error):
                self._fail(wrap_error(choice.error), shown=False)
        return output

    def _finish(self, index: int | None, reason: object) -> None:
        text = reason if isinstance(reason, str) else "unknown"
        self._finishes[index] = text
        self._open.discard(index)
        if text in FAILED_FINISHES:
            self._fail(finish_error(text), shown=False)

    def _fail(self, payload: bytes, *, shown: bool = True) -> None:
        if self.error is None:
            self.error, self.error_shown = payload, shown

    def _read_error_event(self, raw: bytes, data: bytes) -> bytes | None:
        """An error by its name. SDKs look for `error` in what they can parse, so it is shown only where that is."""
        try:
            _check_json(data)
        except UNREADABLE:
            self._fail(data, shown=False)
            self.dropped += 1
            return None
        shown = _says_error(data)
        if _DATA_LINE.search(raw):
            self._fail(data, shown=shown)
            return raw
        self._fail(data)
        payload = data if shown else wrap_error(msgspec.Raw(data))  # from a field named `error`: no SDK looks there
        return b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n\n"

    def _read_odd(self, raw: bytes, data: bytes) -> bytes | None:
        """Not a chunk, but JSON perhaps: then the client's to judge, unless it says that it is an error."""
        try:
            _check_json(data)
        except UNREADABLE:
            return self._read_broken(raw, data)
        if _says_error(data):
            self._fail(data)
        return raw

    def _read_broken(self, raw: bytes, data: bytes) -> bytes | None:
        if data.strip() == b"[DONE]":
            self.done = True
            return raw
        self.dropped += 1
        return None


def _says_error(data: bytes) -> bool:
    """Say whether JSON is an object with an error on top."""
    try:
        return is_error(_decode_error_only(data).error)
    except msgspec.ValidationError:
        return False


def _may_deviate(chunk: _Chunk) -> bool:
    return not chunk.choices or any(
        choice.finish_reason == "" or (choice.delta is not None and choice.delta.tool_calls) for choice in chunk.choices
    )
