"""The answer of a what-if: a run before and after a change of rules, with flips and histogram."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evaluators.kinds._base import Kind
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import walk
from evaluators.scoring.types import Verdict
from runs.running.rules import Origins
from runs.summary.cases import ExecutionRecord, case_decision
from runs.summary.run import GateResult, brief_summary
from runs.what_if.changes import (
    CaseTrees,
    LeafChange,
    LeafComparison,
    RuleSet,
    ScoreSource,
    case_trees,
    evaluators_key,
)
from runs.what_if.deciding import (
    FINAL_FROM_JUDGE,
    OPEN_STATE,
    AlikeCases,
    DecidedResult,
    PartsRead,
    RescoredScores,
    ResultDecider,
    Stale,
    Staleness,
    StoredCase,
    StoredResult,
    StoredRun,
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The number of reviewed executions with a verdict, and how many of those agree with the reviewer."""

    agreed: int
    reviewed: int


@dataclass(frozen=True, slots=True)
class WhatIfSide:
    """A run under one set of rules.

    `distribution` counts cases by state: pass, borderline, fail, error, or waiting for new calls. Of
    `executions`, `scored` have a verdict, `passed` pass, and `open` need new calls. `mean_score` (0 to 1)
    is the mean of the `with_score` executions. The gates are open as long as any execution is.
    """

    executions: int
    scored: int
    passed: int
    errors: int
    open: int
    distribution: Mapping[str, int]
    mean_score: float | None
    with_score: int
    metrics_gate: GateResult
    cases_gate: GateResult
    agreement: Agreement

    @property
    def cases(self) -> int:
        """Return the number of cases in the distribution."""
        return sum(self.distribution.values())


@dataclass(frozen=True, slots=True)
class FlipSide:
    """One side of a flip. `state` is a verdict, error, waiting or not_run; `score` is 0 to 1."""

    state: str
    score: float | None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionFlip:
    """An execution whose verdict changes.

    `reviewed` is the verdict of a human review or "". `review` is contradicted if only the old verdict
    agrees with it, agreed if only the new one does, still_contradicted if neither does, "" without a review.
    """

    result: int
    repetition: int
    before: FlipSide
    after: FlipSide
    reviewed: str = ""
    review: str = ""


@dataclass(frozen=True, slots=True)
class CaseFlip:
    """A case whose verdict changes, or one of whose executions changes; its scores are means.

    `executions` are those that change.
    """

    case: int
    key: str
    before: FlipSide
    after: FlipSide
    executions: tuple[ExecutionFlip, ...]

    @property
    def is_flip(self) -> bool:
        """Tell whether the case's verdict changes, not only that of an execution."""
        return self.before.state != self.after.state

    @property
    def review(self) -> str:
        """Return the most important state of its reviews: contradicted, agreed, still_contradicted or ""."""
        reviews = {flip.review for flip in self.executions}
        order = ("contradicted", "agreed", "still_contradicted")
        return next((review for review in order if review in reviews), "")


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """The number of executions with a score from `low` to below `high`; the last bin includes 1."""

    low: float
    high: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Band:
    """A limit of the case gate, 0 to 1: pass, borderline or fallback."""

    name: str
    limit: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The scores of the executions before and after, with the bands of both."""

    bins: tuple[ScoreBin, ...]
    bands_before: tuple[Band, ...]
    bands_after: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A run under its own rules, `before`, and under others, `after`, from stored scores alone.

    `flips` are in the order of the suite. `fixed` executions keep a verdict that does not follow from
    the run's own rules, such as one from a file of results. `cases_kept` keep their verdict;
    `cases_without` have none before or after. `unanswered` executions had no output and stay as they are.
    `scores_changed` counts executions with another score, with or without another verdict.
    """

    before: WhatIfSide
    after: WhatIfSide
    flips: tuple[CaseFlip, ...]
    histogram: Histogram
    stale: tuple[Stale, ...]
    cases_flipped: int
    cases_kept: int
    cases_without: int
    executions_flipped: int
    scores_changed: int
    contradicted: int
    agreed: int
    fixed: int
    unanswered: int

    @property
    def is_exact(self) -> bool:
        """Tell whether the stored scores answer everything, so that they can make a run."""
        return not self.stale


BINS = 20
SCORED, ERROR = "scored", "error"
Standings = Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class DecidedRun:
    """The results of a run under one set of rules, by the places of those that are decided like all others."""

    alike: AlikeCases
    rows: Mapping[int, ExecutionRecord]
    policy: PolicySpec

    def group(self, firsts: Iterable[int]) -> Sequence[ExecutionRecord]:
        """Return the executions of a case."""
        return [self.rows[first] for first in firsts]

    @property
    def weighted(self) -> Iterator[tuple[ExecutionRecord, int]]:
        """Yield each execution with the number of those that were decided like it."""
        for firsts, cases in self.alike.items():
            for first in firsts:
                yield self.rows[first], len(cases)

    def side(self, *, is_completed: bool, open_: int = 0) -> tuple[WhatIfSide, Standings]:
        """Return the figures, and state and mean score of the alike cases, in their order."""
        groups = [(self.group(firsts), len(cases)) for firsts, cases in self.alike.items()]
        summary = brief_summary(groups, self.policy, is_completed=is_completed and not open_)
        reviewed = [
            (row.verdict is row.reviewed_verdict, count)
            for row, count in self.weighted
            if row.reviewed_verdict is not None and row.verdict is not None
        ]
        statuses: Counter[str] = Counter()
        for row, count in self.weighted:
            statuses[row.status] += count
        side = WhatIfSide(
            executions=statuses.total(),
            scored=statuses[SCORED],
            passed=summary.passed,
            errors=statuses[ERROR],
            open=open_,
            distribution=summary.distribution,
            mean_score=summary.mean_score,
            with_score=summary.with_score,
            metrics_gate=summary.metrics_gate,
            cases_gate=summary.cases_gate,
            agreement=Agreement(
                sum(count for agrees, count in reviewed if agrees),
                sum(count for _, count in reviewed),
            ),
        )
        return side, summary.cases

    def bins(self) -> Sequence[int]:
        """Return how many scores are in each bin of 0.05."""
        counts = [0] * BINS
        for row, count in self.weighted:
            if row.score is not None:
                # Rounded like every comparison of scores, so that a score on a limit is above it.
                counts[min(math.floor(rounded(row.score * BINS)), BINS - 1)] += count
        return counts


def score_bins(before: DecidedRun, after: DecidedRun) -> Histogram:
    """Return the scores of both sides in bins of 0.05."""
    bins = (
        ScoreBin(rounded(place / BINS), rounded((place + 1) / BINS), *counts)
        for place, counts in enumerate(zip(before.bins(), after.bins(), strict=True))
    )
    return Histogram(tuple(bins), score_bands(before.policy), score_bands(after.policy))


def score_bands(policy: PolicySpec) -> tuple[Band, ...]:
    """Return the limits of scores: two bands, or the fallback of the outcomes gate."""
    if not policy.outcomes_decide:
        return (
            Band("borderline", policy.borderline_threshold),
            Band("pass", policy.pass_threshold),
        )
    return (Band("fallback", policy.fallback_threshold),)


STATES = {"error": "error", "pending": "waiting", "running": "waiting"}
Sides = tuple[DecidedRun, DecidedRun]


def case_flips(
    stored: StoredRun,
    sides: Sides,
    standings: tuple[Standings, Standings],
    explain: Callable[[StoredResult], str],
) -> tuple[CaseFlip, ...]:
    """Return the cases whose verdict changes or one of whose executions changes, in the order of the suite.

    `explain` returns the text on what would decide a result.
    """
    flips: dict[int, CaseFlip] = {}
    texts: dict[int, str] = {}
    for (firsts, cases), old, new in zip(sides[0].alike.items(), *standings, strict=True):
        changed = [place for place, first in enumerate(firsts) if _is_changed(sides, first)]
        if not changed and old[0] == new[0]:
            continue
        for place in changed:
            first = firsts[place]
            if first not in texts:
                texts[first] = explain(stored.results[first])
        decided = [case_decision(side.group(firsts), side.policy).text for side in sides]
        for case in cases:
            places = stored.places[case]
            executions = tuple(
                _execution_flip(
                    stored.results[places[n]],
                    sides[0].rows[firsts[n]],
                    sides[1].rows[firsts[n]],
                    texts[firsts[n]],
                )
                for n in changed
            )
            # With one repetition, the text is that of its execution.
            if len(firsts) == 1 and executions:
                words = [executions[0].before.decided_by, executions[0].after.decided_by]
            else:
                words = decided
            flips[places[0]] = CaseFlip(
                case,
                stored.cases[case].key,
                FlipSide(*old, words[0]),
                FlipSide(*new, words[1]),
                executions,
            )
    return tuple(flips[place] for place in sorted(flips))


def _is_changed(sides: Sides, first: int) -> bool:
    before, after = (side.rows[first] for side in sides)
    return (before.status, before.verdict) != (after.status, after.verdict)


def _execution_flip(
    result: StoredResult, before: ExecutionRecord, after: ExecutionRecord, text: str
) -> ExecutionFlip:
    return ExecutionFlip(
        result=result.id,
        repetition=result.repetition,
        before=FlipSide(execution_state(before), before.score, result.decided_by or result.error),
        after=FlipSide(execution_state(after), after.score, text),
        reviewed=result.reviewed,
        review=_review(before.verdict, after.verdict, before.reviewed_verdict),
    )


def execution_state(row: ExecutionRecord) -> str:
    """Return the state of an execution: a verdict, error, waiting or not_run."""
    return row.verdict.value if row.verdict is not None else STATES.get(row.status, "not_run")


def _review(before: Verdict | None, after: Verdict | None, reviewed: Verdict | None) -> str:
    if reviewed is None:
        return ""
    if after is None:
        return ""
    if before is reviewed:
        return "contradicted"
    return "agreed" if after is reviewed else "still_contradicted"


# How much a score of another tool may differ from ours.
NEAR = 1e-6
EXECUTED = ("scored", "error")
VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}
WAITING = "pending"
NO_PARTS: Mapping[str, PartsRead] = {}


@dataclass(frozen=True, slots=True)
class TreeGroup:
    """Cases with the same tree, and its evaluators after the change by path."""

    trees: CaseTrees
    leaves: Mapping[str, LeafChange]


class RuleChange:
    """The rules of a run, other rules, and the origins of their evaluators.

    Raises InvalidConfigError or TreeError, naming the evaluator, for invalid rules.
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
        self.groups: dict[str, TreeGroup] = {}
        self.metric_group: dict[int, TreeGroup] = {}
        for case, facts in cases.items():
            key = evaluators_key(facts.evaluators, append=facts.append)
            if key not in self.groups:
                trees = case_trees(before, after, origins, facts.evaluators, append=facts.append)
                leaves = LeafComparison(before, after, trees, kinds).leaves()
                self.groups[key] = TreeGroup(trees, leaves)
            self.metric_group[case] = self.groups[key]

    @property
    def rescored(self) -> Mapping[str, LeafChange]:
        """Return the evaluators by path whose stored parts give another score now."""
        return {
            path: change
            for group in self.groups.values()
            for path, change in group.leaves.items()
            if change.reach is ScoreSource.RESCORED
        }

    @property
    def takes_overall(self) -> bool:
        """Tell whether the overall scores of judges decide before or after."""
        return FINAL_FROM_JUDGE in (self.before.policy.final_score, self.after.policy.final_score)

    def alike(self, stored: StoredRun) -> AlikeCases:
        """Return the cases that are decided alike, before and after."""
        return stored.alone if self.takes_overall or self.rescored else stored.alike

    @property
    def overall_paths(self) -> Collection[str]:
        """Return the paths in the run of judges whose overall score decides; empty if any judge can."""
        trees = (group.trees.before for group in self.groups.values())
        return {path for tree in trees for path, node in walk(tree) if node.kind == HYBRID_KIND}


def fixed_results(rule_change: RuleChange, stored: StoredRun) -> frozenset[int]:
    """Return the results whose stored verdict or score does not follow from the rules of the run.

    Imported results may have verdicts by other rules. Rules do not change a verdict that they did not make.
    """
    as_run = {
        id(group): _as_run(rule_change, group, stored) for group in rule_change.groups.values()
    }

    def is_fixed(result: StoredResult) -> bool:
        if result.status not in EXECUTED:
            return False
        if not stored.is_answered(result.id):
            return result.status == SCORED
        deciding = as_run[id(rule_change.metric_group[result.case])]
        return not _is_same(result, deciding.decide(result, stored.cases[result.case]))

    firsts = range(len(stored.results)) if rule_change.takes_overall else stored.firsts
    fixed = {first for first in set(firsts) if is_fixed(stored.results[first])}
    if not fixed:
        return frozenset()
    pairs = zip(stored.results, firsts, strict=True)
    return frozenset(result.id for result, first in pairs if first in fixed)


def what_if(
    rule_change: RuleChange,
    stored: StoredRun,
    *,
    parts: Mapping[str, PartsRead] = NO_PARTS,
    fixed: frozenset[int] | None = None,
) -> WhatIf:
    """Return the run before and after. `parts` are the scores of `rule_change.rescored` by path.

    `fixed` are the results of `fixed_results`, if the caller has them already.
    """
    kept = fixed_results(rule_change, stored) if fixed is None else fixed
    answering = _Answering(rule_change, stored, {path: read.scores for path, read in parts.items()})
    stale = Staleness((rule_change.before, rule_change.after), stored, parts, rule_change.kinds)
    alike = rule_change.alike(stored)
    counts: Counter[int] = Counter()
    for firsts, cases in alike.items():
        for first in firsts:
            counts[first] += len(cases)
    before, after = {}, {}
    open_ = decided = 0
    for first, count in counts.items():
        result = stored.results[first]
        before[first] = after[first] = row = _as_stored(result)
        is_decided = result.status in EXECUTED and stored.is_answered(result.id)
        if result.id in kept or not is_decided:
            continue
        group, decision = answering.decide(result)
        stale.add(result, group.trees, group.leaves, decision, alike=count)
        after[first] = _as_decided(row, decision)
        decided += count
        open_ += count * (decision.status == OPEN_STATE)
    policies = rule_change.before.policy, rule_change.after.policy
    sides = DecidedRun(alike, before, policies[0]), DecidedRun(alike, after, policies[1])
    return _answer(answering, sides, (open_, decided), (stale, kept))


class _Answering:
    """Decides results of every group of cases by the rules after the change."""

    def __init__(
        self, rule_change: RuleChange, stored: StoredRun, rescored: RescoredScores
    ) -> None:
        self.rule_change, self.stored = rule_change, stored
        # Under the same outcomes gate and judge, unjudged outcomes stay unjudged.
        is_judged = (
            rule_change.before.policy.outcomes_decide
            and rule_change.before.judge == rule_change.after.judge
        )
        self.deciding = {
            id(group): ResultDecider(
                Rules(group.trees.after, rule_change.after.policy),
                group.leaves,
                stored,
                rescored=rescored,
                kinds=rule_change.kinds,
                tells_open=True,
                is_judged=is_judged,
            )
            for group in rule_change.groups.values()
        }

    def decide(self, result: StoredResult) -> tuple[TreeGroup, DecidedResult]:
        group = self.rule_change.metric_group[result.case]
        return group, self.deciding[id(group)].decide(result, self.stored.cases[result.case])

    def explain(self, result: StoredResult) -> str:
        """Return the text on what would decide a result."""
        deciding = self.deciding[id(self.rule_change.metric_group[result.case])]
        return deciding.explain(result, self.stored.cases[result.case]).decided_by


def _as_run(rule_change: RuleChange, group: TreeGroup, stored: StoredRun) -> ResultDecider:
    rules = Rules(group.trees.before, rule_change.before.policy)
    leaves = {
        leaf.path: LeafChange(leaf.path, leaf.spec, leaf.path, ScoreSource.KEPT)
        for leaf in rules.tree.leaves
    }
    return ResultDecider(
        rules,
        leaves,
        stored,
        rescored={},
        kinds=rule_change.kinds,
        tells_open=False,
        is_judged=True,
    )


def _answer(
    answering: _Answering,
    sides: Sides,
    counts: tuple[int, int],
    left: tuple[Staleness, frozenset[int]],
) -> WhatIf:
    stored, (before, after) = answering.stored, sides
    (open_, decided), (stale, fixed) = counts, left
    side_before, old = before.side(is_completed=stored.is_completed)
    side_after, new = after.side(is_completed=stored.is_completed, open_=open_)
    flips = case_flips(stored, sides, (old, new), answering.explain)
    cases = sum(flip.is_flip for flip in flips)
    kept = sum(
        len(alike)
        for alike, (state, _), (now, _) in zip(before.alike.values(), old, new, strict=True)
        if state in VERDICTS and state == now
    )
    executions = [execution for flip in flips for execution in flip.executions]
    return WhatIf(
        before=side_before,
        after=side_after,
        flips=flips,
        histogram=score_bins(before, after),
        stale=stale.stale(),
        cases_flipped=cases,
        cases_kept=kept,
        cases_without=len(stored.cases) - cases - kept,
        executions_flipped=len(executions),
        scores_changed=sum(
            count
            for (row, count), (now, _) in zip(before.weighted, after.weighted, strict=True)
            if row.score != now.score
        ),
        contradicted=sum(flip.review == "contradicted" for flip in executions),
        agreed=sum(flip.review == "agreed" for flip in executions),
        fixed=len(fixed),
        unanswered=side_before.scored + side_before.errors - decided - len(fixed),
    )


def _is_same(result: StoredResult, decided: DecidedResult) -> bool:
    if result.status != decided.status or result.verdict != (decided.verdict or ""):
        return False
    if result.score is None or decided.score is None:
        return result.score is decided.score
    return abs(result.score - decided.score) <= NEAR


def _as_stored(result: StoredResult) -> ExecutionRecord:
    return ExecutionRecord(
        "",
        result.status,
        VERDICTS.get(result.verdict),
        result.score,
        result.is_forced,
        VERDICTS.get(result.reviewed),
    )


def _as_decided(row: ExecutionRecord, decided: DecidedResult) -> ExecutionRecord:
    """Return the execution after the change; the same object if nothing changes."""
    if decided.status == OPEN_STATE:
        return replace(row, status=WAITING, verdict=None, score=None, is_forced=False)
    score = row.score if _is_near(row.score, decided.score) else decided.score
    if (row.status, row.verdict, row.is_forced) == (
        decided.status,
        decided.verdict,
        decided.is_forced,
    ) and score == row.score:
        return row
    return ExecutionRecord(
        row.case, decided.status, decided.verdict, score, decided.is_forced, row.reviewed_verdict
    )


def _is_near(score: float | None, other: float | None) -> bool:
    """Tell whether two scores compare as equal."""
    if score is None or other is None:
        return False
    return score == other or rounded(score) == rounded(other)
