"""Find the smallest rise of one evaluator's score that reaches the next verdict (SCORING §4.5)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from evaluators.scoring.aggregate import Values, aggregate_node, is_held_back
from evaluators.scoring.compile import LEAF, NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.decision import (
    CaseBasis,
    Flip,
    VerdictResult,
    decide_verdict,
    forcing_nodes,
)
from evaluators.scoring.numbers import format_number, format_rounded_up, quote_names
from evaluators.scoring.types import SCORE_DIGITS, Verdict

GRID = 10**SCORE_DIGITS
# More digits than verdicts are compared to, so that the search finds 0.9 and not 0.8999999951,
# which passes only because of rounding.
EXACT_DIGITS = 12
RANKS = {Verdict.FAIL: 0, Verdict.BORDERLINE: 1, Verdict.PASS: 2}
BECOMES = {Verdict.BORDERLINE: "be borderline", Verdict.PASS: "pass"}
TINY = 0.005
NONE_ALONE = "no single evaluator can change this"


@dataclass(frozen=True, slots=True)
class DecidedCase:
    """A decided case with everything that its verdict depends on."""

    tree: CompiledTree
    values: Values
    basis: CaseBasis
    judged: CompiledNode | None
    result: VerdictResult


@dataclass(frozen=True, slots=True)
class _Rise:
    node: CompiledNode
    start: float
    end: float
    verdict: Verdict


def smallest_flip(case: DecidedCase) -> Flip | None:
    """Return the smallest change that reaches the next verdict; None for a pass or an error."""
    if case.result.verdict in (None, Verdict.PASS):
        return None
    if case.result.rule == "expected_outcomes":
        return _missed_outcomes(case.basis)
    rise = _smallest_rise(case, EXACT_DIGITS) or _smallest_rise(case, SCORE_DIGITS)
    return (
        Flip(_no_single_score_text(case)) if rise is None else _flip(rise, case.tree.policy.scale)
    )


def _missed_outcomes(basis: CaseBasis) -> Flip:
    missed = tuple(outcome.text for outcome in basis.outcomes if not outcome.passed)
    noun = "outcome were" if len(missed) == 1 else f"{len(missed)} outcomes were"
    these = "this" if len(missed) == 1 else "these"
    return Flip(
        f"would pass if {these} {noun} met: {'; '.join(missed)}",
        verdict=Verdict.PASS,
        outcomes=missed,
    )


def _smallest_rise(case: DecidedCase, digits: int) -> _Rise | None:
    best: _Rise | None = None
    for node in case.tree.leaves:
        start = case.values.scores[node.index]
        if start is None or is_held_back(case.tree, node, case.values):
            continue
        highest = GRID
        if best is not None:
            # Look only for a smaller rise; of equal ones the first in order wins.
            highest = min(GRID, math.ceil((start + best.end - best.start) * GRID - 0.5) - 1)
        rise = _Search(case, node, start, digits).run(highest)
        if rise is not None:
            best = rise
    return best


class _Search:
    """The search along the score of one evaluator, on a grid of 9 decimals."""

    def __init__(self, case: DecidedCase, node: CompiledNode, start: float, digits: int) -> None:
        self.case = case
        self.node = node
        self.start = start
        self.digits = digits
        self.rank = RANKS[case.result.verdict or Verdict.FAIL]
        self.chain = tuple(_ancestors(case.tree, node))
        self.unknown = _unknown(case)

    def run(self, highest: int) -> _Rise | None:
        """Return the smallest rise that ends at or below `highest`, if there is one."""
        low = math.floor(self.start * GRID)
        for stop in self._stops(low, highest):
            at_stop = self._verdict_result(stop)
            if self._reaches(at_stop):
                return self._narrow(low, stop, at_stop)
            low = stop
        return None

    def _stops(self, low: int, highest: int) -> list[int]:
        """Return the points to try, in order: only the end, as more is better, unless a node above is negated.

        Then a rise can lower the score while it satisfies a rule, so every step is tried.
        """
        if highest <= low:
            return []
        if not any(ancestor.negate for ancestor in self.chain):
            return [highest]
        steps = {*self._limits(), *range(0, GRID, GRID // 100)}
        return [*sorted(stop for stop in steps if low < stop < highest), highest]

    def _limits(self) -> list[int]:
        """Return the thresholds of the rules above the evaluator and of its own."""
        limits = {node.limit for node in self.chain if node.limit}
        limits |= {f.required_below for f in (self.node, *self.chain) if f.required_below}
        if any(node.rule == "threshold" for node in self.chain):
            limits.add(self.case.tree.policy.pass_threshold)
        return sorted(round(limit * GRID) for limit in limits)

    def _narrow(self, low: int, high: int, at_high: VerdictResult) -> _Rise:
        """Return the lowest point that reaches the verdict; `high` does, `low` does not."""
        at_low, method, has_reached = self._verdict_result(low), "", False
        limits = self._limits()
        while high - low > 1:
            limits = [limit for limit in limits if low < limit < high]
            line = _on_line(self._target(), (low, at_low.score), (high, at_high.score))
            method = _next_method(method, has_reached, bool(limits), line is not None)
            if method == "edge":
                point = high - 1 if has_reached else low + 1
            elif method == "limit":
                point = limits[0]
            else:
                point = line if method == "line" and line is not None else (low + high) // 2
            at_point = self._verdict_result(point)
            has_reached = self._reaches(at_point)
            if has_reached:
                high, at_high = point, at_point
            else:
                low, at_low = point, at_point
        return _Rise(self.node, self.start, high / GRID, at_high.verdict or Verdict.FAIL)

    def _target(self) -> float:
        policy = self.case.tree.policy
        if self.case.basis.rule == "fallback":
            return policy.fallback_threshold
        return policy.pass_threshold if self.rank else policy.borderline_threshold

    def _reaches(self, result: VerdictResult) -> bool:
        return result.verdict is not None and RANKS[result.verdict] > self.rank

    def _verdict_result(self, point: int) -> VerdictResult:
        known = self.case.values
        values = Values(known.scores.copy(), known.failures.copy(), known.parts, self.digits)
        values.scores[self.node.index] = point / GRID
        for ancestor in self.chain:
            aggregate_node(self.case.tree, ancestor, values)
        if any(not is_held_back(self.case.tree, node, values) for node in self.unknown):
            return VerdictResult("unscored")
        return decide_verdict(self.case.tree, values, self.case.basis, self.case.judged)


def _unknown(case: DecidedCase) -> tuple[CompiledNode, ...]:
    """Return the evaluators that a gate held back and that the verdict would need if it passed.

    Their scores are unknown, so the policy for unscored evaluators does not apply to them.
    """
    if case.basis.rule == "expected_outcomes":
        return ()
    return tuple(
        node
        for node in case.tree.leaves
        if node.needed
        and case.values.scores[node.index] is None
        and is_held_back(case.tree, node, case.values)
    )


def _next_method(last: str, has_reached: bool, has_limits: bool, has_line: bool) -> str:
    """Return where to look next: at a limit of a rule, on the line, next to the last point, or half way."""
    if last == "line" or (last == "limit" and has_reached):
        return "edge"
    if has_limits:
        return "limit"
    return "line" if has_line and last != "edge" else "middle"


def _on_line(
    target: float, low: tuple[int, float | None], high: tuple[int, float | None]
) -> int | None:
    """Return where a straight line through both ends meets the target, if it does."""
    (left, below), (right, above) = low, high
    if below is None or above is None or not below < target <= above:
        return None
    part = (target - below) / (above - below)
    return min(max(math.ceil(left + part * (right - left) - 1e-3), left + 1), right - 1)


def _ancestors(tree: CompiledTree, node: CompiledNode) -> Iterator[CompiledNode]:
    while node.parent != NO_INDEX:
        node = tree.nodes[node.parent]
        if node.rule == LEAF:
            return  # A script or judge gave this score; it does not change.
        yield node


def _flip(rise: _Rise, scale: int) -> Flip:
    end = format_rounded_up(rise.end, scale=scale) if rise.end >= TINY else "above 0"
    return Flip(
        text=(
            f"would {BECOMES[rise.verdict]} if {rise.node.spec.name} scored {end} "
            f"instead of {format_number(rise.start, scale=scale)}"
        ),
        path=rise.node.path,
        from_score=rise.start,
        to_score=rise.end,
        verdict=rise.verdict,
    )


def _no_single_score_text(case: DecidedCase) -> str:
    """Say that no single score reaches the next verdict, and why if there is one reason."""
    nodes = case.tree.nodes
    parts = [
        f"{node.spec.name} must meet {quote_names(case.values.parts[node.index])}"
        for node in forcing_nodes(case.tree, case.values)
        if node.index in case.values.parts
    ]
    if parts:
        return f"{NONE_ALONE}: {' and '.join(parts)}"
    failed = [
        node
        for node in case.tree.upward
        if node.gates and case.values.failures[node.index] != NO_INDEX
    ]
    if failed:
        gate = nodes[case.values.failures[failed[-1].index]]
        limit = format_rounded_up(failed[-1].limit, scale=case.tree.policy.scale)
        return f"{NONE_ALONE}: {gate.spec.name} must reach {limit}, then the skipped evaluators must run"
    return NONE_ALONE
