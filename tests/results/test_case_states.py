"""The stored state of a case is what the rule says of its results, whatever becomes of them."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations_with_replacement
from typing import Any

import pytest

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from runs.models.results import Result
from runs.models.run_cases import RunCase, count_states, live_state, repetition_figures
from runs.models.runs import Run
from runs.models.stored import read_executions
from runs.summary.cases import CaseSummary, count_repetitions, summarise_case
from tests.support.factories import make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db
KINDS: dict[str, dict[str, Any]] = {
    "high": {"verdict": "pass", "score": 0.95, "latency_ms": 120, "run_cost_usd": "0.25"},
    "at the band": {"verdict": "pass", "score": 0.8, "outcome_marks": "101"},
    "middle": {"verdict": "borderline", "score": 0.7, "metrics_score": 0.6},
    "low": {"verdict": "fail", "score": 0.1, "evaluation_cost_usd": "0.5"},
    "forced": {"verdict": "fail", "score": 0.9, "is_forced": True},
    "no score": {"verdict": "pass", "score": None},
    "reviewed": {"verdict": "fail", "score": 0.2, "reviewed_verdict": "pass"},
    "errored": {"status": "error"},
    "errored, reviewed": {"status": "error", "reviewed_verdict": "fail"},
    "cancelled": {"status": "cancelled"},
    "waiting": {"status": "pending"},
    "running": {"status": "running"},
}
POLICIES = (
    {"case_gate": "score"},
    {"case_gate": "expected_outcomes"},
    {"case_gate": "score", "count_reviews": True},
    {"case_gate": "expected_outcomes", "count_reviews": True},
)


def every_mix(policy: dict[str, Any], repetitions: int) -> Run:
    """Make a run with a case for each mix of results, all of them stored."""
    suite = make_suite(**policy)
    run = make_run(suite=suite, repetitions=repetitions, status="running")
    results = []
    positions = {}
    for mix in combinations_with_replacement(KINDS, repetitions):
        case = make_case(suite=suite)
        positions[case.pk] = case.position
        common = {"run": run, "case": case, "position": case.position, "status": "scored"}
        for number, kind in enumerate(mix, start=1):
            results.append(Result(**common | {"repetition": number} | KINDS[kind]))
    Result.objects.bulk_create(results)
    RunCase.objects.add_open(run, positions.items())
    RunCase.objects.refresh(run.pk, positions)
    return run


def summaries(run: Run) -> dict[str, CaseSummary]:
    groups = defaultdict(list)
    for execution in read_executions(run):
        groups[execution.case].append(execution)
    return {case: summarise_case(case, group, run.policy) for case, group in groups.items()}


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("repetitions", [1, 2, 3])
def test_state_and_figures_are_those_of_the_rule(policy: dict[str, Any], repetitions: int) -> None:
    run = every_mix(policy, repetitions)
    expected = summaries(run)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run.results.values("case__key", *RESULT_COLUMNS):
        rows[row["case__key"]].append(row)
    stored: Any = run.cases.live(run).select_related("case")
    assert len(stored) == len(expected)
    for case in stored:
        found = expected[case.case.key]
        assert case.live_state == live_state(rows[found.case], run.policy), rows[found.case]
        if case.state not in ("waiting", "cancelled"):
            assert case.state == found.state
        assert (case.executions, case.ended, case.scored, case.passed, case.is_flaky) == (
            *(found.executions, found.ended, found.scored, found.passed, found.is_flaky),
        )
        means = found.means
        assert case.score == (None if means.score is None else rounded(means.score))
        assert (case.spread, case.latency_ms) == (found.spread, means.latency_ms)
        assert (case.run_cost_usd, case.evaluation_cost_usd) == (
            *(means.run_cost_usd, means.evaluation_cost_usd),
        )
    assert sum(count_states(run.cases.live(run)).values()) == len(expected)
    assert repetition_figures(run) == count_repetitions(expected.values())


RESULT_COLUMNS = ("status", "verdict", "score", "is_forced", "reviewed_verdict")


def test_a_sum_of_floats_never_decides(  # 0.9, 0.8 and 0.7 average to 0.8 or to just under
) -> None:
    run = make_run(suite=make_suite(), repetitions=3)
    case = make_case(suite=run.suite)
    for number, score in enumerate((0.9, 0.8, 0.7), start=1):
        make_result(
            run=run,
            case=case,
            repetition=number,
            score=score,
            verdict=str(PolicySpec().verdict_for(score)),
        )
    assert run.cases.get().state == "pass"


def test_a_case_of_a_run_that_cannot_be_read_takes_the_policy_of_its_suite() -> None:
    run = make_run(suite=make_suite(pass_threshold=0.5, borderline_threshold=0.4))
    Run.objects.filter(pk=run.pk).update(snapshot={})
    case = make_case(suite=run.suite)
    make_result(run=run, case=case, score=0.6, verdict="pass")
    assert run.cases.get().state == "pass"
