"""Requests: roles, rounds of calls, parameters; and the names of what has no place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.gemini_wire import faults_of_request

from lumen_gateway.dialects.gemini_from_neutral import uncarried, write_request
from lumen_gateway.dialects.neutral import (
    Format,
    Image,
    Native,
    Raw,
    Reasoning,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)

FLASH = Raw(b'"gemini-2.5-flash"')
LATEST = Raw(b'"gemini-3-pro"')
OLD = Raw(b'"gemini-2.0-flash"')
SCHEMA = Raw(b'{"type":"object","$schema":"x"}')


def said(role: Role, *texts: str) -> Turn:
    return Turn(role, [Text(text=text) for text in texts])


def result(call_id: str, text: str, name: str = "") -> Turn:
    return Turn("tool", [ToolResult(call_id=call_id, name=name, parts=[Text(text=text)])])


def sent(*turns: Turn, model: Raw = FLASH, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(write_request(Request(turns=turns, **fields), model))
    assert faults_of_request(body) == []
    return body


def test_system_turns_stand_apart_and_roles_are_the_wires() -> None:
    body = sent(said("system", "be"), said("user", "hi"), said("assistant", "yes"), said("system", "brief"))
    assert body == {
        "systemInstruction": {"parts": [{"text": "be"}, {"text": "brief"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "yes"}]}],
    }


def test_system_prompt_alone_is_what_the_user_says() -> None:
    assert sent(said("system", "be")) == {"contents": [{"role": "user", "parts": [{"text": "be"}]}]}


def test_neighbours_of_one_role_are_one_content_also_around_an_empty_turn() -> None:
    body = sent(said("assistant", "a"), said("assistant", "b"), said("user", ""), said("assistant", "c"))
    assert [part["text"] for part in body["contents"][0]["parts"]] == ["a", "b", "c"]
    assert len(body["contents"]) == 1


def test_results_of_a_round_are_one_content_in_the_order_of_the_calls() -> None:
    calls = [ToolCall(id=id_, name=name) for id_, name in (("1", "f"), ("2", "f"), ("3", "g"))]
    turns = (Turn("assistant", calls), result("3", "c"), result("1", "a"), result("2", "b"), said("user", "and?"))
    model, results, user = sent(*turns)["contents"]
    assert [part["functionCall"]["name"] for part in model["parts"]] == ["f", "f", "g"]
    answers = [part["functionResponse"] for part in results["parts"]]
    assert [(each["name"], each["response"]["result"]) for each in answers] == [("f", "a"), ("f", "b"), ("g", "c")]
    assert (results["role"], user) == ("user", {"role": "user", "parts": [{"text": "and?"}]})


@pytest.mark.parametrize(("name", "expected"), [("g", "g"), ("", "lost")])
def test_result_without_its_call_goes_by_its_own_name_or_id(name: str, expected: str) -> None:
    (content,) = sent(result("lost", "x", name))["contents"]
    assert content["parts"][0]["functionResponse"]["name"] == expected


def test_only_models_that_want_signatures_see_a_foreign_call_marked() -> None:
    calls = Turn("assistant", [Text(text="so"), ToolCall(id="1", name="f"), ToolCall(id="2", name="g")])
    signed = Turn("assistant", [ToolCall(id="1", name="f", signature="sig")])
    marks = [part.get("thoughtSignature") for part in sent(calls, model=LATEST)["contents"][0]["parts"]]
    assert marks == [None, "skip_thought_signature_validator", None]
    assert "thoughtSignature" not in json.dumps(sent(calls))
    assert sent(signed, model=LATEST)["contents"][0]["parts"][0]["thoughtSignature"] == "sig"


def test_tools_and_their_choice_go_under_names_the_wire_takes() -> None:
    tools = [Tool("1st", "what it does", SCHEMA), Tool("g"), Tool("search", native=Raw(b"{}"), dialect="messages")]
    body = sent(said("user", "hi"), tools=tools, tool_choice=ToolChoice("tool", "1st"))
    first, second = body["tools"][0]["functionDeclarations"]
    assert second == {"name": "g"}
    assert (first["description"], first["parametersJsonSchema"]) == ("what it does", {"type": "object"})
    calling = body["toolConfig"]["functionCallingConfig"]
    assert calling == {"mode": "ANY", "allowedFunctionNames": [first["name"]]}


@pytest.mark.parametrize(("mode", "word"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
def test_choice_is_told_where_there_are_tools(mode: Any, word: str) -> None:
    body = sent(said("user", "hi"), tools=[Tool("f")], tool_choice=ToolChoice(mode))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": word}}
    assert "toolConfig" not in sent(said("user", "hi"), tool_choice=ToolChoice(mode))
    assert "toolConfig" not in sent(said("user", "hi"), tools=[Tool("f")])


def test_parameters_have_their_places() -> None:
    body = sent(
        said("user", "hi"),
        max_tokens=9,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        stop=["a", "b"],
        seed=0,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        format=Format("json_schema", schema=SCHEMA),
        reasoning=Reasoning("low"),
    )
    assert body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.0,
        "topP": 0.5,
        "topK": 3,
        "stopSequences": ["a", "b"],
        "seed": 0,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1024},
    }


def test_any_json_object_is_asked_for_without_a_schema() -> None:
    body = sent(said("user", "hi"), format=Format("json_object"))
    assert body["generationConfig"] == {"responseMimeType": "application/json"}


def test_model_that_cannot_think_is_not_asked_to() -> None:
    assert "generationConfig" not in sent(said("user", "hi"), model=OLD, reasoning=Reasoning("low"))


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, []),
        ({"parallel_tool_calls": False, "tools": [Tool("f")]}, ["parallel_tool_calls"]),
        ({"parallel_tool_calls": True, "tools": [Tool("f")]}, []),
        ({"stop": list("abcdef")}, ["stop"]),
        ({"tools": [Tool("s", native=Raw(b"{}"), dialect="messages")]}, ["tools"]),
        ({"tools": [Tool("f", strict=True)]}, ["tools.strict"]),
        ({"reasoning": Reasoning("low")}, ["reasoning"]),
        ({"reasoning": Reasoning(enabled=False)}, []),
        ({"turns": [Turn("user", [Native(dialect="chat", block=Raw(b"{}"))])]}, ["messages.content"]),
    ],
)
def test_what_has_no_place_is_named(fields: dict[str, Any], names: list[str]) -> None:
    assert uncarried(Request(**{"turns": [said("user", "hi")], **fields}), OLD) == names


def test_no_more_stop_sequences_are_sent_than_are_taken() -> None:
    assert sent(said("user", "hi"), stop=list("abcdef"))["generationConfig"]["stopSequences"] == list("abcde")


PARTS = st.one_of(
    st.builds(lambda text: Text(text=text), st.text(max_size=5)),
    st.builds(lambda text: Thinking(text=text), st.text(max_size=5)),
    st.builds(lambda id_, name: ToolCall(id=id_, name=name), st.sampled_from("123"), st.text(max_size=5)),
    st.builds(lambda id_: ToolResult(call_id=id_, parts=[Text(text="x")]), st.sampled_from("123")),
    st.just(Image(media_type="image/png", data="iVBO")),
)
TURNS = st.builds(Turn, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(PARTS, max_size=3))


@given(st.lists(TURNS, max_size=6), st.sampled_from([FLASH, LATEST]))
def test_whatever_the_turns_the_upstream_takes_the_contents(turns: list[Turn], model: Raw) -> None:
    sent(*turns, model=model)
