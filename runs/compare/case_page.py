"""One case in two runs: verdicts, outcomes lost and won, evaluators, and the difference of the outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evaluators.scoring.decision import Decision, VerdictCause
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec
from runs.compare.changes import KINDS
from runs.compare.comparison import comparison_heading
from runs.compare.documents import CaseChangeDoc, CaseComparisonDoc, NodeChangeDoc, PartChangeDoc
from runs.compare.evidence import SCALES
from runs.compare.rules import (
    CaseChange,
    CaseSide,
    CaseSideFigures,
    Standing,
    compare_case,
    most_changed_repetition,
    repetition_standing,
    rounded_change,
)
from runs.compare.sides import NAMES, PARTS, case_side
from runs.engine.plan import OUTCOMES_PATH, case_tree, read_plan, read_policy
from runs.models.results import Result
from runs.models.runs import Run
from runs.results.result_state import Override, result_cause, result_override, with_reviewers
from runs.results.result_tree import TreeNode, result_tree, walk_rows
from runs.texts import DiffLine, text_diff

# Longer answers are shown on the pages of their results.
MAX_SHOWN_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One expected outcome: no longer met, now met, met in both, missed in both, or judged in one run only."""

    text: str
    before: bool | None
    after: bool | None
    reason: str

    @property
    def word(self) -> str:
        """Return the change in words."""
        if self.before is None or self.after is None:
            return "judged in one run only"
        if self.before != self.after:
            return "now met" if self.after else "no longer met"
        return "met in both" if self.after else "missed in both"

    @property
    def tone(self) -> str:
        """Return bad for an outcome that is no longer met, good for one that is now."""
        if self.before is None or self.after is None or self.before == self.after:
            return "same"
        return "good" if self.after else "bad"

    @property
    def icon(self) -> str:
        """Return the arrow of the change."""
        return {"bad": "i-drop", "good": "i-rise"}.get(self.tone, "i-same")


@dataclass(frozen=True, slots=True)
class OutputDiff:
    """The two outputs: as lines with differing words, or both as they are where they differ too much."""

    is_same: bool
    lines: tuple[DiffLine, ...] | None
    old: str
    new: str
    is_cut: bool


# Not slots: what a page shows of the evaluators is computed once.
@dataclass(frozen=True)
class CaseSideBySide:
    """One repetition of a case in both runs; a side is None where its run has none.

    `is_chosen` tells whether the reader chose the repetition; else it is the one that changed most.
    """

    key: str
    title: str
    baseline: Run
    candidate: Run
    change: CaseChange
    figures: tuple[CaseSideFigures | None, CaseSideFigures | None]
    repetition: int
    is_chosen: bool
    repetitions: Sequence[tuple[int, bool]]
    before: Result | None
    after: Result | None
    causes: tuple[VerdictCause | None, VerdictCause | None]
    outcomes: Sequence[OutcomeRow]
    evaluators: Sequence[NodeChangeDoc]
    output: OutputDiff
    removal_messages: Sequence[str]
    reviewed: tuple[Override | None, Override | None]

    @property
    def comparison_heading(self) -> str:
        """Return the two runs by their numbers."""
        return comparison_heading(self.baseline, self.candidate)

    @cached_property
    def changed(self) -> Sequence[NodeChangeDoc]:
        """Return the evaluators that changed and those above them, the largest change first in each branch."""
        below: dict[str, list[NodeChangeDoc]] = defaultdict(list)
        for node in self.evaluators:
            below[node.evaluator.rpartition("/")[0]].append(node)

        def branch(path: str) -> list[NodeChangeDoc]:
            found = [node for node in below[path] if self._sizes[node.evaluator]]
            found.sort(key=lambda node: -self._sizes[node.evaluator])
            return [row for node in found for row in (node, *branch(node.evaluator))]

        return branch("")

    @property
    def equal(self) -> Sequence[NodeChangeDoc]:
        """Return the other evaluators, in tree order."""
        return [node for node in self.evaluators if not self._sizes[node.evaluator]]

    @cached_property
    def _sizes(self) -> Mapping[str, float]:
        """Return by evaluator its largest change or that of one inside it, 0 to 1."""
        sizes: dict[str, float] = defaultdict(float)
        for node in self.evaluators:
            path, size = node.evaluator, _size(node)
            while path:
                sizes[path] = max(sizes[path], size)
                path = path.rpartition("/")[0]
        return sizes

    @property
    def label(self) -> tuple[str, str, str]:
        """Return word, icon and tone of the change."""
        return KINDS[self.change.status][1:]


def case_side_by_side(
    baseline: Run, candidate: Run, key: str, repetition: int = 0
) -> CaseSideBySide | None:
    """Return a case of both runs; None if neither has it.

    It shows the `repetition` if there is one, else the one that changed most. Outcomes are matched by
    their text, evaluators by their path. Four queries, and one more a side where reviewers decided.
    """
    results = _results(baseline, key), _results(candidate, key)
    if not (results[0] or results[1]):
        return None
    numbers = sorted({*results[0], *results[1]})
    worse = [
        number for number in numbers if _is_worse(results[0].get(number), results[1].get(number))
    ]
    is_chosen = repetition in numbers
    shown = repetition if is_chosen else most_changed_repetition(_standings(*results))
    before, after = results[0].get(shown), results[1].get(shown)
    (was, old_figures), (now, new_figures) = (
        _side(baseline, results[0]),
        _side(candidate, results[1]),
    )
    case = next(iter((results[1] or results[0]).values())).case
    return CaseSideBySide(
        key=key,
        title=case.title,
        baseline=baseline,
        candidate=candidate,
        change=compare_case(key, was, now),
        figures=(old_figures, new_figures),
        repetition=shown,
        is_chosen=is_chosen,
        repetitions=[(number, number in worse) for number in numbers],
        before=before,
        after=after,
        causes=(_cause(before), _cause(after)),
        outcomes=_outcomes(before, after),
        evaluators=_evaluators((baseline, before), (candidate, after)),
        output=_output(_text(before), _text(after)),
        removal_messages=[
            f"Run {run}: {result.output.removal_message}"
            for run, result in ((baseline, before), (candidate, after))
            if result and hasattr(result, "output") and result.output.removed_at
        ],
        reviewed=(_reviewed(baseline, before), _reviewed(candidate, after)),
    )


def case_comparison_document(page: CaseSideBySide) -> CaseComparisonDoc:
    """Describe how a case changed, with every evaluator of the repetition that is shown."""
    change = CaseChangeDoc.make(page.change, page.title, page.figures)
    return CaseComparisonDoc(
        **dict(change), repetition=page.repetition, evaluators=list(page.evaluators)
    )


def _results(run: Run, key: str) -> dict[int, Result]:
    rows = run.results.select_related("case", "output").defer("output__messages", "output__trace")
    return {row.repetition: row for row in rows.filter(case__key=key)}


def _side(
    run: Run, results: Mapping[int, Result]
) -> tuple[CaseSide, CaseSideFigures] | tuple[None, None]:
    if not results:
        return None, None
    return case_side(list(results.values()), read_policy(run.snapshot))


def _reviewed(run: Run, result: Result | None) -> Override | None:
    if result is None or not result.reviewed_verdict:
        return None
    override = result_override(result, read_policy(run.snapshot))
    return with_reviewers({result.pk: override}, {result.pk: [result.pk]})[result.pk]


def _standings(
    before: Mapping[int, Result], after: Mapping[int, Result]
) -> Mapping[int, tuple[Standing | None, Standing | None]]:
    """Return the verdict and score of each repetition in both runs."""
    sides = [
        {
            number: repetition_standing(row.status, row.verdict, row.score)
            for number, row in rows.items()
        }
        for rows in (before, after)
    ]
    return {number: (sides[0].get(number), sides[1].get(number)) for number in {*before, *after}}


def _is_worse(before: Result | None, after: Result | None) -> bool:
    return bool(before and after and before.verdict == "pass" and after.verdict != "pass")


def _cause(result: Result | None) -> VerdictCause | None:
    output = getattr(result, "output", None)
    decision = (output.decision if output else None) or {}
    return result_cause(result, decision.get("cause")) if result else None


def _text(result: Result | None) -> str:
    output = getattr(result, "output", None) if result else None
    return output.text if output else ""


def _outcomes(before: Result | None, after: Result | None) -> list[OutcomeRow]:
    """Return the outcomes of both sides, those that changed first."""
    old, new = _judged(before), _judged(after)
    rows = [
        OutcomeRow(
            text,
            old[text][0] if text in old else None,
            new[text][0] if text in new else None,
            (new.get(text) or old[text])[1],
        )
        for text in dict.fromkeys((*old, *new))
    ]
    return sorted(rows, key=lambda row: ("bad", "good", "same").index(row.tone))


def _judged(result: Result | None) -> dict[str, tuple[bool, str]]:
    output = getattr(result, "output", None) if result else None
    return {
        str(outcome["text"]): (bool(outcome["passed"]), str(outcome.get("justification") or ""))
        for outcome in (output.outcomes or () if output else ())
    }


# An evaluator that scored in only one run stands below those whose score changed.
ONE_SIDED = 1e-9


def _size(node: NodeChangeDoc) -> float:
    """Return how much an evaluator or a part of it changed."""
    states = {side.state if side else "" for side in (node.baseline, node.candidate)}
    if len(states) > 1:
        return ONE_SIDED
    parts = (abs(part.change or 0.0) / part.scale for part in node.parts)
    return max(abs(node.change or 0.0), *parts, 0.0)


def _evaluators(*sides: tuple[Run, Result | None]) -> list[NodeChangeDoc]:
    """Return the evaluators of both sides in the candidate's order, then those that only the baseline has."""
    before, after = (_nodes(run, result) if result else {} for run, result in sides)
    return [
        _node_change(path, before.get(path), after.get(path))
        for path in dict.fromkeys((*after, *before))
    ]


def _nodes(run: Run, result: Result) -> dict[str, TreeNode]:
    """Return every evaluator below the root by its path, then the judge of the outcomes outside the tree."""
    plan, case = read_plan(run.snapshot), result.case
    rows = {row.path: row for row in result.scores.all()}
    output = getattr(result, "output", None)
    decision = Decision.from_json(output.decision) if output and output.decision else None
    root = case_tree(plan.root, case.evaluators, append=case.evaluators_append)
    tree = result_tree(root, decision, rows, plan.policy)
    nodes = {node.path: node for node in walk_rows(tree) if not node.is_root}
    if judge := rows.get(OUTCOMES_PATH):
        spec = EvaluatorSpec(name=NAMES[OUTCOMES_PATH], kind=judge.kind)
        nodes[OUTCOMES_PATH] = result_tree(spec, None, {ROOT_PATH: judge}, plan.policy)
    return nodes


def _node_change(path: str, before: TreeNode | None, after: TreeNode | None) -> NodeChangeDoc:
    """Describe how an evaluator changed; at least one side has it."""
    node = next(node for node in (after, before) if node)
    old, new = (side.score if side else None for side in (before, after))
    return NodeChangeDoc(
        evaluator=path,
        name=node.name,
        label=node.label,
        icon=node.icon,
        depth=path.count("/"),
        is_negated=node.is_negated,
        baseline=before,
        candidate=after,
        change=rounded_change(old, new),
        parts=_part_changes(node.kind, before, after),
    )


def _part_changes(
    kind: str, before: TreeNode | None, after: TreeNode | None
) -> list[PartChangeDoc]:
    """Describe how the metrics or dimensions of a judge changed."""
    if kind not in PARTS:
        return []
    part, detail, number = PARTS[kind]
    names: dict[str, str] = {}
    sides: list[dict[str, float | None]] = []
    for node in (before, after):
        entries = (node.details.get(detail) or ()) if node else ()
        sides.append({entry["key"]: entry.get(number) for entry in entries})
        names |= {entry["key"]: entry["name"] for entry in entries}
    old, new = sides
    return [
        PartChangeDoc(
            kind=part,
            key=key,
            name=name,
            scale=SCALES[part],
            baseline=old.get(key),
            candidate=new.get(key),
            change=rounded_change(old.get(key), new.get(key)),
        )
        for key, name in names.items()
    ]


def _output(old: str, new: str) -> OutputDiff:
    return OutputDiff(
        is_same=old == new,
        lines=None if old == new else text_diff(old, new),
        old=old[:MAX_SHOWN_LENGTH],
        new=new[:MAX_SHOWN_LENGTH],
        is_cut=max(len(old), len(new)) > MAX_SHOWN_LENGTH,
    )
