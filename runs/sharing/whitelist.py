"""What a share link lets out: every value that may leave is named with the least detail it leaves at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class DetailLevel(StrEnum):
    """How much a stranger sees, from the least to the most."""

    FIGURES = "figures"
    CASE_NAMES = "case_names"
    OUTPUTS = "outputs"
    TRACES = "traces"

    def reaches(self, other: DetailLevel) -> bool:
        """Tell whether what leaves at another depth leaves at this one too."""
        depths = list(DetailLevel)
        return depths.index(self) >= depths.index(other)


# A single value by its least depth, a row of values of one shape, or values by their names.
Shape = DetailLevel | Sequence["Shape"] | Mapping[str, "Shape"]
ABSENT = object()


def let_through(document: Mapping[str, Any], shape: Mapping[str, Shape], depth: DetailLevel) -> Any:
    """Return of a document what its shape names, as deep as `depth`.

    What the shape does not name is left out, and so is a value that is not of the shape it is named
    with: an object can never stand where a text was expected.
    """
    return _mapping(document, shape, depth)


def _value(value: Any, shape: Shape, depth: DetailLevel) -> Any:
    if isinstance(shape, DetailLevel):
        is_plain = value is None or isinstance(value, str | int | float)
        return value if is_plain and depth.reaches(shape) else ABSENT
    if isinstance(shape, Mapping):
        found = _mapping(value, shape, depth) if isinstance(value, Mapping) else {}
        return found or ABSENT
    rows = value if isinstance(value, list | tuple) else ()
    kept = [one for one in (_value(row, shape[0], depth) for row in rows) if one is not ABSENT]
    # Where everything is kept back, not even how much there was is told.
    return kept or ABSENT


def _mapping(
    value: Mapping[str, Any], shape: Mapping[str, Shape], depth: DetailLevel
) -> dict[str, Any]:
    found = {name: _value(value[name], shape[name], depth) for name in shape if name in value}
    return {name: one for name, one in found.items() if one is not ABSENT}


def filled_out(document: Any, shape: Shape) -> Any:
    """Return a document in which everything that its shape names is there: "" and nothing where it is not.

    So a page draws what was kept back, and what was frozen before a name was known, as absent.
    """
    if isinstance(shape, DetailLevel):
        return "" if document is ABSENT else document
    if isinstance(shape, Mapping):
        known = {} if document is ABSENT else document
        return {name: filled_out(known.get(name, ABSENT), one) for name, one in shape.items()}
    return [] if document is ABSENT else [filled_out(one, shape[0]) for one in document]


def digest_of(document: Any) -> str:
    """Return the same 64 characters for equal documents, whatever the order of their names."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


MAX_TEXT_LENGTH = 20_000
# Of what is said about an output: a finding, a justification, a reason.
MAX_REMARK_LENGTH = 2_000
# Of all texts of one document together.
MAX_CHARACTERS = 2_000_000


class Allowance:
    """Characters that the texts of one document may take up, handed out one text after the other."""

    def __init__(self, left: int = MAX_CHARACTERS) -> None:
        """Begin with so many characters."""
        self.left = left

    def brief(self, text: object) -> str:
        """Return a remark; of a long one the beginning, and how much of it that is."""
        whole = str(text or "")
        shown = whole[: min(MAX_REMARK_LENGTH, self.left)]
        self.left -= len(shown)
        if len(shown) == len(whole):
            return shown
        return f"{shown}… ({len(shown):,} of {len(whole):,} characters)"

    def cut(self, text: str, size: int | None = None) -> dict[str, Any]:
        """Return the beginning of a text as `text`, and as `size` how many characters the whole has.

        `size` is given where `text` is but the beginning already.
        """
        shown = text[: min(MAX_TEXT_LENGTH, self.left)]
        self.left -= len(shown)
        whole = len(text) if size is None else size
        return {"text": shown, "size": whole, "shown": len(shown), "is_cut": len(shown) < whole}


FIGURES, NAMES, OUTPUTS, TRACES = DetailLevel

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


def _groups(named: DetailLevel) -> Shape:
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
