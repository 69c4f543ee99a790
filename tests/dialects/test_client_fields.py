"""Fields of a client's request: those that are right are read, the first that is wrong is named."""

from __future__ import annotations

import msgspec
import pytest

from lumen_gateway.dialects import client_fields
from lumen_gateway.errors import Failure


class Turn(msgspec.Struct):
    role: str


class Asked(msgspec.Struct):
    turns: list[Turn] = []
    model: str | None = None
    limit: int | None = None


WANTED = {"turns": "a list of turns", "model": "a string"}
decode = msgspec.json.Decoder(Asked).decode


def fault_of(body: bytes) -> str:
    with pytest.raises(Failure) as caught:
        client_fields.read(decode, body, WANTED, "turns")
    assert caught.value.kind.row.code == "LM-1001"
    return caught.value.message


def test_fields_that_are_right_are_read() -> None:
    asked = client_fields.read(decode, b'{"turns":[{"role":"user"}],"model":null,"more":1}', WANTED, "turns")
    assert asked == Asked([Turn("user")])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model":7}', "`model` must be a string."),
        (b'{"turns":[{"role":"a"},{"role":5}]}', "`turns` must be a list of turns."),
        (b'{"limit":"secret"}', "`limit` must be a whole number, 0 or more."),
    ],
)
def test_field_that_is_wrong_is_named_with_what_it_must_be(body: bytes, said: str) -> None:
    assert fault_of(body) == said


def test_where_no_field_is_named_the_main_one_takes_the_blame() -> None:
    assert fault_of(b"[]") == "`turns` must be a list of turns."


def test_what_the_client_sent_hangs_on_no_failure() -> None:
    with pytest.raises(Failure) as caught:
        client_fields.read(decode, b'{"limit":"secret"}', WANTED, "turns")
    assert "secret" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_field_is_taken_once_and_one_that_cannot_be_read_is_named() -> None:
    taken = client_fields.Taken({"top_p": msgspec.Raw(b"0.5"), "seed": msgspec.Raw(b'"x"')})
    decode_number = msgspec.json.Decoder(float).decode
    taken._ask("top_p", taken._take("top_p", decode_number))
    taken._ask("top_p", taken._take("top_p", decode_number))
    taken._ask("seed", taken._take("seed", decode_number))
    assert taken.asked == {"top_p": 0.5}
    assert taken.unmapped == ["seed"]
