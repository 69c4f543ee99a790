"""W3C Trace Context: what may travel on, by the examples and rules of the recommendation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.dialects.trace_context import is_parent, read_context, without_context

TRACE, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"
PARENT = b"00-" + TRACE + b"-" + SPAN + b"-01"


@pytest.mark.parametrize(
    "value",
    [
        PARENT,
        PARENT[:-2] + b"00",
        PARENT[:-2] + b"ff",
        b"01" + PARENT[2:],
        b"cc" + PARENT[2:] + b"-what-the-future-brings",
    ],
)
def test_well_formed_parent_is_taken(value: bytes) -> None:
    assert is_parent(value)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        PARENT.upper(),
        PARENT + b"-more",
        PARENT + b"-",
        PARENT + b"0",
        b"01" + PARENT[2:] + b"more",
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + b"-" + SPAN + b"-01",
        b"00-" + TRACE + b"-" + b"0" * 16 + b"-01",
        b"00-" + TRACE[:-1] + b"-" + SPAN + b"-01",
        PARENT.replace(b"4", b"g"),
        b" " + PARENT,
        PARENT + b"\n",
        PARENT.replace(b"-", b"_"),
    ],
)
def test_malformed_parent_is_refused(value: bytes) -> None:
    assert not is_parent(value)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_no_parent(value: bytes) -> None:
    assert not is_parent(value)


def test_context_is_the_parent_with_every_state_beside_it() -> None:
    states = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    assert read_context([(b"host", b"x"), states[0], (b"traceparent", PARENT), states[1]]) == [
        states[0],
        (b"traceparent", PARENT),
        states[1],
    ]


@pytest.mark.parametrize("parents", [[], [b"garbage"], [PARENT, PARENT], [PARENT, b"garbage"]])
def test_state_without_one_usable_parent_means_nothing(parents: list[bytes]) -> None:
    assert read_context([(b"tracestate", b"a=1"), *((b"traceparent", parent) for parent in parents)]) == []


def test_other_fields_are_left_in_their_order() -> None:
    fields = [(b"b", b"1"), (b"traceparent", PARENT), (b"a", b"2"), (b"tracestate", b"a=1")]
    assert without_context(fields) == [(b"b", b"1"), (b"a", b"2")]
