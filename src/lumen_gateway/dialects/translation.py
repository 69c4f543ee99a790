"""From one dialect to another through the neutral form: request, answer and stream.

A codec is a dialect seen from the neutral form; any client's and any upstream's make a translation.
Nothing is decided here: what a stream means to the executor is what the upstream's own reader says of it, and only the
bytes are the client's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from lumen_gateway.dialects import neutral
from lumen_gateway.dialects.chat import ChatRules
from lumen_gateway.dialects.chat_answer import Answer
from lumen_gateway.dialects.chat_names import NO_NAMES, Names
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.dialects.wire import ClientRequest, Edit, Estimate, Stream, StreamState
from lumen_gateway.errors import invalid
from lumen_gateway.records import Usage


class Deltas(Protocol):
    """An upstream's stream, frame by frame, as steps of the neutral form."""

    @property
    def state(self) -> StreamState:
        """The stream as the executor looks at it."""
        ...

    def read(self, frame: Frame) -> Sequence[neutral.Delta]:
        """Take one frame."""
        ...


class Writer(Protocol):
    """Steps of the neutral form as a client's stream."""

    @property
    def sequence(self) -> int:
        """The number of the next event; 0 in a dialect that numbers none."""
        ...

    def write(self, delta: neutral.Delta) -> bytes:
        """Return what a step adds to the stream."""
        ...

    def end(self) -> bytes:
        """Return what ends the stream properly."""
        ...


class ClientCodec(Protocol):
    """The dialect of clients: requests are read, answers written."""

    def read_request(self, request: ClientRequest, edit: Edit | None, /) -> neutral.Request:
        """Read a client's request, edited on the way where this dialect is the one that edits speak of."""
        ...

    def write_answer(self, answer: neutral.Answer, created: int, /) -> bytes:
        """Write a client's answer."""
        ...

    def writer(self, created: int, /, *, include_usage: bool) -> Writer:
        """Begin to write a client's stream."""
        ...


class UpstreamCodec(Protocol):
    """The dialect of upstreams: requests are written, answers read.

    `names` are those tools of a request whose names an upstream got in another form.
    """

    def write_request(self, request: neutral.Request, model: msgspec.Raw, rules: ChatRules, edit: Edit | None) -> bytes:
        """Write an upstream's request, edited where this dialect is the one that edits speak of."""
        ...

    def uncarried(self, request: neutral.Request, model: msgspec.Raw, /) -> list[str]:
        """Name what is set in a request and has no place in this dialect, or not with this model."""
        ...

    def names(self, request: neutral.Request, /) -> Names:
        """Return the client's own names of tools by those that an upstream of this dialect is sent."""
        ...

    def judge(self, body: bytes) -> Answer:
        """Return the verdict on an upstream's answer."""
        ...

    def read_answer(self, body: bytes, names: Names, /) -> neutral.Answer:
        """Read an upstream's answer."""
        ...

    def deltas(self, names: Names, /) -> Deltas:
        """Begin to read an upstream's stream."""
        ...


class Translation:
    """A wire between speakers of two dialects."""

    def __init__(self, client: ClientCodec, upstream: UpstreamCodec) -> None:
        self._client = client
        self._upstream = upstream

    def body(self, request: ClientRequest, model: msgspec.Raw, rules: ChatRules, edit: Edit | None) -> bytes:
        """Write the body of one attempt.

        Raises: Failure `LM-1001` naming the fields that a strict provider would not get.
        """
        said = self._client.read_request(request, edit)
        if rules.strict and (lost := self._lost(said, model)):
            raise invalid(f"the model's provider takes no {', '.join(lost)}; leave that out, or ask another model")
        return self._upstream.write_request(said, model, rules, edit)

    def lost(self, request: ClientRequest, model: msgspec.Raw, edit: Edit | None) -> list[str]:
        """Name what the upstream is not told."""
        return self._lost(self._client.read_request(request, edit), model)

    def _lost(self, said: neutral.Request, model: msgspec.Raw) -> list[str]:
        return [*said.unmapped, *self._upstream.uncarried(said, model)]

    def answer(
        self, request: ClientRequest, body: bytes, *, created: int, estimate: Estimate | None = None, **_: object
    ) -> tuple[bytes, Answer]:
        """Return an upstream's answer as the client's, and the verdict on it; nothing for one that is an error.

        Shape: where the upstream reports no usage, what the client reads is an estimate, marked as one.
        """
        verdict = self._upstream.judge(body)
        if verdict.error is not None:
            return b"", verdict
        answer = self._upstream.read_answer(body, self._names(request))
        if answer.usage is None and estimate is not None:
            answer = msgspec.structs.replace(answer, usage=estimate(request, verdict.output_bytes))
        return self._client.write_answer(answer, created), verdict

    def stream(self, request: ClientRequest, *, created: int, estimate: Estimate | None = None, **_: object) -> Stream:
        """Begin a stream that answers the request."""
        writer = self._client.writer(created, include_usage=request.include_usage)
        told = None if estimate is None else partial(estimate, request)
        return TranslatedStream(self._upstream.deltas(self._names(request)), writer, told)

    def _names(self, request: ClientRequest) -> Names:
        if not request.has_tools():
            return NO_NAMES
        return self._upstream.names(self._client.read_request(request, None))


class TranslatedStream:
    """An upstream's stream on its way into another dialect: the upstream's state, the client's bytes."""

    error_shown = False  # an error is told in the client's dialect, by us

    def __init__(self, deltas: Deltas, writer: Writer, estimate: Callable[[int], Usage] | None) -> None:
        self._deltas = deltas
        self._writer = writer
        self._estimate = estimate
        self._state = deltas.state

    def read(self, frame: Frame) -> bytes | None:
        """Take one frame; comments are between the upstream and us."""
        if frame.data is None:
            return None
        return b"".join(map(self._writer.write, self._deltas.read(frame))) or None

    def read_block(self, block: bytes) -> None:
        """Have every frame looked at."""

    def end(self) -> bytes:
        """Return what ends the client's stream, with an estimate of the usage where the upstream reports none."""
        if self._state.usage is None and self._estimate is not None:
            self._writer.write(neutral.Used(self._estimate(self._state.output_frames)))
        return self._writer.end()

    @property
    def sequence(self) -> int:
        """The number of the client's next event."""
        return self._writer.sequence

    @property
    def output(self) -> bool:
        """Whether there has been output."""
        return self._state.output

    @property
    def output_frames(self) -> int:
        """How many frames held output."""
        return self._state.output_frames

    @property
    def error(self) -> bytes | None:
        """The payload of the first error."""
        return self._state.error

    @property
    def done(self) -> bool:
        """Whether the upstream's terminator was seen."""
        return self._state.done

    @property
    def dropped(self) -> int:
        """How many frames were not JSON."""
        return self._state.dropped

    @property
    def opening(self) -> bytes:
        """What the upstream's answer calls itself."""
        return self._state.opening

    @property
    def usage(self) -> Usage | None:
        """What it used, as far as it is known."""
        return self._state.usage

    @property
    def finished(self) -> bool:
        """Whether the answer is complete."""
        return self._state.finished

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """Why it ended."""
        return self._state.finish_reasons

    @property
    def filtered(self) -> bool:
        """Whether a content filter ended it before any output."""
        return self._state.filtered

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        return self._state.empty
