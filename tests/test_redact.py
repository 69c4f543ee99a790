"""A secret shows itself nowhere but where it is asked to."""

from __future__ import annotations

import copy
import logging

import msgspec
import pytest

from lumen_gateway.redact import Secret

TEXT = "sk-very-secret"


class Holder(msgspec.Struct):
    """Something that prints its fields."""

    key: Secret


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format, lambda secret: f"{[secret]}"])
def test_secret_prints_as_stars(show: object) -> None:
    assert callable(show)
    assert TEXT not in show(Secret(TEXT))
    assert "***" in show(Secret(TEXT))


def test_secret_does_not_show_in_what_holds_it_nor_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    holder = Holder(Secret(TEXT))
    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("holding %s", holder)
    assert TEXT not in caplog.text + repr(holder)


def test_secret_gives_itself_up_as_bytes() -> None:
    assert Secret(TEXT).reveal() == TEXT.encode()
    assert Secret(b"\xff\x00").reveal() == b"\xff\x00"


@pytest.mark.parametrize(("other", "same"), [(b"sk-very-secret", True), (b"sk-very-secreT", False), (b"", False)])
def test_secret_matches_only_its_own_bytes(other: bytes, same: bool) -> None:
    assert Secret(TEXT).matches(other) is same


def test_secret_of_other_than_ascii_text_can_be_compared() -> None:
    assert Secret("schlüssel").matches("schlüssel".encode())


def test_equal_secrets_are_one_key_of_a_dict() -> None:
    assert {Secret(TEXT): 1}[Secret(TEXT.encode())] == 1
    assert Secret(TEXT) != TEXT


def test_secret_survives_a_copy() -> None:
    assert copy.deepcopy(Secret(TEXT)) == Secret(TEXT)
