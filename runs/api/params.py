"""What calls of the API name: query parameters, read strictly, for a misspelt filter is refused; and runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from runs.compare.many import BY_DIFFERENCE, SORTS
from runs.costs import with_origins
from runs.documents import Document
from runs.filters.language import MAX_LENGTH
from runs.lists import (
    EARLIEST,
    LATEST,
    MAX_INTEGER,
    MAX_PLACE_LENGTH,
    MAX_RUN_NAMES_LENGTH,
    MAX_RUN_NUMBER,
    MAX_TEXT_LENGTH,
    Choice,
    Flag,
    Integer,
    Keyset,
    ListQuery,
    Moment,
    Param,
    SortType,
    Text,
    UnreadablePlaceError,
)
from runs.lists import Page as ListPage
from runs.models.runs import Run
from runs.results.runs import with_list_columns
from runs.waiting import MAX_WAIT_S

DEFAULT_LIMIT, MAX_LIMIT = 100, 500
RUN_NAMES = "its id, or suite:number, suite:latest or suite:baseline"
UNREADABLE = "This is not a cursor of this list. Start without one, and follow “next”."
Row = TypeVar("Row", bound=Model)


def get_run(word: str) -> Run:
    """Return the run of an id, or of a suite with a number, latest or baseline; raises NotFound."""
    run = with_origins(with_list_columns(Run.objects.called(word))).first()
    if run is None:
        # A comparison names two runs, so the message must say which is missing.
        raise NotFound(f"There is no run {word!r}. A run is named by {RUN_NAMES}.")
    return run


class QueryParams(serializers.Serializer[Any]):
    """The parameters of a call; any other is refused."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        """Return the values; raises ValidationError that names each wrong parameter."""
        params = cls(data=request.query_params)
        unknown = sorted(set(request.query_params) - set(params.fields))
        if unknown:
            verb = "is" if len(params.fields) == 1 else "are"
            known = f"There {verb} {', '.join(params.fields) or 'none'}."
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
        help_text="Where the page begins; “next” of the previous page contains it.",
    )


class MomentField(serializers.DateTimeField):
    """A time that every database can store in every time zone."""

    def to_internal_value(self, value: str | datetime) -> datetime:
        """Return the time; raises ValidationError for one out of range."""
        moment = super().to_internal_value(value)
        if not EARLIEST <= moment <= LATEST:
            raise serializers.ValidationError("This time is out of range.")
        return moment


class SortField(serializers.CharField):
    """What a list is sorted by, with a minus sign for descending."""

    def __init__(self, type_: SortType, **facts: Any) -> None:
        """Take the columns."""
        super().__init__(**facts)
        self.sorts = type_

    def to_internal_value(self, data: Any) -> Any:
        """Return the sort; raises ValidationError for an unknown column."""
        found = self.sorts.read(super().to_internal_value(data))
        if found is None:
            families = [f"{family}…" for family in self.sorts.families]
            names = ", ".join([*self.sorts.names, *families])
            raise serializers.ValidationError(f"A list is sorted by one of {names}.")
        return found


def _field(param: Param) -> serializers.Field[Any, Any, Any, Any]:
    """Return the strict field for a filter, which pages read leniently."""
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
        case SortType():
            return SortField(param.type, **facts)
        case _:
            raise TypeError(f"the API has no field for {param.type}")


@cache
def list_params(query: type[ListQuery]) -> type[PageParams]:
    """Return the strict parameters of a list: those that have a help text, and the page."""
    filters = [param for param in query.params().values() if param.help]
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
        """Return the request; raises ValidationError that names each wrong parameter."""
        values = list_params(query).read(request)  # type: ignore[arg-type]  # a class is hashable
        limit, cursor = values.pop("limit"), values.pop("cursor", "")
        names = {param.name: name for name, param in query.params().items()}
        filters = {names[name]: value for name, value in values.items()}
        return cls(request, query(**filters), limit, cursor)

    def page(
        self,
        rows: QuerySet[Row],
        keyset: Keyset,
        describe: Callable[[Sequence[Row]], Sequence[Document]],
    ) -> Response:
        """Return one page of the rows with the address of the next page, null on the last."""
        try:
            ordered = keyset.behind(rows, self.cursor)
        except UnreadablePlaceError:
            raise ValidationError({"cursor": [UNREADABLE]}) from None
        return self.answer(keyset.cut(ordered, self.limit), describe)

    def answer(
        self, page: ListPage[Row], describe: Callable[[Sequence[Row]], Sequence[Document]]
    ) -> Response:
        """Return a page with the address of the next page, null on the last."""
        here = self.request.build_absolute_uri()
        following = replace_query_param(here, "cursor", page.after) if page.after else None
        documents = [document.as_json() for document in describe(page.rows)]
        return Response({"next": following, "results": documents})


class RunParams(QueryParams):
    """Whether to wait for the end of a run."""

    wait = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_WAIT_S,
        default=0,
        help_text="For how many seconds the answer may wait for the end of the run; at most 60.",
    )


class CaseParams(QueryParams):
    """Which revision of a case."""

    revision = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_INTEGER,
        help_text="The number of a revision; default: the current one.",
    )


class ListedResultsParams(QueryParams):
    """Which results of a run a file has."""

    filter = serializers.CharField(
        required=False,
        max_length=MAX_LENGTH,
        help_text="Only results of cases that match this filter, such as tone < 0.5.",
    )


class ResultsFileParams(ListedResultsParams):
    """Which results a file has, and how its keys are written."""

    keys = serializers.ChoiceField(
        required=False,
        choices=["snake_case", "camelCase"],
        default="snake_case",
        help_text="How the keys are written.",
    )


class ResultsTableParams(ListedResultsParams):
    """Which results a table has, and whether with their texts."""

    texts = serializers.BooleanField(
        required=False, default=False, help_text="Whether the table has inputs and outputs."
    )


class SuiteFileParams(QueryParams):
    """Which version of a suite."""

    version = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_INTEGER,
        help_text="The number of a version; default: the current one.",
    )


class ReviewsParams(QueryParams):
    """Which decisions of reviewers."""

    suite = serializers.CharField(
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="Only decisions on runs of this suite.",
    )
    run = serializers.CharField(
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text=f"Only decisions on this run: {RUN_NAMES}.",
    )


class RunScopeParams(QueryParams):
    """Which runs of a suite count."""

    since = serializers.IntegerField(
        min_value=1,
        max_value=MAX_INTEGER,
        required=False,
        help_text="Only runs of this version of the suite and later ones.",
    )
    run = serializers.IntegerField(
        min_value=1,
        max_value=MAX_RUN_NUMBER,
        required=False,
        help_text="Only the run of this number.",
    )
    judge = serializers.CharField(
        max_length=MAX_TEXT_LENGTH, required=False, help_text="Only runs of this judge."
    )


class JudgesParams(QueryParams):
    """The run whose outputs several judges scored."""

    run = serializers.IntegerField(
        min_value=1,
        max_value=MAX_RUN_NUMBER,
        required=False,
        help_text="The number of the run that has the outputs first; default: those judged last.",
    )


class PairParams(QueryParams):
    """Two runs."""

    baseline_run_id = serializers.CharField(
        max_length=MAX_TEXT_LENGTH,
        help_text=f"The baseline: {RUN_NAMES}.",
    )
    candidate_run_id = serializers.CharField(
        max_length=MAX_TEXT_LENGTH, help_text=f"The candidate: {RUN_NAMES}."
    )


class ManyRunsParams(PageParams):
    """Two to six runs of a suite, and which of their cases."""

    runs = serializers.CharField(
        max_length=MAX_RUN_NAMES_LENGTH,
        help_text="The runs, two to six of one suite, as suite:number, joined by commas.",
    )
    baseline = serializers.CharField(
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text="The run that the others are compared with; default: the first.",
    )
    differences = serializers.BooleanField(
        required=False, default=False, help_text="Only cases that differ."
    )
    filter = serializers.CharField(
        required=False,
        default="",
        max_length=MAX_LENGTH,
        help_text="Only cases that match this filter in a run other than the baseline, such as tone fell.",
    )
    sort = serializers.ChoiceField(
        required=False,
        choices=[f"{sign}{name}" for name in SORTS for sign in ("", "-")],
        default=f"-{BY_DIFFERENCE}",
        help_text="The case, the difference, or the score in a run by its place, from 1; - for descending.",
    )


class CaseComparisonParams(PairParams):
    """Two runs, and the repetition of the case."""

    repetition = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_INTEGER,
        help_text="Which repetition; default: the first that got worse, else the first.",
    )


class ComparisonParams(PairParams):
    """Two runs and tolerances; those left out are the suite's."""

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
        help_text="Compare all cases, or only those that both runs have.",
    )


class ConcludedComparisonParams(ComparisonParams):
    """Two runs, tolerances, and when the comparison has a conclusion."""

    force = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Compare runs that differ in more than the target, or did not complete.",
    )
    min_cases = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_INTEGER,
        default=1,
        help_text="Minimum number of shared cases with a verdict on both sides.",
    )
