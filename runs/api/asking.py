"""The parameters of addresses: read strictly, because a misspelt filter would answer something else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from runs.models import ResultStatus, RunStatus, VerdictChoice
from runs.reports.run_list import ACTIVE

LONGEST_TEXT = 200
USUAL_LIMIT, MOST = 100, 500
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class Asked(serializers.Serializer[Any]):
    """Parameters of an address; any other is refused."""

    @classmethod
    def of(cls, request: Request) -> dict[str, Any]:
        """Return what is asked for; raises ValidationError naming each parameter that is wrong."""
        asked = cls(data=request.query_params)
        unknown = sorted(set(request.query_params) - set(asked.fields))
        if unknown:
            there_are = (
                f"There are {', '.join(asked.fields)}." if asked.fields else "There are none."
            )
            raise ValidationError({name: [f"No such parameter. {there_are}"] for name in unknown})
        asked.is_valid(raise_exception=True)
        return dict(asked.validated_data)


class NothingAsked(Asked):
    """No parameters."""


class PageAsked(Asked):
    """Which page of a list."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MOST, default=USUAL_LIMIT, help_text="How many rows a page has."
    )
    cursor = serializers.CharField(
        required=False,
        max_length=1000,
        help_text="Where the page begins; “next” of the page before holds it.",
    )


class SuitesAsked(PageAsked):
    """Which suites."""

    tag = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Suites with this tag alone."
    )
    archived = serializers.BooleanField(
        default=False, help_text="The archived suites instead of the others."
    )


class CasesAsked(PageAsked):
    """Which cases of a suite."""

    tag = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Cases with this tag alone."
    )
    q = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Cases whose key or title holds this."
    )


class CaseAsked(Asked):
    """Which revision of a case."""

    revision = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="A revision by its number; the current one unless it is said.",
    )


class RunsAsked(PageAsked):
    """Which runs."""

    suite = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Runs of the suite with this slug."
    )
    status = serializers.ChoiceField(
        required=False,
        choices=[ACTIVE, *RunStatus.values],
        help_text="How far the run is; “active” are those that are queued or running.",
    )
    target = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Runs against the target of this name."
    )
    campaign = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Runs of the campaign with this id.",
    )
    since = serializers.DateTimeField(
        required=False, help_text="Runs made at this time or later, ISO 8601."
    )

    def validate_since(self, value: datetime) -> datetime:
        """Refuse times that no database can hold in every zone."""
        if not EARLIEST <= value <= LATEST:
            raise serializers.ValidationError("This is no time at which a run was made.")
        return value


class ResultsAsked(PageAsked):
    """Which results of a run."""

    verdict = serializers.ChoiceField(
        required=False, choices=VerdictChoice.values, help_text="Results with this verdict alone."
    )
    status = serializers.ChoiceField(
        required=False, choices=ResultStatus.values, help_text="Results that are so far alone."
    )
    tag = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Results of cases with this tag alone."
    )
    case = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Results of the case with this key."
    )


class CampaignsAsked(PageAsked):
    """Which campaigns."""

    suite = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="Campaigns of the suite with this slug."
    )


class ComparisonAsked(Asked):
    """Which two runs, and how much worse the second may be; what is left out is its suite's."""

    baseline_run_id = serializers.CharField(
        max_length=LONGEST_TEXT,
        help_text="The run to hold the other against: its id, or suite:number.",
    )
    candidate_run_id = serializers.CharField(
        max_length=LONGEST_TEXT, help_text="The run that is judged: its id, or suite:number."
    )
    max_pass_rate_drop = serializers.FloatField(
        required=False,
        min_value=0,
        max_value=1,
        help_text="How far the pass rate may fall, a share from 0 to 1.",
    )
    max_avg_score_drop = serializers.FloatField(
        required=False,
        min_value=0,
        max_value=100,
        help_text="How far the mean score may fall, points of 100.",
    )
    max_latency_increase_pct = serializers.FloatField(
        required=False, min_value=0, help_text="How far the mean latency may grow, percent."
    )
    cases = serializers.ChoiceField(
        required=False,
        choices=["all", "shared"],
        default="all",
        help_text="Whether the figures are of all cases or of those that both runs have.",
    )
