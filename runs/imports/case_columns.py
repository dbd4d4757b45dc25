"""A case of a file or a form as the columns of its row."""

from __future__ import annotations

from typing import Any

from runs.formats import CaseContent


def columns_of(case: CaseContent) -> dict[str, Any]:
    """Return what a revision stores of a case, and what its hash is made of: all but key and place."""
    return {
        "title": case.title,
        "tags": list(case.tags),
        "input": [dict(turn) for turn in case.input],
        "expected_output": case.expected_output,
        "expected_outcomes": list(case.expected_outcomes),
        "criteria": case.criteria,
        "metadata": dict(case.metadata),
        "evaluators": case.evaluators.as_json() if case.evaluators else None,
        "evaluators_append": case.evaluators_append,
        "recorded_output": None if case.recorded_output is None else dict(case.recorded_output),
    }
