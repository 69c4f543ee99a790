"""A Gemini stream: what has become of it, for the executor, and its pieces as neutral deltas.

Each event is a piece in the form of a whole answer. There is no terminator: a finish reason, or a blocked prompt, and
then the end of the body are the end. Counts of usage grow, so the latest is the one that counts. A call comes whole.

Source: Gemini API reference, "streamGenerateContent".
"""

from __future__ import annotations

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat_answer import ended_well, finish_error, is_error
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.gemini_answer import (
    FAILED_FINISHES,
    Reader,
    Response,
    decode_response,
    read_finish,
    read_usage,
)
from lumen_gateway.dialects.neutral import (
    CallDelta,
    Delta,
    Finished,
    Native,
    NativeDelta,
    Start,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Used,
)
from lumen_gateway.dialects.spans import UNREADABLE
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.records import Usage


class GeminiStream:
    """One stream as the executor looks at it, in the words of `ChatStream`; `GeminiDeltas` keeps it up to date."""

    __slots__ = ("dropped", "error", "finish_reasons", "opening", "output", "output_frames", "usage")

    done = False  # there is no terminator

    def __init__(self) -> None:
        self.output = False
        self.output_frames = 0
        self.error: bytes | None = None
        self.dropped = 0
        self.opening = b""
        self.usage: Usage | None = None
        self.finish_reasons: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether a reason for the end was seen."""
        return bool(self.finish_reasons)

    @property
    def filtered(self) -> bool:
        """Whether a content filter ended it before any output."""
        return not self.output and "content_filter" in self.finish_reasons

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        return not self.output and self.finished and ended_well(self.finish_reasons)


class GeminiDeltas:
    """Reads one upstream stream; `state` is what has become of it."""

    def __init__(self, names: Names = NO_NAMES) -> None:
        self.state = GeminiStream()
        self._reader = Reader(names)

    def read(self, frame: Frame) -> list[Delta]:
        """Take one frame; return the steps it brings. Behind the end only usage is read."""
        state, data = self.state, frame.data
        if data is None or state.error is not None:
            return []
        try:
            response = decode_response(data)
            deltas = self._read_pieces(response, data)
        except UNREADABLE:
            state.dropped += 1
            return []
        if is_error(response.error):
            state.error = data
            return []
        return deltas + self._end(response)

    def _read_pieces(self, response: Response, data: bytes) -> list[Delta]:
        state, reader = self.state, self._reader
        if state.finished:
            return []
        begins = not state.opening and bool(response.candidates or response.reason())
        if begins:
            reader.begin(response, data)
        said = [self._read_part(part) for raw in response.parts() if (part := reader.read(raw)) is not None]
        state.output_frames += bool(said)
        state.output = state.output_frames > 0
        if not begins:
            return said
        state.opening = data
        return [Start(reader.answer_id, response.model_version or "", read_usage(response.usage_metadata)), *said]

    def _read_part(self, part: neutral.Part) -> Delta:
        match part:
            case Text(text=text):
                return TextDelta(text)
            case Thinking(text=text):
                return ThinkingDelta(text)
            case ToolCall():
                return CallDelta(self._reader.calls - 1, part.id, part.name, part.arguments, part.signature)
            case Native(dialect=dialect, block=block):
                return NativeDelta(dialect, block)
        raise TypeError(f"{type(part).__name__} is no part of an answer")

    def _end(self, response: Response) -> list[Delta]:
        state, reason = self.state, response.reason()
        deltas: list[Delta] = []
        if reason in FAILED_FINISHES:
            state.error = finish_error(reason)
        elif reason and not state.finished:
            finish = read_finish(reason, calls=self._reader.calls > 0)
            state.finish_reasons = (finish,)
            deltas.append(Finished(finish))
        usage = read_usage(response.usage_metadata)
        if usage is not None:
            state.usage = usage
            if state.finished:
                deltas.append(Used(usage))
        return deltas
