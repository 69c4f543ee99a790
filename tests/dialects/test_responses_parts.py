"""What items hold: read into parts and written back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lumen_gateway.dialects.neutral import Document, Image, Native, Part, Raw, Refusal, Text, Thinking, ToolCall
from lumen_gateway.dialects.responses_parts import (
    Reasoning,
    is_written,
    read_content,
    read_reasoning,
    write_parts,
    write_proof,
)

ODD = Raw(b'{"type":"input_audio","input_audio":{}}')


def read(*wires: Any) -> list[Part]:
    return read_content([Raw(msgspec.json.encode(wire)) for wire in wires])


@pytest.mark.parametrize("part", [
    Text(text="hi"),
    Image(media_type="image/png", data="AAAA", detail="low"),
    Image(url="https://x/y.png", detail="auto"),
    Image(file_id="file_1", detail="auto"),
    Document(media_type="application/pdf", data="AAAA", name="a.pdf"),
    Document(url="https://x/y.pdf"),
    Document(file_id="file_1"),
    Native(dialect="responses", block=ODD),
])  # fmt: skip
def test_part_survives_there_and_back(part: Part) -> None:
    written = write_parts([Text(text="look"), part])
    assert isinstance(written, list)
    assert read(*written) == [Text(text="look"), part]
    assert is_written(part)


def test_plain_text_is_written_as_it_is() -> None:
    assert write_parts([Text(text="hi")]) == "hi"
    assert write_parts([]) == ""
    assert read_content("hi") == [Text(text="hi")]
    assert read_content("") == read_content(None) == []


def test_text_of_every_kind_is_text() -> None:
    kinds = ("input_text", "output_text", "text")
    assert read(*({"type": kind, "text": "x"} for kind in kinds)) == [Text(text="x")] * 3
    assert read({"type": "output_text", "text": ""}, {"type": "refusal", "refusal": ""}) == []
    assert read({"type": "refusal", "refusal": "no"}) == [Refusal(text="no")]


def test_document_of_plain_text_is_text_under_its_name() -> None:
    assert write_parts([Document(text="words", name="a.txt")]) == "a.txt\n\nwords"


def test_file_without_a_type_is_a_pdf() -> None:
    assert read({"type": "input_file", "file_data": "AAAA"}) == [Document(media_type="application/pdf", data="AAAA")]
    assert write_parts([Text(text="x"), Document(data="AAAA")])[1] == {
        "type": "input_file",
        "filename": "document.pdf",
        "file_data": "data:application/pdf;base64,AAAA",
    }


@pytest.mark.parametrize("part", [Image(), ToolCall(id="c", name="f"), Native(dialect="chat", block=ODD)])
def test_what_has_no_place_is_left_out(part: Part) -> None:
    assert not is_written(part)
    assert write_parts([part]) == ""


@pytest.mark.parametrize(
    "wire", [{"type": "input_text", "text": 3}, {"type": "input_image", "image_url": "data:AAAA"}, {"text": "typeless"}]
)
def test_part_that_is_not_what_its_type_says_is_refused(wire: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(wire)


@pytest.mark.parametrize(
    "thinking",
    [Thinking(text="hm", signature="s"), Thinking(redacted="r"), Thinking(text="hm"), Thinking(signature="s")],
)
def test_proof_of_another_vendor_comes_back(thinking: Thinking) -> None:
    wire = {"summary": [{"type": "summary_text", "text": thinking.text}], "encrypted_content": write_proof(thinking)}
    assert read_reasoning(msgspec.convert(wire, Reasoning)) == thinking


def test_what_openai_encrypted_is_shown_only() -> None:
    wire = {"summary": [{"type": "summary_text", "text": part} for part in "ab"], "encrypted_content": "gAAAA"}
    assert read_reasoning(msgspec.convert(wire, Reasoning)) == Thinking(text="a\n\nb")
    assert read_reasoning(Reasoning(encrypted_content="gAAAA")) is None
