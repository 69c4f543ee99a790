"""Content: texts, pictures, files and what only this dialect has, read and written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.chat_parts import Content, DataUriError, is_written, read_content, write_parts
from lumen_gateway.dialects.neutral import (
    NO_RAW,
    Document,
    Image,
    Native,
    Part,
    Raw,
    Refusal,
    Text,
    Thinking,
    ToolCall,
)

EPHEMERAL = Raw(b'{"type":"ephemeral"}')


def read(content: Any) -> list[Part]:
    return read_content(msgspec.json.decode(msgspec.json.encode(content), type=Content))


def write(*parts: Part) -> list[Any]:
    written: list[Any] = json.loads(msgspec.json.encode(write_parts(parts)))
    return written


@pytest.mark.parametrize("nothing", [None, "", [], [{"type": "text", "text": ""}], [{"type": "text"}]])
def test_no_text_is_no_part(nothing: Any) -> None:
    assert read(nothing) == []


def test_text_is_one_part_however_it_is_written() -> None:
    assert read("a") == read([{"type": "text", "text": "a"}]) == read([{"text": "a"}]) == [Text(text="a")]


def test_the_marker_of_a_cached_prefix_is_kept_as_it_was_written() -> None:
    (part,) = read([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}])
    assert part == Text(text="a", cache=EPHEMERAL)
    (part,) = read([{"type": "text", "text": "a", "cache_control": None}])
    assert part.cache == NO_RAW


@pytest.mark.parametrize(
    ("url", "image"),
    [
        ("data:image/png;base64,iVBO", Image(media_type="image/png", data="iVBO")),
        ("data:image/png;name=a.png;base64,iVBO", Image(media_type="image/png", data="iVBO")),
        ("https://host/a.png", Image(url="https://host/a.png")),
        ("anthropic-file:file_1", Image(file_id="file_1")),
        ("gs://bucket/a.png", Image(url="gs://bucket/a.png")),
    ],
)
def test_a_picture_is_data_a_place_or_a_file_of_the_vendor(url: str, image: Image) -> None:
    assert read([{"type": "image_url", "image_url": {"url": url}}]) == [image]
    assert read([{"type": "image_url", "image_url": url}]) == [image]


def test_whatever_has_an_image_url_is_a_picture_and_never_text() -> None:
    assert read([{"text": "a", "image_url": {"url": "u", "detail": "low"}}]) == [Image(url="u", detail="low")]


@pytest.mark.parametrize("uri", ["data:", "data:image/png,abc", "data:;base64,abc", "data:image/png;base64,"])
def test_a_data_uri_without_type_or_data_is_refused(uri: str) -> None:
    with pytest.raises(DataUriError):
        read([{"type": "image_url", "image_url": {"url": uri}}])
    with pytest.raises(DataUriError):
        read([{"type": "file", "file": {"file_data": uri}}])


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ({"file_id": "f1"}, Document(file_id="f1")),
        (
            {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            Document(media_type="application/pdf", data="JVBE", name="a.pdf"),
        ),
        ({"file_data": "JVBE"}, Document(media_type="application/pdf", data="JVBE")),
        ({"filename": "a", "file_data": "https://host/a.pdf"}, Document(url="https://host/a.pdf", name="a")),
    ],
)
def test_a_file_is_an_id_data_or_a_place(file: Any, document: Document) -> None:
    assert read([{"type": "file", "file": file}]) == [document]


def test_refusals_and_thinking_may_stand_among_the_texts() -> None:
    assert read([{"type": "refusal", "refusal": "no"}]) == [Refusal(text="no")]
    assert read([{"type": "thinking", "thinking": "so", "signature": "s"}]) == [Thinking(text="so", signature="s")]
    chunks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read([{"type": "thinking", "thinking": chunks}]) == [Thinking(text="ab")]
    assert read([{"type": "redacted_thinking", "data": "d"}]) == [Thinking(redacted="d")]
    assert read([{"type": "thinking", "thinking": []}, {"type": "refusal"}]) == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "u"}},
        {"type": "widget", "text": {"not": "text"}},
        {"type": "file"},
    ],
)
def test_a_part_of_another_kind_is_kept_whole(part: Any) -> None:
    (native,) = read([part])
    assert isinstance(native, Native)
    assert write(native) == [part]


@pytest.mark.parametrize("odd", [["a"], [{"type": "text", "text": 5}], [{"type": "image_url", "image_url": {}}]])
def test_a_part_that_is_not_what_its_type_says_is_an_error(odd: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(odd)


def test_plain_text_of_a_document_is_written_as_text_under_its_name() -> None:
    assert write(Document(text="body", name="notes")) == [{"type": "text", "text": "notes\n\nbody"}]
    assert write(Document(text="body")) == [{"type": "text", "text": "body"}]


def test_a_file_without_a_name_is_given_one_of_its_type() -> None:
    (part,) = write(Document(media_type="application/pdf", data="JVBE"))
    assert part["file"] == {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"}


@pytest.mark.parametrize(
    "part",
    [
        Image(file_id="f1"),
        Document(url="https://host/a.pdf"),
        Native(dialect="messages", block=Raw(b'{"type":"server_tool_use"}')),
        Thinking(text="so"),
        ToolCall(id="c", name="f"),
    ],
)
def test_what_has_no_place_in_a_message_is_left_out(part: Part) -> None:
    assert not is_written(part)
    assert write(part, Text(text="a")) == [{"type": "text", "text": "a"}]


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
BASE64 = st.text("ABCabc012+/", min_size=1, max_size=8)
HELD = st.one_of(
    st.builds(Text, text=WORDS),
    st.builds(Image, media_type=st.just("image/png"), data=BASE64, detail=st.sampled_from(["", "low", "high"])),
    st.builds(Image, url=WORDS.map(lambda path: f"https://host/{path}")),
    st.builds(Document, media_type=st.just("application/pdf"), data=BASE64, name=WORDS),
    st.builds(Document, file_id=WORDS),
)


@given(st.lists(HELD, max_size=5))
def test_what_this_dialect_holds_reads_the_same_again(parts: list[Part]) -> None:
    assert all(map(is_written, parts))
    assert read(write(*parts)) == parts
