"""The database's figures of repetitions equal those of the pure summary, case by case and over a run."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest

from runs.case_groups import case_groups, policy_of, repetition_figures
from runs.models.runs import Run
from runs.models.stored import executions_of
from runs.summary.cases import repetitions_of, summarise_case
from tests.support.factories import make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db

KINDS: tuple[dict[str, Any], ...] = (
    {"verdict": "pass", "score": 0.95},
    {"verdict": "pass", "score": 0.8, "reviewed_verdict": "fail"},
    {"verdict": "borderline", "score": 0.7},
    {"verdict": "fail", "score": 0.9, "is_forced": True},
    {"verdict": "fail", "score": None},
    {"status": "error"},
    {"status": "error", "reviewed_verdict": "pass"},
    {"status": "cancelled"},
    {"status": "running"},
    {"status": "pending"},
)


def every_case(**policy: Any) -> Run:
    """Make a run with a case for each way in which three repetitions can end."""
    suite = make_suite(**policy)
    run = make_run(suite=suite, repetitions=3, status="running")
    for number, kinds in enumerate(combinations_with_replacement(KINDS, 3)):
        case = make_case(suite=suite, key=f"C-{number:03}", position=number)
        for repetition, columns in enumerate(kinds, start=1):
            make_result(run=run, case=case, repetition=repetition, **columns)
    return run


@pytest.mark.parametrize("gate", ["score", "expected_outcomes"])
@pytest.mark.parametrize("count_reviews", [False, True])
def test_the_databases_figures_are_those_of_the_summary(gate: str, count_reviews: bool) -> None:
    run = every_case(case_gate=gate, count_reviews=count_reviews)
    policy = policy_of(run)
    by_case: dict[str, list[Any]] = {}
    for row in executions_of(run):
        by_case.setdefault(row.case, []).append(row)
    cases = [summarise_case(key, group, policy) for key, group in by_case.items()]

    assert repetition_figures(run) == repetitions_of(cases)
    columns = ("is_flaky", "spread", "mean", "passed", "scored")
    found = {row["case__key"]: row for row in case_groups(run).values("case__key", *columns)}
    for case in cases:
        row = found[case.case]
        assert [row["is_flaky"], row["passed"], row["scored"]] == [
            *(case.is_flaky, case.passed, case.scored)
        ], case
        assert [row["spread"], row["mean"]] == [
            *(case.spread, pytest.approx(case.means.score) if case.means.scored else None)
        ], case
