"""Explain a verdict in words: the score and share of every node, and the steps that led to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from evaluators.scoring.aggregate import Values, counted_children, is_forced, is_held_back, passes
from evaluators.scoring.compile import LEAF, NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.decision import ROOT, CaseBasis, NodeResult, TraceStep, VerdictResult
from evaluators.scoring.numbers import (
    format_limit,
    format_number,
    format_weight,
    is_at_least,
    rounded,
)
from evaluators.scoring.types import Outcome, Skipped, Unscored, Verdict


def arithmetic(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    """Return how a node was scored: "(1.00×1 + 0.74×5) ÷ 6 = 0.78"; "" for a plain leaf."""
    score, scale = values.scores[node.index] or 0.0, tree.policy.scale
    failure = rule_failure(tree, node, values)
    if failure:
        return (
            failure
            if node.rule == "threshold"
            else f"{failure}, so {format_number(0.0, scale=scale)}"
        )
    before = format_number(1.0 - score, scale=scale)
    negated = f"{scale} − {before} = {format_number(score, scale=scale)}" if node.negate else ""
    if node.rule == LEAF:
        return negated
    counted = _counted(tree, node, values)
    result = before if node.negate else format_number(score, scale=scale)
    shown = f"{_sum(tree, node, values, counted)} = {result}"
    return f"{shown}; {negated}" if negated else shown


def rule_failure(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    """Return how a composite failed by its own rule, "" if it did not."""
    failure = values.failures[node.index]
    if failure == NO_INDEX:
        return ""
    if node.rule == "threshold":
        counted = _counted(tree, node, values)
        passing = sum(passes(tree, index, values) for index, _ in counted)
        needed = f"{node.limit * 100:g}%"
        return f"{passing} of {len(counted)} pass, needs {needed}"
    return f"{_name_and_score(tree, failure, values)} < {format_limit(node.limit, scale=tree.policy.scale)}"


def decided_by(tree: CompiledTree, values: Values, basis: CaseBasis, result: VerdictResult) -> str:
    """Return rule, evaluator and numbers, short enough for a table cell (SCORING §4.5).

    Scores and limits are on the scale of the suite, as its pages show them.
    """
    policy = tree.policy
    if result.is_error:
        return error_text(tree, basis, result, {})
    if result.rule == "required":
        return f"required: {requirement_text(tree, tree.nodes[result.index], values)}"
    if result.rule == "expected_outcomes":
        missed = sum(not outcome.passed for outcome in basis.outcomes)
        count = len(basis.outcomes)
        noun = "outcome" if count == 1 else "outcomes"
        return f"{missed} of {count} {noun} missed" if missed else f"{count} of {count} {noun} met"
    if result.rule in ("score", "fallback"):
        limit = policy.fallback_threshold
        if result.rule == "score":
            is_fail = result.verdict is Verdict.FAIL
            limit = policy.borderline_threshold if is_fail else policy.pass_threshold
        is_pass = result.verdict is Verdict.PASS
        comparison = compare(result.score or 0.0, limit, is_pass, scale=policy.scale)
        # A judge's own overall score counts no composite, except one that failed above the judge.
        is_sum = policy.final_score == "aggregate" or not result.score
        failed = next(_failed_composites(tree, tree.nodes[ROOT], values), None)
        if failed and is_sum and not is_pass:
            comparison += f" ({failed.spec.name}: {_failed_rule(tree, failed, values)})"
        return comparison if result.rule == "score" else f"{basis.reason}: {comparison}"
    return _failed_rule(tree, tree.nodes[ROOT], values)


def _failed_composites(
    tree: CompiledTree, node: CompiledNode, values: Values
) -> Iterator[CompiledNode]:
    """Yield the composites below a node whose own rule failed and whose 0 counts, in tree order."""
    for index, weight in _counted(tree, node, values):
        child = tree.nodes[index]
        if weight <= 0 or child.negate or child.rule == LEAF:
            continue
        if rule_failure(tree, child, values):
            yield child
        else:
            yield from _failed_composites(tree, child, values)


def _failed_rule(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    """Return the rule by which a composite failed, with its numbers."""
    rule = {"safety_gate": "gate", "all_or_nothing": "all or nothing"}.get(node.rule, "share")
    return f"{rule}: {rule_failure(tree, node, values)}"


def error_text(
    tree: CompiledTree, basis: CaseBasis, result: VerdictResult, reasons: Mapping[str, str]
) -> str:
    """Return why there is no verdict; `reasons` has the paths of the evaluators without a score as keys."""
    if result.rule == "unscored":
        paths = [tree.nodes[index].path for index in result.unscored]
        names = [tree.nodes[index].spec.name for index in result.unscored]
        if not any(path in reasons for path in paths):
            return f"unscored: {', '.join(names)}"
        return "; ".join(
            f"{name} could not be scored: {reasons.get(path, '')}"
            for name, path in zip(names, paths, strict=True)
        )
    if result.rule == "unjudged":
        return f"outcomes could not be judged: {basis.reason}"
    if result.rule == "no_judge_overall":
        return "no evaluator gave a judge's overall score"
    return "nothing to aggregate"


def requirement_text(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    """Return how a required node stands: "safety = 0", "tone 0.65 < 0.70", "facts, no-pii missed"."""
    parts = values.parts.get(node.index)
    if parts:
        return f"{node.spec.name}, {', '.join(parts)} missed"
    failure = rule_failure(tree, node, values)
    if failure:
        return f"{node.spec.name} ({failure})"
    score, scale = values.scores[node.index] or 0.0, tree.policy.scale
    if node.required_below is not None:
        is_enough = is_at_least(score, node.required_below)
        return f"{node.spec.name} {compare(score, node.required_below, is_enough, scale=scale)}"
    if rounded(score) <= 0:
        return f"{node.spec.name} = 0"
    return f"{node.spec.name} {format_number(score, scale=scale)} > 0"


def compare(score: float, limit: float, is_enough: bool, *, scale: int = 1) -> str:
    """Compare a score with its limit on a scale: "0.78 < 0.80", "0.857 ≥ 0.855", of 100 "78 < 80"."""
    text, bound = format_number(score, scale=scale), format_limit(limit, scale=scale)
    if is_enough and float(text) < float(bound):
        text = format_number(score, digits=len(bound.partition(".")[2]), scale=scale)
    return f"{text} {'≥' if is_enough else '<'} {bound}"


def _name_and_score(tree: CompiledTree, index: int, values: Values) -> str:
    score = format_number(values.scores[index] or 0.0, scale=tree.policy.scale)
    return f"{tree.nodes[index].spec.name} {score}"


def _counted(tree: CompiledTree, node: CompiledNode, values: Values) -> list[tuple[int, float]]:
    indexes, weights = counted_children(tree, node, values) or ((), ())
    return list(zip(indexes, weights, strict=True))


def _sum(
    tree: CompiledTree, node: CompiledNode, values: Values, counted: Sequence[tuple[int, float]]
) -> str:
    scale = tree.policy.scale
    scores = [format_number(values.scores[index] or 0.0, scale=scale) for index, _ in counted]
    if node.rule == "threshold":
        passing = sum(passes(tree, index, values) for index, _ in counted)
        return f"{passing} of {len(counted)} pass"
    if node.rule in ("minimum", "maximum"):
        return f"{'lowest' if node.rule == 'minimum' else 'highest'} of {', '.join(scores)}"
    terms = " + ".join(
        f"{score}×{format_weight(weight)}"
        for score, (_, weight) in zip(scores, counted, strict=True)
    )
    total = format_weight(sum(weight for _, weight in counted))
    return f"({terms}) ÷ {total}"


NOTHING_RECORDED = "nothing was recorded for it"


def node_results(
    tree: CompiledTree,
    outcomes: Mapping[str, Outcome],
    values: Values,
    *,
    shares: Mapping[int, float],
    deciding: frozenset[int],
) -> dict[str, NodeResult]:
    """Return every node by path, in tree order."""
    results: dict[str, NodeResult] = {}
    for node in tree.nodes:
        state, note = _state(tree, node, values, outcomes)
        is_scored = state == "scored"
        score = values.scores[node.index] if is_scored else None
        results[node.path] = NodeResult(
            path=node.path,
            name=node.spec.name,
            kind=node.spec.kind,
            state=state,
            score=score,
            verdict=_verdict(tree, node, values, score),
            weight=node.weight,
            share=shares.get(node.index, 0.0),
            forced_fail=_forced_fail(tree, node, values) if is_scored else None,
            arithmetic=arithmetic(tree, node, values) if is_scored else "",
            note=note,
            on_deciding_path=node.index in deciding,
        )
    return results


def score_shares(
    tree: CompiledTree, values: Values, judged: CompiledNode | None
) -> dict[int, float]:
    """Return the part of the final score that each node decides, 0 to 1, by index."""
    if tree.policy.final_score == "judge_overall":
        if judged is None or is_held_back(tree, judged, values):
            return {}
        return {ROOT: 1.0, judged.index: 1.0}
    shares = {ROOT: 1.0}
    for node in tree.nodes:
        share = shares.get(node.index, 0.0)
        if share <= 0 or values.failures[node.index] != NO_INDEX:
            continue
        for index, part in _parts(tree, node, values):
            shares[index] = share * part
    return shares


def deciding_path(tree: CompiledTree, values: Values, result: VerdictResult) -> frozenset[int]:
    """Return the nodes from the root to the one that decided, and on to the child that cost the most."""
    if result.index == NO_INDEX or result.rule == "expected_outcomes":
        return frozenset()
    path = {result.index}
    index = result.index
    while index != ROOT:
        index = tree.nodes[index].parent
        path.add(index)
    if result.verdict in (Verdict.BORDERLINE, Verdict.FAIL):
        heaviest = _heaviest(tree, tree.nodes[result.index], values)
        while heaviest != NO_INDEX:
            path.add(heaviest)
            heaviest = _heaviest(tree, tree.nodes[heaviest], values)
    return frozenset(path)


def _heaviest(tree: CompiledTree, node: CompiledNode, values: Values) -> int:
    """Return the child that cost a composite the most, the first of equals."""
    if values.failures[node.index] != NO_INDEX:
        return values.failures[node.index]
    lost = [
        (index, part * (1.0 - (values.scores[index] or 0.0)))
        for index, part in _parts(tree, node, values)
    ]
    index, most = max(lost, key=itemgetter(1), default=(NO_INDEX, 0.0))
    return index if rounded(most) > 0 else NO_INDEX


def _parts(tree: CompiledTree, node: CompiledNode, values: Values) -> list[tuple[int, float]]:
    """Return each child's part in the score of a composite; the parts sum to 1."""
    indexes, weights = counted_children(tree, node, values) or ((), ())
    if not indexes or node.rule == LEAF:
        return []
    if node.rule in ("minimum", "maximum"):
        pick = min if node.rule == "minimum" else max
        scores = {index: values.scores[index] or 0.0 for index in indexes}
        return [(pick(scores, key=lambda index: scores[index]), 1.0)]
    if node.rule == "threshold":
        return [(index, 1.0 / len(indexes)) for index in indexes]
    total = sum(weights)
    return [(index, weight / total) for index, weight in zip(indexes, weights, strict=True)]


def _state(
    tree: CompiledTree, node: CompiledNode, values: Values, outcomes: Mapping[str, Outcome]
) -> tuple[str, str]:
    """Return the state of a node, and why it has no score."""
    outcome = outcomes.get(node.path)
    if is_held_back(tree, node, values):
        return "skipped", outcome.reason if isinstance(outcome, Skipped) else Skipped().reason
    if values.scores[node.index] is not None:
        return "scored", _policy_note(tree, node, values)
    if node.rule != LEAF:
        return "unscored", _missing_children(tree, node, values)
    if isinstance(outcome, Unscored | Skipped):
        return "unscored", outcome.reason
    return "unscored", NOTHING_RECORDED


def _policy_note(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    missing = [i for i in node.counted if values.scores[i] is None]
    if not missing or values.failures[node.index] != NO_INDEX:
        return ""
    names = ", ".join(tree.nodes[index].spec.name for index in missing)
    how = "left out" if tree.policy.on_unscored == "exclude" else "counted as 0"
    return f"{names} could not be scored and {'is' if len(missing) == 1 else 'are'} {how}"


def _missing_children(tree: CompiledTree, node: CompiledNode, values: Values) -> str:
    missing = [
        tree.nodes[index].spec.name
        for index in node.children
        if values.scores[index] is None and not is_held_back(tree, tree.nodes[index], values)
    ]
    return f"no score from {', '.join(missing)}" if missing else "nothing to aggregate"


def _verdict(
    tree: CompiledTree, node: CompiledNode, values: Values, score: float | None
) -> Verdict | None:
    if score is None:
        return None
    if values.failures[node.index] != NO_INDEX or is_forced(node, values):
        return Verdict.FAIL
    if passes(tree, node.index, values):
        return Verdict.PASS
    return tree.policy.verdict_for(score)


def _forced_fail(tree: CompiledTree, node: CompiledNode, values: Values) -> str | None:
    if is_forced(node, values):
        return f"required: {requirement_text(tree, node, values)}"
    return rule_failure(tree, node, values) or None


def explain_tree(
    tree: CompiledTree,
    values: Values,
    basis: CaseBasis,
    result: VerdictResult,
    reasons: Mapping[str, str],
    *,
    nodes: Mapping[str, NodeResult],
    decided: str,
) -> tuple[TraceStep, ...]:
    """Return the steps: scored evaluators, gates, requirements, final score, case gate (SCORING §4).

    `nodes` are the results of all nodes, and `decided` is the text of `decided_by`.
    """
    steps = [*_scored_steps(tree, values, result, reasons), *_own_rule_steps(tree, values)]
    steps += _required_steps(tree, values)
    if result.is_error:
        return (*steps, TraceStep(error_text(tree, basis, result, reasons), None, passed=False))
    return (
        *steps,
        *_final_steps(tree, values, result, nodes),
        *_basis_steps(tree, basis, result, decided),
    )


def _scored_steps(
    tree: CompiledTree, values: Values, result: VerdictResult, reasons: Mapping[str, str]
) -> Iterator[TraceStep]:
    held_back = [node for node in tree.leaves if is_held_back(tree, node, values)]
    run = [node for node in tree.leaves if not is_held_back(tree, node, values)]
    count = sum(values.scores[node.index] is not None for node in run)
    noun = "evaluator" if len(run) == 1 else "evaluators"
    passed = False if result.unscored else True if count == len(run) else None
    yield TraceStep(f"{count} of {len(run)} {noun} scored", None, passed)
    for node in run:
        if values.scores[node.index] is None:
            text = f"{node.spec.name} could not be scored: {reasons.get(node.path, '')}"
            passed = False if node.index in result.unscored else None
            yield TraceStep(text, node.path, passed)
    if held_back:
        names = ", ".join(node.spec.name for node in held_back)
        yield TraceStep(f"Skipped after a failed gate: {names}")


def _own_rule_steps(tree: CompiledTree, values: Values) -> Iterator[TraceStep]:
    """Yield every gate, and every other composite that failed by its own rule."""
    scale = tree.policy.scale
    for node in tree.nodes:
        if is_held_back(tree, node, values):
            continue
        for gate in node.gates:
            score = values.scores[gate]
            if score is not None:
                passed = is_at_least(score, node.limit)
                gate_node = tree.nodes[gate]
                text = f"Gate {gate_node.spec.name} of {node.spec.name}: "
                yield TraceStep(
                    text + compare(score, node.limit, passed, scale=scale), gate_node.path, passed
                )
        if not node.gates and values.failures[node.index] != NO_INDEX:
            failure = rule_failure(tree, node, values)
            yield TraceStep(f"{node.spec.name} failed by its own rule: {failure}", node.path, False)


def _required_steps(tree: CompiledTree, values: Values) -> Iterator[TraceStep]:
    for node in tree.nodes:
        is_tested = node.is_required and values.scores[node.index] is not None
        if (is_tested or node.index in values.parts) and not is_held_back(tree, node, values):
            text = f"Required: {requirement_text(tree, node, values)}"
            yield TraceStep(text, node.path, not is_forced(node, values))


def _final_steps(
    tree: CompiledTree, values: Values, result: VerdictResult, nodes: Mapping[str, NodeResult]
) -> Iterator[TraceStep]:
    if result.score is None:
        yield TraceStep("No final score: an evaluator it needs could not be scored")
        return
    score = format_number(result.score, scale=tree.policy.scale)
    source: CompiledNode = tree.nodes[result.source]
    is_judged = tree.policy.final_score == "judge_overall"
    if is_judged and values.failures[source.index] == NO_INDEX:
        yield TraceStep(f"Final score, the judge's own overall score: {score}")
    else:
        how = nodes[source.path].arithmetic or score
        yield TraceStep(f"Final score: {how}", source.path)


def _basis_steps(
    tree: CompiledTree, basis: CaseBasis, result: VerdictResult, decided: str
) -> Iterator[TraceStep]:
    is_by_outcomes = basis.rule == "expected_outcomes"
    for outcome in basis.outcomes if is_by_outcomes else ():
        yield TraceStep(
            f"Outcome {'met' if outcome.passed else 'missed'}: {outcome.text}", None, outcome.passed
        )
    passed = result.verdict is Verdict.PASS
    verdict = result.verdict.value if result.verdict else ""
    text = f"{verdict.capitalize()}: {decided}"
    path = (
        tree.nodes[result.index].path
        if result.rule not in ("score", "fallback", "expected_outcomes")
        else None
    )
    yield TraceStep(text, path, passed)
