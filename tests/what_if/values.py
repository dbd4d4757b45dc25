"""Runs as what-if takes them, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Skipped, Unscored
from runs.what_if.asking import RuleChange, WhatIf, what_if
from runs.what_if.changes import RuleSet
from runs.what_if.deciding import (
    PartsRead,
    StoredCase,
    StoredResult,
    StoredRun,
    read_overall,
    rescore_parts,
)

FAILED_TARGET = "the target failed"
Said = Mapping[str, Outcome] | str


def stored_run(
    root: EvaluatorSpec,
    policy: PolicySpec,
    said: Sequence[Said],
    *,
    repetitions: int = 1,
    marks: Sequence[str] = (),
    reviewed: Mapping[int, str] | None = None,
    cases: Mapping[int, StoredCase] | None = None,
    verdicts: Mapping[int, str] | None = None,
) -> StoredRun:
    """Return the executions of a run, decided by its rules; a text instead of outcomes is a target's error."""
    columns = {path: at for at, (path, _) in enumerate([*walk(root), ("@outcomes", root)])}
    results, scores, overalls = [], {}, {}
    known = dict(cases or {})
    for at, outcomes in enumerate(said):
        case = at // repetitions
        known.setdefault(case, StoredCase(f"C-{case}", len(marks[at]) if marks else 0))
        mark = marks[at] if marks else ""
        results.append(
            _result(at, (case, at % repetitions + 1), root, policy, outcomes, mark, known[case])
        )
        results[-1] = results[-1]._replace(reviewed=(reviewed or {}).get(at, ""))
        if at in (verdicts or {}):
            told = verdicts[at]
            results[-1] = results[-1]._replace(verdict=told, is_forced=told == "fail")
        row = [
            _said(outcomes.get(path)) if outcomes is not FAILED_TARGET else None for path in columns
        ]
        scores[at] = row
        if outcomes is FAILED_TARGET:
            continue
        for path, one in outcomes.items():
            if (
                isinstance(one, Score)
                and (overall := read_overall(one.details.get("judge_overall"))) is not None
            ):
                overalls.setdefault(path, {})[at] = overall
    known = {result.case: known[result.case] for result in results}
    return StoredRun(results, known, columns, scores, overalls)


def ask(
    stored: StoredRun,
    before: RuleSet,
    after: RuleSet,
    *,
    said: Sequence[Said] = (),
    origins: Mapping[str, str] | None = None,
) -> WhatIf:
    """Return the answer, with the parts of changed evaluators read from what was said."""
    rule_change = RuleChange(before, after, stored.cases, all_kinds(), origins=origins)
    return what_if(rule_change, stored, parts=parts_of(rule_change, said))


def parts_of(rule_change: RuleChange, said: Sequence[Said]) -> Mapping[str, PartsRead]:
    origins = {change.origin for change in rule_change.rescored.values()}
    rows = [
        (path, at, one.details)
        for at, outcomes in enumerate(said)
        if outcomes is not FAILED_TARGET
        for path, one in outcomes.items()
        if path in origins and isinstance(one, Score)
    ]
    return rescore_parts(rule_change.rescored.values(), rule_change.kinds, rows)


def _result(
    at: int,
    place: tuple[int, int],
    root: EvaluatorSpec,
    policy: PolicySpec,
    outcomes: Said,
    marks: str,
    case: StoredCase,
) -> StoredResult:
    if outcomes is FAILED_TARGET:
        return StoredResult(at, *place, "error", "", None, False, "", "", "", "Timed out")
    decision = Rules(root, policy).decide(
        {path: one for path, one in outcomes.items() if path != "@outcomes"},
        expected_outcomes=("",) * case.expected,
        outcome_results=_results_of(outcomes, marks),
    )
    verdict = decision.verdict.value if decision.verdict else ""
    return StoredResult(
        *(at, *place, decision.status, verdict, decision.score, decision.is_forced, ""),
        *(marks, "" if decision.error else decision.decided_by, decision.error or ""),
    )


def _results_of(outcomes: Mapping[str, Outcome], marks: str) -> Any:
    if marks:
        return tuple(OutcomeResult("", mark == "1") for mark in marks)
    beside = outcomes.get("@outcomes")
    return beside if isinstance(beside, Unscored) else None


def _said(outcome: Outcome | None) -> Any:
    if outcome is None or isinstance(outcome, Skipped):
        return None
    if isinstance(outcome, Unscored):
        return False
    missed = list(outcome.failed_required)
    return [outcome.score, missed] if missed else outcome.score
