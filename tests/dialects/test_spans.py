"""Spans keep every byte they do not own, and refuse what no upstream should be sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects import spans
from lumen_gateway.errors import Failure, Kind

SECRET = b"my-private-prompt"


def refusal_of(body: bytes) -> str:
    with pytest.raises(Failure) as caught:
        spans.split(body)
    assert caught.value.kind is Kind.INVALID_REQUEST
    return caught.value.message


def nested(levels: int) -> bytes:
    """An object with that many levels, its own included."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_each_value_keeps_its_spelling() -> None:
    body = b'{ "a" : 1.50e+1 ,"b":[1,  2],\n"c":"\\u00e9\\/", "d": {"x":null}}'
    fields = spans.split(body)
    assert {name: bytes(raw) for name, raw in fields.items()} == {
        "a": b"1.50e+1",
        "b": b"[1,  2]",
        "c": b'"\\u00e9\\/"',
        "d": b'{"x":null}',
    }
    assert spans.join(fields) == b'{"a":1.50e+1,"b":[1,  2],"c":"\\u00e9\\/","d":{"x":null}}'


def test_last_duplicate_wins_and_only_it_is_sent_on() -> None:
    fields = spans.split(b'{"model":"cheap","n":1,"model":"dear"}')
    assert spans.join(fields) == b'{"model":"dear","n":1}'


def test_escaped_key_is_the_key_it_spells() -> None:
    assert list(spans.split(b'{"m\\u006fdel":1}')) == ["model"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"[]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a":1', "not valid JSON"),
        (b'{"a":1} x', "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":01}', "not valid JSON"),
        (b'{"a":"\x01"}', "not valid JSON"),
        (b'{"a":"\\q"}', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "not valid UTF-8: byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"a":"\xc3', "not valid UTF-8"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\\ude00 behind"}', "surrogate"),
        (b'{"a":"\\ud83d\\ud83d\\ude00"}', "surrogate"),
        (b'{"a":"\\ud83d\\\\\\ude00"}', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
    ],
)
def test_unreadable_body_is_refused_with_its_reason(body: bytes, said: str) -> None:
    assert said in refusal_of(body)


@pytest.mark.parametrize("text", [b"\\ud83d\\ude00", b"\\\\ud800", b"\\\\\\\\ud800", "😀é".encode()])
def test_whole_characters_pass(text: bytes) -> None:
    body = b'{"a":"' + text + b'"}'
    assert spans.join(spans.split(body)) == body


def test_refusal_never_holds_what_the_body_holds() -> None:
    for body in (b'{"' + SECRET, b'{"a":"' + SECRET + b'\\ud800"}', b'["' + SECRET + b'"]', SECRET):
        assert SECRET.decode() not in refusal_of(body)


@pytest.mark.parametrize("levels", [2, 255, 256])
def test_nesting_up_to_the_limit_passes(levels: int) -> None:
    assert spans.split(nested(levels))


@pytest.mark.parametrize("levels", [257, 500, 990, 100_000])
def test_deeper_nesting_is_refused(levels: int) -> None:
    assert "deeper than 256" in refusal_of(nested(levels))


def test_deep_nesting_is_found_far_behind_and_between_strings() -> None:
    deep = b"[" * 300 + b"]" * 300
    wide = b",".join([b'"a \\" [ b"'] * 20_000)
    assert "deeper" in refusal_of(b'{"a":[' + wide + b'],"b":' + deep + b"}")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"' + b"[" * 2000 + b'"}',
        b'{"a":"' + b'\\"[' * 2000 + b'"}',
        b'{"a":[' + b",".join([b"[[]]"] * 20_000) + b"]}",
        b'{"a":"\\\\","b":"' + b"{" * 400 + b'"}',
    ],
)
def test_brackets_in_strings_and_side_by_side_do_not_count(body: bytes) -> None:
    assert spans.join(spans.split(body)) == body


@pytest.mark.parametrize(
    "number", [b"9" * 64, b"-" + b"9" * 64, b"0." + b"1" * 63, b"1e308", b"0.1e309", b"1e-400", b"5E+2", b"1e10"]
)
def test_number_within_the_limits_passes_as_spelled(number: bytes) -> None:
    body = b'{"a":' + number + b',"b":[' + number + b",true,false,null,{}]}"
    assert spans.join(spans.split(body)) == body


@pytest.mark.parametrize("number", [b"9" * 65, b"0." + b"1" * 64, b"1" * 40 + b"." + b"1" * 30, b"9" * 5000])
def test_longer_number_is_refused(number: bytes) -> None:
    assert "more than 64 digits" in refusal_of(b'{"a":{"b":[' + number + b"]}}")


@pytest.mark.parametrize("number", [b"1e400", b"-1E400", b"1e+309", b"9.9e308", b"10e99999", b"1" * 64 + b"e260"])
def test_number_that_is_not_finite_is_refused(number: bytes) -> None:
    assert "not finite" in refusal_of(b'{"a":{"b":[0,true,' + number + b',null,false]},"e":"1e5"}')


@pytest.mark.parametrize("text", [b"9" * 100, b"1e400", b'\\"1e400', b"call_0e000", b"1,2e999,3"])
def test_numbers_in_strings_do_not_count(text: bytes) -> None:
    body = b'{"a":["' + text + b'"],"b":"' + text + b'"}'
    assert spans.join(spans.split(body)) == body


def test_bad_number_behind_many_windows_is_found() -> None:
    many = b",".join([b'"x,y"', b"12345"] * 30_000)
    assert "not finite" in refusal_of(b'{"a":[' + many + b",1e999]}")
    assert "64 digits" in refusal_of(b'{"a":[' + many + b"," + b"7" * 65 + b"]}")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def split_or_refusal(body: bytes) -> Any:
    try:
        return spans.split(body)
    except Failure as failure:
        return failure.kind


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=6), st.booleans())
def test_any_object_survives_split_and_join(document: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only, allow_nan=False).encode()
    assert json.loads(spans.join(spans.split(body))) == document


@given(st.binary(max_size=60))
def test_any_bytes_are_split_or_refused(body: bytes) -> None:
    fields = split_or_refusal(body)
    assert fields is Kind.INVALID_REQUEST or spans.split(spans.join(fields)) == fields


@given(st.dictionaries(st.text(min_size=1), st.integers(), min_size=1), st.data())
def test_one_changed_byte_never_breaks_out_of_the_refusals(document: dict[str, int], data: st.DataObject) -> None:
    body = bytearray(msgspec.json.encode(document))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    fields = split_or_refusal(bytes(body))
    assert fields is Kind.INVALID_REQUEST or spans.split(spans.join(fields)) == fields
