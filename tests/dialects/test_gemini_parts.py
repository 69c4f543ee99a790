"""Parts of a request: each as the wire has it, and a refusal for what would have to be fetched."""

from __future__ import annotations

import msgspec
import pytest

from lumen_gateway.dialects.gemini_parts import write_part, write_result
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
from lumen_gateway.errors import Failure, Kind

PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}
FILES = "https://generativelanguage.googleapis.com/v1beta/files/x"


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (Text(text="hi"), {"text": "hi"}),
        (Text(text=" "), {"text": " "}),
        (Text(text=""), None),
        (Refusal(text="no"), {"text": "no"}),
        (Thinking(text="hm", signature="of another vendor"), None),
        (Native(dialect="chat", block=Raw(b"{}")), None),
        (Image(media_type="image/png", data="iVBO"), PNG),
        (Image(url="gs://b/x.JPG"), {"fileData": {"fileUri": "gs://b/x.JPG", "mimeType": "image/jpeg"}}),
        (Image(url=FILES), {"fileData": {"fileUri": FILES}}),
        (Document(data="JVBE"), {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}}),
        (Document(text="words", name="a.txt"), {"text": "a.txt\n\nwords"}),
        (Document(text="words"), {"text": "words"}),
    ],
)
def test_part_has_the_form_of_the_wire(part: Part, wire: object) -> None:
    assert write_part(part) == wire


@pytest.mark.parametrize(
    "part",
    [Image(url="https://h/secret.png"), Image(file_id="file_secret"), Document(url="https://h/secret.pdf")],
)
def test_what_is_not_inline_is_refused_without_a_word_of_it(part: Part) -> None:
    with pytest.raises(Failure) as caught:
        write_part(part)
    assert (caught.value.kind, caught.value.status) == (Kind.IMAGE_NOT_INLINE, 400)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(("arguments", "sent"), [('{"a":1}', {"a": 1}), ("{}", {}), ("[1]", {}), ("broken", {})])
def test_arguments_of_a_call_are_an_object(arguments: str, sent: object) -> None:
    wire = write_part(ToolCall(id="1", name="f", arguments=arguments, signature="sig"))
    expected = {"functionCall": {"name": "f", "args": sent}, "thoughtSignature": "sig"}
    assert msgspec.json.decode(msgspec.json.encode(wire)) == expected


@pytest.mark.parametrize(
    ("text", "is_error", "response"),
    [
        ('{"t":3}', False, {"t": 3}),
        ("{}", False, {}),
        ("[1]", False, {"result": "[1]"}),
        ("warm", False, {"result": "warm"}),
        ('{"t":3}', True, {"error": '{"t":3}'}),
    ],
)
def test_result_is_an_object_or_is_put_into_one(text: str, is_error: bool, response: object) -> None:
    result = ToolResult(call_id="1", parts=[Text(text=text)], is_error=is_error)
    sent = msgspec.json.decode(msgspec.json.encode(write_result(result, "f")))
    assert sent == [{"functionResponse": {"name": "f", "response": response}}]


def test_pictures_among_a_result_stand_behind_it() -> None:
    result = ToolResult(call_id="1", parts=[Image(media_type="image/png", data="iVBO"), Text(text="a"), Text(text="b")])
    assert write_result(result, "f") == [{"functionResponse": {"name": "f", "response": {"result": "a\nb"}}}, PNG]
