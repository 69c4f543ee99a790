"""Pass-through: between speakers of one dialect bytes stay bytes."""

from __future__ import annotations

import json

import msgspec
import pytest

from lumen_gateway.dialects.chat import OPEN
from lumen_gateway.dialects.sse import Frame
from lumen_gateway.dialects.wire import (
    CHAT,
    MESSAGES,
    RESPONSES,
    ChatThrough,
    Dialect,
    MessagesThrough,
    ResponsesThrough,
    Wire,
)

TURNS = b'"messages":[{"role":"user","content":"hi"}],"unheard_of":{"a":[1.50]}'
BODY = b'{"model":"m","max_tokens":5,"input":"hi",' + TURNS + b"}"
CHAT_ANSWER = b'{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}], "more" : 1}'
MESSAGES_ANSWER = b'{"type":"message","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn", "more" : 1}'
RESPONSES_ANSWER = b'{"output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}], "more" : 1}'
THROUGH = [
    (CHAT, ChatThrough(), CHAT_ANSWER),
    (MESSAGES, MessagesThrough(), MESSAGES_ANSWER),
    (RESPONSES, ResponsesThrough(), RESPONSES_ANSWER),
]


@pytest.mark.parametrize(("dialect", "wire", "_"), THROUGH, ids=lambda value: getattr(value, "name", ""))
def test_only_the_model_of_a_request_is_exchanged(dialect: Dialect, wire: Wire, _: bytes) -> None:
    request = dialect.parse(BODY)
    sent = wire.body(request, msgspec.Raw(b'"theirs"'), OPEN, None)
    assert sent == BODY.replace(b'"m"', b'"theirs"', 1)


@pytest.mark.parametrize(("dialect", "wire", "answer"), THROUGH, ids=lambda value: getattr(value, "name", ""))
def test_an_answer_passes_as_it_came(dialect: Dialect, wire: Wire, answer: bytes) -> None:
    forward, seen = wire.answer(dialect.parse(BODY), answer, repair=False, created=0)
    assert forward is answer
    assert (seen.has_output, seen.finish_reasons) == (True, ("stop",))


@pytest.mark.parametrize(
    ("dialect", "wire", "data", "terminator"),
    [
        (CHAT, ChatThrough(), b'{"choices":[{"index":0,"delta":{"content":"x"}}]}', b"data: [DONE]\n\n"),
        (
            MESSAGES,
            MessagesThrough(),
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}',
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        ),
    ],
)
def test_a_stream_passes_frame_by_frame_and_its_terminator_is_completed(
    dialect: Dialect, wire: Wire, data: bytes, terminator: bytes
) -> None:
    stream = wire.stream(dialect.parse(BODY), repair=False, created=0)
    raw = b"data: " + data + b"\n\n"
    assert stream.read(Frame(raw, b"", data)) == raw
    assert stream.output
    assert stream.end() == terminator
    stream.read(Frame(terminator, b"", terminator.partition(b"data: ")[2].strip()))
    assert stream.done
    assert stream.end() == b""


def test_responses_pass_as_they_come_and_nothing_ends_them_but_the_upstream() -> None:
    stream = ResponsesThrough().stream(RESPONSES.parse(BODY), repair=False, created=0)
    data = b'{"type":"response.output_text.delta","delta":"x"}'
    assert stream.read(Frame(b"data: " + data + b"\n\n", b"", data)) == b"data: " + data + b"\n\n"
    assert stream.output
    assert stream.end() == b""


def test_what_overrides_set_without_a_place_in_responses_is_named() -> None:
    request = RESPONSES.parse(BODY)
    wire = ResponsesThrough()
    assert wire.lost(request, msgspec.Raw(b'"m"'), None) == []
    assert wire.lost(request, msgspec.Raw(b'"m"'), lambda fields: fields.update(seed=msgspec.Raw(b"1"))) == ["seed"]


def test_errors_look_as_each_dialect_has_them() -> None:
    chat = json.loads(CHAT.error_body("LM-2001", "no such model", "invalid_request", 404))
    messages = json.loads(MESSAGES.error_body("LM-2001", "no such model", "invalid_request", 404))
    assert chat == {"error": {"code": "LM-2001", "message": "no such model", "type": "invalid_request"}}
    assert messages["type"] == "error"
    assert messages["error"] == {"type": "not_found_error", "message": "no such model", "code": "LM-2001"}
    assert CHAT.error_frame("LM-3010", "cut", "upstream_error", 0).startswith(b"data: {")
    assert RESPONSES.error_body("LM-2001", "no such model", "invalid_request", 404) == CHAT.error_body(
        "LM-2001", "no such model", "invalid_request", 404
    )
    assert RESPONSES.error_frame("LM-3010", "cut", "upstream_error", 0).startswith(b"event: error\ndata: {")
    assert MESSAGES.error_frame("LM-3010", "cut", "upstream_error", 0).startswith(b"event: error\ndata: {")
