"""Rows of language models and of the kinds of evaluators, as their pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.utils import timezone

from evaluators.catalog.kind_forms import KindForm, kind_settings
from evaluators.kinds import all_kinds, get_kind, shortest_spelling
from evaluators.kinds._base import Kind
from evaluators.kinds._refusals import UnknownKindError
from evaluators.kinds._text import write_yaml
from evaluators.model_calls.calls import CallOutcome
from evaluators.model_calls.models import (
    OWN,
    Prices,
    TokenPrice,
    key_source,
    model_key,
    model_prices,
)
from evaluators.models import LanguageModel, ReplyMode
from evaluators.scoring.tree import COMPOSITE


@dataclass(frozen=True, slots=True)
class KindPage:
    """One kind with its settings and the type names that stand for it."""

    kind: Kind
    settings: Sequence[Mapping[str, Any]]
    spellings: Sequence[tuple[str, str]]

    @property
    def can_be_tried(self) -> bool:
        """Tell whether its settings alone make an evaluator; a composite needs others inside."""
        return self.kind.name != COMPOSITE


class KindTrialForm(KindForm):
    """Settings to try: checked like those of a suite file, and written as one. Nothing is stored."""

    name = forms.CharField(
        max_length=100, help_text="Unique among its siblings in the tree.", empty_value=""
    )
    weight = forms.FloatField(min_value=0, initial=1, help_text="Weight among its siblings.")
    required = forms.BooleanField(
        required=False, help_text="The result fails when this evaluator scores 0."
    )
    negate = forms.BooleanField(required=False, help_text="Turn a score s into 1 − s.")

    def clean_name(self) -> str:
        """Refuse the slash, which parts the names of a path."""
        name: str = self.cleaned_data["name"]
        if "/" in name:
            raise forms.ValidationError("A name holds no slash.")
        return name

    def written(self) -> str:
        """Return the evaluator as it stands in a suite file."""
        chosen = self.cleaned_data
        usual = self.kind.config.model_validate(self.config)
        changed = usual.model_dump(mode="json", exclude_defaults=True)
        spelling, settings = shortest_spelling(self.kind.name, changed)
        facts = {
            "name": chosen["name"],
            "type": spelling,
            "weight": chosen["weight"] if chosen["weight"] != 1 else None,
            "required": chosen["required"] or None,
            "negate": chosen["negate"] or None,
        }
        given = {key: value for key, value in facts.items() if value is not None}
        return write_yaml([{**given, **settings}])


def kinds_shown() -> list[Kind]:
    """Return the kinds a suite may use, by label."""
    return sorted(
        (kind for kind in all_kinds().values() if kind.in_gallery), key=lambda kind: kind.label
    )


def kind_page(name: str) -> KindPage:
    """Return everything about one kind; raises UnknownKindError for one the gallery does not show."""
    kind = get_kind(name)
    if not kind.in_gallery:
        raise UnknownKindError(f"The kind {name!r} is used by Evalsite itself.")
    spellings = {kind.name: {}, **kind.spellings}
    return KindPage(
        kind=kind,
        settings=kind_settings(kind),
        spellings=[(spelling, _stands_for(preset)) for spelling, preset in spellings.items()],
    )


def _stands_for(preset: Mapping[str, Any]) -> str:
    return ", ".join(_preset_words(key, value) for key, value in preset.items())


def _preset_words(key: str, value: Any) -> str:
    """Return a setting that a name brings along; of one it leaves to be written, the setting alone."""
    if value is None:
        return key
    return f"{key}: {str(value).lower() if isinstance(value, bool) else value}"


# A living worker takes a test at once; a running one ends by the time-outs of its calls.
CENT = Decimal("0.01")
UNTAKEN = timedelta(seconds=10)
GIVEN_UP = timedelta(minutes=5)
FAILURES = {
    CallOutcome.RATE_LIMITED: "Rate limited",
    CallOutcome.TIMEOUT: "No answer in time",
    CallOutcome.REFUSED: "Refused",
    CallOutcome.SERVER_ERROR: "Server error",
    CallOutcome.CONNECTION: "No connection",
    CallOutcome.UNREADABLE: "Answer not readable",
}
NEXT_STEPS = {
    401: "Check the key.",
    403: "Check what the key may do.",
    404: "Check base URL and model id.",
}
MODE_WORDS = {
    "supported": ("pass", "Supported"),
    "unreadable": ("borderline", "Accepted, reply not readable"),
    "refused": ("cancelled", "Not supported"),
}


@dataclass(frozen=True, slots=True)
class ModeRow:
    """One reply mode in a test."""

    label: str
    verdict: str
    word: str
    reason: str
    latency_ms: int | None


@dataclass(frozen=True, slots=True)
class ModelTrialReport:
    """How far a model's test is: never, waiting, untaken, running, lost, failed or done."""

    state: str
    asked_at: datetime | None = None
    asked_by: str = ""
    title: str = ""
    reason: str = ""
    next_step: str = ""
    modes: tuple[ModeRow, ...] = ()
    advice: str = ""
    latency_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    price_version: str = ""
    calls: int = 0
    answered_by: str = ""
    models: tuple[str, ...] = ()
    model_count: int = 0
    knows_model: bool = True

    @property
    def is_open(self) -> bool:
        """Return whether the page has something to wait for."""
        return self.state in ("waiting", "untaken", "running")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model in the list."""

    model: LanguageModel
    key: str
    key_problem: str
    prices: tuple[str, str]
    test: ModelTrialReport = field(default_factory=lambda: ModelTrialReport("never"))


def model_rows() -> list[ModelRow]:
    """Return every model with what the list shows of it, by one query."""
    return [
        ModelRow(
            model,
            key_source(model),
            model_key(model).problem,
            _price_words(model_prices(model)),
            trial_report(model),
        )
        for model in LanguageModel.objects.all()
    ]


def model_facts(model: LanguageModel) -> list[tuple[str, str]]:
    """Return the settings of a model as pairs of a name and words; never the key."""
    prices = model_prices(model)
    shown = {
        "Base URL": model.base_url,
        "Model id": model.model_id,
        "Key": key_source(model),
        "Reply mode": model.get_reply_mode_display(),
        "Parameters": ", ".join(f"{name} {value}" for name, value in model.parameters.items()),
        "Requests per minute": str(model.requests_per_minute or "no limit"),
        "Time-out": f"{model.timeout_s} s",
        "Input price": _usd(prices.input) if prices else "not known",
        "Cached input price": _usd(prices.cached) if prices and prices.cached else "as input",
        "Output price": _usd(prices.output) if prices else "not known",
        "Prices": _origin(prices),
        "Trace headers": "sent" if model.send_trace_headers else "not sent",
    }
    return [(name, words or "none") for name, words in shown.items()]


def key_problem(model: LanguageModel) -> str:
    """Return why the model's key cannot be sent, "" when it can or none is needed."""
    return model_key(model).problem


def trial_report(model: LanguageModel) -> ModelTrialReport:
    """Return how far the model's last test is and what it found."""
    found: dict[str, Any] = model.last_test or {}
    if not found:
        return ModelTrialReport("never")
    asked_at = datetime.fromisoformat(found["asked_at"])
    asked: dict[str, Any] = {"asked_at": asked_at, "asked_by": str(found.get("asked_by", ""))}
    if found["state"] == "done":
        return _finished(model, found, asked)
    waited = timezone.now() - asked_at
    if waited > GIVEN_UP:
        return ModelTrialReport("lost", **asked)
    is_untaken = found["state"] == "waiting" and waited > UNTAKEN
    return ModelTrialReport("untaken" if is_untaken else str(found["state"]), **asked)


def _finished(
    model: LanguageModel, found: dict[str, Any], asked: dict[str, Any]
) -> ModelTrialReport:
    modes = tuple(_mode_row(mode) for mode in found["modes"])
    failed: dict[str, Any] = {}
    if found["error"]:
        failed = {
            "title": FAILURES[CallOutcome(found["error"])],
            "reason": found["reason"],
            "next_step": NEXT_STEPS.get(found["http_status"], ""),
        }
    cost = found["cost_usd"]
    return ModelTrialReport(
        "failed" if found["error"] else "done",
        **asked,
        **failed,
        modes=modes,
        advice=_advice(model, found["modes"]),
        latency_ms=next((row.latency_ms for row in modes if row.verdict == "pass"), None),
        cost_usd=None if cost is None else Decimal(cost),
        models=tuple(found["models"]),
        knows_model=not found["models"] or model.model_id in found["models"],
        **{
            name: found[name]
            for name in (
                "input_tokens", "output_tokens", "price_version", "calls", "answered_by", "model_count",
            )
        },
    )  # fmt: skip


def _mode_row(mode: dict[str, Any]) -> ModeRow:
    verdict, word = MODE_WORDS[mode["state"]]
    label = ReplyMode(mode["mode"]).label
    return ModeRow(str(label), verdict, word, mode["reason"], mode["latency_ms"])


def _advice(model: LanguageModel, modes: list[dict[str, Any]]) -> str:
    """Return what to change about the reply mode, "" when nothing."""
    states = {mode["mode"]: mode["state"] for mode in modes}
    best = next((mode for mode, state in states.items() if state == "supported"), None)
    if best is None or states.get(model.reply_mode) == "supported":
        return ""
    return f"Set the reply mode to {ReplyMode(best).label}, the best one this server answers in."


def _origin(prices: Prices | None) -> str:
    if prices is None:
        return "not known, so costs are not either"
    return "set here" if prices.version == OWN else f"from {prices.version}"


def _price_words(prices: Prices | None) -> tuple[str, str]:
    if prices is None:
        return ("–", "–")
    return (_usd(prices.input), _usd(prices.output))


def _places(usd: Decimal) -> int:
    return -int(usd.as_tuple().exponent)


def _usd(rate: TokenPrice) -> str:
    words = f"${max(rate.base.normalize(), rate.base.quantize(CENT), key=_places):f}"
    return f"{words} and more for long inputs" if rate.tiers else words
