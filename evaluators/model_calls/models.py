"""Language models as calls use them, without the database: address, key, parameters and prices."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from evaluators.models import LanguageModel


VARIABLE_PREFIX = "EVALSITE_MODEL_KEY_"
OPENAI_VARIABLE = "OPENAI_API_KEY"


class KeyUnreadableError(DomainError):
    """A stored key was encrypted with another encryption key than the current one."""

    code = "key_unreadable"


@dataclass(frozen=True, slots=True)
class ModelKey:
    """The key to send, never shown in a representation, or why there is none."""

    value: str
    problem: str = ""

    def __repr__(self) -> str:
        """Return whether there is a key, never the key."""
        return f"ModelKey({'set' if self.value else 'none'}, problem={self.problem!r})"


def encrypt(key: str) -> str:
    """Return the key encrypted for the database."""
    return _cipher().encrypt(key.encode()).decode("ascii")


def decrypt(stored: str) -> str:
    """Return the key; raises KeyUnreadableError if the encryption key has changed."""
    try:
        return _cipher().decrypt(stored.encode("ascii")).decode()
    except InvalidToken as error:
        raise KeyUnreadableError(
            "The stored key cannot be read: EVALSITE_ENCRYPTION_KEY has changed since it was "
            "stored. Enter the key again."
        ) from error


def is_allowed_variable(name: str) -> bool:
    """Tell whether a key may come from this environment variable.

    With any other variable, an editor of models could send a secret of the server to an address of their choice.
    """
    return name == OPENAI_VARIABLE or (name.startswith(VARIABLE_PREFIX) and name != VARIABLE_PREFIX)


def model_key(model: LanguageModel) -> ModelKey:
    """Return the model's key; a model without a key has an empty one and no problem."""
    if model.encrypted_key:
        try:
            return ModelKey(decrypt(model.encrypted_key))
        except KeyUnreadableError as error:
            return ModelKey("", str(error))
    if not model.key_variable:
        return ModelKey("")
    if not is_allowed_variable(model.key_variable):
        return ModelKey("", f"{model.key_variable} may not be used as a model's key.")
    value = settings.MODEL_KEYS.get(model.key_variable, "")
    if not value:
        return ModelKey("", f"The variable {model.key_variable} is not set.")
    if not is_sendable(value):
        return ModelKey(
            "", f"{model.key_variable} contains characters that are not allowed in a key."
        )
    return ModelKey(value)


def is_sendable(key: str) -> bool:
    """Tell whether the key can be sent in a header: visible ASCII characters only."""
    return key.isascii() and key.isprintable() and " " not in key


def key_source(model: LanguageModel) -> str:
    """Return where the key comes from, for a page: stored, from a variable, or none."""
    if model.encrypted_key:
        return "stored"
    return f"from {model.key_variable}" if model.key_variable else "none"


def _cipher() -> MultiFernet:
    # The first key encrypts, all of them decrypt, so that a changed key does not lose the stored ones.
    return MultiFernet([Fernet(key.strip()) for key in settings.ENCRYPTION_KEY.split(",")])


MILLION = Decimal(1_000_000)
BILLIONTH = Decimal("1e-9")
LIBRARY = "genai-prices"
OWN = "own"


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """US dollars per million tokens.

    A tier (tokens, price) applies to all tokens of a call with a longer input.
    """

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()

    def at(self, input_tokens: int) -> Decimal:
        """Return the price for a call with this many input tokens."""
        price = self.base
        for start, tier_price in self.tiers:
            if input_tokens > start:
                price = tier_price
        return price

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; money as text."""
        return {"base": str(self.base), "tiers": [[start, str(usd)] for start, usd in self.tiers]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TokenPrice:
        """Read what `as_json` returned."""
        tiers = tuple((int(start), Decimal(usd)) for start, usd in stored["tiers"])
        return cls(Decimal(stored["base"]), tiers)


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a call; `version` names their source."""

    input: TokenPrice
    output: TokenPrice
    cached: TokenPrice | None
    version: str

    @property
    def is_free(self) -> bool:
        """Tell whether every call costs nothing."""
        known = [price for price in (self.input, self.output, self.cached) if price]
        return not any(
            usd for price in known for usd in (price.base, *(usd for _, usd in price.tiers))
        )

    def cost_usd(
        self, *, input_tokens: int | None, output_tokens: int | None, cached_tokens: int | None
    ) -> Decimal | None:
        """Return the cost of one call to a billionth of a dollar; None if the tokens are unknown.

        Cached tokens are part of the input tokens and cost the input price if theirs is unknown.
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
        """Read what `as_json` returned."""
        cached = stored["cached"]
        return cls(
            TokenPrice.from_json(stored["input"]),
            TokenPrice.from_json(stored["output"]),
            TokenPrice.from_json(cached) if cached else None,
            str(stored["version"]),
        )


def look_up_prices(
    base_url: str,
    model_id: str,
    *,
    own_input: Decimal | None = None,
    own_output: Decimal | None = None,
    own_cached: Decimal | None = None,
) -> Prices | None:
    """Return the prices: the model's own where set (0 is a price), else the library's.

    None if the input or output price is unknown, which never counts as 0.
    """
    library = library_prices(base_url, model_id)
    if own_input is None and own_output is None and own_cached is None:
        return library
    first = TokenPrice(own_input) if own_input is not None else None
    second = TokenPrice(own_output) if own_output is not None else None
    cached = TokenPrice(own_cached) if own_cached is not None else None
    if library is not None:
        # The library's discount does not apply to the model's own price.
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

    Only the address identifies the provider; a model with a known name on another server has no price.
    """
    price = _find(base_url, model_id)
    rates = {name: _rate(getattr(price, f"{name}_mtok", None)) for name in ("input", "output")}
    if rates["input"] is None or rates["output"] is None:
        return None
    cached = _rate(getattr(price, "cache_read_mtok", None))
    version = f"{LIBRARY} {importlib.metadata.version(LIBRARY)}"
    return Prices(rates["input"], rates["output"], cached, version)


def _find(base_url: str, model_id: str) -> Any:
    # Imported here because the library takes a second to load and most processes do not need it.
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model_id, provider_api_url=base_url).model_price
    except LookupError:
        return None


def _rate(price: Any) -> TokenPrice | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", ())
    return TokenPrice(
        Decimal(getattr(price, "base", price)),
        tuple((int(tier.start), Decimal(tier.price)) for tier in tiers),
    )


REPLY_MODES = ("json_schema", "json_object", "text")
FROZEN = ("slug", "name", "base_url", "model_id", "reply_mode", "parameters", "is_scripted")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model behind an OpenAI-compatible endpoint.

    `api_key` never appears in a representation or in `as_json`. `key_problem` says why a required key is not
    available; calls then fail with it and send nothing.
    """

    slug: str
    base_url: str
    model_id: str
    name: str = ""
    api_key: str = field(default="", repr=False)
    key_problem: str = ""
    reply_mode: str = "json_schema"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0
    concurrency: int = 8
    requests_per_minute: int | None = None
    prices: Prices | None = None
    send_trace_headers: bool = False
    is_scripted: bool = False

    @property
    def price_version(self) -> str:
        """Return the source of the prices, "" if they are unknown."""
        return self.prices.version if self.prices else ""

    def within(self, timeout_s: float | None) -> ModelSpec:
        """Return the model with another timeout for each call; None keeps its own."""
        return self if timeout_s is None else replace(self, timeout_s=float(timeout_s))

    def as_json(self) -> dict[str, Any]:
        """Return the part that a run's snapshot freezes, as plain JSON values without the key."""
        return {
            **{name: getattr(self, name) for name in FROZEN},
            "parameters": dict(self.parameters),
            "prices": self.prices.as_json() if self.prices else None,
        }


def model_spec(model: LanguageModel, frozen: Mapping[str, Any] | None = None) -> ModelSpec:
    """Return the model as calls need it, with its key.

    `frozen` is the result of `as_json` in a run's snapshot. Address, model id, parameters, reply mode and
    prices then come from the snapshot; key, limits and timeout still come from the model. A key is never
    sent to an address that it was not entered for.
    """
    key = model_key(model)
    facts = {name: getattr(model, name) for name in FROZEN}
    prices = None
    if frozen is None:
        prices = model_prices(model)
    else:
        facts.update({name: frozen[name] for name in FROZEN})
        prices = Prices.from_json(frozen["prices"]) if frozen["prices"] else None
    problem = key.problem
    if facts["base_url"] != model.base_url:
        problem = (
            f"{model.name} now points at {model.base_url}, the run was started with "
            f"{facts['base_url']}. Start a new run."
        )
    return ModelSpec(
        **facts,
        api_key="" if problem else key.value,
        key_problem=problem,
        timeout_s=float(model.timeout_s),
        concurrency=model.concurrency,
        requests_per_minute=model.requests_per_minute,
        prices=prices,
        send_trace_headers=model.send_trace_headers,
    )


def model_prices(model: LanguageModel) -> Prices | None:
    """Return the prices of a model: its own where set, else the library's."""
    return look_up_prices(
        model.base_url,
        model.model_id,
        own_input=model.input_price_usd_per_mtok,
        own_output=model.output_price_usd_per_mtok,
        own_cached=model.cached_price_usd_per_mtok,
    )
