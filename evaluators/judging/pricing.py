"""What calls cost: prices per million tokens, from the model's own settings or a kept library."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

MILLION = Decimal(1_000_000)
BILLIONTH = Decimal("1e-9")
LIBRARY = "genai-prices"
OWN = "own"


@dataclass(frozen=True, slots=True)
class Rate:
    """US dollars for a million tokens.

    A tier (tokens, price) applies to every token of a call whose input is longer than that.
    """

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()

    def at(self, input_tokens: int) -> Decimal:
        """Return the price in force for a call with so many input tokens."""
        price = self.base
        for start, tier_price in self.tiers:
            if input_tokens > start:
                price = tier_price
        return price

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; money as text."""
        return {"base": str(self.base), "tiers": [[start, str(usd)] for start, usd in self.tiers]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Rate:
        """Return what `as_json` wrote."""
        tiers = tuple((int(start), Decimal(usd)) for start, usd in stored["tiers"])
        return cls(Decimal(stored["base"]), tiers)


@dataclass(frozen=True, slots=True)
class Prices:
    """Everything needed to say what a call cost; `version` tells where the figures are from."""

    input: Rate
    output: Rate
    cached: Rate | None
    version: str

    def cost_usd(
        self, *, input_tokens: int | None, output_tokens: int | None, cached_tokens: int | None
    ) -> Decimal | None:
        """Return the price of one call to a billionth of a dollar; None when tokens are unknown.

        Cached tokens are part of the input tokens and cost the input price when none of their own is known.
        """
        if input_tokens is None or output_tokens is None:
            return None
        cached = min(cached_tokens or 0, input_tokens)
        usd = (
            (input_tokens - cached) * self.input.at(input_tokens)
            + cached * (self.cached or self.input).at(input_tokens)
            + output_tokens * self.output.at(input_tokens)
        ) / MILLION
        return usd.quantize(BILLIONTH)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values for a run's snapshot."""
        return {
            "input": self.input.as_json(),
            "output": self.output.as_json(),
            "cached": self.cached.as_json() if self.cached else None,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Prices:
        """Return what `as_json` wrote."""
        cached = stored["cached"]
        return cls(
            Rate.from_json(stored["input"]),
            Rate.from_json(stored["output"]),
            Rate.from_json(cached) if cached else None,
            str(stored["version"]),
        )


def prices_of(
    base_url: str,
    model_id: str,
    *,
    own_input: Decimal | None = None,
    own_output: Decimal | None = None,
    own_cached: Decimal | None = None,
) -> Prices | None:
    """Return the prices in force: each own price where set (0 is a price), else the library's.

    None when input or output price is in neither: an unknown price is never 0.
    """
    library = library_prices(base_url, model_id)
    if own_input is None and own_output is None and own_cached is None:
        return library
    first = Rate(own_input) if own_input is not None else None
    second = Rate(own_output) if own_output is not None else None
    cached = Rate(own_cached) if own_cached is not None else None
    if library is not None:
        # A discount of the library means nothing beside an own price.
        cached = cached or (library.cached if first is None else None)
        first, second = first or library.input, second or library.output
    if first is None or second is None:
        return None
    is_mixed = library is not None and (own_input is None or own_output is None)
    version = f"{OWN} and {library.version}" if library is not None and is_mixed else OWN
    return Prices(first, second, cached, version)


@lru_cache(maxsize=256)
def library_prices(base_url: str, model_id: str) -> Prices | None:
    """Return the library's prices for a model of a known provider; None for any other.

    The provider is told by the address alone: a model of a familiar name on another server is not
    priced by guess.
    """
    found = _find(base_url, model_id)
    rates = {name: _rate(getattr(found, f"{name}_mtok", None)) for name in ("input", "output")}
    if rates["input"] is None or rates["output"] is None:
        return None
    cached = _rate(getattr(found, "cache_read_mtok", None))
    version = f"{LIBRARY} {importlib.metadata.version(LIBRARY)}"
    return Prices(rates["input"], rates["output"], cached, version)


def _find(base_url: str, model_id: str) -> Any:
    # Imported here because the library takes a second to load and most processes never ask it.
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model_id, provider_api_url=base_url).model_price
    except LookupError:
        return None


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", ())
    return Rate(
        Decimal(getattr(price, "base", price)),
        tuple((int(tier.start), Decimal(tier.price)) for tier in tiers),
    )
