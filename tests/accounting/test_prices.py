"""Money is exact: integers inside, decimals at the edge."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from lumen_gateway.accounting.prices import Prices, cost, prices_of
from lumen_gateway.records import Usage

TOKENS = st.integers(0, 10**12)
USD = st.decimals(0, 10_000, places=6)


def test_one_dollar_a_million_is_a_million_pico_dollars_a_token() -> None:
    assert prices_of(Decimal(1), Decimal("0.15")) == Prices(input=1_000_000, output=150_000)


def test_price_is_rounded_half_to_even_at_a_millionth_of_a_dollar_a_million() -> None:
    prices = prices_of(Decimal("0.0000015"), Decimal("0.0000025"), Decimal("0.00000251"), Decimal("0.0000001"))
    assert prices == Prices(input=2, output=2, cached=3, cache_write=0)


def test_model_without_any_price_has_no_prices() -> None:
    assert prices_of(None, None) is None
    assert prices_of(None, Decimal(0)) == Prices(input=0, output=0)


def test_parts_of_the_input_have_their_own_price_where_set() -> None:
    usage = Usage(input=100, output=10, cached=40, cache_write=20)
    assert cost(usage, Prices(input=10, output=100, cached=1, cache_write=12)) == 40 * 10 + 40 * 1 + 20 * 12 + 10 * 100


def test_parts_without_a_price_cost_what_input_costs() -> None:
    assert cost(Usage(input=100, output=0, cached=40, cache_write=20), Prices(input=10)) == 1000


def test_cached_tokens_at_a_price_of_zero_are_free() -> None:
    assert cost(Usage(input=100, output=0, cached=40), Prices(input=10, cached=0)) == 600


def test_breakdown_larger_than_the_input_is_never_charged_twice() -> None:
    assert cost(Usage(input=10, output=0, cached=40, cache_write=40), Prices(input=1, cached=1, cache_write=1)) == 10


def test_nothing_used_costs_nothing() -> None:
    assert cost(Usage(), Prices(input=5, output=5)) == 0


@given(TOKENS, TOKENS, USD, USD)
def test_cost_is_exact_to_the_pico_dollar(tokens_in: int, tokens_out: int, usd_in: Decimal, usd_out: Decimal) -> None:
    prices = prices_of(usd_in, usd_out)
    assert prices is not None
    exact = tokens_in * int(usd_in * 10**6) + tokens_out * int(usd_out * 10**6)  # USD / 10^6 tokens, in 10^-12 USD
    assert cost(Usage(input=tokens_in, output=tokens_out), prices) == exact


@given(TOKENS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_every_input_token_is_charged_once(total: int, cached: int, written: int) -> None:
    usage = Usage(input=total, cached=cached, cache_write=written)
    assert cost(usage, Prices(input=1, cached=1, cache_write=1)) == total
