"""Explain a verdict: the score and share of every node, the steps that led to it, and all of it in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from evaluators.scoring.aggregate import Values, is_forced, is_held, members, passes
from evaluators.scoring.compile import LEAF, NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.decision import NodeResult, TraceStep
from evaluators.scoring.numbers import (
    format_limit,
    format_number,
    format_weight,
    is_at_least,
    rounded,
)
from evaluators.scoring.types import Outcome, Skipped, Unscored, Verdict
from evaluators.scoring.verdict import ROOT, CaseBasis, VerdictResult


def arithmetic(layout: CompiledTree, frame: CompiledNode, values: Values) -> str:
    """Return how a scored node came by it: "(1.00×1 + 0.74×5) ÷ 6 = 0.78"; "" for a plain leaf."""
    score, scale = values.scores[frame.index] or 0.0, layout.policy.scale
    failure = own_failure(layout, frame, values)
    if failure:
        return (
            failure
            if frame.rule == "threshold"
            else f"{failure}, so {format_number(0.0, scale=scale)}"
        )
    before = format_number(1.0 - score, scale=scale)
    negated = f"{scale} − {before} = {format_number(score, scale=scale)}" if frame.negate else ""
    if frame.rule == LEAF:
        return negated
    counted = _counted(layout, frame, values)
    result = before if frame.negate else format_number(score, scale=scale)
    shown = f"{_sum(layout, frame, values, counted)} = {result}"
    return f"{shown}; {negated}" if negated else shown


def own_failure(layout: CompiledTree, frame: CompiledNode, values: Values) -> str:
    """Return how a composite failed by its own rule, "" when it did not."""
    failure = values.failures[frame.index]
    if failure == NO_INDEX:
        return ""
    if frame.rule == "threshold":
        counted = _counted(layout, frame, values)
        passing = sum(passes(layout, index, values) for index, _ in counted)
        needed = f"{frame.limit * 100:g}%"
        return f"{passing} of {len(counted)} pass, needs {needed}"
    return f"{_named(layout, failure, values)} < {format_limit(frame.limit, scale=layout.policy.scale)}"


def decided_by(layout: CompiledTree, values: Values, gate: CaseBasis, ruling: VerdictResult) -> str:
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


def error_text(
    layout: CompiledTree, gate: CaseBasis, ruling: VerdictResult, reasons: Mapping[str, str]
) -> str:
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


def requirement(layout: CompiledTree, frame: CompiledNode, values: Values) -> str:
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
    return f"{frame.node.name} {format_number(score, scale=scale)} > 0"


def compare(score: float, limit: float, is_enough: bool, *, scale: int = 1) -> str:
    """Return a score beside its limit on a scale: "0.78 < 0.80", "0.857 ≥ 0.855", of 100 "78 < 80"."""
    shown, bound = format_number(score, scale=scale), format_limit(limit, scale=scale)
    if is_enough and float(shown) < float(bound):
        shown = format_number(score, digits=len(bound.partition(".")[2]), scale=scale)
    return f"{shown} {'≥' if is_enough else '<'} {bound}"


def _named(layout: CompiledTree, index: int, values: Values) -> str:
    score = format_number(values.scores[index] or 0.0, scale=layout.policy.scale)
    return f"{layout.frames[index].node.name} {score}"


def _counted(layout: CompiledTree, frame: CompiledNode, values: Values) -> list[tuple[int, float]]:
    indexes, weights = members(layout, frame, values) or ((), ())
    return list(zip(indexes, weights, strict=True))


def _sum(
    layout: CompiledTree, frame: CompiledNode, values: Values, counted: Sequence[tuple[int, float]]
) -> str:
    scale = layout.policy.scale
    scores = [format_number(values.scores[index] or 0.0, scale=scale) for index, _ in counted]
    if frame.rule == "threshold":
        passing = sum(passes(layout, index, values) for index, _ in counted)
        return f"{passing} of {len(counted)} pass"
    if frame.rule in ("minimum", "maximum"):
        return f"{'lowest' if frame.rule == 'minimum' else 'highest'} of {', '.join(scores)}"
    terms = " + ".join(
        f"{score}×{format_weight(weight)}"
        for score, (_, weight) in zip(scores, counted, strict=True)
    )
    total = format_weight(sum(weight for _, weight in counted))
    return f"({terms}) ÷ {total}"


NOTHING_RECORDED = "nothing was recorded for it"


def node_results(
    layout: CompiledTree,
    outcomes: Mapping[str, Outcome],
    values: Values,
    *,
    shares: Mapping[int, float],
    deciding: frozenset[int],
) -> dict[str, NodeResult]:
    """Return every node by path, in tree order."""
    found: dict[str, NodeResult] = {}
    for frame in layout.frames:
        state, note = _state(layout, frame, values, outcomes)
        is_scored = state == "scored"
        score = values.scores[frame.index] if is_scored else None
        found[frame.path] = NodeResult(
            path=frame.path,
            name=frame.node.name,
            kind=frame.node.kind,
            state=state,
            score=score,
            verdict=_verdict(layout, frame, values, score),
            weight=frame.weight,
            share=shares.get(frame.index, 0.0),
            forced_fail=_forced_fail(layout, frame, values) if is_scored else None,
            arithmetic=arithmetic(layout, frame, values) if is_scored else "",
            note=note,
            on_deciding_path=frame.index in deciding,
        )
    return found


def score_shares(
    layout: CompiledTree, values: Values, judged: CompiledNode | None
) -> dict[int, float]:
    """Return by index the part of the final score that each node decides, 0 to 1."""
    if layout.policy.final_score == "judge_overall":
        if judged is None or is_held(layout, judged, values):
            return {}
        return {ROOT: 1.0, judged.index: 1.0}
    shares = {ROOT: 1.0}
    for frame in layout.frames:
        share = shares.get(frame.index, 0.0)
        if share <= 0 or values.failures[frame.index] != NO_INDEX:
            continue
        for index, part in _parts(layout, frame, values):
            shares[index] = share * part
    return shares


def deciding_path(layout: CompiledTree, values: Values, ruling: VerdictResult) -> frozenset[int]:
    """Return the nodes on the way from the root to what decided, and on to what weighed it down most."""
    if ruling.index == NO_INDEX or ruling.rule == "expected_outcomes":
        return frozenset()
    path = {ruling.index}
    index = ruling.index
    while index != ROOT:
        index = layout.frames[index].parent
        path.add(index)
    if ruling.verdict in (Verdict.BORDERLINE, Verdict.FAIL):
        heaviest = _heaviest(layout, layout.frames[ruling.index], values)
        while heaviest != NO_INDEX:
            path.add(heaviest)
            heaviest = _heaviest(layout, layout.frames[heaviest], values)
    return frozenset(path)


def _heaviest(layout: CompiledTree, frame: CompiledNode, values: Values) -> int:
    """Return the child that cost a composite most of its score, the first of equals."""
    if values.failures[frame.index] != NO_INDEX:
        return values.failures[frame.index]
    lost = [
        (index, part * (1.0 - (values.scores[index] or 0.0)))
        for index, part in _parts(layout, frame, values)
    ]
    index, most = max(lost, key=itemgetter(1), default=(NO_INDEX, 0.0))
    return index if rounded(most) > 0 else NO_INDEX


def _parts(layout: CompiledTree, frame: CompiledNode, values: Values) -> list[tuple[int, float]]:
    """Return the children with the part each has in the composite's score; the parts sum to 1."""
    indexes, weights = members(layout, frame, values) or ((), ())
    if not indexes or frame.rule == LEAF:
        return []
    if frame.rule in ("minimum", "maximum"):
        pick = min if frame.rule == "minimum" else max
        scores = {index: values.scores[index] or 0.0 for index in indexes}
        return [(pick(scores, key=lambda index: scores[index]), 1.0)]
    if frame.rule == "threshold":
        return [(index, 1.0 / len(indexes)) for index in indexes]
    total = sum(weights)
    return [(index, weight / total) for index, weight in zip(indexes, weights, strict=True)]


def _state(
    layout: CompiledTree, frame: CompiledNode, values: Values, outcomes: Mapping[str, Outcome]
) -> tuple[str, str]:
    """Return how far a node came, and the reason why it has no score."""
    outcome = outcomes.get(frame.path)
    if is_held(layout, frame, values):
        return "skipped", outcome.reason if isinstance(outcome, Skipped) else Skipped().reason
    if values.scores[frame.index] is not None:
        return "scored", _policy_note(layout, frame, values)
    if frame.rule != LEAF:
        return "unscored", _missing_children(layout, frame, values)
    if isinstance(outcome, Unscored | Skipped):
        return "unscored", outcome.reason
    return "unscored", NOTHING_RECORDED


def _policy_note(layout: CompiledTree, frame: CompiledNode, values: Values) -> str:
    missing = [i for i in frame.counted if values.scores[i] is None]
    if not missing or values.failures[frame.index] != NO_INDEX:
        return ""
    names = ", ".join(layout.frames[index].node.name for index in missing)
    how = "left out" if layout.policy.on_unscored == "exclude" else "counted as 0"
    return f"{names} could not be scored and {'is' if len(missing) == 1 else 'are'} {how}"


def _missing_children(layout: CompiledTree, frame: CompiledNode, values: Values) -> str:
    missing = [
        layout.frames[index].node.name
        for index in frame.children
        if values.scores[index] is None and not is_held(layout, layout.frames[index], values)
    ]
    return f"no score from {', '.join(missing)}" if missing else "nothing to aggregate"


def _verdict(
    layout: CompiledTree, frame: CompiledNode, values: Values, score: float | None
) -> Verdict | None:
    if score is None:
        return None
    if values.failures[frame.index] != NO_INDEX or is_forced(frame, values):
        return Verdict.FAIL
    if passes(layout, frame.index, values):
        return Verdict.PASS
    return layout.policy.verdict_of(score)


def _forced_fail(layout: CompiledTree, frame: CompiledNode, values: Values) -> str | None:
    if is_forced(frame, values):
        return f"required: {requirement(layout, frame, values)}"
    return own_failure(layout, frame, values) or None


def explain_tree(
    layout: CompiledTree,
    values: Values,
    gate: CaseBasis,
    ruling: VerdictResult,
    reasons: Mapping[str, str],
) -> tuple[TraceStep, ...]:
    """Return the steps: who scored, gates, required, the final score, the case gate (SCORING §4)."""
    steps = [*_scored(layout, values, ruling, reasons), *_own_rules(layout, values)]
    steps += _required(layout, values)
    if ruling.is_error:
        return (*steps, TraceStep(error_text(layout, gate, ruling, reasons), None, passed=False))
    return (*steps, *_final(layout, values, ruling), *_gate(layout, values, gate, ruling))


def _scored(
    layout: CompiledTree, values: Values, ruling: VerdictResult, reasons: Mapping[str, str]
) -> Iterator[TraceStep]:
    held = [frame for frame in layout.leaves if is_held(layout, frame, values)]
    tried = [frame for frame in layout.leaves if not is_held(layout, frame, values)]
    count = sum(values.scores[frame.index] is not None for frame in tried)
    noun = "evaluator" if len(tried) == 1 else "evaluators"
    passed = False if ruling.unscored else True if count == len(tried) else None
    yield TraceStep(f"{count} of {len(tried)} {noun} scored", None, passed)
    for frame in tried:
        if values.scores[frame.index] is None:
            text = f"{frame.node.name} could not be scored: {reasons.get(frame.path, '')}"
            passed = False if frame.index in ruling.unscored else None
            yield TraceStep(text, frame.path, passed)
    if held:
        names = ", ".join(frame.node.name for frame in held)
        yield TraceStep(f"Not run, held back by a gate: {names}")


def _own_rules(layout: CompiledTree, values: Values) -> Iterator[TraceStep]:
    """Yield every gate, and every other composite that failed by its own rule."""
    scale = layout.policy.scale
    for frame in layout.frames:
        if is_held(layout, frame, values):
            continue
        for gate in frame.gates:
            score = values.scores[gate]
            if score is not None:
                passed = is_at_least(score, frame.limit)
                found = layout.frames[gate]
                text = f"Gate {found.node.name} of {frame.node.name}: "
                yield TraceStep(
                    text + compare(score, frame.limit, passed, scale=scale), found.path, passed
                )
        if not frame.gates and values.failures[frame.index] != NO_INDEX:
            failure = own_failure(layout, frame, values)
            yield TraceStep(
                f"{frame.node.name} failed by its own rule: {failure}", frame.path, False
            )


def _required(layout: CompiledTree, values: Values) -> Iterator[TraceStep]:
    for frame in layout.frames:
        is_tested = frame.is_required and values.scores[frame.index] is not None
        if (is_tested or frame.index in values.parts) and not is_held(layout, frame, values):
            text = f"Required: {requirement(layout, frame, values)}"
            yield TraceStep(text, frame.path, not is_forced(frame, values))


def _final(layout: CompiledTree, values: Values, ruling: VerdictResult) -> Iterator[TraceStep]:
    if ruling.score is None:
        yield TraceStep("No final score: an evaluator it needs could not be scored")
        return
    score = format_number(ruling.score, scale=layout.policy.scale)
    source: CompiledNode = layout.frames[ruling.source]
    is_judged = layout.policy.final_score == "judge_overall"
    if is_judged and values.failures[source.index] == NO_INDEX:
        yield TraceStep(f"Final score, the judge's own overall score: {score}")
    else:
        how = arithmetic(layout, source, values) or score
        yield TraceStep(f"Final score: {how}", source.path)


def _gate(
    layout: CompiledTree, values: Values, gate: CaseBasis, ruling: VerdictResult
) -> Iterator[TraceStep]:
    is_by_outcomes = gate.rule == "expected_outcomes"
    for outcome in gate.outcomes if is_by_outcomes else ():
        yield TraceStep(
            f"Outcome {'met' if outcome.passed else 'missed'}: {outcome.text}", None, outcome.passed
        )
    passed = ruling.verdict is Verdict.PASS
    verdict = ruling.verdict.value if ruling.verdict else ""
    text = f"{verdict.capitalize()}: {decided_by(layout, values, gate, ruling)}"
    path = (
        layout.frames[ruling.index].path
        if ruling.rule not in ("score", "fallback", "expected_outcomes")
        else None
    )
    yield TraceStep(text, path, passed)
