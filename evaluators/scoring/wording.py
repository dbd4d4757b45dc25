"""Put a ruling and the arithmetic of a composite into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluators.scoring.evaluation import Values, members, passes
from evaluators.scoring.frames import LEAF, NO_INDEX, Frame, Layout
from evaluators.scoring.numbers import is_at_least, rounded, spelt, spelt_limit, spelt_weight
from evaluators.scoring.ruling import ROOT, CaseGate, Ruling
from evaluators.scoring.types import Verdict


def arithmetic(layout: Layout, frame: Frame, values: Values) -> str:
    """Return how a scored node came by it: "(1.00×1 + 0.74×5) ÷ 6 = 0.78"; "" for a plain leaf."""
    score, scale = values.scores[frame.index] or 0.0, layout.policy.scale
    failure = own_failure(layout, frame, values)
    if failure:
        return failure if frame.rule == "threshold" else f"{failure}, so {spelt(0.0, scale=scale)}"
    turned = spelt(1.0 - score, scale=scale)
    negated = f"{scale} − {turned} = {spelt(score, scale=scale)}" if frame.negate else ""
    if frame.rule == LEAF:
        return negated
    counted = _counted(layout, frame, values)
    result = turned if frame.negate else spelt(score, scale=scale)
    shown = f"{_sum(layout, frame, values, counted)} = {result}"
    return f"{shown}; {negated}" if negated else shown


def own_failure(layout: Layout, frame: Frame, values: Values) -> str:
    """Return how a composite failed by its own rule, "" when it did not."""
    failure = values.failures[frame.index]
    if failure == NO_INDEX:
        return ""
    if frame.rule == "threshold":
        counted = _counted(layout, frame, values)
        passing = sum(passes(layout, index, values) for index, _ in counted)
        needed = f"{frame.limit * 100:g}%"
        return f"{passing} of {len(counted)} pass, needs {needed}"
    return (
        f"{_named(layout, failure, values)} < {spelt_limit(frame.limit, scale=layout.policy.scale)}"
    )


def decided_by(layout: Layout, values: Values, gate: CaseGate, ruling: Ruling) -> str:
    """Return rule, evaluator and numbers, short enough for a table cell (SCORING §4.5).

    Scores and their limits are said on the suite's own scale, as its pages show them.
    """
    policy = layout.policy
    if ruling.is_error:
        return error_text(layout, gate, ruling, {})
    if ruling.rule == "required":
        return f"required: {requirement(layout, layout.frames[ruling.index], values)}"
    if ruling.rule == "expected_outcomes":
        missed = sum(not outcome.passed for outcome in gate.outcomes)
        count = len(gate.outcomes)
        noun = "outcome" if count == 1 else "outcomes"
        return f"{missed} of {count} {noun} missed" if missed else f"{count} of {count} {noun} met"
    if ruling.rule in ("score", "fallback"):
        limit = policy.fallback_threshold
        if ruling.rule == "score":
            is_fail = ruling.verdict is Verdict.FAIL
            limit = policy.borderline_threshold if is_fail else policy.pass_threshold
        is_pass = ruling.verdict is Verdict.PASS
        compared = compare(ruling.score or 0.0, limit, is_pass, scale=policy.scale)
        return compared if ruling.rule == "score" else f"{gate.reason}: {compared}"
    rule = {"safety_gate": "gate", "all_or_nothing": "all or nothing"}.get(ruling.rule, "share")
    return f"{rule}: {own_failure(layout, layout.frames[ROOT], values)}"


def error_text(layout: Layout, gate: CaseGate, ruling: Ruling, reasons: Mapping[str, str]) -> str:
    """Return why there is no verdict; `reasons` are by path of the evaluators without a score."""
    if ruling.rule == "unscored":
        paths = [layout.frames[index].path for index in ruling.unscored]
        names = [layout.frames[index].node.name for index in ruling.unscored]
        if not any(path in reasons for path in paths):
            return f"unscored: {', '.join(names)}"
        return "; ".join(
            f"{name} could not be scored: {reasons.get(path, '')}"
            for name, path in zip(names, paths, strict=True)
        )
    if ruling.rule == "unjudged":
        return f"outcomes could not be judged: {gate.reason}"
    if ruling.rule == "no_judge_overall":
        return "no evaluator gave a judge's overall score"
    return "nothing to aggregate"


def requirement(layout: Layout, frame: Frame, values: Values) -> str:
    """Return what a required node came to: "safety = 0", "tone 0.65 < 0.70", "facts, no-pii missed"."""
    parts = values.parts.get(frame.index)
    if parts:
        return f"{frame.node.name}, {', '.join(parts)} missed"
    failure = own_failure(layout, frame, values)
    if failure:
        return f"{frame.node.name} ({failure})"
    score, scale = values.scores[frame.index] or 0.0, layout.policy.scale
    if frame.required_below is not None:
        is_enough = is_at_least(score, frame.required_below)
        return f"{frame.node.name} {compare(score, frame.required_below, is_enough, scale=scale)}"
    if rounded(score) <= 0:
        return f"{frame.node.name} = 0"
    return f"{frame.node.name} {spelt(score, scale=scale)} > 0"


def compare(score: float, limit: float, is_enough: bool, *, scale: int = 1) -> str:
    """Return a score beside its limit on a scale: "0.78 < 0.80", "0.857 ≥ 0.855", of 100 "78 < 80"."""
    shown, bound = spelt(score, scale=scale), spelt_limit(limit, scale=scale)
    if is_enough and float(shown) < float(bound):
        shown = spelt(score, digits=len(bound.partition(".")[2]), scale=scale)
    return f"{shown} {'≥' if is_enough else '<'} {bound}"


def _named(layout: Layout, index: int, values: Values) -> str:
    score = spelt(values.scores[index] or 0.0, scale=layout.policy.scale)
    return f"{layout.frames[index].node.name} {score}"


def _counted(layout: Layout, frame: Frame, values: Values) -> list[tuple[int, float]]:
    indexes, weights = members(layout, frame, values) or ((), ())
    return list(zip(indexes, weights, strict=True))


def _sum(layout: Layout, frame: Frame, values: Values, counted: Sequence[tuple[int, float]]) -> str:
    scale = layout.policy.scale
    scores = [spelt(values.scores[index] or 0.0, scale=scale) for index, _ in counted]
    if frame.rule == "threshold":
        passing = sum(passes(layout, index, values) for index, _ in counted)
        return f"{passing} of {len(counted)} pass"
    if frame.rule in ("minimum", "maximum"):
        return f"{'lowest' if frame.rule == 'minimum' else 'highest'} of {', '.join(scores)}"
    terms = " + ".join(
        f"{score}×{spelt_weight(weight)}"
        for score, (_, weight) in zip(scores, counted, strict=True)
    )
    total = spelt_weight(sum(weight for _, weight in counted))
    return f"({terms}) ÷ {total}"
