"""The parameters of the API, read strictly because a misspelt filter would answer something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from runs.compare.choice import named
from runs.lists import (
    EARLIEST,
    LATEST,
    MAX_INTEGER,
    MAX_PLACE_LENGTH,
    MAX_TEXT_LENGTH,
    Choice,
    Flag,
    Integer,
    Keyset,
    ListQuery,
    Moment,
    Param,
    Text,
    UnreadablePlaceError,
    read_integer,
)
from runs.models.results import Result
from runs.models.runs import Run
from runs.results.run_list import listed

DEFAULT_LIMIT, MAX_LIMIT = 100, 500
UNREADABLE = "No list has given this cursor. Begin without one, and follow “next”."
Row = TypeVar("Row", bound=Model)


class QueryParams(serializers.Serializer[Any]):
    """Parameters of an address; any other is refused."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        """Return the values; raises ValidationError naming each parameter that is wrong."""
        params = cls(data=request.query_params)
        unknown = sorted(set(request.query_params) - set(params.fields))
        if unknown:
            known = f"There are {', '.join(params.fields)}." if params.fields else "There are none."
            raise ValidationError({name: [f"No such parameter. {known}"] for name in unknown})
        params.is_valid(raise_exception=True)
        return dict(params.validated_data)


class NoParams(QueryParams):
    """No parameters."""


class PageParams(QueryParams):
    """Which page of a list."""

    limit = serializers.IntegerField(
        min_value=1,
        max_value=MAX_LIMIT,
        default=DEFAULT_LIMIT,
        help_text="How many rows a page has.",
    )
    cursor = serializers.CharField(
        required=False,
        max_length=MAX_PLACE_LENGTH,
        help_text="Where the page begins; “next” of the page before holds it.",
    )


class MomentField(serializers.DateTimeField):
    """A time that every database can hold in every zone."""

    def to_internal_value(self, value: str | datetime) -> datetime:
        """Refuse times out of bounds."""
        moment = super().to_internal_value(value)
        if not EARLIEST <= moment <= LATEST:
            raise serializers.ValidationError("This is no time at which a run was made.")
        return moment


def _field(param: Param) -> serializers.Field[Any, Any, Any, Any]:
    """Return the strict field of a filter that pages read leniently."""
    facts: dict[str, Any] = {"required": False, "help_text": param.help}
    match param.type:
        case Choice(choices):
            return serializers.ChoiceField(choices=list(choices), **facts)
        case Integer(minimum, maximum):
            return serializers.IntegerField(min_value=minimum, max_value=maximum, **facts)
        case Text(max_length):
            return serializers.CharField(max_length=max_length, **facts)
        case Flag():
            return serializers.BooleanField(**facts)
        case Moment():
            return MomentField(**facts)
        case _:
            raise TypeError(f"the API has no field for {param.type}")


@cache
def list_params(query: type[ListQuery]) -> type[PageParams]:
    """Return the strict parameters of a list: its filters that have a help text, and the page."""
    filters = [param for param in query.params().values() if param.is_filter and param.help]
    return type(query.__name__, (PageParams,), {param.name: _field(param) for param in filters})


Query = TypeVar("Query", bound=ListQuery)


@dataclass(frozen=True, slots=True)
class ListRequest(Generic[Query]):
    """A request for one page of a list."""

    request: Request
    query: Query
    limit: int
    cursor: str

    @classmethod
    def read(cls, request: Request, query: type[Query]) -> ListRequest[Query]:
        """Return what is asked for; raises ValidationError naming each parameter that is wrong."""
        values = list_params(query).read(request)  # type: ignore[arg-type]  # a class is hashable
        limit, cursor = values.pop("limit"), values.pop("cursor", "")
        names = {param.name: name for name, param in query.params().items()}
        filters = {names[name]: value for name, value in values.items()}
        return cls(request, query(**filters), limit, cursor)

    def page(
        self,
        rows: QuerySet[Row],
        keyset: Keyset,
        describe: Callable[[Sequence[Row]], Sequence[Mapping[str, Any]]],
    ) -> Response:
        """Give one page of the rows, and the address of the next one, null at the end."""
        try:
            ordered = keyset.behind(rows, self.cursor)
        except UnreadablePlaceError:
            raise ValidationError({"cursor": [UNREADABLE]}) from None
        page = keyset.cut(ordered, self.limit)
        here = self.request.build_absolute_uri()
        following = replace_query_param(here, "cursor", page.after) if page.after else None
        return Response({"next": following, "results": list(describe(page.rows))})


class CaseParams(QueryParams):
    """Which revision of a case."""

    revision = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_INTEGER,
        help_text="A revision by its number; the current one unless it is said.",
    )


class ComparisonParams(QueryParams):
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
    pk = read_integer(word)
    runs = listed(Run.objects.all())
    if pk is not None:
        found = runs.filter(pk=pk).first()
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
