"""A chat client's conversation in the neutral form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lumen_gateway.dialects import chat, neutral
from lumen_gateway.dialects.chat_to_neutral import read_request
from lumen_gateway.dialects.neutral import (
    Image,
    Native,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Turn,
)
from lumen_gateway.errors import Failure, Kind

HELLO = {"role": "user", "content": "hello"}


def request(*messages: Any, **fields: Any) -> neutral.Request:
    body = {"model": "m", "messages": list(messages), **fields}
    return read_request(chat.parse_request(json.dumps(body).encode()))


def turns(*messages: Any) -> list[Turn]:
    return list(request(*messages).turns)


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def answering(call_id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def results(*parts: Part) -> Turn:
    return Turn("tool", parts)


def refused(*messages: Any, **fields: Any) -> str:
    with pytest.raises(Failure) as raised:
        request(*messages, **fields)
    assert raised.value.kind is Kind.INVALID_REQUEST
    return raised.value.message


def test_a_conversation_keeps_its_order_and_its_roles() -> None:
    said = turns(
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "ann"},
        {"role": "assistant", "content": "a"},
        {"role": "developer", "content": "d"},
    )
    assert said == [
        Turn("system", [Text(text="s")]),
        Turn("user", [Text(text="u")], "ann"),
        Turn("assistant", [Text(text="a")]),
        Turn("system", [Text(text="d")]),
    ]


def test_an_empty_turn_is_a_turn_without_parts() -> None:
    assert turns({"role": "user", "content": ""}, {"role": "assistant"}) == [Turn("user", []), Turn("assistant", [])]


def test_what_an_assistant_thought_comes_before_what_it_said_and_asked_for() -> None:
    block = {"type": "thinking", "thinking": "so", "signature": "s1"}
    message = asking(call("c1"), content="text", reasoning_content="so", thinking_blocks=[block], refusal="no")
    assert turns(message) == [
        Turn(
            "assistant",
            [
                Thinking(text="so", signature="s1"),
                Text(text="text"),
                Refusal(text="no"),
                ToolCall(id="c1", name="f"),
            ],
        )
    ]


def test_results_of_calls_made_together_stand_in_one_turn_under_the_names_of_their_tools() -> None:
    _, answers, _ = turns(
        asking(call("c1"), call("c2", "g")), answering("c2", "two"), answering("c1", [{"text": "one"}]), HELLO
    )
    assert answers == Turn(
        "tool",
        [
            ToolResult(call_id="c2", name="g", parts=[Text(text="two")]),
            ToolResult(call_id="c1", name="f", parts=[Text(text="one")]),
        ],
    )


def test_results_of_the_next_round_stand_in_a_turn_of_their_own() -> None:
    roles = [turn.role for turn in turns(asking(call("c1")), answering("c1"), asking(call("c2")), answering("c2"))]
    assert roles == ["assistant", "tool", "assistant", "tool"]


def test_a_result_may_show_a_picture() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    _, answers = turns(asking(call("c1")), answering("c1", [picture]))
    (result,) = answers.parts
    assert isinstance(result, ToolResult)
    assert result.parts == [Image(media_type="image/png", data="iVBO")]


def test_results_without_an_id_answer_the_calls_in_their_order() -> None:
    unnamed = {"role": "tool", "content": "x"}
    _, answers = turns(asking(call("c1"), call("c2", "g"), call("c3")), {**unnamed, "name": "g"}, unnamed, unnamed)
    assert [part.call_id for part in answers.parts if isinstance(part, ToolResult)] == ["c2", "c1", "c3"]


def test_old_function_calls_get_ids_by_which_their_results_find_them() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}
    first, second, third, fourth = turns(old, {"role": "function", "name": "f", "content": "1"}, old, {**old})[:4]
    (asked,) = first.parts
    (result,) = second.parts
    assert isinstance(asked, ToolCall)
    assert isinstance(result, ToolResult)
    assert (asked.arguments, result.call_id) == ('{"a":1}', asked.id)
    assert len({part.id for turn in (first, third, fourth) for part in turn.parts if isinstance(part, ToolCall)}) == 3


@pytest.mark.parametrize("messages", [[HELLO, answering("")], [asking(call("c1")), {"role": "tool", "name": "g"}]])
def test_a_result_that_answers_nothing_is_refused(messages: Any) -> None:
    assert "tool_call_id" in refused(*messages)


def test_a_message_s_own_cache_marker_stands_on_its_last_part() -> None:
    marker = {"cache_control": {"type": "ephemeral"}}
    (turn,) = turns({"role": "user", "content": [{"text": "a"}, {"text": "b"}], **marker})
    assert turn.parts == [Text(text="a"), Text(text="b", cache=Raw(b'{"type": "ephemeral"}'))]
    _, answers = turns(asking(call("c1")), answering("c1", **marker))
    assert answers.parts[0].cache == Raw(b'{"type": "ephemeral"}')
    assert turns({"role": "user", "content": "", **marker}) == [Turn("user", [])]


def test_what_only_this_dialect_has_is_kept_or_named() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}
    custom = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}
    asked = request(
        {"role": "user", "content": [audio]}, asking(custom, audio={"id": "a1"}), n=2, logprobs=True, max_tokens=5
    )
    assert isinstance(asked.turns[0].parts[0], Native)
    assert asked.unmapped == ["messages.tool_calls", "messages.audio", "logprobs", "n"]


def test_the_limit_of_today_counts_before_the_old_one() -> None:
    assert request(HELLO, max_tokens=5).max_tokens == 5
    assert request(HELLO, max_tokens=5, max_completion_tokens=6, stream=True, temperature=0.5) == neutral.Request(
        turns=[Turn("user", [Text(text="hello")])], max_tokens=6, stream=True, temperature=0.5, unmapped=[]
    )


def test_a_role_that_nobody_has_is_refused() -> None:
    assert "`role`" in refused({"role": "narrator", "content": "x"})


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "text", "text": ["SECRET"]}]}, "messages[1].content.text"),
        ({"role": "assistant", "tool_calls": "SECRET"}, "messages[1].tool_calls"),
        ({"role": "user", "content": [{"image_url": {"url": "data:SECRET"}}]}, "messages[1].content"),
    ],
)
def test_a_message_that_is_none_is_refused_by_its_place_and_not_by_what_it_holds(message: Any, place: str) -> None:
    text = refused(HELLO, message)
    assert f"`{place}`" in text
    assert "SECRET" not in text


def test_tools_that_are_none_are_refused() -> None:
    assert "`tools" in refused(HELLO, tools=[5])
