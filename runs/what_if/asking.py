"""Ask what would become of a run: which stored parts are needed first, then the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from evaluators.kinds._base import Kind
from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.numbers import rounded
from evaluators.scoring.tree import walk
from evaluators.scoring.types import Verdict
from evaluators.scoring.verdict import Rules
from runs.summary import Execution
from runs.what_if.changes import Comparing, LeafChange, Reach
from runs.what_if.executions import (
    BY_OUTCOMES,
    JUDGE_OVERALL,
    OPEN,
    Decided,
    Deciding,
    RescoredScores,
)
from runs.what_if.figures import WhatIf
from runs.what_if.flips import flips_of
from runs.what_if.rescoring import PartsRead
from runs.what_if.rules import CaseTrees, Origins, RuleSet, key_of, trees_of
from runs.what_if.sides import histogram_of, side_of
from runs.what_if.staleness import Staleness
from runs.what_if.stored import StoredCase, StoredResult, StoredRun

# How far a score of another tool may be from what our rules give.
NEAR = 1e-6
CARRIED_OUT = ("scored", "error")
VERDICTS = frozenset(Verdict)
WAITING = "pending"
NO_PARTS: Mapping[str, PartsRead] = {}


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """Cases that are scored by the same tree, with its evaluators after the change by path."""

    trees: CaseTrees
    leaves: Mapping[str, LeafChange]


class Asked:
    """One question: the rules a run was scored by, other rules, and where evaluators came from.

    Raises InvalidConfigError or TreeError, naming the evaluator, for rules that cannot be.
    """

    def __init__(
        self,
        before: RuleSet,
        after: RuleSet,
        cases: Mapping[int, StoredCase],
        kinds: Mapping[str, Kind],
        *,
        origins: Origins = None,
    ) -> None:
        self.before, self.after, self.kinds = before, after, kinds
        self.groups: dict[str, CaseGroup] = {}
        self.group_of: dict[int, CaseGroup] = {}
        for case, facts in cases.items():
            key = key_of(facts.evaluators, append=facts.append)
            if key not in self.groups:
                trees = trees_of(before, after, origins, facts.evaluators, append=facts.append)
                leaves = Comparing(before, after, trees, kinds).leaves()
                self.groups[key] = CaseGroup(trees, leaves)
            self.group_of[case] = self.groups[key]

    @property
    def rescored(self) -> Mapping[str, LeafChange]:
        """Return by path the evaluators whose stored parts make another score now."""
        return {
            path: change
            for group in self.groups.values()
            for path, change in group.leaves.items()
            if change.reach is Reach.RESCORED
        }

    @property
    def takes_overall(self) -> bool:
        """Tell whether judges' own overall scores decide on one of the two sides."""
        return JUDGE_OVERALL in (self.before.policy.final_score, self.after.policy.final_score)

    @property
    def overall_paths(self) -> Collection[str]:
        """Return the paths in the run of the judges whose own overall score decides; none: any may."""
        trees = (group.trees.before for group in self.groups.values())
        return {path for tree in trees for path, node in walk(tree) if node.kind == HYBRID_KIND}


def told_of(asked: Asked, stored: StoredRun) -> frozenset[int]:
    """Return the results whose stored verdict or score is not what the run's own rules give.

    A file of results may tell a verdict by rules of its own. What the rules did not make, they do not move.
    """
    deciding = {key: _as_run(asked, group, stored) for key, group in asked.groups.items()}
    by_group = {id(group): deciding[key] for key, group in asked.groups.items()}
    told = []
    for result in stored.results:
        if result.status not in CARRIED_OUT:
            continue
        if not stored.is_answered(result.id):
            if result.status == "scored":
                told.append(result.id)
            continue
        decide = by_group[id(asked.group_of[result.case])].decide
        if not _is_same(result, decide(result, stored.cases[result.case])):
            told.append(result.id)
    return frozenset(told)


def what_if(
    asked: Asked,
    stored: StoredRun,
    *,
    parts: Mapping[str, PartsRead] = NO_PARTS,
    told: frozenset[int] | None = None,
) -> WhatIf:
    """Return the run before and after; `parts` are by path what `asked.rescored` came to.

    `told` are the results of `told_of`, for a caller that keeps them.
    """
    kept = told_of(asked, stored) if told is None else told
    answering = _Answering(asked, stored, {path: read.scores for path, read in parts.items()})
    stale = Staleness((asked.before, asked.after), stored, parts, asked.kinds)
    before, after, decided = [], [], {}
    for result in stored.results:
        row = _as_stored(result, stored.cases[result.case].key)
        before.append(row)
        if result.id in kept or result.status not in CARRIED_OUT:
            after.append(row)
            continue
        if not stored.is_answered(result.id):
            after.append(row)
            continue
        group, found = answering.decide(result)
        stale.add(result, group.trees, group.leaves, found)
        after.append(_as_decided(row, found))
        decided[result.id] = found
    return _answer(answering, stored, (before, after), decided, (stale, kept))


class _Answering:
    """The rules after the change, ready for the cases of every group."""

    def __init__(self, asked: Asked, stored: StoredRun, rescored: RescoredScores) -> None:
        self.asked, self.stored = asked, stored
        # Where nobody judged the outcomes under these very rules, that is how the run was.
        is_judged = (
            asked.before.policy.case_gate == BY_OUTCOMES and asked.before.judge == asked.after.judge
        )
        self.deciding = {
            id(group): Deciding(
                Rules(group.trees.after, asked.after.policy),
                group.leaves,
                stored,
                rescored=rescored,
                kinds=asked.kinds,
                tells_open=True,
                is_judged=is_judged,
            )
            for group in asked.groups.values()
        }

    def decide(self, result: StoredResult) -> tuple[CaseGroup, Decided]:
        group = self.asked.group_of[result.case]
        return group, self.deciding[id(group)].decide(result, self.stored.cases[result.case])

    def words(self, result: StoredResult) -> str:
        """Return what would decide a result that the rules moved."""
        deciding = self.deciding[id(self.asked.group_of[result.case])]
        return deciding.said(result, self.stored.cases[result.case]).decided_by


def _as_run(asked: Asked, group: CaseGroup, stored: StoredRun) -> Deciding:
    rules = Rules(group.trees.before, asked.before.policy)
    leaves = {
        frame.path: LeafChange(frame.path, frame.node, frame.path, Reach.KEPT)
        for frame in rules.layout.leaves
    }
    return Deciding(
        rules, leaves, stored, rescored={}, kinds=asked.kinds, tells_open=False, is_judged=True
    )


def _answer(
    answering: _Answering,
    stored: StoredRun,
    rows: tuple[list[Execution], list[Execution]],
    decided: Mapping[int, Decided],
    left: tuple[Staleness, frozenset[int]],
) -> WhatIf:
    before, after = rows
    stale, told = left
    policies = answering.asked.before.policy, answering.asked.after.policy
    open_ = sum(found.status == OPEN for found in decided.values())
    side_before, cases_before = side_of(
        before, policies[0], is_completed=stored.is_completed, open_=0
    )
    side_after, cases_after = side_of(
        after, policies[1], is_completed=stored.is_completed, open_=open_
    )
    flips = flips_of(stored, rows, (cases_before, cases_after), policies, answering.words)
    cases = sum(flip.is_flip for flip in flips)
    kept = sum(
        state in VERDICTS and state == cases_after[case][0]
        for case, (state, _) in cases_before.items()
    )
    executions = [one for flip in flips for one in flip.executions]
    carried_out = sum(result.status in CARRIED_OUT for result in stored.results)
    return WhatIf(
        before=side_before,
        after=side_after,
        flips=flips,
        histogram=histogram_of(before, after, policies),
        stale=stale.found(),
        cases_flipped=cases,
        cases_kept=kept,
        cases_without=len(cases_before) - cases - kept,
        executions_flipped=len(executions),
        scores_changed=sum(
            one.score != other.score for one, other in zip(before, after, strict=True)
        ),
        contradicted=sum(one.review == "contradicted" for one in executions),
        agreed=sum(one.review == "agreed" for one in executions),
        told=len(told),
        unanswered=carried_out - len(decided) - len(told),
    )


def _is_same(result: StoredResult, found: Decided) -> bool:
    verdict = found.verdict.value if found.verdict else ""
    if (result.status, result.verdict) != (found.status, verdict):
        return False
    if result.score is None or found.score is None:
        return result.score is found.score
    return abs(result.score - found.score) <= NEAR


def _as_stored(result: StoredResult, key: str) -> Execution:
    return Execution(
        key,
        result.status,
        Verdict(result.verdict) if result.verdict else None,
        result.score,
        result.is_forced,
        Verdict(result.reviewed) if result.reviewed else None,
    )


def _as_decided(row: Execution, found: Decided) -> Execution:
    """Return the execution as it would stand; the same one where nothing of it changes."""
    if found.status == OPEN:
        return replace(row, status=WAITING, verdict=None, score=None, is_forced=False)
    score = row.score if _is_near(row.score, found.score) else found.score
    if (row.status, row.verdict, row.is_forced) == (
        found.status,
        found.verdict,
        found.is_forced,
    ) and score == row.score:
        return row
    return Execution(
        row.case, found.status, found.verdict, score, found.is_forced, row.reviewed_verdict
    )


def _is_near(one: float | None, other: float | None) -> bool:
    """Tell whether two scores are the same to every comparison."""
    return one is not None and other is not None and rounded(one) == rounded(other)
