"""Names of tools: what fits is left alone, what does not is sent as something that does, and comes back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.chat_names import NO_NAMES, own_names, sent_name
from lumen_gateway.dialects.neutral import Tool

TAKEN_BY_OPENAI = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize("name", ["f", "get-weather_2", "n" * 64])
def test_a_name_that_fits_is_sent_as_it_is(name: str) -> None:
    assert sent_name(name) == name


def test_long_names_that_begin_alike_are_told_apart() -> None:
    first, second = sent_name("n" * 70 + "_one"), sent_name("n" * 70 + "_two")
    assert first != second
    assert first.startswith("nnnn")


@given(st.text(max_size=200))
def test_whatever_the_name_the_upstream_takes_what_is_sent(name: str) -> None:
    assert TAKEN_BY_OPENAI.fullmatch(sent_name(name))
    assert sent_name(sent_name(name)) == sent_name(name)


def test_only_names_that_were_changed_have_to_be_given_back() -> None:
    long = "n" * 65
    assert own_names([Tool("short"), Tool(long)]) == {sent_name(long): long}
    assert own_names([Tool("short")]) == NO_NAMES
