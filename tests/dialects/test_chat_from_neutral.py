"""Requests for chat upstreams: what other dialects say, in this one's words and within its rules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.chat_protocol import faults_of_request
from tests.recordings import Recording, is_chat_answer, recorded

from lumen_gateway.dialects import chat
from lumen_gateway.dialects.chat import OPEN, ChatRules
from lumen_gateway.dialects.chat_from_neutral import uncarried, write_request
from lumen_gateway.dialects.chat_to_neutral import read_request
from lumen_gateway.dialects.neutral import (
    Document,
    Format,
    Image,
    Native,
    Part,
    Raw,
    Reasoning,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)

SCHEMA = Raw(b'{"type":"object"}')
PNG = Image(media_type="image/png", data="iVBO")
ELSEWHERE = Native(dialect="messages", block=Raw(b'{"type":"server_tool_use"}'))
HELLO = Turn("user", [Text(text="hello")])


def body(*turns: Turn, rules: ChatRules = OPEN, **fields: Any) -> Any:
    written = json.loads(write_request(Request(turns=turns, **fields), Raw(b'"up/m"'), rules))
    assert faults_of_request(written) == []
    return written


def messages(*turns: Turn) -> Any:
    return body(*turns)["messages"]


def asked(**fields: Any) -> Any:
    written = body(HELLO, **fields)
    del written["model"], written["messages"]
    return written


def lost(*turns: Turn, **fields: Any) -> list[str]:
    return uncarried(Request(turns=turns, **fields))


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments='{"a":1}')


def test_a_request_that_asks_for_nothing_is_model_and_messages() -> None:
    assert body(HELLO) == {"model": "up/m", "messages": [{"role": "user", "content": "hello"}]}


def test_values_are_written_where_they_are_set() -> None:
    values = {"temperature": 0.0, "top_p": 0.5, "seed": 0, "presence_penalty": 1.0, "frequency_penalty": -1.0}
    assert asked(**values, stop=["a", "b"], user="u", max_tokens=5) == {
        **values,
        "stop": ["a", "b"],
        "user": "u",
        "max_tokens": 5,
    }


def test_the_limit_goes_under_the_name_the_upstream_honours() -> None:
    rules = ChatRules(max_tokens_field="max_completion_tokens")
    assert body(HELLO, max_tokens=5, rules=rules)["max_completion_tokens"] == 5


def test_a_stream_asks_for_usage_where_the_upstream_takes_that() -> None:
    assert asked(stream=True) == {"stream": True, "stream_options": {"include_usage": True}}
    assert "stream_options" not in body(HELLO, stream=True, rules=ChatRules(include_usage=False))


def test_tools_are_written_with_what_is_known_of_them() -> None:
    tools = [Tool("f", "does f", SCHEMA, strict=False, cache=Raw(b'{"type":"ephemeral"}')), Tool("g")]
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": False}
    assert asked(tools=tools, tool_choice=ToolChoice("tool", "f"), parallel_tool_calls=False) == {
        "tools": [{"type": "function", "function": function}, {"type": "function", "function": {"name": "g"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_choice_among_all_tools_is_a_word(mode: Any) -> None:
    assert asked(tools=[Tool("f")], tool_choice=ToolChoice(mode))["tool_choice"] == mode


def test_without_tools_nothing_is_said_about_calling_them() -> None:
    assert asked(tool_choice=ToolChoice("auto"), parallel_tool_calls=True) == {}


def test_tools_of_another_vendor_are_left_out_and_named() -> None:
    own = Tool("custom", native=Raw(b'{"type":"custom"}'), dialect="chat")
    other = Tool("web_search", native=Raw(b'{"type":"web_search_20250305"}'), dialect="messages")
    assert asked(tools=[own, other]) == {"tools": [{"type": "custom"}]}
    assert lost(HELLO, tools=[own, other]) == ["tools"]
    assert lost(HELLO, tools=[own]) == []


def test_long_names_of_tools_are_shortened_wherever_they_stand() -> None:
    name = "n" * 70
    turns = [HELLO, Turn("assistant", [ToolCall(id="c", name=name)]), Turn("tool", [ToolResult(call_id="c")])]
    written = body(*turns, tools=[Tool(name)], tool_choice=ToolChoice("tool", name))
    (tool,), (_, asking, _) = written["tools"], written["messages"]
    sent = tool["function"]["name"]
    assert asking["tool_calls"][0]["function"]["name"] == written["tool_choice"]["function"]["name"] == sent


def test_formats_are_written() -> None:
    assert asked(format=Format("json_object")) == {"response_format": {"type": "json_object"}}
    schema = asked(format=Format("json_schema", "n", SCHEMA, strict=True, description="d"))["response_format"]
    described = {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"}
    assert schema == {"type": "json_schema", "json_schema": described}


def test_a_schema_without_a_name_is_given_the_one_that_is_required() -> None:
    assert asked(format=Format("json_schema", schema=SCHEMA))["response_format"]["json_schema"]["name"]


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (Reasoning("minimal"), "minimal"),
        (Reasoning("max"), "high"),
        (Reasoning("none", enabled=False), "none"),
        (Reasoning("low", budget_tokens=30_000), "low"),
        (Reasoning(budget_tokens=1024), "low"),
        (Reasoning(budget_tokens=4000), "medium"),
        (Reasoning(budget_tokens=31_999), "high"),
    ],
)
def test_reasoning_is_asked_for_in_a_word(reasoning: Reasoning, effort: str) -> None:
    assert asked(reasoning=reasoning) == {"reasoning_effort": effort}


@pytest.mark.parametrize("reasoning", [Reasoning(), Reasoning(enabled=False), Reasoning("", 5000, enabled=False)])
def test_reasoning_without_a_measure_is_left_to_the_upstream(reasoning: Reasoning) -> None:
    assert asked(reasoning=reasoning) == {}


def test_blocks_of_a_system_prompt_are_one_text() -> None:
    system = Turn("system", [Text(text="a"), Text(text="b", cache=Raw(b'{"type":"ephemeral"}'))])
    assert messages(system, HELLO)[0] == {"role": "system", "content": "a\n\nb"}
    assert messages(Turn("system", []), HELLO) == messages(HELLO)


def test_a_user_s_parts_stay_apart_and_a_single_text_is_plain() -> None:
    parts: list[Part] = [Text(text="a"), PNG, Document(media_type="application/pdf", data="JVBE", name="a.pdf")]
    (message,) = messages(Turn("user", parts, "ann"))
    assert message["name"] == "ann"
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "file"]
    assert messages(Turn("user", [])) == [{"role": "user", "content": ""}]


def test_an_assistant_s_texts_continue_each_other() -> None:
    said = Turn("assistant", [Thinking(text="hm"), Text(text="a"), Text(text="b"), Refusal(text="no")])
    (message,) = messages(said)
    assert message == {"role": "assistant", "content": "ab", "reasoning_content": "hm", "refusal": "no"}


def test_signed_thinking_goes_back_as_it_came() -> None:
    said = Turn("assistant", [Thinking(text="so", signature="s1"), Thinking(redacted="d1"), Text(text="a")])
    (message,) = messages(said)
    assert message["thinking_blocks"] == [
        {"type": "thinking", "thinking": "so", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d1"},
    ]


def test_a_turn_that_says_nothing_is_left_out() -> None:
    assert messages(HELLO, Turn("assistant", [Thinking(text="hm"), ELSEWHERE]), HELLO) == messages(HELLO, HELLO)


def test_each_result_is_a_message_of_its_own_and_right_behind_the_calls() -> None:
    written = messages(
        Turn("assistant", [call("c1"), call("c2")]),
        Turn("tool", [ToolResult(call_id="c1", parts=[Text(text="1"), Text(text="2")]), ToolResult(call_id="c2")]),
    )
    assert written[0]["content"] is None
    assert written[1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "1\n2"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    ]


def test_a_picture_that_a_tool_shows_opens_what_the_user_says_next() -> None:
    shown = Turn("tool", [ToolResult(call_id="c1", parts=[Text(text="1"), PNG]), ToolResult(call_id="c2")])
    asking = Turn("assistant", [call("c1"), call("c2")])
    _, first, second, user = messages(asking, shown, HELLO)
    assert first["content"].startswith("1\n")
    assert (second["content"], user["role"]) == ("", "user")
    word, picture, text = user["content"]
    assert "c1" in word["text"]
    assert picture["image_url"]["url"] == "data:image/png;base64,iVBO"
    assert text == {"type": "text", "text": "hello"}


@pytest.mark.parametrize("after", [[], [Turn("assistant", [Text(text="a")])], [Turn("system", [Text(text="s")])]])
def test_a_picture_of_a_tool_is_a_message_where_the_user_says_nothing(after: list[Turn]) -> None:
    shown = Turn("tool", [ToolResult(call_id="c1", parts=[PNG])])
    roles = [message["role"] for message in messages(Turn("assistant", [call("c1")]), shown, *after)]
    assert roles == ["assistant", "tool", "user", *(turn.role for turn in after)]


@pytest.mark.parametrize(
    ("turn", "name"),
    [
        (Turn("user", [ELSEWHERE]), "messages.content"),
        (Turn("user", [Image(file_id="f")]), "messages.content.image"),
        (Turn("user", [Document(url="https://host/a.pdf")]), "messages.content.document"),
        (Turn("assistant", [PNG]), "messages.content.image"),
        (Turn("system", [PNG]), "messages.content.image"),
        (Turn("tool", [ToolResult(call_id="c", is_error=True)]), "messages.content.is_error"),
        (Turn("tool", [ToolResult(call_id="c", parts=[ELSEWHERE])]), "messages.content"),
    ],
)
def test_what_the_body_does_not_hold_is_named_once(turn: Turn, name: str) -> None:
    assert lost(turn, turn) == [name]


def test_what_the_body_holds_is_not_named() -> None:
    said: list[Part] = [Thinking(text="hm"), Text(text="a"), call("c1"), Refusal(text="no")]
    shown = Turn("tool", [ToolResult(call_id="c1", parts=[PNG, Text(text="a")])])
    assert lost(HELLO, Turn("assistant", said), shown, Turn("user", [PNG]), tools=[Tool("f")]) == []
    assert lost(HELLO, top_k=5) == ["top_k"]


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
NUMBER = st.none() | st.floats(0, 2).map(lambda number: round(number, 3))
USERS = st.lists(st.builds(Text, text=WORDS) | st.just(PNG), min_size=1, max_size=3)
ARGUMENTS = st.dictionaries(WORDS, st.integers(), max_size=2).map(json.dumps)


@st.composite
def rounds(draw: st.DrawFn) -> list[Turn]:
    """What a user says, and what the assistant does about it."""
    asked = Turn("user", draw(USERS))
    said: list[Part] = [Text(text=draw(WORDS))]
    said += draw(st.lists(st.builds(Refusal, text=WORDS), max_size=1))
    ids = draw(st.lists(WORDS, unique=True, max_size=3))
    said += [ToolCall(id=call_id, name="f", arguments=draw(ARGUMENTS)) for call_id in ids]
    thinking = draw(st.lists(st.builds(Thinking, text=WORDS, signature=WORDS), max_size=2))
    turns = [asked, Turn("assistant", [*thinking, *said])]
    if ids:
        answered: list[Part] = [
            ToolResult(call_id=call_id, name="f", parts=[Text(text=draw(WORDS))]) for call_id in ids
        ]
        turns.append(Turn("tool", answered))
    return turns


REQUESTS = st.builds(
    Request,
    turns=st.lists(rounds(), min_size=1, max_size=3).map(
        lambda all_rounds: [turn for turns in all_rounds for turn in turns]
    ),
    tools=st.just([Tool("f", "does f", SCHEMA, strict=True)]),
    tool_choice=st.none() | st.sampled_from([ToolChoice("auto"), ToolChoice("required"), ToolChoice("tool", "f")]),
    parallel_tool_calls=st.none() | st.booleans(),
    max_tokens=st.none() | st.integers(1, 9999),
    temperature=NUMBER,
    top_p=NUMBER,
    stop=st.lists(WORDS, min_size=1, max_size=3),
    seed=st.none() | st.integers(0, 99),
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    format=st.none() | st.just(Format("json_schema", "n", SCHEMA, strict=True, description="d")),
    reasoning=st.none() | st.builds(Reasoning, st.sampled_from(["low", "medium", "high"])),
    user=WORDS,
    stream=st.booleans(),
    unmapped=st.just([]),
)


@given(REQUESTS)
def test_what_this_dialect_holds_reads_the_same_again(request: Request) -> None:
    written = write_request(request, Raw(b'"m"'), OPEN)
    assert faults_of_request(json.loads(written)) == []
    assert read_request(chat.parse_request(written)) == request


@pytest.mark.parametrize("recording", recorded(is_chat_answer))
def test_recorded_requests_are_understood_the_same_once_written(recording: Recording) -> None:
    sent = json.loads(Path(os.environ["RECORDINGS_DIR"], recording.file).read_text())["request"]["body"]
    if sent is None:
        pytest.skip("only the answer was recorded")
    request = read_request(chat.parse_request(json.dumps(sent).encode()))
    again = read_request(chat.parse_request(write_request(request, Raw(b'"m"'), OPEN)))
    assert conversation(again) == conversation(request)
    assert [tool.name for tool in again.tools] == [tool.name for tool in request.tools]


def conversation(request: Request) -> list[Any]:
    """Return what is said, without the cache markers that are not sent, and without turns in which nothing is."""
    turns: list[Any] = json.loads(msgspec.json.encode(request.turns))
    for turn in turns:
        for part in turn["parts"]:
            part.pop("cache", None)
            for shown in part.get("parts", ()):
                shown.pop("cache", None)
    return [turn for turn in turns if turn["parts"]]
