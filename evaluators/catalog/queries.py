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
from evaluators.reading.yaml import write_yaml
from evaluators.scoring.tree import COMPOSITE


@dataclass(frozen=True, slots=True)
class KindPage:
    """One kind with its settings and type names."""

    kind: Kind
    settings: Sequence[Mapping[str, Any]]
    spellings: Sequence[tuple[str, str]]

    @property
    def can_be_tried(self) -> bool:
        """Tell whether its settings alone make an evaluator; a composite needs others below it."""
        return self.kind.name != COMPOSITE


class KindTrialForm(KindForm):
    """Settings to try out, checked and written like those of a suite file. Nothing is stored."""

    name = forms.CharField(
        max_length=100, help_text="Unique among its siblings in the tree.", empty_value=""
    )
    weight = forms.FloatField(min_value=0, initial=1, help_text="Weight among its siblings.")
    required = forms.BooleanField(
        required=False, help_text="The result fails if this evaluator scores 0."
    )
    negate = forms.BooleanField(required=False, help_text="Turn a score s into 1 − s.")

    def clean_name(self) -> str:
        """Refuse a slash, which separates the names in a path."""
        name: str = self.cleaned_data["name"]
        if "/" in name:
            raise forms.ValidationError("A name must not contain a slash.")
        return name

    def written(self) -> str:
        """Return the evaluator as YAML for a suite file."""
        data = self.cleaned_data
        defaults = self.kind.config.model_validate(self.config)
        changed = defaults.model_dump(mode="json", exclude_defaults=True)
        spelling, settings = shortest_spelling(self.kind.name, changed)
        facts = {
            "name": data["name"],
            "type": spelling,
            "weight": data["weight"] if data["weight"] != 1 else None,
            "required": data["required"] or None,
            "negate": data["negate"] or None,
        }
        settings_written = {key: value for key, value in facts.items() if value is not None}
        return write_yaml([{**settings_written, **settings}])


def gallery_kinds() -> list[Kind]:
    """Return the kinds that a suite may use, by label."""
    return sorted(
        (kind for kind in all_kinds().values() if kind.in_gallery), key=lambda kind: kind.label
    )


# The kinds to choose from, the most used first; a kind that no group names comes last in the one that fits.
GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Rules",
        "Fixed checks, without a model unless you ask for one.",
        ("text_check", "expected_output", "field_accuracy", "tool_trajectory", "execution_metrics"),
    ),
    (
        "Judges",
        "A model or an agent reads the answer and scores it.",
        ("llm_judge", "rubric", "metrics_judge", "deliberation", "agent_judge"),
    ),
    ("Composites", "Combine several evaluators into one score.", ("composite", "hybrid_judge")),
)


@dataclass(frozen=True, slots=True)
class KindGroup:
    """Kinds of evaluators that work alike."""

    title: str
    summary: str
    kinds: Sequence[Kind]


def kind_groups() -> list[KindGroup]:
    """Return the kinds that a suite may use by how they score, the most used first."""
    named = {name: title for title, _, names in GROUPS for name in names}
    kinds = gallery_kinds()

    def group(kind: Kind) -> str:
        return named.get(kind.name, "Judges" if kind.uses_judge else "Rules")

    def place(kind: Kind, names: Sequence[str]) -> int:
        return names.index(kind.name) if kind.name in names else len(names)

    return [
        KindGroup(
            title,
            summary,
            sorted(
                (kind for kind in kinds if group(kind) == title),
                key=lambda kind, names=names: place(kind, names),  # type: ignore[misc]
            ),
        )
        for title, summary, names in GROUPS
    ]


def kind_page(name: str) -> KindPage:
    """Return everything about one kind; raises UnknownKindError if the gallery does not show it."""
    kind = get_kind(name)
    if not kind.in_gallery:
        raise UnknownKindError(f"The kind {name!r} is for Evalsite itself.")
    spellings = {kind.name: {}, **kind.spellings}
    return KindPage(
        kind=kind,
        settings=kind_settings(kind),
        spellings=[(spelling, _implied_settings(preset)) for spelling, preset in spellings.items()],
    )


def _implied_settings(preset: Mapping[str, Any]) -> str:
    return ", ".join(_preset_words(key, value) for key, value in preset.items())


def _preset_words(key: str, value: Any) -> str:
    """Return a setting that a type name implies, without a value if the user must set it."""
    if value is None:
        return key
    return f"{key}: {str(value).lower() if isinstance(value, bool) else value}"


# A live worker takes a test at once; a running test ends by the timeouts of its calls.
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
    """The state of a model's test: never, waiting, untaken, running, lost, failed or done."""

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
        """Tell whether the page should wait for the test."""
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
    """Return the rows of all models, in one query."""
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
    """Return the settings of a model as pairs of name and text, without the key."""
    prices = model_prices(model)
    shown = {
        "Base URL": model.base_url,
        "Model id": model.model_id,
        "Key": key_source(model),
        "Reply mode": model.get_reply_mode_display(),
        "Parameters": ", ".join(f"{name} {value}" for name, value in model.parameters.items()),
        "Requests per minute": str(model.requests_per_minute or "no limit"),
        "Timeout": f"{model.timeout_s} s",
        "Input price": _usd(prices.input) if prices else "not known",
        "Cached input price": _usd(prices.cached) if prices and prices.cached else "as input",
        "Output price": _usd(prices.output) if prices else "not known",
        "Prices": _origin(prices),
        "Trace headers": "sent" if model.send_trace_headers else "not sent",
    }
    return [(name, words or "none") for name, words in shown.items()]


def key_problem(model: LanguageModel) -> str:
    """Return why the model's key cannot be sent, "" if it can or none is needed."""
    return model_key(model).problem


def trial_report(model: LanguageModel) -> ModelTrialReport:
    """Return the state and the result of the model's last test."""
    result: dict[str, Any] = model.last_test or {}
    if not result:
        return ModelTrialReport("never")
    asked_at = datetime.fromisoformat(result["asked_at"])
    request: dict[str, Any] = {"asked_at": asked_at, "asked_by": str(result.get("asked_by", ""))}
    if result["state"] == "done":
        return _finished(model, result, request)
    waited = timezone.now() - asked_at
    if waited > GIVEN_UP:
        return ModelTrialReport("lost", **request)
    is_untaken = result["state"] == "waiting" and waited > UNTAKEN
    return ModelTrialReport("untaken" if is_untaken else str(result["state"]), **request)


def _finished(
    model: LanguageModel, result: dict[str, Any], request: dict[str, Any]
) -> ModelTrialReport:
    modes = tuple(_mode_row(mode) for mode in result["modes"])
    failed: dict[str, Any] = {}
    if result["error"]:
        failed = {
            "title": FAILURES[CallOutcome(result["error"])],
            "reason": result["reason"],
            "next_step": NEXT_STEPS.get(result["http_status"], ""),
        }
    cost = result["cost_usd"]
    return ModelTrialReport(
        "failed" if result["error"] else "done",
        **request,
        **failed,
        modes=modes,
        advice=_advice(model, result["modes"]),
        latency_ms=next((row.latency_ms for row in modes if row.verdict == "pass"), None),
        cost_usd=None if cost is None else Decimal(cost),
        models=tuple(result["models"]),
        knows_model=not result["models"] or model.model_id in result["models"],
        **{
            name: result[name]
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
    """Return the advice on the reply mode, "" for none."""
    states = {mode["mode"]: mode["state"] for mode in modes}
    best = next((mode for mode, state in states.items() if state == "supported"), None)
    if best is None or states.get(model.reply_mode) == "supported":
        return ""
    return f"Set the reply mode to {ReplyMode(best).label}, the best one that this server supports."


def _origin(prices: Prices | None) -> str:
    if prices is None:
        return "unknown, so costs are unknown too"
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
