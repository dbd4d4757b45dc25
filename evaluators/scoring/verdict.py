"""Turn what the evaluators of one result say into one score and one verdict (SCORING §4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluators.scoring.aggregate import Values, is_forced, is_held
from evaluators.scoring.compile import NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import OutcomeResult, Unscored, Verdict

ROOT = 0


@dataclass(frozen=True, slots=True)
class CaseBasis:
    """What decides one case: its score, its outcomes, or the score where there are no outcomes.

    `rule` is score, expected_outcomes, fallback, or unjudged when the source of the outcomes
    could not score. `reason` says why it is fallback or unjudged.
    """

    rule: str = "score"
    outcomes: tuple[OutcomeResult, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VerdictResult:
    """A verdict and the rule that made it; `index` is the node that decided, −1 when none did.

    `source` is the node whose score is the final one, −1 when there is none.
    """

    rule: str
    verdict: Verdict | None = None
    score: float | None = None
    index: int = NO_INDEX
    unscored: tuple[int, ...] = ()
    source: int = NO_INDEX

    @property
    def is_error(self) -> bool:
        """Tell whether there is no verdict."""
        return self.verdict is None


def case_gate(
    policy: PolicySpec,
    expected: Sequence[str],
    results: tuple[OutcomeResult, ...] | Unscored | None,
) -> CaseBasis:
    """Return what decides the case under the policy (SCORING §4.3)."""
    found = () if results is None or isinstance(results, Unscored) else tuple(results)
    if policy.case_gate == "score":
        return CaseBasis("score", found)
    if isinstance(results, Unscored):
        return CaseBasis("unjudged", (), results.reason)
    if found and expected and len(found) != len(expected):
        return CaseBasis("unjudged", found, f"{len(found)} of {len(expected)} outcomes were judged")
    if found:
        return CaseBasis("expected_outcomes", found)
    reason = "no outcomes produced" if expected else "no expected outcomes"
    return CaseBasis("fallback", (), reason)


def decide_verdict(
    tree: CompiledTree, values: Values, gate: CaseBasis, judged: CompiledNode | None = None
) -> VerdictResult:
    """Return the verdict; an error has none. `judged` is the node whose overall score is the final one."""
    if None in values.scores:
        unscored = tuple(node.index for node in _spoiling(tree, values, gate))
        if unscored:
            return VerdictResult("unscored", index=unscored[0], unscored=unscored)
    if gate.rule == "unjudged":
        return VerdictResult("unjudged")
    source = _score_source(tree, values, judged)
    final = _final_score(tree, values, source)
    if final is None and gate.rule != "expected_outcomes":
        is_judged = tree.policy.final_score == "judge_overall"
        return VerdictResult("no_judge_overall" if is_judged else "nothing_to_aggregate")
    forced = next(forcing(tree, values), None)
    if forced is not None:
        return VerdictResult("required", Verdict.FAIL, final, forced.index, source=source)
    failed = values.failures[ROOT]
    if failed != NO_INDEX:
        return VerdictResult(tree.nodes[ROOT].rule, Verdict.FAIL, final, failed, source=source)
    verdict = _by_gate(tree.policy, values, gate, final)
    return VerdictResult(gate.rule, verdict, final, ROOT, source=source)


def _score_source(tree: CompiledTree, values: Values, judged: CompiledNode | None) -> int:
    """Return the node whose score is the final one, from where the policy says (SCORING §4.4).

    A gate that failed before the judge could be asked fails its composite at once: its score of 0
    is the final one then (SCORING §3).
    """
    if tree.policy.final_score != "judge_overall":
        return ROOT
    for index in (ROOT,) if judged is None else judged.behind:
        if tree.nodes[index].gates and values.failures[index] != NO_INDEX:
            return index
    if judged is None or is_held(tree, judged, values):
        return NO_INDEX
    return judged.index


def _final_score(tree: CompiledTree, values: Values, source: int) -> float | None:
    """Return the final score, 0 to 1; None where its source has none."""
    if source == NO_INDEX:
        return None
    score = values.scores[source]
    policy = tree.policy
    if score is None and (policy.final_score, policy.on_unscored) == ("judge_overall", "zero"):
        return 0.0
    return score


def forcing(tree: CompiledTree, values: Values) -> Iterator[CompiledNode]:
    """Yield the nodes that force a fail, in tree order; those a gate held back force nothing."""
    for node in tree.nodes if values.parts else tree.required:
        if is_forced(node, values) and not is_held(tree, node, values):
            yield node


def _spoiling(tree: CompiledTree, values: Values, gate: CaseBasis) -> Iterator[CompiledNode]:
    """Yield the evaluators without a score that the verdict cannot do without (SCORING §4.1)."""
    is_spoilt = tree.policy.on_unscored == "error" and gate.rule in ("score", "fallback")
    for node in tree.leaves:
        if values.scores[node.index] is not None:
            continue
        is_needed = node.strict or (is_spoilt and node.needed)
        if is_needed and not is_held(tree, node, values):
            yield node


def _by_gate(policy: PolicySpec, values: Values, gate: CaseBasis, final: float | None) -> Verdict:
    if gate.rule == "expected_outcomes":
        met = all(outcome.passed for outcome in gate.outcomes)
        return Verdict.PASS if met else Verdict.FAIL
    seen = round(0.0 if final is None else final, values.digits)
    if gate.rule == "fallback":
        reached = seen >= rounded(policy.fallback_threshold)
        return Verdict.PASS if reached else Verdict.FAIL
    if seen >= rounded(policy.pass_threshold):
        return Verdict.PASS
    return Verdict.BORDERLINE if seen >= rounded(policy.borderline_threshold) else Verdict.FAIL
