"""Scripts read as they are written, and faults name their place."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from lumen_gateway.simulator import Answering, Call, Reply
from lumen_gateway.simulator.script import CONTENTS, Entry, ScriptError, load, parse

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


def call(**body: object) -> Call:
    return Call(method="POST", path="/", headers={}, body=msgspec.json.encode(body), at=0.0)


def reply(answering: Answering, **body: object) -> Reply:
    return answering if isinstance(answering, Reply) else answering(call(**body))


def only(text: str) -> Reply:
    (sequence,) = parse(f"[[replies]]\n{text}").values()
    return reply(sequence[0])


def test_example_of_the_docs_does_what_its_comments_say() -> None:
    (example,) = re.findall(r"^```toml script\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    script = parse(example)
    assert list(script) == ["fast", "shaky", "silent", "/v1/models", "*"]
    refused, answered = (reply(answering, model="fast") for answering in script["fast"])
    assert (refused.status, refused.headers[-1]) == (429, ("retry-after", "2"))
    assert b"Hello from the fast model." in answered.body
    shaky = reply(script["shaky"][0])
    assert (shaky.stop, shaky.frame_delay_s, len(shaky.frames or ())) == ("reset", 0.02, 3)
    assert reply(script["silent"][0]).stop_after_bytes == 0
    assert reply(script["/v1/models"][0]).body == b'{"object":"list","data":[]}'


def test_every_field_of_a_reply_is_in_the_docs() -> None:
    text = DOCS.read_text()
    missing = [name for name in Entry.__struct_fields__ if f"`{name}`" not in text]
    assert missing == []
    assert set(CONTENTS) <= set(Entry.__struct_fields__)


def test_json_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"replies": [{"path": "/a", "text": "hi", "status": 201}]}')
    answer = reply(load(path)["/a"][0])
    assert (answer.status, answer.body) == (201, b"hi")


def test_contents_become_bodies() -> None:
    assert only('base64 = "aGk="').body == b"hi"
    assert only('raw = "HTTP/0.9"').raw == b"HTTP/0.9"
    assert only('frames = ["data: 1\\n\\n"]').frames == (b"data: 1\n\n",)
    assert b'"content":"hi"' in only('completion = "hi"').body
    assert only("json = [1]").body == b"[1]"
    assert only("").body == b""


def test_stream_ends_properly_unless_it_is_stopped() -> None:
    assert (only('stream = ["a"]').frames or ())[-1] == b"data: [DONE]\n\n"
    assert b'"content":"a"' in (only('stream = ["a"]\nstop = "end"').frames or ())[-1]


def test_header_of_the_script_replaces_the_contents_own() -> None:
    assert only('text = "x"\nheaders = { Content-Type = "text/html" }').headers == (("Content-Type", "text/html"),)


def test_shape_applies_to_auto_as_well() -> None:
    (sequence,) = parse('[[replies]]\nauto = "x"\nstatus = 202\nframing = "close"\ndelay_ms = 5').values()
    shaped = reply(sequence[0], stream=True)
    assert (shaped.status, shaped.framing, shaped.delay_s) == (202, "close", 0.005)


def test_reported_tokens_are_the_scripts() -> None:
    answer = msgspec.json.decode(only('completion = "x"\nusage = { input = 5, output = 6, cached = 1 }').body)
    assert answer["usage"]["total_tokens"] == 11


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replies = []", "replies: "),
        ("", "replies"),
        ("[[replies]]\nstatus = 'x'", "replies[0].status: Expected `int`, got `str`"),
        ("[[replies]]\n[[replies]]\nspeed = 1", "replies[1]: Object contains unknown field `speed`"),
        ("[[replies]]\nusage = { inputs = 1 }", "replies[0].usage: Object contains unknown field `inputs`"),
        ("[[replies]]\nerror = { code = 'x' }", "replies[0].error: "),
        ('[[replies]]\nheaders = { x = "a\\r\\nb: c" }', "replies[0].headers"),
        ("[[replies]]\npath = 'v1'", "replies[0].path: "),
        ("[[replies]]\nauto = 'x'\ntext = 'y'", "replies[0]: auto and text exclude each other"),
        ("[[replies]]\npath = '/'\nmodel = 'y'", "replies[0]: path and model exclude each other"),
        ("[[replies]]\nstop_after_bytes = 1", "replies[0].stop_after_bytes: needs stop"),
        ("[[replies]]\nraw = 'x'\nstatus = 200", "replies[0].raw: "),
        ("[[replies]", "not valid TOML: "),
    ],
)
def test_fault_names_its_place(text: str, said: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert said in str(caught.value)


def test_fault_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(ScriptError, match=r"broken\.json: not valid JSON"):
        load(path)
    with pytest.raises(ScriptError, match=r"missing\.toml: cannot be read"):
        load(tmp_path / "missing.toml")
