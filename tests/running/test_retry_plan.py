"""The plan of a retry: its maximum of calls, its cost by earlier costs, and what stays unknown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from runs.models.runs import Run
from runs.running.retry_forms import retry_plan
from tests.support.factories import (
    make_case,
    make_model,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db
SAMPLED = {**JUDGED, "name": "sampled", "config": {"prompt": "Right?", "samples": 3}}


def make(*, model: str | None = "agent", judge: str = "juno", **facts: Any) -> Run:
    """Make a run of four cases: two plain, one with outcomes, one with a tree of its own."""
    suite = make_suite(tree=tree(CHECK, {**tree(JUDGED, SAMPLED), "name": "judged"}))
    target = make_target(kind="chat" if model else "recorded", model=model and make_model())
    snapshot = make_snapshot(
        suite=suite, target=target, tree=tree(CHECK, {**tree(JUDGED, SAMPLED), "name": "judged"})
    )
    snapshot["target"]["model"] = model
    snapshot["judge"] = {"slug": judge} if judge else None
    run = make_run(suite=suite, target=target, snapshot=snapshot)
    own = tree(CHECK)
    for number, columns in enumerate(({}, {}, {"expected_outcomes": ["x"]}, {"evaluators": own})):
        case = make_case(suite=suite, key=f"C-{number}", position=number, **columns)
        output = {"text": "x"} if number != 1 else None
        result = make_result(run=run, case=case, verdict="pass", score=0.9, output=output, **facts)
        make_score(result=result, path="judged/right", score=0.9, cost_usd=Decimal("0.001"))
    return run


def test_calls_are_counted_by_the_tree_of_each_case() -> None:
    run = make()
    plan = retry_plan(run, run.results.all())
    assert (plan.count, plan.with_output, plan.without_output) == (4, 3, 1)
    assert (plan.whole.target_calls, plan.scoring.target_calls) == (4, 1)
    assert (
        plan.whole.judge_calls == 4 + 4 + 7 + 0
    )  # one judge, three samples, the outcomes as often
    assert plan.whole.cost_usd == 4 * (Decimal("0.012") + Decimal("0.004"))
    assert plan.scoring.cost_usd == Decimal("0.012") + 4 * Decimal("0.004")


@pytest.mark.parametrize(
    ("path", "calls", "usd"),
    [
        ("judged/right", 3, "0.003"),
        ("judged/sampled", 9, None),
        ("judged", 12, None),
        ("mentions_refund", 0, "0"),
        ("@outcomes", 3, None),
    ],
)
def test_one_evaluator_takes_its_own_calls(path: str, calls: int, usd: str | None) -> None:
    run = make()
    some = run.results.exclude(case__key="C-1" if path == "@outcomes" else "C-3")
    plan = retry_plan(run, some, path)
    assert plan.scoring.judge_calls == calls
    found = plan.scoring.cost_usd if path != "judged" else None
    expected = None if usd is None else Decimal(usd)
    # C-1 has no output: its target is asked all the same.
    asked = plan.without_output * Decimal("0.012")
    assert found == (None if expected is None else expected + asked)


def test_recorded_outputs_are_read_again_for_nothing() -> None:
    plan = retry_plan(run := make(model=None), run.results.all())
    assert (plan.whole.reads_recorded, plan.whole.target_calls) == (True, 0)
    assert not retry_plan(run, run.results.filter(output__isnull=False)).scoring.reads_recorded
    assert plan.whole.cost_usd == 4 * Decimal("0.004")


def test_without_a_judge_outcomes_take_no_call() -> None:
    run = make(judge="")
    assert retry_plan(run, run.results.all(), "@outcomes").scoring.judge_calls == 0


def test_what_nobody_knows_is_not_made_up() -> None:
    run = make(run_cost_usd=None)
    plan = retry_plan(run, run.results.filter(output__isnull=False))
    assert plan.whole.cost_usd is None
    assert plan.scoring.cost_usd == 3 * Decimal("0.004")


@pytest.mark.writes_results
def test_results_that_were_never_carried_out_are_told_apart() -> None:
    run = make()
    run.results.filter(case__key="C-0").update(status="cancelled")
    run.results.filter(case__key="C-1").update(status="cancelled", generation=2)
    assert retry_plan(run, run.results.all()).never_run == 1
