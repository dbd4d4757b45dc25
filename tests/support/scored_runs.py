"""A finished run over recorded outputs with gates, nested and required evaluators, for scoring again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runs.engine.plan import read_plan
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.running.services import start_run
from runs.what_if.changes import RuleSet
from tests.support.factories import make_case, make_suite, make_target
from tests.support.trees import CHECK, LEAF, tree

EXACT = {**LEAF, "name": "exact", "kind": "expected_output", "config": {"match": "exact"}}
SHORT = {
    **LEAF,
    "name": "short",
    "kind": "execution_metrics",
    "config": {"max_duration_ms": 100},
}
NO_CARD = {
    **LEAF,
    "name": "no_card",
    "kind": "text_check",
    "negate": True,
    "config": {"operator": "contains", "value": "4111"},
}
STYLE = {**tree(SHORT, NO_CARD), "name": "style", "weight": 2.0}
TREE = tree(
    CHECK,
    EXACT,
    STYLE,
    aggregator={"type": "safety_gate", "required": ["mentions_refund"], "gate_threshold": 0.5},
)
EXPECTED = "Your refund is on its way"
TEXTS = (
    EXPECTED,
    f"{EXPECTED} ",
    "Your refund, card 4111",
    "We cannot help",
    None,
)


def finished_run(
    texts: Sequence[str | None] = TEXTS,
    *,
    evaluators: Mapping[str, Any] = TREE,
    own: Mapping[int, Mapping[str, Any]] | None = None,
    repetitions: int = 1,
    suite_facts: Mapping[str, Any] | None = None,
) -> Run:
    """Return a completed run with one case for each text; None is a case without an output."""
    suite = make_suite(tree=evaluators, **(suite_facts or {}))
    for number, text in enumerate(texts):
        output = {"output": text, "cost_usd": "0.25", "latency_ms": 50 * (number + 1)}
        make_case(
            suite=suite,
            key=f"C-{number}",
            position=number,
            expected_output=EXPECTED,
            recorded_output=None if text is None else output,
            **(own or {}).get(number, {}),
        )
    run = start_run(suite=suite, target=make_target(), started_by=None, repetitions=repetitions)
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def rules_of(run: Run, **changes: Any) -> RuleSet:
    """Return the rules of a run with some of them changed."""
    plan = read_plan(run.snapshot)
    rules = RuleSet.of_plan(plan)
    return RuleSet(
        policy=changes.get("policy", rules.policy),
        root=changes.get("root", rules.root),
        judge=changes.get("judge", rules.judge),
        files=changes.get("files", rules.files),
    )
