"""What tokens cost: decimal prices at the edge, whole pico-dollars inside.

A price of one micro-dollar per million tokens is one pico-dollar per token, so USD per million times 10^6 is
pico-dollars per token, and a cost is a sum of products of integers: exact, whatever the size.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import msgspec

from lumen_gateway.records import Usage

_PICO_PER_TOKEN = 1_000_000  # of one USD per million tokens


class Prices(msgspec.Struct, frozen=True):
    """Prices of one model. A part without its own price costs what plain input costs.

    Units: pico-dollars per token.
    """

    input: int = 0
    output: int = 0
    cached: int | None = None
    cache_write: int | None = None


def prices_of(
    input_usd: Decimal | None,
    output_usd: Decimal | None,
    cached_usd: Decimal | None = None,
    cache_write_usd: Decimal | None = None,
) -> Prices | None:
    """Return the prices of a model, None for one that has no price at all: its cost is then unknown, not zero.

    Units: USD per million tokens, rounded to a millionth of a dollar per million, half to even.
    """
    if input_usd is None and output_usd is None and cached_usd is None and cache_write_usd is None:
        return None
    return Prices(
        _per_token(input_usd) or 0, _per_token(output_usd) or 0, _per_token(cached_usd), _per_token(cache_write_usd)
    )


def _per_token(usd_per_million: Decimal | None) -> int | None:
    if usd_per_million is None:
        return None
    return int((usd_per_million * _PICO_PER_TOKEN).to_integral_value(ROUND_HALF_EVEN))


def cost(usage: Usage, prices: Prices) -> int:
    """Return what the usage costs.

    Units: pico-dollars. Cached and cache-write tokens are part of the input and are never counted twice, whatever an
           upstream reports.
    """
    cached = min(usage.cached or 0, usage.input)
    written = min(usage.cache_write or 0, usage.input - cached)
    plain = usage.input - cached - written
    return (
        plain * prices.input
        + cached * (prices.input if prices.cached is None else prices.cached)
        + written * (prices.input if prices.cache_write is None else prices.cache_write)
        + usage.output * prices.output
    )
