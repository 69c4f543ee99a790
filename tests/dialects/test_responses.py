"""Requests: what is read of them, what is refused, what an upstream is sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lumen_gateway.dialects.responses import (
    ResponsesRequest,
    edited,
    estimate,
    parse_request,
    uneditable,
    upstream_body,
    with_instructions,
)
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.errors import Failure

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def request(**fields: Any) -> ResponsesRequest:
    return parse_request(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def test_request_tells_what_routing_asks() -> None:
    asked = request(stream=True, max_output_tokens=9, tools=[{"type": "web_search"}], input=[user(IMAGE)])
    assert (asked.model, asked.stream, asked.max_output_tokens, asked.n) == ("m", True, 9, 1)
    assert asked.has_tools()
    assert asked.has_images()


def test_unset_fields_have_their_defaults() -> None:
    asked = parse_request(b'{"input":"hi","stream":null,"tools":[],"max_output_tokens":null}')
    assert (asked.model, asked.stream, asked.max_output_tokens) == ("", False, None)
    assert not asked.has_tools()
    assert not asked.has_images()


def test_image_that_a_tool_put_out_counts() -> None:
    assert request(input=[{"type": "function_call_output", "call_id": "c", "output": [IMAGE]}]).has_images()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", 3),
        ("input", [3]),
        ("instructions", []),
        ("model", 1),
        ("stream", "yes"),
        ("max_output_tokens", -1),
        ("temperature", "hot"),
        ("top_p", []),
    ],
)
def test_field_of_the_wrong_type_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(Failure, match=f"`{field}`"):
        request(**{field: value})


@pytest.mark.parametrize("empty", [None, "", []])
def test_request_without_anything_to_answer_is_refused(empty: Any) -> None:
    with pytest.raises(Failure, match="`input`"):
        request(input=empty)


@pytest.mark.parametrize("fields", [{"instructions": "go"}, {"previous_response_id": "r"}, {"prompt": {"id": "p"}}])
def test_input_may_lack_where_something_else_says_what_to_do(fields: dict[str, Any]) -> None:
    assert request(input=[], **fields).items() == []


def test_items_of_unknown_shape_are_the_upstreams_to_judge() -> None:
    asked = request(input=[{"type": "novelty", "content": 3, "output": {"x": 1}}])
    assert asked.items()[0].parts() == []


def test_upstream_gets_the_clients_bytes_but_for_the_model() -> None:
    body = b'{"input":[ {"odd":1e2} ],"model":"m","previous_response_id":"r" ,"new":{ } }'
    assert upstream_body(parse_request(body), msgspec.Raw(b'"theirs"')) == (
        b'{"input":[ {"odd":1e2} ],"model":"theirs","previous_response_id":"r","new":{ }}'
    )


def tune(fields: Fields) -> None:
    fields["max_tokens"] = msgspec.Raw(b"7")
    fields["seed"] = msgspec.Raw(b"1")
    fields.pop("temperature", None)


def test_overrides_act_on_this_dialects_own_fields() -> None:
    asked = request(max_output_tokens=50, temperature=0.5)
    sent = json.loads(upstream_body(asked, msgspec.Raw(b'"m"'), tune))
    assert sent == {"model": "m", "input": "hi", "max_output_tokens": 7}
    assert uneditable(asked, tune) == ["seed"]


def test_edited_request_reads_as_the_edit_wants_it() -> None:
    asked = request(max_output_tokens=50)
    assert edited(asked, tune).max_output_tokens == 7
    assert asked.max_output_tokens == 50


@pytest.mark.parametrize(
    ("mode", "given", "wanted"),
    [
        ("prepend", None, "ours"),
        ("prepend", "theirs", "ours\n\ntheirs"),
        ("replace", "theirs", "ours"),
        ("if_absent", None, "ours"),
        ("if_absent", "theirs", "theirs"),
    ],
)
def test_preset_becomes_instructions(mode: Any, given: str | None, wanted: str) -> None:
    asked = with_instructions(request(instructions=given), "ours", mode)
    assert asked.instructions == wanted
    assert json.loads(bytes(asked.fields["instructions"])) == wanted


def test_preset_that_replaces_takes_system_messages_out() -> None:
    asked = request(input=[{"role": "developer", "content": "theirs"}, user()])
    assert with_instructions(asked, "ours", "if_absent") is asked
    replaced = with_instructions(asked, "ours", "replace")
    assert json.loads(bytes(replaced.fields["input"])) == [user()]
    assert len(replaced.items()) == 1
    assert len(asked.items()) == 2


def test_estimate_counts_texts_and_pictures() -> None:
    assert estimate(request(input="12345678")) == 4 + 2
    said = user({"type": "input_text", "text": "1234"}, IMAGE, {**IMAGE, "detail": "low"})
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "12345678"}
    put_out = {"type": "function_call_output", "call_id": "c", "output": "1234"}
    assert estimate(request(instructions="1234", input=[said, called, put_out])) == 1 + 4 + 1 + 765 + 85 + 6 + 5
