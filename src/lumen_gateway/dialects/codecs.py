"""Each dialect seen from the neutral form, and the table of all wires.

A new dialect is a codec here and, if it is to pass bytes through, a class in `wire.py`. Overrides speak of the fields
of Chat Completions, so they are applied on that side of a translation, whichever it is.
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects import (
    chat_answer,
    chat_completion,
    chat_from_neutral,
    chat_to_neutral,
    gemini_answer,
    gemini_from_neutral,
    gemini_names,
    messages_answer,
    messages_from_neutral,
    messages_to_neutral,
    neutral,
    responses,
    responses_answer,
    responses_from_neutral,
    responses_to_neutral,
    responses_writer,
    spans,
)
from lumen_gateway.dialects.chat import ChatRequest, ChatRules, parse_request
from lumen_gateway.dialects.chat_answer import Answer
from lumen_gateway.dialects.chat_deltas import ChatDeltas
from lumen_gateway.dialects.chat_edits import edited
from lumen_gateway.dialects.chat_names import NO_NAMES, Names, own_names
from lumen_gateway.dialects.chat_writer import ChatWriter
from lumen_gateway.dialects.gemini_stream import GeminiDeltas
from lumen_gateway.dialects.messages import MessagesRequest
from lumen_gateway.dialects.messages_deltas import MessagesDeltas
from lumen_gateway.dialects.messages_writer import MessagesWriter
from lumen_gateway.dialects.responses import ResponsesRequest
from lumen_gateway.dialects.responses_deltas import ResponsesDeltas
from lumen_gateway.dialects.responses_writer import ResponsesWriter
from lumen_gateway.dialects.translation import ClientCodec, Deltas, Translation, UpstreamCodec, Writer
from lumen_gateway.dialects.wire import ChatThrough, ClientRequest, Edit, MessagesThrough, ResponsesThrough, Wire


class _Chat:
    """Chat Completions."""

    def read_request(self, request: ClientRequest, edit: Edit | None) -> neutral.Request:
        assert isinstance(request, ChatRequest)
        if edit is not None:
            fields = request.fields.copy()
            edit(fields)
            request = parse_request(spans.join(fields))
        return chat_to_neutral.read_request(request)

    def write_request(self, request: neutral.Request, model: msgspec.Raw, rules: ChatRules, edit: Edit | None) -> bytes:
        body = chat_from_neutral.write_request(request, model, rules)
        if edit is None:
            return body
        fields = spans.split(body)
        edit(fields)
        return spans.join(fields)

    def uncarried(self, request: neutral.Request, _: msgspec.Raw) -> list[str]:
        return chat_from_neutral.uncarried(request)

    def names(self, request: neutral.Request) -> Names:
        return own_names(request.tools)

    def judge(self, body: bytes) -> Answer:
        return chat_answer.read_answer(body)

    def read_answer(self, body: bytes, names: Names) -> neutral.Answer:
        return chat_completion.read_answer(body, names)

    def write_answer(self, answer: neutral.Answer, created: int) -> bytes:
        return chat_completion.write_answer(answer, created)

    def deltas(self, names: Names) -> Deltas:
        return ChatDeltas(names)

    def writer(self, created: int, *, include_usage: bool) -> Writer:
        return ChatWriter(created, include_usage)


class _Messages:
    """Anthropic Messages."""

    def read_request(self, request: ClientRequest, _: Edit | None) -> neutral.Request:
        assert isinstance(request, MessagesRequest)
        return messages_to_neutral.read_request(request)

    def write_request(self, request: neutral.Request, model: msgspec.Raw, _: ChatRules, __: Edit | None) -> bytes:
        return messages_from_neutral.write_request(request, model)

    def uncarried(self, request: neutral.Request, model: msgspec.Raw) -> list[str]:
        return messages_from_neutral.uncarried(request, model)

    def names(self, _: neutral.Request) -> Names:
        return NO_NAMES

    def judge(self, body: bytes) -> Answer:
        return messages_answer.read_answer(body)

    def read_answer(self, body: bytes, _: Names) -> neutral.Answer:
        return messages_to_neutral.read_answer(body)

    def write_answer(self, answer: neutral.Answer, _: int) -> bytes:
        return messages_from_neutral.write_answer(answer)

    def deltas(self, _: Names) -> Deltas:
        return MessagesDeltas()

    def writer(self, _: int, *, include_usage: bool) -> Writer:  # noqa: ARG002 - usage is part of the dialect
        return MessagesWriter()


class _Gemini:
    """Google Gemini, which no client speaks."""

    def write_request(self, request: neutral.Request, model: msgspec.Raw, _: ChatRules, edit: Edit | None) -> bytes:
        said = request if edit is None else edited(request, edit)  # where the client's side edits, the same once more
        return gemini_from_neutral.write_request(said, model)

    def uncarried(self, request: neutral.Request, model: msgspec.Raw) -> list[str]:
        return gemini_from_neutral.uncarried(request, model)

    def names(self, request: neutral.Request) -> Names:
        return gemini_names.own_names(request.tools)

    def judge(self, body: bytes) -> Answer:
        return gemini_answer.judge(body)

    def read_answer(self, body: bytes, names: Names) -> neutral.Answer:
        return gemini_answer.read_answer(body, names)

    def deltas(self, names: Names) -> Deltas:
        return GeminiDeltas(names)


class _Responses:
    """OpenAI Responses. It edits too, since the other side may not be chat: where it is, the same once more."""

    def read_request(self, request: ClientRequest, edit: Edit | None) -> neutral.Request:
        assert isinstance(request, ResponsesRequest)
        if edit is not None:
            request = responses.edited(request, edit)
        return responses_to_neutral.read_request(request)

    def write_request(self, request: neutral.Request, model: msgspec.Raw, _: ChatRules, edit: Edit | None) -> bytes:
        body = responses_from_neutral.write_request(request, model)
        if edit is None:
            return body
        fields = spans.split(body)
        responses.edit_fields(edit, fields)
        return spans.join(fields)

    def uncarried(self, request: neutral.Request, _: msgspec.Raw) -> list[str]:
        return responses_from_neutral.uncarried(request)

    def names(self, request: neutral.Request) -> Names:
        return own_names(request.tools)

    def judge(self, body: bytes) -> Answer:
        return responses_answer.read_answer(body)

    def read_answer(self, body: bytes, names: Names) -> neutral.Answer:
        return responses_to_neutral.read_answer(body, names)

    def write_answer(self, answer: neutral.Answer, created: int) -> bytes:
        return responses_writer.write_answer(answer, created)

    def deltas(self, names: Names) -> Deltas:
        return ResponsesDeltas(names)

    def writer(self, created: int, *, include_usage: bool) -> Writer:  # noqa: ARG002 - usage is part of the dialect
        return ResponsesWriter(created)


_CLIENTS: dict[str, ClientCodec] = {"chat": _Chat(), "messages": _Messages(), "responses": _Responses()}
_UPSTREAMS: dict[str, UpstreamCodec] = {
    "chat": _Chat(),
    "messages": _Messages(),
    "responses": _Responses(),
    "gemini": _Gemini(),
}

WIRES: dict[tuple[str, str], Wire] = {
    (client, upstream): Translation(reader, writer)
    for client, reader in _CLIENTS.items()
    for upstream, writer in _UPSTREAMS.items()
} | {
    ("chat", "chat"): ChatThrough(),
    ("messages", "messages"): MessagesThrough(),
    ("responses", "responses"): ResponsesThrough(),
}
"""(client's dialect, upstream's) -> what joins them."""
