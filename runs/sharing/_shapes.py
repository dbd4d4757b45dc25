"""What the frozen documents of a comparison, a run and a result may hold, and from which depth on."""

from __future__ import annotations

from collections.abc import Mapping

from runs.sharing._depths import Depth, Shape

FIGURES, NAMES, OUTPUTS, TRACES = Depth

STATES = ("pass", "borderline", "fail", "error", "running", "waiting", "cancelled")
COUNTS: Shape = dict.fromkeys(STATES, FIGURES)
TEXT: Shape = dict.fromkeys(("text", "size", "shown", "is_cut"), OUTPUTS)
TRACE_TEXT: Shape = dict.fromkeys(("text", "size", "shown", "is_cut"), TRACES)
ROW: Shape = {"name": FIGURES, "value": FIGURES}
VERDICT: Shape = dict.fromkeys(("state", "word", "headline", "tone", "sentence"), FIGURES)
GATE: Shape = dict.fromkeys(("name", "share", "limit", "state", "note"), FIGURES)
METRIC: Shape = dict.fromkeys(("name", "tier", "mean", "binary", "judged"), FIGURES)
MEASURE: Shape = {
    **dict.fromkeys(
        ("name", "change", "before", "after", "note", "limit", "state", "tone"), FIGURES
    ),
    "said": [FIGURES],
}
TURN: Shape = {"role": OUTPUTS, "content": TEXT}
OUTCOME: Shape = {"passed": FIGURES, "text": OUTPUTS, "justification": OUTPUTS}
REMARK: Shape = {"passed": OUTPUTS, "text": OUTPUTS, "evidence": OUTPUTS}
STEP: Shape = {
    **dict.fromkeys(("type", "name", "started_ms", "duration_ms"), TRACES),
    **dict.fromkeys(("input_tokens", "output_tokens"), TRACES),
    **dict.fromkeys(("input", "output", "error"), TRACE_TEXT),
}
STEPS: Mapping[str, Shape] = {"steps": [STEP], "step_count": TRACES}
QUESTION: Mapping[str, Shape] = {"question": [TURN], "question_count": OUTPUTS}
REMARKS: Mapping[str, Shape] = {"remarks": [REMARK], "remark_count": OUTPUTS}
ANSWER: Shape = {
    **dict.fromkeys(("run", "repetition", "repetitions", "state"), OUTPUTS),
    "output": TEXT,
    "error": OUTPUTS,
    "outcomes": [{"passed": OUTPUTS, "text": OUTPUTS, "justification": OUTPUTS}],
    **REMARKS,
    **STEPS,
}
HEAD: Mapping[str, Shape] = {
    **dict.fromkeys(("version", "kind", "depth", "made_at", "heading"), FIGURES),
    "verdict": VERDICT,
    "facts": [FIGURES],
    "suites": [NAMES],
    "policy": [ROW],
    "left_out": [FIGURES],
}
OF_CASES: Mapping[str, Shape] = dict.fromkeys(("case_count", "shown_count", "text_count"), FIGURES)
CASE: Mapping[str, Shape] = {
    "place": FIGURES,
    "key": NAMES,
    "title": NAMES,
    **QUESTION,
    "expected": TEXT,
    "answers": [ANSWER],
}
SIDE: Shape = {
    **dict.fromkeys(("role", "number", "target", "status"), FIGURES),
    "counts": COUNTS,
    "gates": [GATE],
}
RUN_FIGURES: Shape = dict.fromkeys(
    (
        *("run", "executions", "passed", "errors", "pass_rate", "mean_score"),
        *("mean_latency_ms", "p95_latency_ms"),
        *("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"),
    ),
    FIGURES,
)


def _groups(named: Depth) -> Shape:
    """Return the shape of measured figures whose names leave at a depth."""
    row: Shape = {
        **dict.fromkeys(("means", "change", "tone", "said", "note"), FIGURES),
        **dict.fromkeys(("x", "width", "bar_tone", "low", "high"), FIGURES),
        "name": named,
        "path": NAMES,
    }
    return {**dict.fromkeys(("title", "scale", "axis"), FIGURES), "rows": [row]}


COMPARISON: Mapping[str, Shape] = {
    **HEAD,
    "sides": [SIDE],
    "measures": [MEASURE],
    "tolerance": FIGURES,
    "evidence": FIGURES,
    "differences": [{"what": FIGURES, "spoils": FIGURES, "text": OUTPUTS}],
    "is_comparable": FIGURES,
    "only_shared": FIGURES,
    "unfinished": [FIGURES],
    "metrics": [_groups(FIGURES)],
    "evaluators": [_groups(NAMES)],
    "changes": [dict.fromkeys(("label", "count", "icon", "tone"), FIGURES)],
    "matrix": [
        {
            "verdict": FIGURES,
            "cells": [dict.fromkeys(("count", "tone", "is_same"), FIGURES)],
        }
    ],
    **dict.fromkeys(("flips", "shared", "out_of_grid"), FIGURES),
    "figures": {
        "baseline": RUN_FIGURES,
        "candidate": RUN_FIGURES,
        **dict.fromkeys(
            ("regression_detected", "pass_rate_change", "score_change", "latency_change_pct"),
            FIGURES,
        ),
    },
    **OF_CASES,
    "cases": [
        {
            **CASE,
            **dict.fromkeys(("label", "icon", "tone", "before", "after", "only"), FIGURES),
            **dict.fromkeys(("before_score", "after_score", "change", "met"), FIGURES),
            **dict.fromkeys(("before_people", "after_people"), FIGURES),
            **dict.fromkeys(("x", "width", "bar_tone", "cost", "latency"), FIGURES),
        }
    ],
}
RUN: Mapping[str, Shape] = {
    **HEAD,
    "gates": [GATE],
    "counts": COUNTS,
    "measures": [{"name": FIGURES, "value": FIGURES, "notes": [FIGURES]}],
    "metrics": [METRIC],
    "dimensions": [dict.fromkeys(("name", "checks", "judge", "final"), FIGURES)],
    "figures": {
        **dict.fromkeys(
            ("run", "repetitions", "status", "executions", "done", "errors", "passed"), FIGURES
        ),
        **dict.fromkeys(("pass_rate", "mean_score", "mean_latency_ms"), FIGURES),
        **dict.fromkeys(("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"), FIGURES),
    },
    **OF_CASES,
    "cases": [
        {
            **CASE,
            **dict.fromkeys(("state", "score", "passed", "executions", "latency", "cost"), FIGURES),
            "people": FIGURES,
        }
    ],
}
RESULT: Mapping[str, Shape] = {
    **HEAD,
    "measures": [{"name": FIGURES, "value": FIGURES, "notes": [FIGURES]}],
    "key": NAMES,
    "title": NAMES,
    "decided_by": NAMES,
    "stage": FIGURES,
    "error": OUTPUTS,
    "warnings": [OUTPUTS],
    "metrics": [METRIC],
    "evaluators": [
        {
            **dict.fromkeys(("depth", "kind", "icon", "weight", "state", "score"), FIGURES),
            **dict.fromkeys(("verdict", "is_decisive"), FIGURES),
            "name": NAMES,
            "reasoning": OUTPUTS,
            "note": OUTPUTS,
        }
    ],
    "smallest_change": {"text": OUTPUTS, "is_small": OUTPUTS},
    "rules": [dict.fromkeys(("text", "path", "passed"), OUTPUTS)],
    "rule_count": OUTPUTS,
    "outcomes_met": FIGURES,
    "outcomes": [OUTCOME],
    **QUESTION,
    "expected": TEXT,
    **REMARKS,
    **STEPS,
}
SHAPES: Mapping[str, Mapping[str, Shape]] = {"comparison": COMPARISON, "run": RUN, "result": RESULT}
