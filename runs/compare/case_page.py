"""One case in two runs: verdicts, outcomes lost and won, evaluators, and the difference of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runs.compare.comparison import case_side
from runs.compare.page import KINDS
from runs.compare.rules import UNCHANGED, CaseChange, CaseSide, compare_case
from runs.engine.plan import read_policy
from runs.models.results import EvaluatorScore, Result
from runs.models.runs import Run
from runs.results.result_state import Override, result_override, with_reviewers
from runs.texts import DiffLine, text_diff

# Longer answers are shown on the pages of their results.
MAX_SHOWN_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One expected outcome: lost, won, met in both, missed in both, or judged on one side only."""

    text: str
    before: bool | None
    after: bool | None
    reason: str

    @property
    def word(self) -> str:
        """Return the change in words."""
        if self.before is None or self.after is None:
            return "not judged on a side"
        if self.before != self.after:
            return "won" if self.after else "lost"
        return "met in both" if self.after else "missed in both"

    @property
    def tone(self) -> str:
        """Return bad for a lost outcome, good for one that was won."""
        return {"lost": "bad", "won": "good"}.get(self.word, "same")

    @property
    def icon(self) -> str:
        """Return the arrow of the change."""
        return {"lost": "i-drop", "won": "i-rise"}.get(self.word, "i-same")


@dataclass(frozen=True, slots=True)
class EvaluatorPair:
    """The scores of one evaluator on both sides, 0 to 1; None where it gave none."""

    path: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """Return after minus before."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class OutputDiff:
    """The two outputs: as lines with differing words, or both as they are where they differ too much."""

    is_same: bool
    lines: tuple[DiffLine, ...] | None
    old: str
    new: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class CaseSideBySide:
    """One repetition of a case in both runs; a side is None where its run has none."""

    key: str
    title: str
    baseline: Run
    candidate: Run
    change: CaseChange
    repetition: int
    repetitions: Sequence[tuple[int, bool]]
    before: Result | None
    after: Result | None
    outcomes: Sequence[OutcomeRow]
    evaluators: Sequence[EvaluatorPair]
    output: OutputDiff
    reviewed: tuple[Override | None, Override | None]

    @property
    def label(self) -> tuple[str, str, str]:
        """Return word, icon and tone of the change."""
        return KINDS[self.change.status][1:]

    @property
    def is_unchanged(self) -> bool:
        """Tell whether the case did not change."""
        return self.change.status == UNCHANGED


def case_side_by_side(
    baseline: Run, candidate: Run, key: str, repetition: int = 0
) -> CaseSideBySide | None:
    """Return a case of both runs; None if neither has it.

    It shows the `repetition` if there is one, else the first that got worse. Outcomes are matched by
    their text. Three queries, and one more a side where reviewers decided.
    """
    results = _results(baseline, key), _results(candidate, key)
    if not (results[0] or results[1]):
        return None
    numbers = sorted({*results[0], *results[1]})
    worse = [
        number for number in numbers if _is_worse(results[0].get(number), results[1].get(number))
    ]
    shown = repetition if repetition in numbers else (worse or numbers)[0]
    before, after = results[0].get(shown), results[1].get(shown)
    sides = _side(baseline, results[0]), _side(candidate, results[1])
    case = next(iter((results[1] or results[0]).values())).case
    return CaseSideBySide(
        key=key,
        title=case.title,
        baseline=baseline,
        candidate=candidate,
        change=compare_case(key, *sides),
        repetition=shown,
        repetitions=[(number, number in worse) for number in numbers],
        before=before,
        after=after,
        outcomes=_outcomes(before, after),
        evaluators=_evaluators(before, after),
        output=_output(_text(before), _text(after)),
        reviewed=(_reviewed(baseline, before), _reviewed(candidate, after)),
    )


def _results(run: Run, key: str) -> dict[int, Result]:
    rows = run.results.select_related("case", "output").defer("output__messages", "output__trace")
    return {row.repetition: row for row in rows.filter(case__key=key)}


def _side(run: Run, results: Mapping[int, Result]) -> CaseSide | None:
    return case_side(list(results.values()), read_policy(run.snapshot)) if results else None


def _reviewed(run: Run, result: Result | None) -> Override | None:
    if result is None or not result.reviewed_verdict:
        return None
    override = result_override(result, read_policy(run.snapshot))
    return with_reviewers({result.pk: override}, {result.pk: [result.pk]})[result.pk]


def _is_worse(before: Result | None, after: Result | None) -> bool:
    return bool(before and after and before.verdict == "pass" and after.verdict != "pass")


def _text(result: Result | None) -> str:
    output = getattr(result, "output", None) if result else None
    return output.text if output else ""


def _outcomes(before: Result | None, after: Result | None) -> list[OutcomeRow]:
    old, new = _judged(before), _judged(after)
    return [
        OutcomeRow(
            text,
            old[text][0] if text in old else None,
            new[text][0] if text in new else None,
            (new.get(text) or old[text])[1],
        )
        for text in dict.fromkeys((*old, *new))
    ]


def _judged(result: Result | None) -> dict[str, tuple[bool, str]]:
    output = getattr(result, "output", None) if result else None
    return {
        str(outcome["text"]): (bool(outcome["passed"]), str(outcome.get("justification") or ""))
        for outcome in (output.outcomes or () if output else ())
    }


def _evaluators(before: Result | None, after: Result | None) -> list[EvaluatorPair]:
    ids = [result.pk for result in (before, after) if result]
    rows = EvaluatorScore.objects.filter(result__in=ids).order_by("position", "id")
    scores: dict[str, dict[int, float | None]] = {}
    for result, path, score in rows.values_list("result_id", "path", "score"):
        scores.setdefault(path, {})[result] = score
    return [
        EvaluatorPair(
            path, by_result.get(before.pk if before else 0), by_result.get(after.pk if after else 0)
        )
        for path, by_result in scores.items()
        if path
    ]


def _output(old: str, new: str) -> OutputDiff:
    return OutputDiff(
        is_same=old == new,
        lines=None if old == new else text_diff(old, new),
        old=old[:MAX_SHOWN_LENGTH],
        new=new[:MAX_SHOWN_LENGTH],
        is_cut=max(len(old), len(new)) > MAX_SHOWN_LENGTH,
    )
