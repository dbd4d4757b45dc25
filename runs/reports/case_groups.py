"""Group the results of a run by case in the database, so that a page reads only the rows it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import (
    Avg,
    BooleanField,
    Case,
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
from django.db.models.functions import Cast, Coalesce, Length, Replace, Round

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import SCORE_DIGITS, Verdict
from runs.models import CaseGate, Result, ResultStatus, Run, VerdictChoice
from runs.summary import Execution, RepetitionFigures, case_verdict

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


def policy_of(run: Run) -> Policy:
    """Return the policy frozen in the run's snapshot."""
    return Policy.from_json(run.snapshot["policy"])


def case_groups(run: Run) -> Groups:
    """Return one row a case: its state as pages name it, its place and its mean score (SCORING §8).

    With one repetition a case is its result, which spares the database the grouping. With several
    there are `spread`, highest − lowest of two scores or more, `is_flaky` and what both rest on.
    """
    return _groups(Result.objects.filter(run=run), policy_of(run), run.repetitions, ("case_id",))


def case_groups_of_all(runs: Sequence[int], policy: Policy, repetitions: int) -> Groups:
    """Return one row a run and case, with `run_id`, of runs that share policy and repetitions."""
    rows = Result.objects.filter(run__in=runs)
    return _groups(rows, policy, repetitions, ("run_id", "case_id"))


def _groups(
    results: QuerySet[Result], policy: Policy, repetitions: int, by: tuple[str, ...]
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


def _place_of(name: str) -> Case | Cast:
    if name == "case":
        return Cast(F("place"), FloatField())
    places = RANKS if name == "verdict" else UNSCORED_PLACES
    default = Value(9.0) if name == "verdict" else Coalesce(F("mean"), Value(-1.0))
    whens = [When(state=state, then=Value(float(place))) for state, place in places.items()]
    return Case(*whens, default=default, output_field=FloatField())


def _figure(run: Run, name: str) -> Any:
    """Return the figure of a case that a column sorts by, None for columns that are no figure."""
    zero = Value(0, output_field=DecimalField(max_digits=18, decimal_places=9))
    spent = Case(
        When(run_cost_usd=None, evaluation_cost_usd=None, then=None),
        default=Coalesce(F("run_cost_usd"), zero) + Coalesce(F("evaluation_cost_usd"), zero),
    )
    met = Length("outcome_marks") - Length(Replace("outcome_marks", Value("1"), Value("")))
    share = Case(
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


def _is_flaky() -> Case:
    """Tell whether verdicts differ: none of the three counts is that of all."""
    differ = Q(scored__gt=F("passed")) & Q(scored__gt=F("borderline")) & Q(scored__gt=F("failed"))
    return Case(When(differ, then=Value(True)), default=Value(False), output_field=BooleanField())


def _spread() -> Case:
    return Case(
        When(scores__gt=1, then=Round(F("highest") - F("lowest"), SCORE_DIGITS)),
        default=None,
        output_field=FloatField(),
    )


def _state_of_one() -> Case:
    return Case(
        When(status=ResultStatus.RUNNING, then=Value("running")),
        When(status=ResultStatus.PENDING, then=Value("waiting")),
        When(~Q(counts_as=""), then=F("counts_as")),
        When(status=ResultStatus.ERROR, then=Value("error")),
        default=Value("cancelled"),
        output_field=CharField(),
    )


def _verdict(policy: Policy) -> Case | F:
    """Say what a result counts as: its verdict, or where the policy says so the reviewed one."""
    if not policy.count_reviews:
        return F("verdict")
    reviewed = When(~Q(reviewed_verdict=""), status__in=ENDED, then=F("reviewed_verdict"))
    return Case(reviewed, default=F("verdict"), output_field=CharField())


def _state(policy: Policy) -> Case:
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
    return Case(
        When(running__gt=0, then=Value("running")),
        When(waiting__gt=0, then=Value("waiting")),
        When(scored=0, errored__gt=0, then=Value("error")),
        When(scored=0, then=Value("cancelled")),
        *(by_reviews if reviews else ()),
        *(by_score if policy.case_gate == CaseGate.SCORE else by_outcomes),
        default=Value("borderline"),
        output_field=CharField(),
    )


def state_of_rows(rows: Sequence[Mapping[str, Any]], policy: Policy) -> str:
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
