"""From one dialect to another and back: what both can hold keeps its meaning, whole and streamed.

The rules of both wires are held to on the way, so this is also where the two halves of a translation meet. What joins
them for the executor is tested first.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects import anthropic_wire
from tests.dialects.chat_protocol import faults_of_request, faults_of_stream
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects import (
    chat,
    chat_completion,
    chat_from_neutral,
    chat_to_neutral,
    messages,
    messages_from_neutral,
    messages_to_neutral,
)
from lumen_gateway.dialects.chat_deltas import ChatDeltas
from lumen_gateway.dialects.chat_stream import ChatStream
from lumen_gateway.dialects.chat_writer import ChatWriter
from lumen_gateway.dialects.codecs import WIRES
from lumen_gateway.dialects.messages_deltas import MessagesDeltas
from lumen_gateway.dialects.messages_stream import MessagesStream
from lumen_gateway.dialects.messages_writer import MessagesWriter
from lumen_gateway.dialects.neutral import (
    Answer,
    CallDelta,
    Delta,
    Finish,
    Finished,
    Image,
    Part,
    Raw,
    RefusalDelta,
    Request,
    Start,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
    Used,
)
from lumen_gateway.dialects.sse import Frame, Splitter
from lumen_gateway.dialects.wire import CHAT, MESSAGES, Stream
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage

CLAUDE = Raw(b'"claude-3-5-haiku"')  # takes temperature and top_p as they come, and does not think
PNG = Image(media_type="image/png", data="iVBO")


ASKED = {
    "chat": CHAT.parse(b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'),
    "messages": MESSAGES.parse(b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'),
}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def chunk(**fields: Any) -> bytes:
    return f"data: {json.dumps({'id': 'x', 'model': 'm', **fields})}\n\n".encode()


SAID = {
    "chat": b"".join(
        [
            b": hello\n\n",
            chunk(choices=[{"index": 0, "delta": {"content": "hi"}}]),
            b"data: {\n\n",
            chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
            chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2}),
            b"data: [DONE]\n\n",
        ]
    ),
    "messages": b"".join(
        [
            b": hello\n\n",
            event("message_start", message={"id": "x", "model": "m", "usage": {"input_tokens": 3}}),
            event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"}),
            b"event: ping\ndata: {\n\n",
            event("content_block_stop", index=0),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
            event("message_stop"),
        ]
    ),
}
FAILED = {
    "chat": b'data: {"error":{"message":"SECRET"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"SECRET"}}\n\n',
}
TRANSLATED = [("chat", "messages"), ("messages", "chat")]
STATE = (
    "output",
    "output_frames",
    "error",
    "done",
    "dropped",
    "opening",
    "usage",
    "finished",
    "finish_reasons",
    "filtered",
    "empty",
)


def frames_of(stream: bytes) -> list[Frame]:
    return Splitter(1 << 22).feed(stream)


def begin(client: str, upstream: str) -> Stream:
    return WIRES[client, upstream].stream(ASKED[client], repair=False, created=1)


@pytest.mark.parametrize(("client", "upstream"), TRANSLATED)
def test_a_translated_stream_is_to_the_executor_what_the_upstream_s_is(client: str, upstream: str) -> None:
    plain: Stream = MessagesStream() if upstream == "messages" else ChatStream(repair=False, include_usage=True)
    translated = begin(client, upstream)
    for frame in frames_of(SAID[upstream]):
        plain.read(frame)
        translated.read(frame)
        assert [getattr(translated, name) for name in STATE] == [getattr(plain, name) for name in STATE]
    assert (translated.done, translated.dropped, translated.finish_reasons) == (True, 1, ("stop",))


@pytest.mark.parametrize(("client", "upstream"), TRANSLATED)
def test_the_client_gets_nothing_that_only_the_upstream_s_side_speaks_of(client: str, upstream: str) -> None:
    stream = begin(client, upstream)
    assert stream.read_block(SAID[upstream]) is None
    forwarded = [stream.read(frame) for frame in frames_of(SAID[upstream])]
    assert None in forwarded
    assert b"" not in forwarded
    whole = b"".join(filter(None, forwarded)) + stream.end()
    if client == "chat":
        assert faults_of_stream(whole) == []
    else:
        assert anthropic_wire.message_of(whole)["content"] == [{"type": "text", "text": "hi"}]
    assert b"hello" not in whole


@pytest.mark.parametrize(("client", "upstream"), TRANSLATED)
def test_an_error_of_the_upstream_is_kept_from_the_client_for_us_to_tell(client: str, upstream: str) -> None:
    stream = begin(client, upstream)
    assert [stream.read(frame) for frame in frames_of(FAILED[upstream])] == [None]
    assert stream.error is not None
    assert not stream.error_shown


@pytest.mark.parametrize(("client", "upstream"), TRANSLATED)
def test_a_whole_answer_that_is_an_error_is_a_verdict_and_no_bytes(client: str, upstream: str) -> None:
    body = b'{"type":"error","error":{"type":"api_error","message":"m"}}'
    forward, verdict = WIRES[client, upstream].answer(ASKED[client], body, repair=False, created=1)
    assert (forward, verdict.error) == (b"", body)
    with pytest.raises(Failure) as raised:
        WIRES[client, upstream].answer(ASKED[client], b"[]", repair=False, created=1)
    assert raised.value.kind is Kind.MALFORMED


def through_chat(request: Request) -> Request:
    body = chat_from_neutral.write_request(request, Raw(b'"m"'), chat.OPEN)
    assert faults_of_request(json.loads(body)) == []
    return chat_to_neutral.read_request(chat.parse_request(body))


def through_messages(request: Request) -> Request:
    body = messages_from_neutral.write_request(request, CLAUDE)
    anthropic_wire.check_request(json.loads(body))
    return messages_to_neutral.read_request(messages.parse_request(body))


def answered_in_chat(answer: Answer) -> Answer:
    return chat_completion.read_answer(chat_completion.write_answer(answer, 1))


def answered_in_messages(answer: Answer) -> Answer:
    return messages_to_neutral.read_answer(messages_from_neutral.write_answer(answer))


def deltas_of(reader: ChatDeltas | MessagesDeltas, stream: bytes) -> list[Delta]:
    return [delta for frame in Splitter(1 << 22).feed(stream) for delta in reader.read(frame)]


def streamed_in_chat(deltas: list[Delta]) -> list[Delta]:
    writer = ChatWriter(1, include_usage=True)
    stream = b"".join(map(writer.write, deltas)) + writer.end()
    assert faults_of_stream(stream) == []
    return deltas_of(ChatDeltas(), stream)


def streamed_in_messages(deltas: list[Delta]) -> list[Delta]:
    writer = MessagesWriter()
    stream = b"".join(map(writer.write, deltas)) + writer.end()
    anthropic_wire.message_of(stream)
    return deltas_of(MessagesDeltas(), stream)


def answer_of(deltas: list[Delta]) -> Answer:
    """Return the answer a stream adds up to, its text behind its thinking and before its calls."""
    start = deltas[0]
    assert isinstance(start, Start)
    thoughts: list[Thinking] = []
    calls: dict[int, ToolCall] = {}
    text, finish, usage = "", None, start.usage
    closed = True
    for delta in deltas[1:]:
        match delta:
            case ThinkingDelta(redacted=redacted) if redacted:
                thoughts.append(Thinking(redacted=redacted))
                closed = True
            case ThinkingDelta():
                before = Thinking() if closed else thoughts.pop()
                thoughts.append(Thinking(text=before.text + delta.text, signature=delta.signature))
                closed = bool(delta.signature)
            case TextDelta() | RefusalDelta():
                text += delta.text
            case CallDelta(index=index, id=call_id) if index not in calls:
                calls[index] = ToolCall(id=call_id, name=delta.name, arguments=delta.arguments)
            case CallDelta(index=index):
                calls[index] = msgspec.structs.replace(calls[index], arguments=calls[index].arguments + delta.arguments)
            case Finished():
                assert finish is None
                finish = delta.finish
            case Used():
                usage = delta.usage
    assert finish is not None
    said = [Text(text=text)] if text else []
    return Answer(id=start.id, model=start.model, parts=[*thoughts, *said, *calls.values()], finish=finish, usage=usage)


NAME = st.text("abcXYZ019_-", min_size=1, max_size=8)
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
ARGUMENTS = st.dictionaries(WORDS, st.integers() | WORDS, max_size=2).map(json.dumps)
PROVED = st.builds(Thinking, text=WORDS, signature=NAME) | st.builds(Thinking, redacted=NAME)
SHOWN = st.builds(Text, text=WORDS) | st.just(PNG)
TOOLS = [Tool("f", "does f", Raw(b'{"type":"object"}')), Tool("g", schema=Raw(b'{"type":"object","properties":{}}'))]


@st.composite
def rounds(draw: st.DrawFn) -> list[Turn]:
    """What a user says, what the assistant makes of it, and what the tools it calls answer."""
    thoughts: list[Part] = draw(st.lists(PROVED, max_size=2))
    ids = draw(st.lists(NAME, unique=True, max_size=3))
    calls: list[Part] = [ToolCall(id=call_id, name="f", arguments=draw(ARGUMENTS)) for call_id in ids]
    turns = [
        Turn("user", draw(st.lists(SHOWN, min_size=1, max_size=3))),
        Turn("assistant", [*thoughts, Text(text=draw(WORDS)), *calls]),
    ]
    if ids:
        results: list[Part] = [ToolResult(call_id=call_id, name="f", parts=[Text(text=draw(WORDS))]) for call_id in ids]
        turns += [Turn("tool", results), Turn("assistant", [Text(text=draw(WORDS))])]
    return turns


@st.composite
def requests(draw: st.DrawFn) -> Request:
    system = [Turn("system", [Text(text=text)]) for text in draw(st.lists(WORDS, max_size=1))]
    conversation = [turn for turns in draw(st.lists(rounds(), min_size=1, max_size=2)) for turn in turns]
    choices = [ToolChoice("auto"), ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "g")]
    return Request(
        turns=system + conversation,
        tools=TOOLS,
        tool_choice=draw(st.sampled_from(choices)),
        max_tokens=draw(st.integers(1, 9999)),
        temperature=draw(st.none() | st.sampled_from([0.0, 0.5, 1.0])),
        top_p=draw(st.none() | st.just(0.9)),
        stop=draw(st.lists(WORDS, min_size=1, max_size=2)),
        user=draw(NAME),
        stream=True,
        unmapped=[],
    )


COUNT = st.integers(1, 1_000_000)
USAGE = st.builds(
    lambda fresh, output, cached, written: Usage(fresh + cached + written, output, cached, written, origin="reported"),
    *(COUNT for _ in range(4)),
)
ENDS: list[Finish] = ["stop", "length"]


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    ids = draw(st.lists(NAME, unique=True, max_size=3))
    calls: list[Part] = [ToolCall(id=call_id, name="f", arguments=draw(ARGUMENTS)) for call_id in ids]
    thoughts: list[Part] = draw(st.lists(PROVED, max_size=2))
    texts: list[Part] = draw(st.lists(st.builds(Text, text=WORDS), max_size=1))
    finish: Finish = "tool_calls" if ids else draw(st.sampled_from(ENDS))
    return Answer(id=draw(NAME), model="m", parts=[*thoughts, *texts, *calls], finish=finish, usage=draw(USAGE))


def steps_of(answer: Answer, piece_chars: int) -> list[Delta]:
    """Return the stream of an answer in pieces of that size, the arguments of its calls by turns."""
    deltas: list[Delta] = [Start(answer.id, answer.model)]
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    for part in answer.parts:
        match part:
            case Thinking(redacted=redacted) if redacted:
                deltas.append(ThinkingDelta(redacted=redacted))
            case Thinking():
                deltas += map(ThinkingDelta, cut(part.text, piece_chars))
                deltas.append(ThinkingDelta(signature=part.signature))
            case Text():
                deltas += map(TextDelta, cut(part.text, piece_chars))
    deltas += [CallDelta(index, call.id, call.name) for index, call in enumerate(calls)]
    pieces = [cut(call.arguments, piece_chars) for call in calls]
    for turn in range(max(map(len, pieces), default=0)):
        deltas += [CallDelta(index, arguments=own[turn]) for index, own in enumerate(pieces) if turn < len(own)]
    assert answer.usage is not None
    return [*deltas, Finished(answer.finish), Used(answer.usage)]


def cut(text: str, piece_chars: int) -> list[str]:
    return [text[start : start + piece_chars] for start in range(0, len(text), piece_chars)]


@given(requests())
def test_a_request_there_and_back_means_the_same(request: Request) -> None:
    assert through_chat(through_messages(through_chat(request))) == request
    assert through_messages(through_chat(through_messages(request))) == request


@given(answers())
def test_an_answer_there_and_back_means_the_same(answer: Answer) -> None:
    assert answered_in_chat(answered_in_messages(answered_in_chat(answer))) == answer
    assert answered_in_messages(answered_in_chat(answered_in_messages(answer))) == answer


@given(answers(), st.integers(1, 5))
def test_a_stream_there_and_back_adds_up_to_the_same_answer(answer: Answer, piece_chars: int) -> None:
    deltas = steps_of(answer, piece_chars)
    assert answer_of(streamed_in_chat(streamed_in_messages(streamed_in_chat(deltas)))) == answer
    assert answer_of(streamed_in_messages(streamed_in_chat(streamed_in_messages(deltas)))) == answer


@pytest.mark.parametrize("through", [through_chat, through_messages])
def test_thinking_without_proof_is_carried_where_the_other_side_can_hold_it(through: Any) -> None:
    said = Turn("assistant", [Thinking(text="hm"), Text(text="a")])
    (_, again, _) = through(Request(turns=[Turn("user", [PNG]), said, Turn("user", [PNG])])).turns
    assert again.parts == (said.parts if through is through_chat else [Text(text="a")])


def test_a_picture_that_a_tool_shows_reaches_a_chat_upstream_from_a_messages_client() -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "see", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
                        ],
                    },
                    {"type": "text", "text": "and?"},
                ],
            },
        ],
    }
    request = messages_to_neutral.read_request(messages.parse_request(json.dumps(body).encode()))
    written = json.loads(chat_from_neutral.write_request(request, Raw(b'"m"'), chat.OPEN))
    assert faults_of_request(written) == []
    assert [message["role"] for message in written["messages"]] == ["user", "assistant", "tool", "user"]
    assert [part["type"] for part in written["messages"][-1]["content"]] == ["text", "image_url", "text"]


def test_a_picture_that_a_tool_shows_stays_in_its_result_from_a_chat_client_to_a_messages_upstream() -> None:
    turns = [
        Turn("user", [Text(text="look")]),
        Turn("assistant", [ToolCall(id="t1", name="see")]),
        Turn("tool", [ToolResult(call_id="t1", name="see", parts=[PNG])]),
    ]
    assert through_messages(Request(turns=turns)).turns == turns


def is_whole_answer(entry: dict[str, Any]) -> bool:
    """Say whether it is a good chat answer that was not cut in the middle of a call's arguments."""
    return is_chat_answer(entry) and not {"tool_call", "stop:length"} <= set(entry["features"])


@pytest.mark.parametrize("recording", recorded(is_whole_answer))
def test_recorded_chat_answers_mean_the_same_to_a_messages_client(recording: Recording) -> None:
    if not recording.stream:
        answer = chat_completion.read_answer(recording.body)
        assert shown(answered_in_messages(answer)) == shown(answer)
        return
    reader = ChatDeltas()
    deltas = deltas_of(reader, recording.body)
    if reader.state.error is None and reader.state.finished:
        assert shown(answer_of(streamed_in_messages(deltas))) == shown(answer_of(deltas))


@pytest.mark.parametrize("recording", recorded(anthropic_wire.is_whole_stream))
def test_recorded_messages_streams_mean_the_same_to_a_chat_client(recording: Recording) -> None:
    deltas = deltas_of(MessagesDeltas(), recording.body)
    assert shown(answer_of(streamed_in_chat(deltas))) == shown(answer_of(deltas))


@pytest.mark.parametrize("recording", recorded(lambda entry: anthropic_wire.is_message(entry) and not entry["stream"]))
def test_recorded_messages_mean_the_same_to_a_chat_client(recording: Recording) -> None:
    answer = messages_to_neutral.read_answer(recording.body)
    assert shown(answered_in_chat(answer)) == shown(answer)


def shown(answer: Answer) -> tuple[object, ...]:
    """Return what a reader of the answer gets: thoughts, words, calls, why it ended, what it cost."""
    thoughts = "".join(part.text for part in answer.parts if isinstance(part, Thinking))
    proofs = [part for part in answer.parts if isinstance(part, Thinking) and (part.signature or part.redacted)]
    words = "".join(getattr(part, "text", "") for part in answer.parts if not isinstance(part, Thinking))
    calls = [(part.id, part.name, json.loads(part.arguments)) for part in answer.parts if isinstance(part, ToolCall)]
    finish = "refusal" if answer.finish == "content_filter" else answer.finish  # one word in Messages
    return thoughts, proofs, words, calls, finish, answer.usage
