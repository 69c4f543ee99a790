"""Tool calls: what servers make of arguments, ids and signatures."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lumen_gateway.dialects.chat_calls import Call, write_call, write_signature
from lumen_gateway.dialects.neutral import ToolCall


def call(**fields: Any) -> Call:
    return msgspec.json.decode(json.dumps(fields), type=Call)


def read(arguments: Any) -> str:
    function = call(function={"name": "f", "arguments": arguments}).function
    assert function is not None
    return function.read("c1").arguments


@pytest.mark.parametrize("none", ["", "  ", None])
def test_a_call_without_arguments_has_an_empty_object(none: Any) -> None:
    assert read(none) == "{}"


def test_arguments_keep_their_spelling() -> None:
    assert read('{ "a":1.0 }') == '{ "a":1.0 }'
    assert read('{"a": "\\u00e9"}') == '{"a": "\\u00e9"}'
    assert read('{"a":') == '{"a":'


def test_arguments_sent_as_an_object_are_their_text() -> None:
    assert json.loads(read({"a": [1, "é"]})) == {"a": [1, "é"]}


def test_a_call_of_a_kind_of_its_own_has_no_function() -> None:
    assert call(id="c1", type="custom", custom={"name": "f", "input": "x"}).function is None


@pytest.mark.parametrize("odd", [None, 1, {}, {"google": None}, {"google": {"thought_signature": 5}}])
def test_only_a_text_of_google_is_a_thought_signature(odd: Any) -> None:
    assert call(extra_content=odd).signature() == ""


def test_a_written_call_reads_the_same_again() -> None:
    whole = ToolCall(id="c1", name="f", arguments='{"a":1}', signature="s")
    wire = write_call(whole, whole.name)
    assert wire["type"] == "function"
    again = call(**wire)
    assert again.function is not None
    assert again.function.read(again.id or "", again.signature()) == whole


def test_a_call_without_a_signature_has_no_field_for_one() -> None:
    assert write_signature("") == {}
    assert "extra_content" not in write_call(ToolCall(id="c1", name="f"), "f")
