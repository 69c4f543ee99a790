"""Requests and answers as the neutral form has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.responses_wire import is_response, is_response_stream
from tests.recordings import Recording, recorded

from lumen_gateway.dialects.neutral import (
    Format,
    Image,
    Native,
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
from lumen_gateway.dialects.responses import parse_request
from lumen_gateway.dialects.responses_to_neutral import read_answer, read_finish, read_request
from lumen_gateway.errors import Failure, Kind
from lumen_gateway.records import Usage


def asked(**fields: Any) -> Request:
    return read_request(parse_request(json.dumps({"model": "m", "input": "hi", **fields}).encode()))


def turns(*items: Any) -> list[Turn]:
    return list(asked(input=items).turns)


def call(id_: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": f"tool_{id_}", "arguments": arguments}


def result(id_: str, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": output}


def test_text_is_a_turn_behind_the_instructions() -> None:
    assert asked(instructions="be brief").turns == [
        Turn("system", [Text(text="be brief")]),
        Turn("user", [Text(text="hi")]),
    ]


def test_what_the_assistant_did_is_one_turn_and_so_are_the_results() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]}
    image = {"type": "input_image", "image_url": "https://x/y.png"}
    asked_before = ({"role": "user", "content": "go"}, reasoning, said, call("a"), call("b"))
    assert turns(*asked_before, result("a"), result("b", [image])) == [
        Turn("user", [Text(text="go")]),
        Turn(
            "assistant",
            [Thinking(text="hm"), Text(text="wait"), ToolCall(id="a", name="tool_a"), ToolCall(id="b", name="tool_b")],
        ),
        Turn(
            "tool",
            [
                ToolResult(call_id="a", name="tool_a", parts=[Text(text="ok")]),
                ToolResult(call_id="b", name="tool_b", parts=[Image(url="https://x/y.png")]),
            ],
        ),
    ]


def test_developer_speaks_for_the_system() -> None:
    assert turns({"role": "developer", "content": "x"}) == [Turn("system", [Text(text="x")])]


def test_call_without_arguments_has_an_empty_object() -> None:
    assert turns(call("a", " ")) == [Turn("assistant", [ToolCall(id="a", name="tool_a", arguments="{}")])]


def test_item_only_this_dialect_knows_is_kept_whole() -> None:
    (turn,) = turns({"type": "web_search_call", "action": {"q": 1}})
    assert turn.parts == [Native(dialect="responses", block=Raw(b'{"type": "web_search_call", "action": {"q": 1}}'))]


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt"])
def test_what_an_upstream_has_kept_is_refused_by_name(name: str) -> None:
    with pytest.raises(Failure, match=f"`{name}`.*`input`"):
        asked(**{name: "x"})


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"role": "robot", "content": "x"},
        {"role": "user", "content": 3},
        {"role": "user", "content": [{"type": "input_text", "text": 3}]},
        {"type": "function_call", "name": "f"},
        {"type": "function_call_output", "output": "x"},
    ],
)
def test_item_that_cannot_be_read_is_the_clients_fault(item: Any) -> None:
    with pytest.raises(Failure) as caught:
        turns(item)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 0.5, "top_p": 0.1}, {"temperature": 0.5, "top_p": 0.1}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"stream": True}, {"stream": True}),
        ({"safety_identifier": "u"}, {"user": "u"}),
        ({"safety_identifier": "s", "user": "u"}, {"user": "u"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": Reasoning("low")}),
        ({"reasoning": {"effort": "none"}}, {"reasoning": Reasoning("none", enabled=False)}),
        ({"tool_choice": "required"}, {"tool_choice": ToolChoice("required")}),
        ({"tool_choice": {"type": "function", "name": "f"}}, {"tool_choice": ToolChoice("tool", "f")}),
        ({"text": {"format": {"type": "json_object"}}}, {"format": Format("json_object")}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"format": Format("json_schema", "n", Raw(b"{}"), strict=True)},
        ),
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, {"tools": [Tool("f", schema=Raw(b"{}"))]}),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {}),
        ({"store": False, "truncation": "disabled", "include": ["reasoning.encrypted_content"], "metadata": {}}, {}),
    ],
)
def test_what_is_asked_beside_the_conversation(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    read = asked(**fields)
    assert {name: getattr(read, name) for name in wanted} == wanted
    assert not read.unmapped


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"store": True, "metadata": {"a": "b"}, "background": True}, ["background", "metadata", "store"]),
        ({"text": {"verbosity": "low"}}, ["text.verbosity"]),
        ({"tool_choice": {"type": "allowed_tools"}}, ["tool_choice"]),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, ["include", "top_logprobs"]),
        ({"reasoning": 3}, ["reasoning"]),
    ],
)
def test_what_has_no_counterpart_is_named(fields: dict[str, Any], names: list[str]) -> None:
    assert sorted(asked(**fields).unmapped) == names


def test_tool_the_vendor_runs_is_kept_whole() -> None:
    (tool,) = asked(tools=[{"type": "web_search"}]).tools
    assert (tool.dialect, bytes(tool.native)) == ("responses", b'{"type": "web_search"}')


@pytest.mark.parametrize("tools", [3, [3], [{"type": "function"}]])
def test_tools_that_are_none_are_refused(tools: Any) -> None:
    with pytest.raises(Failure, match="`tools`"):
        asked(tools=tools)


def test_answer_is_read_with_the_clients_own_names() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "y"}]}
    body = {"id": "r", "model": "m", "status": "completed", "output": [said, call("a")]}
    answer = read_answer(
        json.dumps(body | {"usage": {"input_tokens": 1, "output_tokens": 2}}).encode(), {"tool_a": "long"}
    )
    assert answer.parts == [Text(text="x"), Refusal(text="y"), ToolCall(id="a", name="long")]
    assert (answer.id, answer.model, answer.finish) == ("r", "m", "tool_calls")
    assert answer.usage == Usage(1, 2, origin="reported")


@pytest.mark.parametrize("odd", [b"[]", b'{"output":[3]}', b"\xff"])
def test_answer_that_is_none_is_malformed(odd: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_answer(odd)
    assert caught.value.kind is Kind.MALFORMED


def test_finish_is_told_in_neutral_words() -> None:
    assert read_finish("completed", None, calls=False) == "stop"
    assert read_finish("completed", None, calls=True) == "tool_calls"
    assert read_finish("incomplete", "max_output_tokens", calls=True) == "length"
    assert read_finish("incomplete", "content_filter", calls=False) == "content_filter"


@pytest.mark.parametrize("recording", recorded(lambda entry: is_response(entry) and not is_response_stream(entry)))
def test_recorded_answers_keep_their_meaning(recording: Recording) -> None:
    answer, body = read_answer(recording.body), json.loads(recording.body)
    texts = [
        part.get("text", "")
        for item in body["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    ]
    assert "".join(part.text for part in answer.parts if isinstance(part, Text)) == "".join(texts)
    calls = [(item["call_id"], item["name"]) for item in body["output"] if item["type"] == "function_call"]
    assert [(part.id, part.name) for part in answer.parts if isinstance(part, ToolCall)] == calls
    assert answer.usage is not None
