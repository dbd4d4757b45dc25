"""What the machine said of an output under review, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import COMPOSITE, walk
from runs.models import CaseGate, Result, Score, ScoreState
from runs.plan import Plan, tree_of_case
from runs.reports.repetition_marks import RepetitionMark, mark_of_row, result_url
from runs.reports.result_neighbours import mark_of


@dataclass(frozen=True, slots=True)
class Margin:
    """How far a score of 0 to 1 is from the threshold it missed, or the highest it reached."""

    label: str
    distance: float


@dataclass(frozen=True, slots=True)
class JudgePanel:
    """The machine's verdict with what led to it; `lowest` is a leaf's name and score of 0 to 1."""

    state: str
    score: float | None
    scale: int
    decided_by: str
    says: str
    margin: Margin | None
    outcomes: str
    lowest: tuple[str, float] | None
    repetitions: tuple[RepetitionMark, ...]
    error: str


def judge_panel(
    result: Result, plan: Plan, rows: Sequence[Score], outcomes: Sequence[Mapping[str, Any]]
) -> JudgePanel:
    """Return what the machine said of a result; one query, for its other repetitions."""
    leaves = _leaves(result, plan, rows)
    lowest = min(leaves, key=lambda leaf: leaf[1], default=None)
    spoken = sorted((leaf for leaf in leaves if leaf[0].reasoning), key=lambda leaf: leaf[1])
    met = sum(bool(outcome["passed"]) for outcome in outcomes)
    return JudgePanel(
        state=mark_of(result),
        score=result.score,
        scale=plan.policy.scale,
        decided_by=result.decided_by,
        says=spoken[0][0].reasoning if spoken else "",
        margin=_margin(result, plan.policy),
        outcomes=f"{met} of {len(outcomes)}" if outcomes else "",
        lowest=(lowest[0].path.rpartition("/")[2], lowest[1]) if lowest else None,
        repetitions=_others(result, plan.policy),
        error=result.error,
    )


def _leaves(result: Result, plan: Plan, rows: Sequence[Score]) -> list[tuple[Score, float]]:
    """Return the leaves that scored, each with its score of 0 to 1 after negation."""
    case = result.case
    tree = tree_of_case(plan.root, case.evaluators, append=case.evaluators_append)
    negated = {path for path, node in walk(tree) if node.negate}
    return [
        (row, 1 - row.score if row.path in negated else row.score)
        for row in rows
        if row.kind != COMPOSITE and row.state == ScoreState.SCORED and row.score is not None
    ]


def _margin(result: Result, policy: Policy) -> Margin | None:
    """Return how far the score is from the band above it, None where no score decided."""
    if result.score is None or result.is_forced or policy.case_gate != CaseGate.SCORE:
        return None
    for word, limit in (
        ("borderline", policy.borderline_threshold),
        ("pass", policy.pass_threshold),
    ):
        if rounded(result.score) < rounded(limit):
            return Margin(f"Below {word} by", rounded(limit - result.score))
    return Margin("Above pass by", rounded(result.score - policy.pass_threshold))


def _others(result: Result, policy: Policy) -> tuple[RepetitionMark, ...]:
    run = result.run
    if run.repetitions == 1:
        return ()
    rows = run.results.filter(case=result.case_id).exclude(pk=result.pk).order_by("repetition")
    columns = ("repetition", "status", "verdict", "reviewed_verdict", "score")
    return tuple(
        RepetitionMark(
            row["repetition"],
            result_url(run, result.case.key, row["repetition"]),
            mark_of_row(row, policy),
            row["score"],
        )
        for row in rows.values(*columns)
    )
