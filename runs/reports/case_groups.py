"""Group the results of a run by case in the database, so that a page reads only the rows it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    DecimalField,
    F,
    FloatField,
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
from runs.summary import Execution, case_verdict

# One row a case with whatever was annotated; stubs cannot follow annotations of annotations.
Groups = QuerySet[Any, Any]
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

    With one repetition a case is its result, which spares the database the grouping.
    """
    policy = policy_of(run)
    rows = Result.objects.filter(run=run).order_by().annotate(counts_as=_verdict(policy))
    if run.repetitions == 1:
        single: Groups = rows.annotate(place=F("position"), mean=F("score"), state=_state_of_one())
        return single.values("case_id", "place", "mean", "state")
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
    means = {
        "mean": Round(Avg("score", filter=Q(status=ResultStatus.SCORED)), SCORE_DIGITS),
        "place": Min("position"),
    }
    groups: Groups = rows.values("case_id").annotate(**counted, **means)
    grouped: Groups = groups.annotate(state=_state(policy))
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
    counts = groups.aggregate(
        **{state: Count("case_id", filter=Q(state=state)) for state in STATES}
    )
    return {state: int(count or 0) for state, count in counts.items()}


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
    if name == "score":
        return F("mean")
    if name == "cost":
        return spent if run.repetitions == 1 else Sum(spent)
    figure = figures.get(name)
    return figure if figure is None or run.repetitions == 1 else Avg(figure)


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
    ended = (ResultStatus.SCORED, ResultStatus.ERROR)
    reviewed = When(~Q(reviewed_verdict=""), status__in=ended, then=F("reviewed_verdict"))
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
    verdict = case_verdict([_execution(row) for row in rows], policy)
    if verdict is None:
        return "error" if ResultStatus.ERROR in statuses else "cancelled"
    return verdict.value


def _execution(row: Mapping[str, Any]) -> Execution:
    reviewed = row["reviewed_verdict"]
    return Execution(
        case="",
        status=row["status"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        score=row["score"],
        is_forced=row["is_forced"],
        reviewed_verdict=Verdict(reviewed) if reviewed else None,
    )
