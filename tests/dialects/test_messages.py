"""Requests: what is read of them, what is refused, and that nothing else is touched on the way."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects import messages
from lumen_gateway.dialects.messages import estimate, parse_request, upstream_body, with_system
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.errors import Failure, Kind

MODEL = msgspec.Raw(b'"upstream-model"')
TURNS = [{"role": "user", "content": "hi"}]
SECRET = "my-private-prompt"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def request(**fields: Any) -> messages.MessagesRequest:
    return parse_request(json.dumps({"model": "m", "messages": TURNS, **fields}).encode())


def said(*blocks: object) -> messages.MessagesRequest:
    return request(messages=[{"role": "user", "content": list(blocks)}])


def refusal_of(**fields: Any) -> str:
    with pytest.raises(Failure) as caught:
        request(**fields)
    assert caught.value.kind is Kind.INVALID_REQUEST
    return caught.value.message


def sent(asked: messages.MessagesRequest, edit: Any = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(upstream_body(asked, MODEL, edit))
    return body


def test_values_that_routing_reads() -> None:
    seen = request(stream=True, max_tokens=5)
    assert (seen.model, seen.stream, seen.max_output_tokens, seen.n, seen.include_usage) == ("m", True, 5, 1, True)


@pytest.mark.parametrize("absent", [{}, {"model": None, "stream": None, "max_tokens": None, "system": None}])
def test_absent_and_null_values_are_unset(absent: dict[str, None]) -> None:
    seen = parse_request(json.dumps({"messages": TURNS, **absent}).encode())
    assert (seen.model, seen.stream, seen.max_output_tokens) == ("", False, None)


def test_turns_are_read_in_both_forms_of_content() -> None:
    turns = request(
        messages=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            {"role": "system", "content": [IMAGE, {"type": "odd"}]},
        ]
    ).messages()
    assert [(turn.role, turn.text()) for turn in turns] == [("user", "a"), ("assistant", "bc"), ("system", "")]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": SECRET}, "messages"),
        ({"messages": [SECRET]}, "messages"),
        ({"messages": [{"role": "tool", "content": SECRET}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": SECRET}}]}, "messages"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stream": 1}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": []}, "top_p"),
        ({"top_k": 0.5}, "top_k"),
        ({"stop_sequences": SECRET}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"system": 5}, "system"),
        ({"system": {"text": SECRET}}, "system"),
        ({"model": 5}, "model"),
    ],
)
def test_field_of_the_wrong_type_is_named_and_its_value_is_not(fields: dict[str, Any], named: str) -> None:
    message = refusal_of(**fields)
    assert message.startswith(f"`{named}` must be ")
    assert SECRET not in message


def test_missing_messages_are_refused() -> None:
    with pytest.raises(Failure):
        parse_request(b'{"model":"m","max_tokens":5}')


def test_blocks_nobody_knows_are_the_upstreams_to_judge() -> None:
    seen = said({"type": "new"}, {"text": 5}, {"type": "tool_result", "content": 5})
    assert (seen.messages()[0].text(), seen.has_images()) == ("", False)
    assert not said("no block").has_images()


def test_image_is_found_in_a_turn_and_in_a_tools_result() -> None:
    assert said(IMAGE).has_images()
    assert said({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}).has_images()
    assert not said({"type": "text", "text": '"image"'}).has_images()
    assert not request().has_images()


def test_tools_are_offered_only_where_there_is_one() -> None:
    assert request(tools=[{"name": "t"}]).has_tools()
    assert not any(asked.has_tools() for asked in (request(), request(tools=[]), request(tools=None)))


def test_estimate_counts_text_calls_results_and_images() -> None:
    turn = 4
    assert estimate(request()) == turn + 1
    assert estimate(request(system="s" * 9)) == turn + 1 + 3
    assert estimate(request(system=[{"type": "text", "text": "ü" * 4}])) == turn + 1 + 2
    assert estimate(said({"type": "tool_use", "input": {"a": 1}})) == turn + 2
    result = {"type": "tool_result", "content": [{"type": "text", "text": "12345"}, IMAGE]}
    assert estimate(said(result, {"type": "tool_result", "content": "1234"}, IMAGE)) == turn + 2 + 765 + 1 + 765
    assert estimate(said({"type": "thinking", "thinking": "not counted"}, {"type": "odd", "content": "x"})) == turn


def test_only_the_model_changes_on_the_way() -> None:
    body = b'{"messages" : [ {"content":"\\u0041 ", "role":"user"} ],"x":1.50,"max_tokens":5,"model":"m","y":null}'
    passed = upstream_body(parse_request(body), MODEL)
    assert passed == (
        b'{"messages":[ {"content":"\\u0041 ", "role":"user"} ],"x":1.50,"max_tokens":5,'
        b'"model":"upstream-model","y":null}'
    )


@pytest.mark.parametrize("absent", [{}, {"max_tokens": None}])
def test_missing_limit_is_filled_in(absent: dict[str, None]) -> None:
    assert sent(request(**absent))["max_tokens"] == 4096


def test_override_sets_fields_under_their_names_here() -> None:
    def edit(fields: Fields) -> None:
        fields |= {"stop": msgspec.Raw(b'"END"'), "temperature": msgspec.Raw(b"0.5"), "seed": msgspec.Raw(b"1")}

    body = sent(request(temperature=1, stop_sequences=["A"]), edit)
    assert (body["stop_sequences"], body["temperature"]) == (["END"], 0.5)
    assert not {"stop", "seed"} & body.keys()


def test_override_takes_a_list_of_stops_as_it_is() -> None:
    assert sent(request(), lambda fields: fields.update(stop=msgspec.Raw(b'["A","B"]')))["stop_sequences"] == ["A", "B"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limit_is_overridden_under_either_name(name: str) -> None:
    def set_it(fields: Fields) -> None:
        fields[name] = msgspec.Raw(b"7")

    def drop_it(fields: Fields) -> None:
        fields.pop(name)

    def fill_in(fields: Fields) -> None:
        fields.setdefault(name, msgspec.Raw(b"7"))

    assert sent(request(max_tokens=5), set_it)["max_tokens"] == 7
    assert sent(request(max_tokens=5), drop_it)["max_tokens"] == 4096
    assert sent(request(max_tokens=5), fill_in)["max_tokens"] == 5
    assert sent(request(), fill_in)["max_tokens"] == 7


def test_override_that_changes_nothing_changes_nothing() -> None:
    assert sent(request(temperature=1, stop_sequences=["A"]), lambda _: None)["stop_sequences"] == ["A"]


def test_edit_of_one_attempt_leaves_the_request_alone() -> None:
    asked = request(temperature=1)
    upstream_body(asked, MODEL, lambda fields: fields.clear())
    assert sent(asked)["temperature"] == 1


Mode = Literal["prepend", "replace", "if_absent"]
BLOCKS = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize(
    ("mode", "system", "expected"),
    [
        ("prepend", None, "GATE"),
        ("prepend", "S", "GATE\n\nS"),
        ("prepend", BLOCKS, [{"type": "text", "text": "GATE"}, *BLOCKS]),
        ("replace", "S", "GATE"),
        ("replace", None, "GATE"),
        ("if_absent", None, "GATE"),
        ("if_absent", "S", "S"),
        ("if_absent", BLOCKS, BLOCKS),
    ],
)
def test_preset_stands_where_its_mode_says(mode: Mode, system: object, expected: object) -> None:
    asked = request(system=system)
    preset = with_system(asked, "GATE", mode)
    assert sent(preset)["system"] == expected
    assert sent(preset)["messages"] == TURNS
    assert asked.fields == request(system=system).fields


def test_preset_replaces_system_turns_as_well() -> None:
    asked = request(messages=[*TURNS, {"role": "system", "content": SECRET}])
    assert sent(with_system(asked, "GATE", "replace"))["messages"] == TURNS
    assert [turn.role for turn in with_system(asked, "GATE", "replace").messages()] == ["user"]
    assert with_system(asked, "GATE", "if_absent") is asked
    assert sent(with_system(asked, "GATE", "prepend"))["messages"][1]["content"] == SECRET


def test_preset_counts_in_the_estimate() -> None:
    assert estimate(with_system(request(), "GATE", "prepend")) == estimate(request()) + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=4).filter(lambda name: name not in messages._WANTED), JSON))
def test_unknown_fields_pass_through_whatever_they_hold(extra: dict[str, Any]) -> None:
    taken = {"max_tokens": 1, **{name: value for name, value in extra.items() if name not in {"top_k", "max_tokens"}}}
    assert sent(request(**taken)) == {"model": "upstream-model", "messages": TURNS, **taken}


@given(JSON)
def test_no_json_body_breaks_the_reader(value: Any) -> None:
    body = {"messages": value, "system": value, "max_tokens": 5}
    try:
        asked = parse_request(json.dumps(body).encode())
    except Failure:
        return  # the client's to mend
    assert estimate(asked) >= 0
