"""Fields and parts that several answers share."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from evaluators.scoring.types import Verdict
from runs.models import CaseGate, FinalScore, OnUnscored

VERDICTS = [verdict.value for verdict in Verdict]
STATES = ["scored", "unscored", "skipped", "open"]


@extend_schema_field({"type": "string", "format": "decimal", "examples": ["0.012400000"]})
class Dollars(serializers.CharField):
    """US dollars spelt out, so that no digit is lost."""


class Share(serializers.FloatField):
    """A number from 0 to 1."""


class Described(serializers.Serializer[Any]):
    """A part of an answer."""


def dollars(text: str, **options: Any) -> Dollars:
    """Return a field of dollars; null where no price is known."""
    return Dollars(
        allow_null=True, help_text=f"{text}, US dollars; null where none is known.", **options
    )


def share(text: str, **options: Any) -> Share:
    """Return a field of a number from 0 to 1, null where there is none."""
    return Share(allow_null=True, help_text=f"{text}, 0 to 1; null where there is none.", **options)


def verdict(text: str) -> serializers.ChoiceField:
    """Return a field of a verdict."""
    return serializers.ChoiceField(
        choices=VERDICTS, allow_null=True, help_text=f"{text}; null without one."
    )


def number(text: str) -> serializers.FloatField:
    """Return a field of a number that may be missing."""
    return serializers.FloatField(allow_null=True, help_text=text)


def count(text: str) -> serializers.IntegerField:
    """Return a field of a count."""
    return serializers.IntegerField(help_text=text)


def count_or_none(text: str) -> serializers.IntegerField:
    """Return a field of a count that may be missing."""
    return serializers.IntegerField(allow_null=True, help_text=text)


def words(text: str) -> serializers.CharField:
    """Return a field of words."""
    return serializers.CharField(help_text=text)


def words_or_none(text: str) -> serializers.CharField:
    """Return a field of words that may be missing."""
    return serializers.CharField(allow_null=True, help_text=text)


def flag(text: str) -> serializers.BooleanField:
    """Return a field of yes or no."""
    return serializers.BooleanField(help_text=text)


def time(text: str) -> serializers.DateTimeField:
    """Return a field of a time, ISO 8601 with its zone."""
    return serializers.DateTimeField(help_text=text)


def time_or_none(text: str) -> serializers.DateTimeField:
    """Return a field of a time that may be missing."""
    return serializers.DateTimeField(allow_null=True, help_text=text)


def names(text: str) -> serializers.ListField:
    """Return a field of a list of words."""
    return serializers.ListField(child=serializers.CharField(), help_text=text)


def mapping(text: str, **options: Any) -> serializers.DictField:
    """Return a field of free values by name."""
    return serializers.DictField(help_text=text, **options)


class PolicySerializer(Described):
    """What turns scores into verdicts and runs into passed or failed gates."""

    pass_band = serializers.FloatField(help_text="From this score on a result passes, 0 to 1.")
    borderline_band = serializers.FloatField(
        help_text="From this score on a result is borderline, 0 to 1."
    )
    case_gate = serializers.ChoiceField(
        choices=CaseGate.values, help_text="What decides the verdict of a result."
    )
    final_score = serializers.ChoiceField(
        choices=FinalScore.values, help_text="Where the final score comes from."
    )
    on_unscored = serializers.ChoiceField(
        choices=OnUnscored.values,
        help_text="What becomes of a result one of whose evaluators could not score.",
    )
    pass_threshold = serializers.FloatField(
        help_text="What the score has to reach without expected outcomes, points of 100."
    )
    metrics_pass_threshold = serializers.FloatField(
        help_text="What the mean score of a run has to reach, percent."
    )
    cases_pass_threshold = serializers.FloatField(
        help_text="What share of a run's executions has to pass, percent."
    )
    max_pass_rate_drop = serializers.FloatField(
        help_text="How far the pass rate may fall, a share from 0 to 1."
    )
    max_avg_score_drop = serializers.FloatField(
        help_text="How far the mean score may fall, points of 100."
    )
    max_latency_increase_pct = serializers.FloatField(
        help_text="How far the mean latency may grow, percent."
    )
    count_reviews = flag("Whether decisions of reviewers take the place of verdicts.")
    scale = count("What pages show scores out of: 1, 5, 10 or 100. Here they are 0 to 1.")
