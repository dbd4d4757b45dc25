"""Run every worked case of the scoring rules through the real functions."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evaluators.kinds import expected_output
from evaluators.kinds._base import CaseFacts, Context, Message, Output
from evaluators.kinds.script import read_env_reply
from evaluators.scoring.decision import Decision
from evaluators.scoring.hybrid import (
    Check,
    JudgeOpinion,
    check_counts,
    deterministic_dimensions,
    evaluate_hybrid,
)
from evaluators.scoring.metrics import Metric, binary_score, metric_label, overall_score
from evaluators.scoring.numbers import sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.samples import Vote, deliberation_score, find_bracket, winning_bracket
from evaluators.scoring.score_tree import decide, gate_failure
from evaluators.scoring.tree import EvaluatorSpec, validate
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score, Verdict
from runs.compare.rules import CaseSide, RunSide, Tolerances, compare_case, compare_runs
from runs.summary.cases import ExecutionRecord, compute_means, count_by_state
from runs.summary.run import Summary, shares, summarise

FILE = Path(__file__).parents[2] / "vectors" / "scoring.json"
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))["vectors"]

Values = Mapping[str, Any]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["id"]) for v in VECTORS])
def test_vector(vector: Values) -> None:
    found = OPERATIONS[vector["op"]](vector["input"])
    for name, expected in vector["expected"].items():
        assert_matches(found.get(name), expected, vector["tolerance"])


def test_there_are_as_many_as_the_file_says() -> None:
    meta = json.loads(FILE.read_text(encoding="utf-8"))["meta"]
    assert len(VECTORS) == meta["count"] == len({vector["id"] for vector in VECTORS})
    assert set(OPERATIONS) == set(meta["ops"])


def assert_matches(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping)
        for name, value in expected.items():
            assert_matches(found.get(name), value, tolerance)
    elif isinstance(expected, float | int) and not isinstance(expected, bool):
        assert isinstance(found, float | int | Decimal)
        assert math.isclose(float(found), expected, rel_tol=0, abs_tol=tolerance)
    else:
        assert found == expected


def node_of(values: Values, *, name: str = "root") -> EvaluatorSpec:
    """Build a tree of composites (with evaluators) and leaves, as the vectors spell them."""
    if "evaluators" not in values:
        return EvaluatorSpec(
            name=values["name"],
            kind="llm_judge",
            weight=values.get("weight", 1.0),
            required=values.get("required", False),
        )
    root = EvaluatorSpec(
        name=values.get("name", name),
        kind="composite",
        weight=values.get("weight", 1.0),
        config={"aggregator": values.get("aggregator", {})},
        children=tuple(node_of(child) for child in values["evaluators"]),
    )
    validate(root)
    return root


def outcomes_of(values: Values, prefix: str = "") -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for child in values["evaluators"]:
        path = f"{prefix}{child['name']}"
        if "evaluators" in child:
            found |= outcomes_of(child, f"{path}/")
        else:
            found[path] = Score(child["score"])
    return found


def decided(values: Values) -> Decision:
    return decide(node_of(values), outcomes_of(values), PolicySpec())


def score_to_verdict(values: Values) -> Values:
    return {"verdict": PolicySpec().verdict_for(values["score"])}


def composite(values: Values) -> Values:
    decision = decided(values)
    root = node_of(values)
    children = {
        node.name: node.score for path, node in decision.nodes.items() if path and "/" not in path
    }
    gates: dict[str, Outcome] = {
        name: Score(score) for name, score in children.items() if score is not None
    }
    return {
        "score": decision.score,
        "verdict": decision.verdict,
        "gate_passed": gate_failure(root, gates) is None,
        "children": children,
    }


def required_override(values: Values) -> Values:
    return composite({"evaluators": values["criteria"]})


def weighted_average_0_100(values: Values) -> Values:
    scaled = [{**row, "score": row["score"] / 100} for row in values["evaluators"]]
    score = decided({"evaluators": scaled}).score
    assert score is not None
    return {"score": score * 100}


def verdict_distribution(values: Values) -> Values:
    states = [state for state, count in values["counts"].items() for _ in range(count)]
    counts = count_by_state(states)
    parts = {f"{state}_pct": share * 100 for state, share in shares(counts).items()}
    return {"total": sum(counts.values()), **counts, **parts}


def verdict_distribution_from_scores(values: Values) -> Values:
    counts: dict[str, int] = {}
    for score in values["scores"]:
        verdict = decided({"evaluators": [{"name": "only", "score": score}]}).verdict
        assert verdict is not None
        counts[verdict.value] = counts.get(verdict.value, 0) + 1
    return verdict_distribution({"counts": counts})


def aggregate_hits_misses(values: Values) -> Values:
    rows = values["evaluator_results"]
    outcomes: dict[str, Outcome] = {
        row["name"]: Score(
            1.0,
            findings=tuple(
                [Finding(text, True) for text in row["hits"]]
                + [Finding(text, False) for text in row["misses"]]
            ),
        )
        for row in rows
    }
    decision = decide(node_of({"evaluators": rows}), outcomes, PolicySpec())
    return {"hits": list(decision.hits), "misses": list(decision.misses)}


def judge_overall_score(values: Values) -> Values:
    metrics = [
        Metric(row["metric"], row["metric"], row["weight"], binary=row.get("binary", False))
        for row in values["metrics"]
    ]
    scores = {
        row["metric"]: row["passed"] if row.get("binary") else row["score"]
        for row in values["metrics"]
    }
    return {"overall_score": overall_score(metrics, scores) * 100}


def binary_metric_score(values: Values) -> Values:
    score = binary_score(values["passed"])
    return {"score": score, "label": metric_label(score, binary=True)}


def case_passed(values: Values) -> Values:
    results = values["expected_outcome_results"] or []
    policy = PolicySpec(
        case_gate="expected_outcomes",
        fallback_threshold=values.get("pass_threshold", 75.0) / 100,
    )
    decision = decide(
        node_of({"evaluators": [{"name": "metrics", "score": 0}]}),
        {"metrics": Score(values["overall_score"] / 100)},
        policy,
        expected_outcomes=[str(number) for number, _ in enumerate(results)],
        outcome_results=tuple(OutcomeResult(str(n), passed) for n, passed in enumerate(results)),
    )
    return {"passed": decision.passed}


def execution_of(number: int, values: Values) -> ExecutionRecord:
    if values.get("error") is not None:
        return ExecutionRecord(str(number), "error")
    verdict = Verdict.PASS if values["passed"] else Verdict.FAIL
    score = values.get("overall_score")
    return ExecutionRecord(
        str(number), "scored", verdict, score=None if score is None else score / 100
    )


def summary_of(results: Sequence[Values], policy: PolicySpec) -> Summary:
    executions = [execution_of(number, row) for number, row in enumerate(results)]
    return summarise(executions, policy, is_completed=True, seed=1)


def thresholds_of(values: Values) -> PolicySpec:
    given = {**values, **values.get("thresholds", {})}
    return PolicySpec(
        case_gate="expected_outcomes",
        metrics_pass_threshold=given.get("metrics_pass_threshold", 80.0) / 100,
        cases_pass_threshold=given.get("cases_pass_threshold", 100.0) / 100,
    )


def run_aggregate(values: Values) -> Values:
    return summary_of(values["results"], thresholds_of(values)).as_json()


def run_threshold_snapshot(values: Values) -> Values:
    snapshot = json.dumps(thresholds_of(values["run_config_at_creation"]).as_json())
    policy = PolicySpec.model_validate(json.loads(snapshot))
    return summary_of(values["results"], policy).as_json()


def comparison_side(values: Values) -> RunSide:
    score = values.get("avg_overall_score")
    return RunSide(
        values["passed"],
        values["total"],
        None if score is None else score / 100,
        values.get("latency_avg_ms"),
    )


def run_comparison(values: Values) -> Values:
    given = dict(values.get("thresholds") or {})
    if "max_avg_score_drop" in given:
        given["max_avg_score_drop"] /= 100
    build_comparison = compare_runs(
        comparison_side(values["baseline"]),
        comparison_side(values["candidate"]),
        Tolerances(**given),
    )
    return {"regression_detected": build_comparison.regression_detected}


def case_comparison(values: Values) -> Values:
    sides = [
        CaseSide(row.verdict, row.score)
        for row in (execution_of(0, values["baseline"]), execution_of(0, values["candidate"]))
    ]
    return {"status": compare_case("case", *sides).status}


def expected_output_match(values: Values) -> Values:
    context = Context(
        path="match",
        case=CaseFacts("case", (Message("user", "?"),), expected_output=values["expected"]),
        output=Output(values["output"]),
    )
    config = expected_output.ExpectedOutputConfig.model_validate({"match": values["match_mode"]})
    outcome = asyncio.run(expected_output.score(config, context))
    assert isinstance(outcome, Score)
    return {"score": outcome.raw_score}


def script_evaluator(values: Values) -> Values:
    stdout = values.get("stdout")
    if stdout is None:
        stdout = subprocess.run(
            ["bash", "-c", values["script"]],
            env={**os.environ, "EVAL_OUTPUT": values.get("EVAL_OUTPUT", "")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    score = read_env_reply(stdout)
    return {"score": score.raw_score, "reasoning": score.reasoning}


def deliberation_winner(values: Values) -> Values:
    votes = [Vote(bracket) for bracket in values["votes"]]
    bracket = winning_bracket(votes).bracket
    assert bracket.low <= deliberation_score(votes) * 100 <= bracket.high
    return {
        "winning_bracket": bracket.name,
        "score_min": bracket.low,
        "score_max": bracket.high,
    }


def checks_of(rows: Sequence[Values]) -> list[Check]:
    return [Check(row["outcome"], tuple(row["dimensions"])) for row in rows]


def final_evaluation(values: Values) -> Values:
    checks = [
        Check("passed" if number < score else "failed", (name,))
        for name, score in values.get("deterministic_dimensions", {}).items()
        for number in range(10)
    ]
    opinion = JudgeOpinion(values["judge_overall"]["score"], values["judge_dimensions"])
    found = evaluate_hybrid(checks, [opinion])
    assert found.deterministic_dimensions == values.get("deterministic_dimensions", {})
    return found.as_json()


def dimensions_of_checks(values: Values) -> Values:
    checks = checks_of(values["checks"])
    dimensions, warnings = deterministic_dimensions(checks)
    counts = check_counts(checks, judge_successes=0, judge_failures=0)
    return {
        "dimensions": dimensions,
        "warnings": len(warnings),
        "passed": counts["deterministic_passed_checks"],
        "failed": counts["deterministic_failed_checks"],
        "error": counts["deterministic_error_checks"],
    }


def final_summary(values: Values) -> Values:
    iterations = values["judge_iterations"]
    successes = iterations.count("success")
    return check_counts(
        checks_of(values["checks"]),
        judge_successes=successes,
        judge_failures=len(iterations) - successes,
    )


def aggregate_repetitions(values: Values) -> Values:
    rows = [
        ExecutionRecord(
            "case",
            "scored",
            score=None if row.get("final_score") is None else row["final_score"] / 10,
            dimensions=row.get("final_dimensions") or {},
            input_tokens=row.get("input_tokens"),
            output_tokens=row.get("output_tokens"),
            run_cost_usd=Decimal(str(row["run_cost_usd"])),
            latency_ms=row["latency_seconds"] * 1000,
        )
        for row in values["repetitions"]
    ]
    means = compute_means(rows)
    return {
        "final_score": None if means.score is None else means.score * 10,
        "final_dimensions": means.dimensions,
        "input_tokens": means.input_tokens,
        "output_tokens": means.output_tokens,
        "run_cost_usd": means.run_cost_usd,
        "latency_seconds": None if means.latency_ms is None else means.latency_ms / 1000,
    }


def usage_summary(values: Values) -> Values:
    costs = [Decimal(str(values[name])) for name in ("run_cost_usd", "evaluation_cost_usd")]
    return {"total_cost_usd": sum_known(costs)}


OPERATIONS: Mapping[str, Callable[[Values], Values]] = {
    "score_to_verdict": score_to_verdict,
    "weighted_average": composite,
    "required_override": required_override,
    "verdict_distribution": verdict_distribution,
    "verdict_distribution_from_scores": verdict_distribution_from_scores,
    "aggregate_hits_misses": aggregate_hits_misses,
    "composite": lambda values: composite(
        {**values, "aggregator": {**values["aggregator"], **_remainder(values)}}
    ),
    "composite_tree": composite,
    "judge_overall_score": judge_overall_score,
    "metric_label": lambda values: {"label": metric_label(values["score"])},
    "binary_metric_score": binary_metric_score,
    "case_passed": case_passed,
    "run_aggregate": run_aggregate,
    "run_threshold_snapshot": run_threshold_snapshot,
    "compare_runs": run_comparison,
    "compare_case": case_comparison,
    "weighted_average_0_100": weighted_average_0_100,
    "expected_output_match": expected_output_match,
    "script_evaluator": script_evaluator,
    "bracket_of_score": lambda values: {"bracket": find_bracket(values["score"]).name},
    "deliberation_winner": deliberation_winner,
    "final_evaluation": final_evaluation,
    "deterministic_dimensions": dimensions_of_checks,
    "final_summary": final_summary,
    "aggregate_repetitions": aggregate_repetitions,
    "usage_summary": usage_summary,
}


def _remainder(values: Values) -> Values:
    return {"remainder": values["remainder"]} if "remainder" in values else {}
