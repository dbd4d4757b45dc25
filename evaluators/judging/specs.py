"""What a call needs to know of a language model, free of the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evaluators.judging.keys import key_of
from evaluators.judging.pricing import Prices, prices_of

if TYPE_CHECKING:
    from evaluators.models import LanguageModel

REPLY_MODES = ("json_schema", "json_object", "text")
FROZEN = ("slug", "name", "base_url", "model_id", "reply_mode", "parameters", "is_scripted")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model behind an OpenAI-compatible endpoint.

    `api_key` never appears in a representation or in `as_json`. `key_problem` says why a key that
    is needed cannot be had; calls then fail with it and send nothing.
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
        """Return where the prices are from, "" when none are known."""
        return self.prices.version if self.prices else ""

    def within(self, timeout_s: float | None) -> ModelSpec:
        """Return the model with another time-out for each call; None leaves its own."""
        return self if timeout_s is None else replace(self, timeout_s=float(timeout_s))

    def as_json(self) -> dict[str, Any]:
        """Return what a run's snapshot freezes, as plain JSON values and without the key."""
        return {
            **{name: getattr(self, name) for name in FROZEN},
            "parameters": dict(self.parameters),
            "prices": self.prices.as_json() if self.prices else None,
        }


def spec_of(model: LanguageModel, frozen: Mapping[str, Any] | None = None) -> ModelSpec:
    """Return the model as calls need it, with its key.

    `frozen` is what `as_json` wrote into a run's snapshot: address, model id, parameters, reply
    mode and prices are then those of the snapshot, while key, limits and time-out stay the
    model's. A key is never sent to an address it was not entered for.
    """
    key = key_of(model)
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
    """Return the prices in force for a model: its own where set, else the library's."""
    return prices_of(
        model.base_url,
        model.model_id,
        own_input=model.input_price_usd_per_mtok,
        own_output=model.output_price_usd_per_mtok,
        own_cached=model.cached_price_usd_per_mtok,
    )
