"""Waits: headers before bodies, nonsense is no wait, and none is negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.providers.refusal_body import ErrorBody, read
from lumen_gateway.providers.waits import wait_s

NOW_S = 1_754_667_650.0  # Fri, 08 Aug 2025 15:40:50 GMT
NOTHING = ErrorBody()


def wait_of(body: bytes = b"", **headers: str) -> float | None:
    lookup = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return wait_s(lookup.get, read(body), NOW_S)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("86400", 86400.0),
        ("Fri, 08 Aug 2025 15:41:00 GMT", 10.0),
        ("Friday, 08-Aug-25 15:41:00 GMT", 10.0),
        ("Fri, 08 Aug 2025 15:40:00 GMT", 0.0),
        ("-1", None),
        ("", None),
        ("soon", None),
        ("inf", None),
        ("1e3", None),
        ("9" * 40, None),
        ("Fri, 99 Aug 2025 15:41:00 GMT", None),
        ("Fri, 08 Aug 99999 15:41:00 GMT", None),
        ("\xff", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, wait: float | None) -> None:
    assert wait_of(retry_after=value) == wait


def test_milliseconds_are_read_and_the_longer_of_two_waits_counts() -> None:
    assert wait_of(retry_after_ms="660") == 0.66
    assert wait_of(retry_after_ms="0", retry_after="1") == 1.0
    assert wait_of(retry_after_ms="20000", retry_after="20") == 20.0
    assert wait_of(retry_after_ms="junk") is None


@pytest.mark.parametrize(
    ("prose", "wait"),
    [
        ("Please try again in 20s. Visit our site", 20.0),
        ("Please try again in 2.87s.", 2.87),
        ("try again in 6m0s", 360.0),
        ("Try again in 1h2m3.5s.", 3723.5),
        ("try again in 120ms", 0.12),
        ("Please retry after 60 seconds. Please go", 60.0),
        ("retry after 500 milliseconds", 0.5),
        ("Please retry in 48.939935699s.", 48.939935699),
        ("try again in 2 minutes 5 seconds", 125.0),
        ("please try again later", None),
        ("try again in a while", None),
    ],
)
def test_wait_is_read_from_prose(prose: str, wait: float | None) -> None:
    assert wait_of(b'{"error":{"message":"' + prose.encode() + b'"}}') == (
        None if wait is None else pytest.approx(wait)
    )


def test_google_s_retry_info_comes_before_prose() -> None:
    body = b'{"error":{"message":"Please retry in 48.9s.","details":[{"retryDelay":"48s"}]}}'
    assert wait_of(body) == 48.0


def test_openrouter_s_reset_is_a_point_in_time() -> None:
    def body(reset: str) -> bytes:
        return b'{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"' + reset.encode() + b'"}}}}'

    assert wait_of(body("1754667660000")) == 10.0
    assert wait_of(body("1754667640000")) == 0.0
    assert wait_of(body("60")) is None


def test_header_comes_before_the_body() -> None:
    assert wait_of(b'{"message":"try again in 20s"}', retry_after="3") == 3.0


@given(st.binary(max_size=30), st.binary(max_size=30), st.text(max_size=30))
def test_any_values_give_a_wait_that_is_not_negative_or_none(first: bytes, second: bytes, prose: str) -> None:
    headers = {b"retry-after": first, b"retry-after-ms": second}
    wait = wait_s(headers.get, ErrorBody(text=f"try again in {prose}"), NOW_S)
    assert wait is None or 0 <= wait < float("inf")
