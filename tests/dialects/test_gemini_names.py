"""Names of functions: what fits is left alone, what does not is sent as something that does, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.gemini_wire import NAME

from lumen_gateway.dialects.gemini_names import own_names, sent_name
from lumen_gateway.dialects.neutral import Tool


@pytest.mark.parametrize("name", ["f", "_x.y:z-1", "n" * 64])
def test_a_name_that_fits_is_sent_as_it_is(name: str) -> None:
    assert sent_name(name) == name


@given(st.text(max_size=200))
def test_whatever_the_name_the_upstream_takes_what_is_sent(name: str) -> None:
    assert NAME.fullmatch(sent_name(name))


def test_names_that_do_not_fit_are_told_apart_and_given_back() -> None:
    names = own_names([Tool("fits"), Tool("1st"), Tool("_1st"), Tool("1 st")])
    assert sorted(names.values()) == ["1 st", "1st"]
