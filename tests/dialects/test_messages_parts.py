"""Blocks: each kind read and written, and what is left out on the way to an Anthropic upstream."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.messages_parts import (
    call_id,
    read_block,
    read_content,
    read_input,
    write_call,
    write_part,
    write_parts,
)
from lumen_gateway.dialects.neutral import (
    Document,
    Image,
    Native,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

CACHE = Raw(b'{"type":"ephemeral","ttl":"1h"}')


def raw(**block: Any) -> Raw:
    return Raw(json.dumps(block).encode())


def back(part: Part) -> Any:
    """Return what is on the wire."""
    return json.loads(msgspec.json.encode(write_part(part)))


ROUND_TRIPS: list[tuple[dict[str, Any], Part]] = [
    ({"type": "text", "text": "a"}, Text(text="a")),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}},
        Image(media_type="image/png", data="aaaa"),
    ),
    ({"type": "image", "source": {"type": "url", "url": "https://x/y"}}, Image(url="https://x/y")),
    ({"type": "image", "source": {"type": "file", "file_id": "file_1"}}, Image(file_id="file_1")),
    (
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aa"}, "title": "t"},
        Document(media_type="application/pdf", data="aa", name="t"),
    ),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        Document(media_type="text/plain", text="words"),
    ),
    ({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}, Document(url="https://x/y.pdf")),
    ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, Document(file_id="file_1")),
    ({"type": "thinking", "thinking": "hm", "signature": "s"}, Thinking(text="hm", signature="s")),
    ({"type": "thinking", "thinking": "", "signature": "s"}, Thinking(signature="s")),
    ({"type": "redacted_thinking", "data": "x"}, Thinking(redacted="x")),
    (
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
        ToolCall(id="t1", name="add", arguments='{"a": 1}'),
    ),
    ({"type": "tool_use", "id": "t1", "name": "add", "input": {}}, ToolCall(id="t1", name="add")),
    ({"type": "tool_result", "tool_use_id": "t1"}, ToolResult(call_id="t1", parts=[])),
    (
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}},
            ],
            "is_error": True,
        },
        ToolResult(call_id="t1", parts=[Text(text="see"), Image(media_type="image/png", data="aaaa")], is_error=True),
    ),
]


@pytest.mark.parametrize(("block", "part"), ROUND_TRIPS)
def test_block_is_read_and_written_back(block: dict[str, Any], part: Part) -> None:
    assert read_block(raw(**block)) == part
    assert back(part) == block


@pytest.mark.parametrize(("block", "part"), [item for item in ROUND_TRIPS if "thinking" not in item[0]["type"]])
def test_cache_marker_is_kept_on_every_block_that_may_have_one(block: dict[str, Any], part: Part) -> None:
    marked = block | {"cache_control": json.loads(bytes(CACHE))}
    assert back(read_block(raw(**marked))) == marked
    assert back(msgspec.structs.replace(part, cache=CACHE)) == marked


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]},
        {"type": "search_result", "source": "x", "title": "t", "content": []},
        {"type": "container_upload", "file_id": "f"},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
    ],
)
def test_block_only_this_dialect_has_is_kept_whole(block: dict[str, Any]) -> None:
    assert read_block(raw(**block)) == Native(dialect="messages", block=raw(**block))
    assert back(read_block(raw(**block))) == block


def test_content_is_read_in_each_of_its_forms() -> None:
    assert read_content("a") == read_content([raw(type="text", text="a")]) == [Text(text="a")]
    assert read_content("") == read_content(None) == read_content([]) == []
    assert read_block(raw(type="tool_result", tool_use_id="t", content="a")) == ToolResult(
        call_id="t", parts=[Text(text="a")]
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": 5},
        {},
        {"type": "text", "text": 5},
        {"type": "tool_use", "id": None},
        {"type": "image", "source": "x"},
        {"type": "tool_result", "content": 5},
    ],
)
def test_block_that_is_not_what_its_type_says_is_an_error(block: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_block(raw(**block))


@pytest.mark.parametrize(
    "part",
    [
        Text(text=""),
        Text(text=" \n"),
        Refusal(text=""),
        Thinking(text="unsigned"),
        Thinking(),
        Native(dialect="chat", block=Raw(b"{}")),
    ],
)
def test_what_the_api_would_refuse_is_left_out(part: Part) -> None:
    assert write_part(part) is None
    assert write_parts([part, Text(text="a"), part]) == [{"type": "text", "text": "a"}]


def test_refusal_is_written_as_the_text_it_is() -> None:
    assert back(Refusal(text="no")) == {"type": "text", "text": "no"}


def test_citations_are_kept_in_this_dialects_own_form_only() -> None:
    ours = [{"type": "char_location", "cited_text": "x"}]
    cited = {"type": "text", "text": "a", "citations": ours}
    assert back(read_block(raw(**cited))) == cited
    theirs = Text(text="a", citations=Raw(b'[{"type":"url_citation"}]'))
    assert back(theirs) == {"type": "text", "text": "a"}


def test_blank_text_in_a_result_is_left_out_with_the_content_it_leaves_empty() -> None:
    assert back(ToolResult(call_id="t", parts=[Text(text="")])) == {"type": "tool_result", "tool_use_id": "t"}


def test_document_without_a_media_type_is_taken_for_a_pdf() -> None:
    assert back(Document(data="aa"))["source"]["media_type"] == "application/pdf"


def test_ids_of_other_vendors_fit_and_answers_keep_them() -> None:
    assert call_id("functions.add:0") == "functions_add_0"
    assert call_id("toolu_01-x") == "toolu_01-x"
    call = ToolCall(id="functions.add:0", name="add")
    assert back(call)["id"] == back(ToolResult(call_id=call.id))["tool_use_id"] == "functions_add_0"
    assert write_call(call, call.id)["id"] == "functions.add:0"


@pytest.mark.parametrize("arguments", ["", " ", "{", "[]", "5", "null", '{"a":1} x', "[" * 5000])
def test_arguments_that_are_no_object_are_an_empty_one(arguments: str) -> None:
    assert read_input(arguments) == Raw(b"{}")


def test_arguments_keep_their_spelling() -> None:
    assert bytes(read_input('{"a" : 1.0, "ü": "\\u00e9"}')) == '{"a" : 1.0, "ü": "\\u00e9"}'.encode()


@given(st.text(), st.text(min_size=1), st.text())
def test_any_signed_thinking_and_any_call_comes_back_as_it_was(text: str, proof: str, name: str) -> None:
    for part in (Thinking(text=text, signature=proof), Thinking(redacted=proof), ToolCall(id="t", name=name)):
        assert read_block(Raw(msgspec.json.encode(write_part(part)))) == part
