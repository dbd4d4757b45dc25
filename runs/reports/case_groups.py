"""Group the results of a run by case in the database, so that a page reads only the rows it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
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

from evaluators.scoring.policy import Policy
from evaluators.scoring.types import SCORE_DIGITS
from runs.models import CaseGate, Result, ResultStatus, Run, VerdictChoice

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


def case_groups(run: Run) -> QuerySet[Result, dict[str, Any]]:
    """Return one row a case: its state as pages name it, its means and what it cost (SCORING §8)."""
    counted = {
        "executions": Count("id"),
        "scored": Count("id", filter=Q(status=ResultStatus.SCORED)),
        "errored": Count("id", filter=Q(status=ResultStatus.ERROR)),
        "running": Count("id", filter=Q(status=ResultStatus.RUNNING)),
        "waiting": Count("id", filter=Q(status=ResultStatus.PENDING)),
        "passed": Count("id", filter=Q(verdict=VerdictChoice.PASS)),
        "failed": Count("id", filter=Q(verdict=VerdictChoice.FAIL)),
        "forced": Count("id", filter=Q(is_forced=True)),
    }
    means = {
        "mean": Round(Avg("score", filter=Q(status=ResultStatus.SCORED)), SCORE_DIGITS),
        "only_verdict": Min("verdict", filter=Q(status=ResultStatus.SCORED)),
        "place": Min("position"),
    }
    groups = Result.objects.filter(run=run).order_by().values("case_id")
    return groups.annotate(**counted, **means).annotate(state=_state(policy_of(run)))


def with_figures(groups: QuerySet[Result, dict[str, Any]]) -> QuerySet[Result, dict[str, Any]]:
    """Add the figures that a table shows beside the state."""
    met = Length("outcome_marks") - Length(Replace("outcome_marks", Value("1"), Value("")))
    share = Case(
        When(outcome_marks="", then=None),
        default=Cast(met, FloatField()) / Cast(Length("outcome_marks"), FloatField()),
        output_field=FloatField(),
    )
    return groups.annotate(
        metrics=Avg("metrics_score"),
        latency=Avg("latency_ms"),
        met=Avg(share),
        run_cost=Sum("run_cost_usd"),
        evaluation_cost=Sum("evaluation_cost_usd"),
    )


def count_states(groups: QuerySet[Result, dict[str, Any]]) -> Mapping[str, int]:
    """Return how many cases are in each state."""
    counts = groups.aggregate(
        **{state: Count("case_id", filter=Q(state=state)) for state in STATES}
    )
    return {state: int(count or 0) for state, count in counts.items()}


def sort_key(name: str) -> Case | Coalesce | F:
    """Return the expression a column sorts by; a missing figure stands below every other."""
    if name == "case":
        return F("place")
    if name in ("verdict", "attention"):
        places = RANKS if name == "verdict" else UNSCORED_PLACES
        default = Value(9.0) if name == "verdict" else Coalesce(F("mean"), Value(-1.0))
        whens = [When(state=state, then=Value(float(place))) for state, place in places.items()]
        return Case(*whens, default=default, output_field=FloatField())
    figure = {"score": F("mean"), "outcomes": F("met")}.get(name, F(name))
    if name == "cost":
        none = Value(None, output_field=FloatField())
        run, judges = (Cast(F(purse), FloatField()) for purse in ("run_cost", "evaluation_cost"))
        known = Coalesce(run, Value(0.0)) + Coalesce(judges, Value(0.0))
        figure = Case(When(run_cost=None, evaluation_cost=None, then=none), default=known)
    return Coalesce(Round(Cast(figure, FloatField()), SCORE_DIGITS), Value(-1.0))


def _state(policy: Policy) -> Case:
    """Say the state of a case: open work first, then errors, then the verdict of its repetitions."""
    by_score = [
        When(forced__gt=0, then=Value("fail")),
        When(mean__gte=round(policy.pass_threshold, SCORE_DIGITS), then=Value("pass")),
        When(mean__gte=round(policy.borderline_threshold, SCORE_DIGITS), then=Value("borderline")),
        When(mean__isnull=False, then=Value("fail")),
    ]
    by_outcomes = [
        When(passed=F("scored"), then=Value("pass")),
        When(passed=0, then=Value("fail")),
    ]
    uses_score = policy.case_gate == CaseGate.SCORE
    return Case(
        When(running__gt=0, then=Value("running")),
        When(waiting__gt=0, then=Value("waiting")),
        When(scored=0, errored__gt=0, then=Value("error")),
        When(scored=0, then=Value("cancelled")),
        When(scored=1, then=F("only_verdict")),
        *(by_score if uses_score else ()),
        *by_outcomes,
        default=Value("borderline"),
        output_field=CharField(),
    )


def state_of_rows(rows: Sequence[Mapping[str, Any]], policy: Policy) -> str:
    """Say the state of a case from its repetitions, by the same rules as the database does."""
    statuses = [row["status"] for row in rows]
    scored = [row for row in rows if row["status"] == ResultStatus.SCORED]
    for status, state in ((ResultStatus.RUNNING, "running"), (ResultStatus.PENDING, "waiting")):
        if status in statuses:
            return state
    if not scored:
        return "error" if ResultStatus.ERROR in statuses else "cancelled"
    return _verdict_of_rows(scored, policy)


def _verdict_of_rows(scored: Sequence[Mapping[str, Any]], policy: Policy) -> str:
    scores = [row["score"] for row in scored if row["score"] is not None]
    passed = sum(row["verdict"] == VerdictChoice.PASS for row in scored)
    if len(scored) == 1:
        return str(scored[0]["verdict"])
    if policy.case_gate == CaseGate.SCORE and scores:
        is_forced = any(row["is_forced"] for row in scored)
        return "fail" if is_forced else str(policy.verdict_of(math.fsum(scores) / len(scores)))
    return "pass" if passed == len(scored) else "borderline" if passed else "fail"
