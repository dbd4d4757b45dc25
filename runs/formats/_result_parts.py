"""What a metrics judge, a hybrid judge and a deliberation said in parts, read from a file: all of it, or none of it.

Other tools write other things under these names, so what has not our form is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluators.scoring.brackets import BRACKETS
from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.hybrid import SCALE, SCHEMA_VERSION, check_counts
from evaluators.scoring.metrics import HIGHEST, metric_label
from runs.formats._result_fields import ResultFields
from runs.formats.results import EvaluatorLine

MOST_PARTS = 100
LONGEST_NAME = 100
HUNDRED = 100
BRACKET_NAMES = {one.name for one in BRACKETS}
TEXTS = ("key", "name", "tier")
COUNTS = tuple(check_counts((), judge_successes=0, judge_failures=0))


class _OtherFormError(Exception):
    """The value is not what we would have written."""


def read_metrics(fields: ResultFields) -> tuple[Mapping[str, Any], ...]:
    """Return the metrics of an evaluator, scores 0 to 5; none where one of them is not readable."""
    rows = fields.value("metrics")
    if not isinstance(rows, list) or len(rows) > MOST_PARTS:
        return ()
    try:
        return tuple(_metric(row) for row in rows)
    except _OtherFormError:
        return ()


def read_rounds(fields: ResultFields) -> tuple[Mapping[str, Any], ...]:
    """Return the rounds of a deliberation with every vote; none where one of them is not readable."""
    rows = fields.value("rounds")
    if not isinstance(rows, list) or len(rows) > MOST_PARTS:
        return ()
    try:
        return tuple(_round(row, number, fields) for number, row in enumerate(rows, start=1))
    except _OtherFormError:
        return ()


def with_final_evaluation(
    evaluators: Sequence[EvaluatorLine], fields: ResultFields
) -> tuple[EvaluatorLine, ...]:
    """Return the evaluators, the first hybrid judge among them with the line's final evaluation."""
    document = fields.value("final_evaluation")
    if not isinstance(document, Mapping):
        return tuple(evaluators)
    try:
        found = _evaluation(ResultFields(document, fields.place))
    except _OtherFormError:
        return tuple(evaluators)
    return _given(evaluators, found)[0]


def _given(
    evaluators: Sequence[EvaluatorLine], found: Mapping[str, Any]
) -> tuple[tuple[EvaluatorLine, ...], bool]:
    done, given = False, []
    for one in evaluators:
        own = one
        if not done and one.type == HYBRID_KIND and one.score is not None:
            own, done = replace(one, final_evaluation=found), True
        elif not done and one.children:
            children, done = _given(one.children, found)
            own = replace(one, children=children)
        given.append(own)
    return tuple(given), done


def _metric(row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    texts = {name: _text(row.get(name, "")) for name in TEXTS}
    binary, said = row.get("binary", False), row.get("justification", "")
    if not texts["key"] or not isinstance(binary, bool) or not isinstance(said, str):
        raise _OtherFormError
    score = _number(row.get("score"), HIGHEST)
    return {
        **texts,
        "name": texts["name"] or texts["key"],
        "weight": _number(row.get("weight"), 1),
        "binary": binary,
        "score": score,
        "label": metric_label(score, binary=binary),
        "justification": said,
    }


def _round(row: Any, number: int, fields: ResultFields) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    held = ResultFields(row, fields.place)
    votes = held.value("votes")
    if not isinstance(votes, list) or not 0 < len(votes) <= MOST_PARTS:
        raise _OtherFormError
    return {
        "number": number,
        "breaks_tie": held.flag("breaks_tie"),
        "votes": [_vote(vote, fields) for vote in votes],
    }


def _vote(row: Any, fields: ResultFields) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise _OtherFormError
    said = ResultFields(row, fields.place)
    names = {name: _text(said.text(name)) for name in ("judge", "slug", "model")}
    stage = _text(said.text("stage"))
    bracket, score = said.text("bracket"), said.value("score")
    if not names["judge"] or (bracket and bracket not in BRACKET_NAMES):
        raise _OtherFormError
    return {
        **names,
        "bracket": bracket,
        "score": None if score is None else _number(score, HUNDRED),
        "reasons": said.text("reasons"),
        "problem": said.text("problem"),
        **({"stage": stage} if stage else {}),
    }


def _evaluation(fields: ResultFields) -> dict[str, Any]:
    overall = fields.inner("judge_overall")
    score = fields.value("final_score")
    counts = fields.inner("summary")
    names = ("deterministic_dimensions", "judge_dimensions", "final_dimensions")
    deterministic, judged, final = (_dimensions(fields.value(name)) for name in names)
    return {
        "schema_version": SCHEMA_VERSION,
        "deterministic_dimensions": deterministic,
        "judge_dimensions": judged,
        "judge_overall": {
            "score": _number(overall.value("score"), SCALE),
            "evidence": list(overall.texts("evidence")),
        },
        "final_dimensions": final,
        "final_score": None if score is None else _number(score, SCALE),
        "summary": {name: counts.count(name) or 0 for name in COUNTS},
        "warnings": list(fields.texts("warnings")),
    }


def _dimensions(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or len(value) > MOST_PARTS:
        raise _OtherFormError
    return {_text(name): _number(score, SCALE) for name, score in value.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise _OtherFormError
    return value


def _number(value: Any, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise _OtherFormError
    return float(value)
