"""Make scores anew from their stored parts, under changed settings (SCORING §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds._base import Kind
from evaluators.scoring.evaluation import HYBRID_SCALE, JUDGE_OVERALL
from evaluators.scoring.types import DomainError, Score
from runs.what_if.changes import LeafChange
from runs.what_if.executions import Rescored

# What parts that an older version or a file left may raise instead of saying what is missing.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class PartsRead:
    """By result what one changed evaluator comes to, and why it does not where its parts are missing."""

    scores: dict[int, Rescored] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


def rescore_parts(
    changes: Iterable[LeafChange],
    kinds: Mapping[str, Kind],
    rows: Iterable[tuple[str, int, Mapping[str, Any]]],
) -> dict[str, PartsRead]:
    """Return by path what changed evaluators come to; `rows` are path in the run, result and details."""
    by_origin: dict[str | None, list[LeafChange]] = {}
    for change in changes:
        by_origin.setdefault(change.origin, []).append(change)
    read = {change.path: PartsRead() for found in by_origin.values() for change in found}
    for origin, result, details in rows:
        for change in by_origin[origin]:
            found = rescored(change, kinds[change.node.kind], details)
            if isinstance(found, str):
                read[change.path].missing[result] = found
            else:
                overall = overall_of(found.details.get(JUDGE_OVERALL))
                read[change.path].scores[result] = Rescored(
                    found.score, found.failed_required, overall
                )
    return read


def rescored(change: LeafChange, kind: Kind, details: Mapping[str, Any]) -> Score | str:
    """Return the score that stored details give under the changed settings, or in words what they lack."""
    if kind.rescore is None:
        raise AssertionError(f"{change.path} is of a kind that makes no score of stored parts")
    try:
        return kind.rescore(change.config, details)
    except DomainError as error:
        return str(error)
    except UNREADABLE:
        return "The parts that are stored of it cannot be read."


def overall_of(judged: Any) -> float | None:
    """Return a judge's own overall score as details keep it, 0 to 1; None where there is none."""
    if not isinstance(judged, Mapping) or not isinstance(judged.get("score"), int | float):
        return None
    return float(judged["score"]) / HYBRID_SCALE
