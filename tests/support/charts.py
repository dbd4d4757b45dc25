"""Runs with figures for charts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Verdict
from runs.models.results import EvaluatorScore
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from runs.summary.cases import ExecutionRecord
from runs.summary.run import summarise
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_snapshot,
    make_suite,
    make_target,
)

CASES = 40
HEATED_TREE = {
    "name": "root",
    "kind": "composite",
    "children": [
        {
            "name": "safety",
            "kind": "composite",
            "children": [{"name": "no_leak", "kind": "text_check", "negate": True}],
        },
        {"name": "tone", "kind": "llm_judge"},
    ],
}


def make_charted_run(
    *,
    suite: Suite,
    name: str,
    score: float = 0.8,
    cost: str = "1",
    passed: int = 30,
    unpriced: int = 0,
    **columns: Any,
) -> Run:
    """Make a run of 40 cases with its figures; its judges cost half as much as the target.

    `cost` is the target's in US dollars; `unpriced` executions came without a price.
    """
    status = columns.pop("status", "completed")
    run_cost, judges = Decimal(cost), Decimal(cost) / 2
    executions = [
        ExecutionRecord(
            f"C-{number}",
            "scored",
            Verdict.PASS if number < passed else Verdict.FAIL,
            score,
            latency_ms=columns.get("latency_ms", 1000.0 * len(name)),
            run_cost_usd=run_cost / CASES,
            evaluation_cost_usd=judges / CASES,
        )
        for number in range(CASES)
    ]
    columns.pop("latency_ms", None)
    is_completed = status == "completed"
    summary = summarise(executions, suite.policy, is_completed=is_completed, seed=1)
    # The bands would go by the score, which is the same for all here.
    summary = replace(summary, distribution={"pass": passed, "fail": CASES - passed})
    run = make_run(
        suite=suite,
        target=Target.objects.filter(name=name).first() or make_target(name=name),
        **{
            "status": status,
            "target_name": name,
            "case_count": CASES,
            "execution_count": CASES,
            "done_count": CASES,
            "pass_count": passed,
            "fail_count": CASES - passed,
            "score_sum": score * CASES,
            "score_count": CASES,
            "run_cost_usd": run_cost,
            "evaluation_cost_usd": judges,
            "summary": summary.as_json(),
        }
        | columns,
    )
    _leave_unpriced(run, unpriced)
    return run


def _leave_unpriced(run: Run, count: int) -> None:
    """Store outputs of which `count` have no price, and one that has."""
    for number in range(count + 1 if count else 0):
        case = make_case(suite=run.suite, key=f"U-{run.number}-{number}")
        cost = None if number < count else Decimal("0.01")
        run.results.create(
            case=case, position=0, status="scored", verdict="pass", run_cost_usd=cost
        )


def make_heated_run(
    *cases: tuple[float | None, float | None, float | None], suite: Suite | None = None
) -> Run:
    """Make a run with the final score of each case and those of its evaluators; None could not be scored."""
    suite = suite or make_suite(slug="support", tree=HEATED_TREE)
    target = make_target()
    whole = EvaluatorSpec.model_validate(HEATED_TREE).as_json()
    snapshot = make_snapshot(suite=suite, target=target, tree=whole)
    run = make_run(suite=suite, target=target, snapshot=snapshot)
    for place, (final, leak, tone) in enumerate(cases, 1):
        verdict = "" if final is None else "pass"
        key = f"C-{place}"
        case = suite.cases.filter(key=key).first() or make_case(
            suite=suite, key=key, position=place
        )
        status = "error" if final is None else "scored"
        result = make_result(run=run, case=case, verdict=verdict, score=final, status=status)
        for position, (path, score) in enumerate((("safety/no_leak", leak), ("tone", tone))):
            EvaluatorScore.objects.create(
                result=result,
                path=path,
                position=position,
                kind="text_check",
                state="unscored" if score is None else "scored",
                score=score,
            )
    return run
