"""What a person can mark besides the verdict: each expected outcome, and each metric with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runs.models import Case, Result, Review, Score, ScoreState
from runs.plan import METRICS_KIND

NO_MARK = "-"


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the form, as a person typed it; nothing of it need be right."""

    verdict: str = ""
    note: str = ""
    tags: str = ""
    outcome_marks: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, review: Review | None) -> Typed:
        """Return what a person said before, nothing where they have not."""
        if review is None:
            return cls()
        labels = {key: str(label) for key, label in review.metric_labels.items()}
        tags = ", ".join(review.tags)
        return cls(review.verdict, review.note, tags, review.outcome_marks, labels)


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One expected outcome; `state` is pass or fail, "" where it is hidden or was not judged."""

    text: str
    state: str
    justification: str
    mark: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One metric with the label a person gave it, "" for none; `judged` is the judge's, 0 to 5, None where hidden."""

    key: str
    name: str
    label: str
    judged: float | None


def outcome_rows(
    case: Case, judged: Sequence[Mapping[str, Any]], typed: Typed, *, is_hidden: bool
) -> tuple[OutcomeRow, ...]:
    """Return the expected outcomes with what was marked; without the machine's findings where they are hidden."""
    texts = [one["text"] for one in judged] or list(case.expected_outcomes)
    marks = typed.outcome_marks.ljust(len(texts), NO_MARK)
    states = ["pass" if one["passed"] else "fail" for one in judged] if not is_hidden else []
    said = [one.get("justification", "") for one in judged] if not is_hidden else []
    states += [""] * (len(texts) - len(states))
    said += [""] * (len(texts) - len(said))
    return tuple(
        OutcomeRow(text, state, why, mark)
        for text, state, why, mark in zip(texts, states, said, marks, strict=False)
    )


def labelled(result: Result) -> set[str]:
    """Return the keys of the metrics that a person can label; one query."""
    return {row.key for row in label_rows(list(result.scores.all()), Typed(), is_hidden=True)}


def label_rows(rows: Sequence[Score], typed: Typed, *, is_hidden: bool) -> tuple[LabelRow, ...]:
    """Return the metrics of the first judge that scored some; without its scores where they are hidden."""
    judges = (row for row in rows if row.kind == METRICS_KIND and row.state == ScoreState.SCORED)
    judge = next((row for row in judges if row.details.get("metrics")), None)
    return tuple(
        LabelRow(
            one["key"],
            one.get("name") or one["key"],
            typed.labels.get(one["key"], ""),
            None if is_hidden else one["score"],
        )
        for one in (judge.details["metrics"] if judge else ())
    )
