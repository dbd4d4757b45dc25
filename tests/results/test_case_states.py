"""The state of a case: the database and the summary's rules say the same of every mix of results."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest

from evaluators.scoring.policy import PolicySpec
from runs.case_groups import case_groups, count_states, policy_of, state_of_rows
from runs.models.results import Result
from tests.support.factories import make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db
KINDS: dict[str, dict[str, Any]] = {
    "high": {"verdict": "pass", "score": 0.95},
    "at the band": {"verdict": "pass", "score": 0.8},
    "middle": {"verdict": "borderline", "score": 0.7},
    "low": {"verdict": "fail", "score": 0.1},
    "forced": {"verdict": "fail", "score": 0.9, "is_forced": True},
    "no score": {"verdict": "pass", "score": None},
    "reviewed": {"verdict": "fail", "score": 0.2, "reviewed_verdict": "pass"},
    "errored": {"status": "error"},
    "errored, reviewed": {"status": "error", "reviewed_verdict": "fail"},
    "cancelled": {"status": "cancelled"},
    "waiting": {"status": "pending"},
    "running": {"status": "running"},
}
# What no single result can be under a gate: its verdict is the gate's own.
IMPOSSIBLE = {"score": "no score", "expected_outcomes": "middle"}
POLICIES = (
    {"case_gate": "score"},
    {"case_gate": "expected_outcomes"},
    {"case_gate": "score", "count_reviews": True},
    {"case_gate": "expected_outcomes", "count_reviews": True},
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("repetitions", [1, 2, 3])
def test_database_and_summary_agree_on_every_mix(policy: dict[str, Any], repetitions: int) -> None:
    suite = make_suite(**policy)
    run = make_run(suite=suite, repetitions=repetitions)
    kinds = [kind for kind in KINDS if repetitions > 1 or kind != IMPOSSIBLE[policy["case_gate"]]]
    results = []
    for mix in combinations_with_replacement(kinds, repetitions):
        case = make_case(suite=suite)
        common = {"run": run, "case": case, "position": case.position, "status": "scored"}
        for number, kind in enumerate(mix, start=1):
            results.append(Result(**common | {"repetition": number} | KINDS[kind]))
    Result.objects.bulk_create(results)
    found = dict(case_groups(run).values_list("case_id", "state"))
    columns = ("status", "verdict", "score", "is_forced", "reviewed_verdict")
    rows_of: dict[int, list[dict[str, Any]]] = {}
    for row in run.results.values("case_id", *columns):
        rows_of.setdefault(row.pop("case_id"), []).append(row)
    assert set(found) == set(rows_of)
    for case_id, state in found.items():
        assert state == state_of_rows(rows_of[case_id], policy_of(run)), rows_of[case_id]
    assert sum(count_states(case_groups(run)).values()) == len(found)


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
            verdict=str(PolicySpec().verdict_of(score)),
        )
    assert case_groups(run).values_list("state", flat=True).get() == "pass"
