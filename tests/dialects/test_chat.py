"""Requests: what is read of them, what is refused, and that nothing else is touched on the way."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects import chat
from lumen_gateway.dialects.chat import OPEN, ChatRules, parse_request, upstream_body, with_messages
from lumen_gateway.dialects.spans import Fields
from lumen_gateway.errors import Failure, Kind

MODEL = msgspec.Raw(b'"upstream-model"')
TURNS = '"messages":[{"role":"user","content":"hi"}]'
SECRET = "my-private-prompt"


def request(fields: str = "", turns: str = TURNS) -> chat.ChatRequest:
    return parse_request(f'{{"model":"m",{turns}{"," if fields else ""}{fields}}}'.encode())


def sent(fields: str = "", rules: ChatRules = OPEN, turns: str = TURNS) -> str:
    """Return the upstream's body behind its model and messages."""
    body = upstream_body(request(fields, turns), MODEL, rules).decode()
    head = f'{{"model":"upstream-model",{turns}'
    assert body.startswith(head)
    return body[len(head) : -1].removeprefix(",")


def refusal_of(body: str) -> str:
    with pytest.raises(Failure) as caught:
        parse_request(body.encode())
    assert caught.value.kind is Kind.INVALID_REQUEST
    return caught.value.message


def test_values_that_routing_reads() -> None:
    seen = request('"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"n":3')
    assert (seen.model, seen.stream, seen.include_usage, seen.max_output_tokens, seen.n) == ("m", True, True, 5, 3)


def test_absent_and_null_values_are_unset() -> None:
    nulls = '"model":null,"stream":null,"stream_options":null,"max_tokens":null,"n":null,"temperature":null'
    for fields in ("", nulls + ","):
        seen = parse_request(f"{{{fields}{TURNS}}}".encode())
        assert (seen.model, seen.stream, seen.include_usage, seen.max_output_tokens, seen.n) == (
            "",
            False,
            False,
            None,
            1,
        )


def test_max_completion_tokens_counts_before_max_tokens() -> None:
    assert request('"max_tokens":5,"max_completion_tokens":9').max_output_tokens == 9
    assert request('"max_tokens":5,"max_completion_tokens":null').max_output_tokens == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "1"),
        ("model", '["m"]'),
        ("stream", '"true"'),
        ("stream", "1"),
        ("stream_options", "true"),
        ("stream_options", '{"include_usage":1}'),
        ("max_tokens", "true"),
        ("max_tokens", "1.0"),
        ("max_tokens", "-1"),
        ("max_tokens", '"5"'),
        ("max_completion_tokens", "{}"),
        ("n", "false"),
        ("temperature", "true"),
        ("top_p", '"1"'),
    ],
)
def test_wrong_type_is_refused_by_the_field_s_name(field: str, value: str) -> None:
    assert f"`{field}` must be" in refusal_of(f'{{{TURNS},"{field}":{value}}}')


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "null",
        "[]",
        "{}",
        f'"{SECRET}"',
        f'["{SECRET}"]',
        "[null]",
        '[{"content":"x"}]',
        '[{"role":1}]',
        '[{"role":null}]',
    ],
)
def test_messages_must_be_turns(messages: str | None) -> None:
    fields = "" if messages is None else f',"messages":{messages}'
    message = refusal_of(f'{{"model":"{SECRET}"{fields}}}')
    assert "`messages` must be a non-empty list" in message
    assert SECRET not in message


def test_any_role_is_a_role() -> None:
    turns = '"messages":[{"role":"developer"},{"role":"ipython","content":null}]'
    assert [message.role for message in request(turns=turns).messages()] == ["developer", "ipython"]


def test_text_of_a_message_is_its_text_parts_put_together() -> None:
    parts = json.dumps(
        [
            {"type": "text", "text": "a"},
            {"text": "b"},
            {"type": "input_audio", "text": "no"},
            {"type": "text", "text": "no", "image_url": {"url": "x"}},
            {"type": "text", "text": 5},
            {"type": "text", "text": "ç"},
        ]
    )
    turns = (
        f'"messages":[{{"role":"user","content":{parts}}},{{"role":"user","content":"plain"}},{{"role":"assistant"}}]'
    )
    assert [message.text() for message in request(turns=turns).messages()] == ["abç", "plain", ""]


@pytest.mark.parametrize("content", ["5", '{"a":1}', "[1]", '["x"]', "true"])
def test_content_of_unknown_shape_is_no_text_and_goes_on(content: str) -> None:
    turns = f'"messages":[{{"role":"user","content":{content}}}]'
    assert request(turns=turns).messages()[0].text() == ""
    assert sent(turns=turns) == ""


def test_images_are_what_has_an_image_url() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "x", "detail": "low"}},
        {"type": "whatever", "image_url": {"url": "x"}},
        {"image_url": "data:..."},
        {"type": "image_url", "image_url": {"url": "x", "detail": 7}},
        {"type": "text", "text": '"image_url"', "image_url": None},
    ]
    seen = request(turns=f'"messages":[{{"role":"user","content":{json.dumps(parts)}}}]')
    assert seen.messages()[0].image_details() == ["low", "auto", "auto", "auto"]
    assert seen.has_images()


def test_the_word_image_url_is_no_image() -> None:
    assert not request().has_images()
    assert not request(turns='"messages":[{"role":"user","content":"the \\"image_url\\" field"}]').has_images()
    assert not request(
        turns='"messages":[{"role":"user","content":[{"type":"text","text":"t","image_url":null}]}]'
    ).has_images()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("", False),
        ('"tools":null', False),
        ('"tools":[]', False),
        ('"tools":[{"type":"function"}]', True),
        ('"functions":[{"name":"f"}]', True),
    ],
)
def test_tools_are_offered_or_not(fields: str, expected: bool) -> None:
    assert request(fields).has_tools() is expected


def test_other_messages_replace_only_the_messages() -> None:
    before = request('"stream":true,"n":2,"x":[1, 2]')
    after = with_messages(before, msgspec.Raw(b'[{"role":"system","content":"s"}]'))
    assert (after.model, after.stream, after.n) == ("m", True, 2)
    assert [message.role for message in after.messages()] == ["system"]
    assert list(after.fields) == list(before.fields)
    assert [message.role for message in before.messages()] == ["user"]


def test_unknown_fields_go_on_byte_for_byte() -> None:
    fields = '"seed":1.0e2,"weird":{ "a" : [1, 2] },"text":"\\u00e9\\/"'
    assert sent(fields) == fields


def test_model_keeps_its_place_and_is_added_where_it_was_absent() -> None:
    seen = parse_request(f'{{"n":1,"model":"m",{TURNS}}}'.encode())
    assert list(json.loads(upstream_body(seen, MODEL, OPEN))) == ["n", "model", "messages"]
    absent = parse_request(f"{{{TURNS}}}".encode())
    assert json.loads(upstream_body(absent, MODEL, OPEN))["model"] == "upstream-model"


def test_each_attempt_starts_from_the_client_s_own_body() -> None:
    seen = request('"temperature":1')

    def edit(fields: Fields) -> None:
        fields["temperature"] = msgspec.Raw(b"0")
        fields["seed"] = msgspec.Raw(b"7")

    first = json.loads(upstream_body(seen, MODEL, ChatRules(max_tokens_field="max_tokens"), edit))
    second = json.loads(upstream_body(seen, MODEL, OPEN))
    assert (first["temperature"], first["seed"]) == (0, 7)
    assert second["temperature"] == 1
    assert "seed" not in second


def test_edit_comes_before_the_upstream_s_rules() -> None:
    def edit(fields: Fields) -> None:
        fields["max_tokens"] = msgspec.Raw(b"3")

    body = json.loads(upstream_body(request(), MODEL, ChatRules(max_tokens_field="max_completion_tokens"), edit))
    assert body["max_completion_tokens"] == 3
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("client", "asked", "refused"),
    [
        ("", '{"include_usage":true}', None),
        ("null", '{"include_usage":true}', None),
        ("{}", '{"include_usage":true}', None),
        ('{"include_usage":true}', '{"include_usage":true}', None),
        ('{"include_usage":false}', '{"include_usage":true}', None),
        ('{"x":1, "include_usage":null}', '{"x":1,"include_usage":true}', '{"x":1}'),
    ],
)
def test_usage_is_asked_of_streams_unless_the_upstream_refuses_the_field(
    client: str, asked: str, refused: str | None
) -> None:
    fields = '"stream":true' + (f',"stream_options":{client}' if client else "")
    assert sent(fields) == f'"stream":true,"stream_options":{asked}'
    rest = "" if refused is None else f',"stream_options":{refused}'
    null = ',"stream_options":null' if client == "null" else ""
    assert sent(fields, ChatRules(include_usage=False)) == f'"stream":true{rest or null}'


def test_usage_is_not_asked_of_buffered_answers() -> None:
    assert sent('"stream":false') == '"stream":false'


DEVELOPER = '"messages":[{"role":"developer","content":"\\u0041 \\"developer\\""},{"role":"user","content":[ 1.0 ]}]'


def test_developer_becomes_system_where_the_role_is_unknown() -> None:
    body = upstream_body(request(turns=DEVELOPER), MODEL, OPEN).decode()
    assert '[{"role":"system","content":"\\u0041 \\"developer\\""},{"role":"user","content":[ 1.0 ]}]' in body


def test_developer_goes_on_where_the_role_is_known() -> None:
    assert sent(rules=ChatRules(developer=True), turns=DEVELOPER) == ""


def test_the_word_developer_elsewhere_stays() -> None:
    turns = '"messages":[{"role":"user","name":"developer","content":"x"}]'
    assert sent(turns=turns) == ""


@pytest.mark.parametrize(
    ("client", "wanted", "expected"),
    [
        ('"max_tokens":5,"z":1', "max_completion_tokens", '"max_completion_tokens":5,"z":1'),
        ('"max_completion_tokens":5,"z":1', "max_tokens", '"max_tokens":5,"z":1'),
        ('"max_tokens":5,"z":1', "max_tokens", '"max_tokens":5,"z":1'),
        ('"max_tokens":5,"max_completion_tokens":9', "max_tokens", '"max_tokens":5'),
        ('"max_tokens":5,"max_completion_tokens":9', "max_completion_tokens", '"max_completion_tokens":9'),
        ('"max_tokens":null,"max_completion_tokens":9', "max_tokens", '"max_tokens":9'),
        ('"z":1', "max_tokens", '"z":1'),
        ('"max_tokens":5,"max_completion_tokens":9', None, '"max_tokens":5,"max_completion_tokens":9'),
    ],
)
def test_output_limit_goes_under_the_name_the_upstream_honours(client: str, wanted: str | None, expected: str) -> None:
    assert sent(client, ChatRules(max_tokens_field=wanted)) == expected


FIELD = st.sampled_from(["temperature", "stop", "seed", "metadata", "max_tokens", "stream", "stream_options", "x"])
VALUE = st.sampled_from(["null", "1", "0.50", "true", '"a"', "[ ]", '{"include_usage": false}', '{"a": [1,  2]}'])


@given(st.dictionaries(FIELD, VALUE), st.booleans(), st.sampled_from([None, "max_tokens", "max_completion_tokens"]))
def test_fields_that_are_nobody_s_business_survive_any_rules(
    fields: dict[str, str], include_usage: bool, max_tokens_field: str | None
) -> None:
    try:
        seen = request(",".join(f'"{name}":{value}' for name, value in fields.items()))
    except Failure:
        return
    body = upstream_body(seen, MODEL, ChatRules(include_usage=include_usage, max_tokens_field=max_tokens_field))
    raw: dict[str, Any] = msgspec.json.decode(body, type=Fields)
    for name in fields.keys() - {"max_tokens", "stream_options"}:
        assert bytes(raw[name]).decode() == fields[name]
