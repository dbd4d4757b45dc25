"""What calls cost, to the billionth of a dollar, and when that is not known."""

from __future__ import annotations

from decimal import Decimal

import pytest

from evaluators.model_calls.models import Prices, TokenPrice, library_prices, look_up_prices

OPENAI = "https://api.openai.com/v1"
LOOPBACK = "http://127.0.0.1:8000/v1"
PRICES = Prices(TokenPrice(Decimal(2)), TokenPrice(Decimal(10)), TokenPrice(Decimal(1)), "own")


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((1_000_000, 1_000_000, 0), "12"),
        ((1000, 100, None), "0.003"),
        ((1000, 100, 400), "0.0026"),
        ((1000, 0, 1000), "0.001"),
        ((1000, 0, 5000), "0.001"),
        ((0, 0, 0), "0"),
        ((1, 0, 0), "0.000002"),
        ((None, 100, 0), None),
        ((100, None, 0), None),
    ],
    ids=range(9),
)
def test_tokens_are_priced_by_the_million(
    tokens: tuple[int | None, int | None, int | None], expected: str | None
) -> None:
    names = ("input_tokens", "output_tokens", "cached_tokens")

    cost = PRICES.cost_usd(**dict(zip(names, tokens, strict=True)))

    assert cost == (None if expected is None else Decimal(expected))


def test_cached_tokens_cost_the_input_price_when_none_of_their_own_is_known() -> None:
    prices = Prices(PRICES.input, PRICES.output, None, "own")

    assert prices.cost_usd(input_tokens=1000, output_tokens=0, cached_tokens=500) == Decimal(
        "0.002"
    )


def test_a_tier_applies_to_every_token_of_a_longer_call() -> None:
    rate = TokenPrice(Decimal(1), ((200_000, Decimal(2)),))

    assert [rate.at(200_000), rate.at(200_001)] == [1, 2]


def test_the_library_knows_the_models_of_a_known_provider() -> None:
    prices = library_prices(OPENAI, "gpt-4o-mini")

    assert prices is not None
    assert (prices.input.base, prices.output.base) == (Decimal("0.15"), Decimal("0.6"))
    assert prices.version.startswith("genai-prices ")


@pytest.mark.parametrize(
    ("base_url", "model_id"), [(OPENAI, "gpt-of-tomorrow"), (LOOPBACK, "gpt-4o-mini")]
)
def test_an_unknown_model_has_no_price(base_url: str, model_id: str) -> None:
    assert look_up_prices(base_url, model_id) is None


def test_own_prices_win_and_zero_is_a_price() -> None:
    prices = look_up_prices(LOOPBACK, "mock", own_input=Decimal(0), own_output=Decimal(0))

    assert prices is not None
    assert prices.version == "own"
    assert prices.cost_usd(input_tokens=5, output_tokens=5, cached_tokens=0) == 0


def test_one_own_price_keeps_the_library_for_the_other() -> None:
    prices = look_up_prices(OPENAI, "gpt-4o-mini", own_input=Decimal(3))

    assert prices is not None
    assert (prices.input.base, prices.output.base, prices.cached) == (3, Decimal("0.6"), None)
    assert prices.version.startswith("own and genai-prices")


def test_half_a_price_is_none() -> None:
    assert look_up_prices(LOOPBACK, "mock", own_input=Decimal(3)) is None


def test_prices_survive_a_snapshot() -> None:
    prices = Prices(
        TokenPrice(Decimal("0.15"), ((1000, Decimal("0.3")),)), TokenPrice(Decimal(1)), None, "own"
    )

    assert Prices.from_json(prices.as_json()) == prices
    assert Prices.from_json(PRICES.as_json()) == PRICES
