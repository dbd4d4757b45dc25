"""What tools with datasets and experiments share: rows with several scores, of which none is the overall one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from runs.formats.tools._base import Row, ToolFile, ToolSuite, as_answer, as_turns

MILLISECONDS = 1_000
NO_OVERALL = "{} gives no overall score, so a result has the mean of its scores, and the thresholds of the suite decide"


def dataset(
    file: ToolFile, tool: str, name: str, cases: Iterable[tuple[int, Mapping[str, Any]]]
) -> ToolSuite:
    """Return the suite of a dataset, by default with the name of the file; a case without an id has its number."""
    suite = ToolSuite(file.path, {"name": name or PurePosixPath(file.path).stem})
    for number, (line, case) in enumerate(cases, 1):
        suite.add({**case, "id": str(case.get("id") or number)}, line)
    suite.summarise(
        f"read as a dataset of {tool}: {len(suite.cases)} cases; it contains no evaluators, so the judge of the suite scores "
        "by the expected output"
    )
    return suite


def case(
    key: Any, asked: Any, expected: Any, metadata: Mapping[str, Any], tags: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return a case; tags that are no texts stay in the metadata."""
    return {
        "id": key,
        "input": as_turns(asked),
        "expected_output": as_answer(expected),
        "metadata": dict(metadata),
        "tags": list(dict.fromkeys(tag for tag in tags if isinstance(tag, str) and tag.strip())),
    }


def score(
    name: str, value: Any, *, reasoning: str = "", kind: str = "score", error: str = ""
) -> dict[str, Any]:
    """Return an evaluator's result; a value that is no number from 0 to 1 is no score and weighs nothing."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, bool):
        value, is_number = float(value), True
    evaluator = {"name": name or "score", "type": kind, "reasoning": reasoning}
    if is_number and 0 <= value <= 1:
        return {**evaluator, "score": float(value)}
    outcome = error or ("" if value is None else f"The value is {value}.")
    return {**evaluator, "score": None, "weight": 0, "reasoning": f"{outcome} {reasoning}".strip()}


def row(
    line: int, facts: Mapping[str, Any], evaluators: Sequence[Mapping[str, Any]], error: str
) -> Row:
    """Return a line of results; one with an error, or without any score, has no score."""
    known = [one["score"] for one in evaluators if one["score"] is not None]
    whole = {**facts, "evaluator_results": list(evaluators)}
    if error:
        return line, {**whole, "status": "error", "error": error, "error_stage": "target"}
    if not known:
        reason = "the file has no score of this row"
        return line, {**whole, "status": "error", "error": reason, "error_stage": "evaluator"}
    return line, {**whole, "score": sum(known) / len(known)}


def duration(start: Any, end: Any) -> float | None:
    """Return the milliseconds between two moments, None where one of them is none."""
    try:
        passed = datetime.fromisoformat(start) - datetime.fromisoformat(end)
    except (TypeError, ValueError):
        return None
    return abs(passed.total_seconds()) * MILLISECONDS
