"""Results of a file as decisions: by our rules where they come to what the file says, else as it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evaluators.scoring.decision import TraceStep
from evaluators.scoring.numbers import rounded, spelt
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import ROOT_PATH, Node, walk
from evaluators.scoring.types import (
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Verdict,
)
from evaluators.scoring.verdict import Decision, rules_of
from runs.formats.results import EvaluatorLine, ResultLine
from runs.formats.results import walk as walk_lines
from runs.imports._result_details import NEAR, details_of
from runs.plan import OUTCOMES_PATH

IMPORTED = "imported"
# How our own results files begin to say that a rule forced the fail (SCORING §4.5, §8).
FORCING_WORDS = ("required: ", "gate: ", "all or nothing: ")
LONGEST_CELL = 300


@dataclass(frozen=True, slots=True)
class Told:
    """One result with the tree it was scored by, what its evaluators said, and the decision."""

    tree: Node
    outcomes: Mapping[str, Outcome]
    decision: Decision


def told(line: ResultLine, tree: Node, policy: Policy) -> Told:
    """Return a result decided: by our rules where they come to what the file says, else as it says.

    Raises TreeError for evaluators that make no tree.
    """
    outcomes = outcomes_of(line, tree)
    expected = [one.text for one in line.outcomes]
    found = rules_of(tree, policy).decide(
        outcomes, expected_outcomes=expected, outcome_results=line.outcomes or None
    )
    if line.outcomes and not any(map(_supplies_outcomes, outcomes.values())):
        outcomes[OUTCOMES_PATH] = _outcomes_score(line)
    if line.status == "error":
        step = TraceStep(f"The file says: {line.error}", passed=False)
        told_error = Decision(status="error", error=line.error, nodes=found.nodes, trace=(step,))
        return Told(tree, outcomes, replace(told_error, rule=IMPORTED, outcomes=found.outcomes))
    return Told(tree, outcomes, _as_told(line, found, policy))


def is_forced(line: ResultLine, decision: Decision, policy: Policy) -> bool:
    """Tell whether a fail stands whatever the score, by our rules or by the file's word."""
    if decision.verdict is not Verdict.FAIL:
        return False
    if decision.rule != IMPORTED:
        return decision.is_forced
    own = None if line.score is None else policy.verdict_of(line.score)
    return own is not Verdict.FAIL or line.decided_by.startswith(FORCING_WORDS)


def _as_told(line: ResultLine, found: Decision, policy: Policy) -> Decision:
    """Return our decision where it is the file's too, else the file's, with ours beside it.

    A file that names another reason for the same verdict and score is believed: it knows more of its
    evaluators than it tells.
    """
    score = None if line.score is None else rounded(line.score)
    verdict = Verdict(line.verdict) if line.verdict else None
    if verdict is None and score is not None:
        verdict = found.verdict or policy.verdict_of(score)
    is_same = found.status == "scored" and found.verdict == verdict
    if is_same and _is_near(found.score, score):
        found = found if score is None else replace(found, score=score)
        if line.decided_by in ("", found.decided_by[:LONGEST_CELL]):
            return found
        score = found.score
    said = "" if score is None else f" at {spelt(score)}"
    cell = line.decided_by or f"imported: {verdict or 'no verdict'}{said}"
    step = TraceStep(f"The file says: {cell}", passed=verdict is Verdict.PASS)
    return replace(
        found,
        status="scored",
        verdict=verdict,
        score=score,
        decided_by=cell,
        rule=IMPORTED,
        evaluator=None,
        error=None,
        flip=None,
        trace=(step, *found.trace),
    )


def _is_near(ours: float | None, told: float | None) -> bool:
    """Tell whether a score of ours is the one told, as far as files keep it; one not told is ours."""
    if ours is None or told is None:
        return told is None
    return abs(ours - told) <= NEAR


def outcomes_of(line: ResultLine, tree: Node) -> dict[str, Outcome]:
    """Return by path what leaves said, and composites whose rule nobody tells."""
    told_at = dict(walk_lines(line.evaluators))
    found: dict[str, Outcome] = {}
    for path, node in walk(tree):
        if node.aggregator is not None and not node.aggregator.is_judging:
            continue
        one = told_at.get(path)
        if one is not None:
            found[path] = _outcome(one, line.outcomes)
        elif path == ROOT_PATH and line.score is not None:
            found[path] = Score(line.score)
    return found


def _outcome(one: EvaluatorLine, expected: tuple[OutcomeResult, ...]) -> Outcome:
    if one.status == "skipped":
        return Skipped(one.reasoning or "it was not run")
    if one.score is None:
        details = details_of(one, supplies_outcomes=False)
        reason = one.reasoning or "the file has no score of it"
        return Unscored(reason, details=details, usage=one.usage)
    score = 1.0 - one.score if one.is_negated else one.score
    return Score(
        score,
        raw_score=one.raw_score,
        scale=one.scale,
        reasoning=one.reasoning,
        findings=one.findings,
        details=details_of(one, supplies_outcomes=bool(expected)),
        usage=one.usage,
    )


def _supplies_outcomes(outcome: Outcome) -> bool:
    return isinstance(outcome, Score) and bool(outcome.details.get("supplies_outcomes"))


def _outcomes_score(line: ResultLine) -> Score:
    """Return the outcomes as their judge's score, with what the file tells of that judge."""
    share = sum(one.passed for one in line.outcomes) / len(line.outcomes)
    told = line.outcomes_judge
    if told is None:
        return Score(share, outcomes=line.outcomes)
    return Score(
        share,
        reasoning=told.reasoning,
        findings=told.findings,
        usage=told.usage,
        outcomes=line.outcomes,
    )
