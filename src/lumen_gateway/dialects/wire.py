"""Between a client's dialect and an upstream's: what the executor needs of them, whichever they are.

A `Dialect` is a client's way of speaking: how its requests are read and how our own errors look in it. A `Wire` joins
it to what an upstream speaks: it writes the upstream's request and turns the answer, whole or streamed, into the
client's. Between two speakers of the same dialect a wire passes bytes through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from lumen_gateway.dialects import chat, chat_answer, messages, messages_answer, responses, responses_answer
from lumen_gateway.dialects.chat import ChatRequest, ChatRules
from lumen_gateway.dialects.chat_answer import Answer
from lumen_gateway.dialects.chat_repair import repair_answer
from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.messages import MessagesRequest
from lumen_gateway.dialects.messages_stream import MessagesStream
from lumen_gateway.dialects.responses import ResponsesRequest
from lumen_gateway.dialects.responses_stream import ResponsesStream
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.records import Usage

ClientRequest = ChatRequest | MessagesRequest | ResponsesRequest
"""A client's request in its own dialect; what routing and accounting ask of one, each of them answers."""
Edit = Callable[[Fields], None]
"""Changes the fields of an upstream's body in place, under the names of Chat Completions."""
Estimate = Callable[[ClientRequest, int], Usage]
"""What a request and its answer of that size used, for a client that must be told and an upstream that did not say."""


class StreamState(Protocol):
    """What has become of one upstream stream so far. `ChatStream` says what each of it means."""

    @property
    def output(self) -> bool:
        """Whether there has been output."""
        ...

    @property
    def output_frames(self) -> int:
        """How many frames held output."""
        ...

    @property
    def error(self) -> bytes | None:
        """The payload of the first error frame."""
        ...

    @property
    def done(self) -> bool:
        """Whether the terminator was seen."""
        ...

    @property
    def dropped(self) -> int:
        """How many frames were withheld because they are not JSON."""
        ...

    @property
    def opening(self) -> bytes:
        """The data of the frame in which the answer names itself."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What it used, as far as it is known."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, terminator or not."""
        ...

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """The finish reason of each choice that has one, in the words of Chat Completions."""
        ...

    @property
    def filtered(self) -> bool:
        """Whether a content filter ended it before any output."""
        ...

    @property
    def empty(self) -> bool:
        """Whether it ended well with nothing in it."""
        ...


class Stream(StreamState, Protocol):
    """One upstream stream, read along frame by frame, and what of it is for the client."""

    @property
    def error_shown(self) -> bool:
        """Whether clients take that frame, as forwarded, for an error."""
        ...

    @property
    def sequence(self) -> int:
        """The number of the client's next event; 0 in a dialect that numbers none."""
        ...

    def read(self, frame: Frame) -> bytes | None:
        """Take one frame; return what of it is for the client, None for a frame that is withheld."""
        ...

    def read_block(self, block: bytes) -> bytes | None:
        """Take many ordinary frames at once; None, with nothing changed, if they must be read one by one."""
        ...

    def end(self) -> bytes:
        """Return what the client's stream still lacks once the upstream's is properly over."""
        ...


class Wire(Protocol):
    """One client dialect joined to one upstream dialect."""

    def body(self, request: ClientRequest, model: msgspec.Raw, rules: ChatRules, edit: Edit | None, /) -> bytes:
        """Write the body of one attempt, from the client's own request and nothing an earlier attempt changed."""
        ...

    def lost(self, request: ClientRequest, model: msgspec.Raw, edit: Edit | None, /) -> list[str]:
        """Name what is set in the request, or by the edit, and is not in the body."""
        ...

    def answer(
        self, request: ClientRequest, body: bytes, /, *, repair: bool, created: int, estimate: Estimate | None = None
    ) -> tuple[bytes, Answer]:
        """Return an upstream's whole answer to the request as the client's, and the verdict on it.

        Units:  `created` is the time of the answer, in seconds since the epoch; an estimate's size is in bytes.
        Raises: Failure MALFORMED.
        """
        ...

    def stream(
        self, request: ClientRequest, /, *, repair: bool, created: int, estimate: Estimate | None = None
    ) -> Stream:
        """Begin a stream that answers the request.

        Units:  as above, but an estimate's size is in frames with output.
        """
        ...


class Dialect(msgspec.Struct, frozen=True):
    """How a client speaks. Errors take code, message, type and, for a whole answer, the status it goes out with.

    One that ends a stream takes the number it has there, for a dialect that numbers its events.
    """

    name: str
    parse: Callable[[bytes], ClientRequest]
    error_body: Callable[[str, str, str, int], bytes]
    error_frame: Callable[[str, str, str, int], bytes]


class ChatThrough:
    """Chat Completions on both sides."""

    def body(self, request: ClientRequest, model: msgspec.Raw, rules: ChatRules, edit: Edit | None) -> bytes:
        assert isinstance(request, ChatRequest)
        return chat.upstream_body(request, model, rules, edit)

    def lost(self, *_: object) -> list[str]:
        return []

    def answer(self, _: ClientRequest, body: bytes, *, repair: bool, **__: object) -> tuple[bytes, Answer]:
        if repair:
            body = repair_answer(body)
        return body, chat_answer.read_answer(body)

    def stream(self, request: ClientRequest, *, repair: bool, **_: object) -> Stream:
        return ChatStream(repair=repair, include_usage=request.include_usage)


class MessagesThrough:
    """Anthropic Messages on both sides. Nobody is known to deviate from it, so there is nothing to repair."""

    def body(self, request: ClientRequest, model: msgspec.Raw, _: ChatRules, edit: Edit | None) -> bytes:
        assert isinstance(request, MessagesRequest)
        return messages.upstream_body(request, model, edit)

    def lost(self, request: ClientRequest, _: msgspec.Raw, edit: Edit | None) -> list[str]:
        assert isinstance(request, MessagesRequest)
        return [] if edit is None else messages.uneditable(request, edit)

    def answer(self, _: ClientRequest, body: bytes, **__: object) -> tuple[bytes, Answer]:
        return body, messages_answer.read_answer(body)

    def stream(self, _: ClientRequest, **__: object) -> Stream:
        return MessagesStream()


class ResponsesThrough:
    """OpenAI Responses on both sides. Nobody is known to deviate from it, so there is nothing to repair."""

    def body(self, request: ClientRequest, model: msgspec.Raw, _: ChatRules, edit: Edit | None) -> bytes:
        assert isinstance(request, ResponsesRequest)
        return responses.upstream_body(request, model, edit)

    def lost(self, request: ClientRequest, _: msgspec.Raw, edit: Edit | None) -> list[str]:
        assert isinstance(request, ResponsesRequest)
        return [] if edit is None else responses.uneditable(request, edit)

    def answer(self, _: ClientRequest, body: bytes, **__: object) -> tuple[bytes, Answer]:
        return body, responses_answer.read_answer(body)

    def stream(self, _: ClientRequest, **__: object) -> Stream:
        return ResponsesStream()


def _chat_error(code: str, message: str, type: str, status: int) -> bytes:  # noqa: A002, ARG001 - as in `Dialect`
    return chat_answer.error_body(code, message, type)


def _chat_frame(code: str, message: str, type: str, _: int) -> bytes:  # noqa: A002 - as above
    return chat_answer.error_frame(code, message, type)


def _messages_frame(code: str, message: str, type: str, _: int) -> bytes:  # noqa: A002 - as above
    return messages_answer.error_frame(code, message, type)


CHAT = Dialect("chat", chat.parse_request, _chat_error, _chat_frame)
MESSAGES = Dialect("messages", messages.parse_request, messages_answer.error_body, _messages_frame)
RESPONSES = Dialect("responses", responses.parse_request, _chat_error, responses_answer.error_frame)
