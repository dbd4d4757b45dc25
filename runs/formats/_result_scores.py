"""What the evaluators of a result said, read from a file with everything nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluators.kinds import (
    UnknownKindError,
    kind_for_spelling,
    normal_spelling,
    spelled_as,
)
from evaluators.scoring.tree import COMPOSITE, LONGEST_PATH
from evaluators.scoring.types import Finding
from runs.formats._result_fields import Place, ResultFields
from runs.formats._result_parts import read_metrics, read_rounds
from runs.formats.results import EvaluatorLine
from runs.plan import OUTCOMES_PATH

OVERALL = "overall"
LONGEST_NAME, LONGEST_KIND = 100, 50
LARGEST_WEIGHT, LARGEST_SCALE = 1e9, 1e9
STATES = {"skipped": "skipped", "unscored": "unscored", "error": "unscored"}


def read_evaluators(
    fields: ResultFields, place: Place, names: Sequence[str], *, overall: float | None
) -> tuple[EvaluatorLine, ...]:
    """Return what each evaluator said, siblings by different names.

    A result that tells of no evaluator has one, which said the result's own score. Problems are noted.
    """
    found = _listed(fields, place, names, depth=0)
    if found or overall is None:
        return found
    said = EvaluatorLine(
        name=OVERALL,
        type="score",
        status="scored",
        score=overall,
        findings=tuple(_findings(fields)),
        reasoning=fields.text("reasoning"),
    )
    return (said,)


def _listed(
    fields: ResultFields, place: Place, names: Sequence[str], *, depth: int
) -> tuple[EvaluatorLine, ...]:
    given = fields.value(*names)
    if isinstance(given, dict):
        given = [{"name": name, "score": score} for name, score in given.items()]
    items = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
    taken: dict[str, EvaluatorLine] = {}
    for item in items:
        one = _evaluator(ResultFields(item, place), place, names, depth=depth)
        name = _free(one.name, taken)
        taken[name] = replace(one, name=name)
    return tuple(taken.values())


def _evaluator(
    fields: ResultFields, place: Place, names: Sequence[str], *, depth: int
) -> EvaluatorLine:
    spelling = fields.text("type", "kind")
    name = _name(fields.text("name") or normal_spelling(spelling) or "evaluator")
    if depth > LONGEST_PATH:
        place.refuse(f"evaluator {name}: nested too deeply")
        return EvaluatorLine(name, "score", "unscored")
    children = _listed(fields, place, names, depth=depth + len(name) + 1)
    aggregator = fields.value("aggregator")
    if isinstance(aggregator, str):
        aggregator = {"type": aggregator}
    score = fields.score("score", f"evaluator {name}")
    weight = fields.number("weight")
    if weight is not None and weight > LARGEST_WEIGHT:
        place.refuse(f"evaluator {name}: the weight {weight!r} is too large")
    is_negated = fields.flag("negate")
    is_composite = bool(children) or isinstance(aggregator, dict)
    raw_score, scale = _on_its_scale(fields)
    kind, said = _kind(spelling)
    return EvaluatorLine(
        name=name,
        type=COMPOSITE if is_composite else kind,
        status=_status(fields, score),
        score=score,
        weight=1.0 if weight is None else weight,
        is_negated=is_negated,
        findings=tuple(_findings(fields)),
        reasoning=fields.text("reasoning") or fields.error(),
        usage=fields.usage(),
        aggregator=_normal(aggregator) if is_composite else None,
        children=children,
        raw_score=raw_score,
        scale=scale,
        metrics=() if is_composite else read_metrics(fields),
        rounds=() if is_composite else read_rounds(fields),
        spelling="" if is_composite else said,
    )


def _on_its_scale(fields: ResultFields) -> tuple[float | None, float]:
    """Return the score as it was given and the scale of it; (None, 1) where either is not told."""
    raw_score, scale = fields.number("raw_score"), fields.number("scale")
    if raw_score is None or not scale or not raw_score <= scale <= LARGEST_SCALE:
        return None, 1.0
    return raw_score, scale


def _status(fields: ResultFields, score: float | None) -> str:
    told = STATES.get(fields.text("status").lower(), "")
    if told == "skipped":
        return told
    return "unscored" if score is None or told else "scored"


def _kind(spelling: str) -> tuple[str, str]:
    """Return the kind a type name means, the name itself where no kind claims it, and how it is spelt.

    The spelling is "" where it says no more than the kind.
    """
    try:
        kind, preset = kind_for_spelling(spelling)
    except UnknownKindError:
        return (normal_spelling(spelling) or "score")[:LONGEST_KIND], ""
    best, _ = spelled_as(kind.name, preset)
    return kind.name, "" if best == kind.name else best


def _normal(aggregator: Any) -> Mapping[str, Any]:
    if not isinstance(aggregator, dict):
        return {}
    found = {normal_spelling(key): value for key, value in aggregator.items()}
    if isinstance(found.get("type"), str):
        found["type"] = normal_spelling(found["type"])
    return found


def _name(text: str) -> str:
    """Return a name that can stand in a path; the outcomes' own stays what it is."""
    if text == OUTCOMES_PATH:
        return text
    return text.replace("/", "-").lstrip("@").strip()[:LONGEST_NAME] or "evaluator"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    counted = (f"{name[: LONGEST_NAME - 6]} {number}" for number in range(2, len(taken) + 3))
    return next(free for free in counted if free not in taken)


def _findings(fields: ResultFields) -> Iterator[Finding]:
    """Yield hits and misses, or assertions with their evidence."""
    given = fields.objects(("assertions", "checks"))
    for one in (ResultFields(item, fields.place) for item in given):
        if text := one.text("text", "name", "description"):
            yield Finding(text, one.flag("passed"), one.text("evidence", "reasoning"))
    if not given:
        for name, passed in (("hits", True), ("misses", False)):
            yield from (Finding(text, passed) for text in fields.texts(name))
