"""The results of a run grouped by case, filtered as an address says, and those that can be tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Avg,
    BooleanField,
    CharField,
    Count,
    DecimalField,
    F,
    FloatField,
    Max,
    Min,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models import Case as SqlCase
from django.db.models.functions import Cast, Coalesce, Length, Replace, Round

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import SCORE_DIGITS, Verdict
from runs import lists
from runs.lists import ListQuery, Sort, with_tag
from runs.models.results import OPEN_RESULT_STATUSES, Result, ResultStatus, VerdictChoice
from runs.models.results import ResultStatus as Status
from runs.models.runs import Run
from runs.models.suites import Case, CaseGate
from runs.summary.cases import RepetitionFigures, case_verdict
from runs.summary.figures import Execution

# One row a case with whatever was annotated; stubs cannot follow annotations of annotations.
Groups = QuerySet[Any, Any]
ENDED = (ResultStatus.SCORED, ResultStatus.ERROR)
# What a result counts as is its own verdict, not that of a review.
OWN_VERDICT = Q(status=ResultStatus.SCORED, counts_as=F("verdict"))
STATES = ("pass", "borderline", "fail", "error", "running", "waiting", "cancelled")
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


def policy_of(run: Run) -> PolicySpec:
    """Return the policy frozen in the run's snapshot."""
    return PolicySpec.model_validate(run.snapshot["policy"])


def case_groups(run: Run) -> Groups:
    """Return one row a case: its state as pages name it, its place and its mean score (SCORING §8).

    With one repetition a case is its result, which spares the database the grouping. With several
    there are `spread`, highest − lowest of two scores or more, `is_flaky` and what both rest on.
    """
    return _groups(Result.objects.filter(run=run), policy_of(run), run.repetitions, ("case_id",))


def case_groups_of_all(runs: Sequence[int], policy: PolicySpec, repetitions: int) -> Groups:
    """Return one row a run and case, with `run_id`, of runs that share policy and repetitions."""
    rows = Result.objects.filter(run__in=runs)
    return _groups(rows, policy, repetitions, ("run_id", "case_id"))


def _groups(
    results: QuerySet[Result], policy: PolicySpec, repetitions: int, by: tuple[str, ...]
) -> Groups:
    rows = results.order_by().annotate(counts_as=_verdict(policy))
    if repetitions == 1:
        alone = {"is_flaky": Value(False), "spread": Value(None, output_field=FloatField())}
        single: Groups = rows.annotate(
            place=F("position"), mean=F("score"), state=_state_of_one(), **alone
        )
        return single.values(*by, "place", "mean", "state")
    counted = {
        "scored": Count("id", filter=~Q(counts_as="")),
        "errored": Count("id", filter=Q(status=ResultStatus.ERROR)),
        "running": Count("id", filter=Q(status=ResultStatus.RUNNING)),
        "waiting": Count("id", filter=Q(status=ResultStatus.PENDING)),
        "passed": Count("id", filter=Q(counts_as=VerdictChoice.PASS)),
        "failed": Count("id", filter=Q(counts_as=VerdictChoice.FAIL)),
        "borderline": Count("id", filter=Q(counts_as=VerdictChoice.BORDERLINE)),
        "forced": Count("id", filter=Q(is_forced=True, counts_as=F("verdict"))),
    }
    if policy.count_reviews:
        counted["overruled"] = Count("id", filter=~Q(counts_as="") & ~OWN_VERDICT)
    is_scored = Q(status=ResultStatus.SCORED)
    means = {
        "mean": Round(Avg("score", filter=is_scored), SCORE_DIGITS),
        "scores": Count("score", filter=is_scored),
        "lowest": Min("score", filter=is_scored),
        "highest": Max("score", filter=is_scored),
        "place": Min("position"),
        "ended": Count("id", filter=Q(status__in=ENDED)),
        "total": Count("id"),
    }
    groups: Groups = rows.values(*by).annotate(**counted, **means)
    grouped: Groups = groups.annotate(state=_state(policy), is_flaky=_is_flaky(), spread=_spread())
    return grouped


def sorted_groups(groups: Groups, run: Run, name: str) -> Groups:
    """Add `sort_value`, what a column sorts by; a missing figure stands below every other."""
    figure = _figure(run, name)
    if figure is None:
        annotated: Groups = groups.annotate(sort_value=_place_of(name))
    else:
        known = Round(Cast(figure, FloatField()), SCORE_DIGITS)
        annotated = groups.annotate(sort_value=Coalesce(known, Value(-1.0)))
    return annotated


def count_states(groups: Groups) -> Mapping[str, int]:
    """Return how many cases are in each state."""
    return count_where(groups, {state: Q(state=state) for state in STATES})


def count_where(groups: Groups, conditions: Mapping[str, Q]) -> Mapping[str, int]:
    """Return by name how many cases meet each condition; one query."""
    counts = groups.aggregate(
        **{name: Count("case_id", filter=condition) for name, condition in conditions.items()}
    )
    return {name: int(count or 0) for name, count in counts.items()}


def repetition_figures(run: Run) -> RepetitionFigures:
    """Return what the repetitions of a run tell so far, by the rules of the summary; one query."""
    settled = Q(ended=F("total"))
    found = case_groups(run).aggregate(
        settled=Count("case_id", filter=settled),
        all_passed=Count("case_id", filter=settled & Q(passed=F("total"))),
        any_passed=Count("case_id", filter=settled & Q(passed__gt=0)),
        comparable=Count("case_id", filter=Q(scored__gt=1)),
        flaky=Count("case_id", filter=Q(is_flaky=True)),
        mean_spread=Avg("spread"),
        spread_cases=Count("spread"),
    )
    spread = found.pop("mean_spread")
    return RepetitionFigures(**found, spread=None if spread is None else rounded(spread))


def _place_of(name: str) -> SqlCase | Cast:
    if name == "case":
        return Cast(F("place"), FloatField())
    places = RANKS if name == "verdict" else UNSCORED_PLACES
    default = Value(9.0) if name == "verdict" else Coalesce(F("mean"), Value(-1.0))
    whens = [When(state=state, then=Value(float(place))) for state, place in places.items()]
    return SqlCase(*whens, default=default, output_field=FloatField())


def _figure(run: Run, name: str) -> Any:
    """Return the figure of a case that a column sorts by, None for columns that are no figure."""
    zero = Value(0, output_field=DecimalField(max_digits=18, decimal_places=9))
    spent = SqlCase(
        When(run_cost_usd=None, evaluation_cost_usd=None, then=None),
        default=Coalesce(F("run_cost_usd"), zero) + Coalesce(F("evaluation_cost_usd"), zero),
    )
    met = Length("outcome_marks") - Length(Replace("outcome_marks", Value("1"), Value("")))
    share = SqlCase(
        When(outcome_marks="", then=None),
        default=Cast(met, FloatField()) / Cast(Length("outcome_marks"), FloatField()),
        output_field=FloatField(),
    )
    figures = {"latency": F("latency_ms"), "metrics": F("metrics_score"), "outcomes": share}
    if name in ("score", "spread"):
        return F("mean" if name == "score" else "spread")
    if name == "cost":
        return spent if run.repetitions == 1 else Sum(spent)
    figure = figures.get(name)
    return figure if figure is None or run.repetitions == 1 else Avg(figure)


def _is_flaky() -> SqlCase:
    """Tell whether verdicts differ: none of the three counts is that of all."""
    differ = Q(scored__gt=F("passed")) & Q(scored__gt=F("borderline")) & Q(scored__gt=F("failed"))
    return SqlCase(
        When(differ, then=Value(True)), default=Value(False), output_field=BooleanField()
    )


def _spread() -> SqlCase:
    return SqlCase(
        When(scores__gt=1, then=Round(F("highest") - F("lowest"), SCORE_DIGITS)),
        default=None,
        output_field=FloatField(),
    )


def _state_of_one() -> SqlCase:
    return SqlCase(
        When(status=ResultStatus.RUNNING, then=Value("running")),
        When(status=ResultStatus.PENDING, then=Value("waiting")),
        When(~Q(counts_as=""), then=F("counts_as")),
        When(status=ResultStatus.ERROR, then=Value("error")),
        default=Value("cancelled"),
        output_field=CharField(),
    )


def _verdict(policy: PolicySpec) -> SqlCase | F:
    """Say what a result counts as: its verdict, or where the policy says so the reviewed one."""
    if not policy.count_reviews:
        return F("verdict")
    reviewed = When(~Q(reviewed_verdict=""), status__in=ENDED, then=F("reviewed_verdict"))
    return SqlCase(reviewed, default=F("verdict"), output_field=CharField())


def _state(policy: PolicySpec) -> SqlCase:
    """Say the state of a case: open work first, then errors, then the verdict of its repetitions."""
    reviews = policy.count_reviews
    by_score = [
        When(forced__gt=0, then=Value("fail")),
        *([When(overruled__gt=0, then=Value("borderline"))] if reviews else ()),
        When(mean=None, then=Value("fail")),
        When(mean__gte=rounded(policy.pass_threshold), then=Value("pass")),
        When(mean__gte=rounded(policy.borderline_threshold), then=Value("borderline")),
        When(mean__isnull=False, then=Value("fail")),
    ]
    by_outcomes = [When(passed=F("scored"), then=Value("pass")), When(passed=0, then=Value("fail"))]
    alike = {"passed": "pass", "borderline": "borderline", "failed": "fail"}
    by_reviews = [
        When(**{count: F("scored")}, overruled__gt=0, then=Value(state))
        for count, state in alike.items()
    ]
    return SqlCase(
        When(running__gt=0, then=Value("running")),
        When(waiting__gt=0, then=Value("waiting")),
        When(scored=0, errored__gt=0, then=Value("error")),
        When(scored=0, then=Value("cancelled")),
        *(by_reviews if reviews else ()),
        *(by_score if policy.case_gate == CaseGate.SCORE else by_outcomes),
        default=Value("borderline"),
        output_field=CharField(),
    )


def state_of_rows(rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> str:
    """Say the state of a case from its repetitions, by the same rules as the database does."""
    statuses = {row["status"] for row in rows}
    for status, state in ((ResultStatus.RUNNING, "running"), (ResultStatus.PENDING, "waiting")):
        if status in statuses:
            return state
    verdict = case_verdict([execution_of(row) for row in rows], policy)
    if verdict is None:
        return "error" if ResultStatus.ERROR in statuses else "cancelled"
    return verdict.value


def execution_of(row: Mapping[str, Any]) -> Execution:
    """Return a row of results as the summary takes it, with as much as a case's verdict rests on."""
    reviewed = row["reviewed_verdict"]
    return Execution(
        case="",
        status=row["status"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        score=row["score"],
        is_forced=row["is_forced"],
        reviewed_verdict=Verdict(reviewed) if reviewed else None,
    )


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


def matching_groups(run: Run, query: ResultsQuery) -> Groups:
    """Return the groups of the cases whose text and tag match, whatever their state."""
    groups = case_groups(run)
    cases: QuerySet[Case] = Case.objects.all()
    if query.text:
        cases = cases.filter(Q(key__icontains=query.text) | Q(title__icontains=query.text))
    if query.tag:
        cases = with_tag(cases, query.tag)
    return groups.filter(case__in=cases) if query.text or query.tag else groups


def narrowed(groups: Groups, query: ResultsQuery) -> Groups:
    """Return those of the groups that are in the state asked for, and flaky where that is asked for."""
    if query.state:
        groups = groups.filter(state=query.state)
    return groups.filter(is_flaky=True) if query.flaky else groups


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
    groups = narrowed(matching_groups(run, query), query)
    return retryable_results(run).filter(case__in=groups.values("case_id"))


def _out_of_reach(run: Run) -> tuple[Status, ...]:
    if run.imported_from:
        return tuple(Status)
    return (*OPEN_RESULT_STATUSES, Status.CANCELLED) if run.is_active else OPEN_RESULT_STATUSES


def ids_with_error_of(run: Run, result_id: int) -> list[int]:
    """Return the results of the run that ended in the same error as that one, itself among them."""
    errored = run.results.filter(status=ResultStatus.ERROR)
    like = errored.filter(pk=result_id).values("error_stage", "error").first()
    return list(errored.filter(**like).values_list("pk", flat=True)) if like else []


STATUS_MARKS = {"pending": "waiting", "skipped": "cancelled"}
