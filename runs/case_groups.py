"""The cases of a run as an address filters and sorts them, and the results that can be tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Avg,
    Count,
    DecimalField,
    F,
    FloatField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models import Case as SqlCase
from django.db.models.functions import Cast, Coalesce, Round

from evaluators.scoring.numbers import rounded
from evaluators.scoring.types import SCORE_DIGITS
from runs import lists
from runs.lists import ListQuery, Sort, with_tag
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus
from runs.models.run_cases import RUNNING, LiveCases
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.cases import RepetitionFigures

STATES = ("pass", "borderline", "fail", "error", RUNNING, "waiting", "cancelled")
RANKS = {
    "running": 0,
    "error": 1,
    "fail": 2,
    "borderline": 3,
    "pass": 4,
    "cancelled": 5,
    "waiting": 6,
}
# Where a case without a score stands when the lowest score comes first.
UNSCORED_PLACES = {"running": -3.0, "error": -2.0, "cancelled": 2.0, "waiting": 3.0}
NO_USD = Value(0, output_field=DecimalField(max_digits=18, decimal_places=9))
FIGURES: Mapping[str, Any] = {
    "case": F("position"),
    "score": F("score"),
    "spread": F("spread"),
    "metrics": F("metrics_score"),
    "outcomes": F("outcome_share"),
    "latency": F("latency_ms"),
    "cost": SqlCase(
        When(run_cost_usd=None, evaluation_cost_usd=None, then=None),
        default=Coalesce(F("run_cost_usd"), NO_USD) + Coalesce(F("evaluation_cost_usd"), NO_USD),
    ),
}


def sorted_cases(cases: LiveCases, name: str) -> LiveCases:
    """Add `sort_value`, what a column sorts by; a missing figure stands below every other."""
    value: Any
    if name in FIGURES:
        known = Round(Cast(FIGURES[name], FloatField()), SCORE_DIGITS)
        value = Coalesce(known, Value(-1.0))
    else:
        places = RANKS if name == "verdict" else UNSCORED_PLACES
        default = Value(9.0) if name == "verdict" else Coalesce(F("score"), Value(-1.0))
        whens = [When(live_state=state, then=Value(float(at))) for state, at in places.items()]
        value = SqlCase(*whens, default=default, output_field=FloatField())
    found: LiveCases = cases.annotate(sort_value=value)
    return found


def count_states(cases: LiveCases) -> Mapping[str, int]:
    """Return how many cases are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for (state, _), count in count_states_and_flaky(cases).items():
        counts[state] += count
    return counts


def count_states_and_flaky(cases: LiveCases) -> Counter[tuple[str, bool]]:
    """Return how many cases are in each state, by state and whether they are flaky; one query."""
    rows: Any = cases.order_by().values_list("live_state", "is_flaky").annotate(count=Count("pk"))
    return Counter({(state, is_flaky): count for state, is_flaky, count in rows})


def repetition_figures(run: Run) -> RepetitionFigures:
    """Return what the repetitions of a run tell so far; one query."""
    ended = Q(ended=F("executions"))
    figures = run.cases.aggregate(
        settled=Count("pk", filter=ended),
        all_passed=Count("pk", filter=ended & Q(passed=F("executions"))),
        any_passed=Count("pk", filter=ended & Q(passed__gt=0)),
        comparable=Count("pk", filter=Q(scored__gt=1)),
        flaky=Count("pk", filter=Q(is_flaky=True)),
        mean_spread=Avg("spread"),
        spread_cases=Count("spread"),
    )
    spread = figures.pop("mean_spread")
    return RepetitionFigures(**figures, spread=None if spread is None else rounded(spread))


SORTS = (
    *("attention", "verdict", "case", "score", "spread", "metrics", "outcomes"),
    *("latency", "cost"),
)


@dataclass(frozen=True, slots=True)
class ResultsQuery(ListQuery):
    """Which cases of a run's results are listed; with `flaky` those whose repetitions differ."""

    state: str = lists.choice(STATES, name="verdict")
    flaky: bool = lists.flag()
    tag: str = lists.text()
    text: str = lists.search()
    sort: Sort = lists.sort(SORTS, "attention")
    after: str = lists.after()


def matching_cases(run: Run, query: ResultsQuery) -> LiveCases:
    """Return the cases whose text and tag match, whatever their state."""
    cases: QuerySet[Case] = Case.objects.all()
    if query.text:
        cases = cases.filter(Q(key__icontains=query.text) | Q(title__icontains=query.text))
    if query.tag:
        cases = with_tag(cases, query.tag)
    matching = run.cases.live()
    return matching.filter(case__in=cases) if query.text or query.tag else matching


def in_state(cases: LiveCases, query: ResultsQuery) -> LiveCases:
    """Return the cases in the state of the filter, and flaky ones where it names them."""
    if query.state:
        cases = cases.filter(live_state=query.state)
    return cases.filter(is_flaky=True) if query.flaky else cases


def retryable_results(run: Run) -> QuerySet[Result]:
    """Return the results that can be tried again: finished ones, and when the run is over all others too.

    Of a run that was imported none can: there is no target to ask.
    """
    return run.results.exclude(status__in=_out_of_reach(run))


def is_retryable(run: Run, status: str) -> bool:
    """Tell whether a result of that status can be tried again."""
    return status not in _out_of_reach(run)


def matching_results(run: Run, query: ResultsQuery) -> QuerySet[Result]:
    """Return the results that can be tried again of every case the filter leaves, on all its pages."""
    cases = in_state(matching_cases(run, query), query)
    return retryable_results(run).filter(case__in=cases.values("case_id"))


def _out_of_reach(run: Run) -> tuple[ResultStatus, ...]:
    if run.imported_from:
        return tuple(ResultStatus)
    return (
        (*OPEN_RESULT_STATUSES, ResultStatus.CANCELLED) if run.is_active else OPEN_RESULT_STATUSES
    )


def ids_with_error_of(run: Run, result_id: int) -> list[int]:
    """Return the results of the run that ended in the same error as that one, itself among them."""
    errored = run.results.filter(status=ResultStatus.ERROR)
    like = errored.filter(pk=result_id).values("error_stage", "error").first()
    return list(errored.filter(**like).values_list("pk", flat=True)) if like else []
