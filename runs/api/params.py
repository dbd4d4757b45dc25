"""The parameters of addresses, read strictly because a misspelt filter would answer something else, and pages by cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from runs.compare.choice import named
from runs.models.results import Result, ResultStatus, VerdictChoice
from runs.models.runs import Run, RunStatus
from runs.results.run_list import ACTIVE, MAX_NUMBER_LENGTH, listed

MAX_TEXT_LENGTH = 200
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
        required=False, max_length=MAX_TEXT_LENGTH, help_text="Suites with this tag alone."
    )
    archived = serializers.BooleanField(
        default=False, help_text="The archived suites instead of the others."
    )


class CasesAsked(PageAsked):
    """Which cases of a suite."""

    tag = serializers.CharField(
        required=False, max_length=MAX_TEXT_LENGTH, help_text="Cases with this tag alone."
    )
    q = serializers.CharField(
        required=False, max_length=MAX_TEXT_LENGTH, help_text="Cases whose key or title holds this."
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
        required=False, max_length=MAX_TEXT_LENGTH, help_text="Runs of the suite with this slug."
    )
    status = serializers.ChoiceField(
        required=False,
        choices=[ACTIVE, *RunStatus.values],
        help_text="How far the run is; “active” are those that are queued or running.",
    )
    target = serializers.CharField(
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="Runs against the target of this name.",
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
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="Results of cases with this tag alone.",
    )
    case = serializers.CharField(
        required=False, max_length=MAX_TEXT_LENGTH, help_text="Results of the case with this key."
    )


class CampaignsAsked(PageAsked):
    """Which campaigns."""

    suite = serializers.CharField(
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="Campaigns of the suite with this slug.",
    )


class ComparisonAsked(Asked):
    """Which two runs, and how much worse the second may be; what is left out is its suite's."""

    baseline_run_id = serializers.CharField(
        max_length=MAX_TEXT_LENGTH,
        help_text="The run to hold the other against: its id, or suite:number.",
    )
    candidate_run_id = serializers.CharField(
        max_length=MAX_TEXT_LENGTH, help_text="The run that is judged: its id, or suite:number."
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


def run_named(word: str) -> Run:
    """Return the run of an id, or of suite and number as in `support-agent:12`, with what lists show."""
    place = named(word)
    is_id = word.isdecimal() and len(word) < MAX_NUMBER_LENGTH
    runs = listed(Run.objects.all())
    if is_id:
        found = runs.filter(pk=int(word)).first()
    else:
        found = runs.filter(suite__slug=place[0], number=place[1]).first() if place else None
    if found is None:
        # Two runs may be asked for: the answer says which of them is missing.
        raise NotFound(f"There is no run {word!r}. A run is named by its id, or as suite:number.")
    return found


def result_numbered(pk: int) -> Result:
    """Return a result with its case, run and suite."""
    results = Result.objects.select_related("case", "run__suite").defer("run__leaf_scores")
    return get_object_or_404(results, pk=pk)


Row = TypeVar("Row", bound=Model)
LARGEST = 2**63
UNREADABLE = "No list has given this cursor. Begin without one, and follow “next”."


def page_of(
    rows: QuerySet[Row],
    *,
    by: Mapping[str, type],
    request: Request,
    asked: Mapping[str, Any],
    told: Callable[[Sequence[Row]], Sequence[Mapping[str, Any]]],
    is_descending: bool = False,
) -> dict[str, Any]:
    """Return one page as plain JSON values, and the address of the next one, None at the end.

    `by` are the columns of the order with the types of their values; together they are unique.
    """
    sign = "-" if is_descending else ""
    ordered = rows.order_by(*(f"{sign}{column}" for column in by))
    if asked.get("cursor"):
        place = _read(asked["cursor"], by)
        ordered = ordered.filter(_behind(place, is_descending=is_descending))
    limit = asked["limit"]
    found = list(ordered[: limit + 1])
    shown = found[:limit]
    has_more = len(found) > limit
    return {
        "next": _next(request, [_value(shown[-1], name) for name in by]) if has_more else None,
        "results": list(told(shown)),
    }


def _behind(place: Mapping[str, Any], *, is_descending: bool) -> Q:
    """Return what comes after a place in the order of its columns."""
    beyond = "lt" if is_descending else "gt"
    found, names = Q(), list(place)
    for index, name in enumerate(names):
        same = Q(**{earlier: place[earlier] for earlier in names[:index]})
        found |= same & Q(**{f"{name}__{beyond}": place[name]})
    # It follows from the rest, and leads the database to the place in its index.
    return Q(**{f"{names[0]}__{beyond}e": place[names[0]]}) & found


def _next(request: Request, values: Sequence[Any]) -> str:
    text = json.dumps(values, separators=(",", ":"))
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return replace_query_param(request.build_absolute_uri(), "cursor", cursor)


def _read(cursor: str, by: Mapping[str, type]) -> dict[str, Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        raise ValidationError({"cursor": [UNREADABLE]}) from None
    if not isinstance(values, list) or not _fits(values, by):
        raise ValidationError({"cursor": [UNREADABLE]})
    return dict(zip(by, values, strict=True))


def _fits(values: Sequence[Any], by: Mapping[str, type]) -> bool:
    if [type(value) for value in values] != list(by.values()):
        return False
    return all(
        abs(value) < LARGEST if isinstance(value, int) else "\0" not in value for value in values
    )


def _value(row: Model, name: str) -> Any:
    return getattr(row, name)
