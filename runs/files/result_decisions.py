"""How the results of a file were decided: the tree that scored them, and the decision, by our rules or as in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.kinds import get_kind, kind_for_spelling, read_config
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.scoring.decision import (
    VERDICT_WORDS,
    CausePart,
    Decision,
    NodeResult,
    TraceStep,
    VerdictCause,
)
from evaluators.scoring.numbers import format_number, rounded, weighted_mean
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import rules_for
from evaluators.scoring.tree import (
    COMPOSITE,
    ROOT_PATH,
    Aggregator,
    EvaluatorSpec,
    below,
    validate,
    walk,
)
from evaluators.scoring.types import (
    DomainError,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Verdict,
)
from runs.engine.plan import DELIBERATION_KIND, OUTCOMES_PATH
from runs.formats.results_writing import EvaluatorLine, ResultLine, walk_lines

# A file's figure may differ from ours by this much, because others round.
NEAR = 1e-6


def evaluator_details(evaluator: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return the metrics, final evaluation, votes or who won of an evaluator; empty without any."""
    if evaluator.metrics:
        return _metrics_details(evaluator, supplies_outcomes=supplies_outcomes)
    if evaluator.final_evaluation:
        return _evaluation_details(evaluator.final_evaluation)
    if evaluator.pair_verdict:
        return {"verdict": evaluator.pair_verdict}
    return _vote_details(evaluator) if evaluator.rounds else {}


def _metrics_details(evaluator: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    scores = {metric["key"]: metric["score"] for metric in evaluator.metrics}
    # A mean of several samples hides the samples, and only whole scores can be rescored.
    is_one_sample = all(score == int(score) for score in scores.values())
    samples = [{key: int(score) for key, score in scores.items()}] if is_one_sample else []
    return {
        "reasoning": evaluator.reasoning,
        "supplies_outcomes": supplies_outcomes,
        "metrics": [dict(metric) for metric in evaluator.metrics],
        "samples": samples,
    }


def _evaluation_details(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    overall = evaluation["judge_overall"]
    return {
        "final_evaluation": dict(evaluation),
        "judge_overall": overall,
        "overall_scores": [overall["score"]],
        "evidence": overall["evidence"],
        "dimensions": [
            {
                "key": key,
                "name": key.replace("_", " ").capitalize(),
                "policy": "judge_only",
                "deterministic": evaluation["deterministic_dimensions"].get(key),
                "judge": evaluation["judge_dimensions"].get(key),
                "final": score,
            }
            for key, score in evaluation["final_dimensions"].items()
        ],
    }


def _vote_details(evaluator: EvaluatorLine) -> dict[str, Any]:
    """Return every vote, and their consensus if it equals the file's score."""
    votes = {"rounds": [dict(held) for held in evaluator.rounds]}
    own_score = (
        evaluator.score
        if evaluator.score is None or not evaluator.is_negated
        else 1.0 - evaluator.score
    )
    if own_score is None:
        return votes
    last = evaluator.rounds[-1]["votes"]
    slugs = [vote["slug"] for vote in last if not vote["agent"]]
    agents = [vote["agent"] for vote in last if vote["agent"]]
    models = {"models": slugs} if all(slugs) else {"judges": len(slugs)}
    panel = {"agents": agents, **models}
    asked = sum(not held["breaks_tie"] for held in evaluator.rounds)
    rescore = get_kind(DELIBERATION_KIND).rescore
    for way in ("midpoint", "mean"):
        settings = {**panel, "rounds": asked, "score_by": way}
        try:
            rescored = rescore(read_config(DELIBERATION_KIND, settings), votes) if rescore else None
        except DomainError:
            return votes
        if rescored is not None and abs(rescored.score - own_score) <= NEAR:
            return dict(rescored.details)
    return votes


IMPORTED = "imported"
# In our own results files, reasons of forced fails begin with these (SCORING §4.5, §8).
FORCING_WORDS = ("required: ", "gate: ", "all or nothing: ")
MAX_CELL_LENGTH = 300
MAX_CAUSE_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class ImportedDecision:
    """One result with the tree that scored it, the outcomes of its evaluators, and the decision."""

    tree: EvaluatorSpec
    outcomes: Mapping[str, Outcome]
    decision: Decision


def decide_result(line: ResultLine, tree: EvaluatorSpec, policy: PolicySpec) -> ImportedDecision:
    """Return a result with its decision: by our rules if they agree with the file, else as in the file.

    Raises TreeError for evaluators that do not form a tree.
    """
    outcomes = line_outcomes(line, tree)
    expected = [outcome.text for outcome in line.outcomes]
    computed = rules_for(tree, policy).decide(
        outcomes, expected_outcomes=expected, outcome_results=line.outcomes or None
    )
    if line.outcomes and not any(map(_supplies_outcomes, outcomes.values())):
        outcomes[OUTCOMES_PATH] = _outcomes_score(line)
    if line.status == "error":
        step = TraceStep(f"The file says: {line.error}", passed=False)
        errored = Decision(status="error", error=line.error, trace=(step,))
        decision = replace(errored, rule=IMPORTED, outcomes=computed.outcomes)
    else:
        decision = _as_in_file(line, computed, policy)
    nodes = _nodes_as_in_file(line, computed.nodes, outcomes, policy)
    decision = replace(decision, nodes=nodes, cause=_cause(line, decision))
    return ImportedDecision(tree, outcomes, decision)


def _cause(line: ResultLine, decision: Decision) -> VerdictCause | None:
    """Return the file's cause, which may quote what the file does not contain, if it is of this verdict.

    Else, or if it is the same, return ours, which knows its evaluators.
    """
    start = f"{VERDICT_WORDS[decision.verdict]}: "
    if str(decision.cause) == line.cause or not line.cause.startswith(start):
        return decision.cause
    reason = CausePart(line.cause.removeprefix(start)[:MAX_CAUSE_LENGTH])
    return VerdictCause(VERDICT_WORDS[decision.verdict], (reason,))


def is_forced(line: ResultLine, decision: Decision, policy: PolicySpec) -> bool:
    """Tell whether a rule forced the fail regardless of the score, by our rules or by the file's reason."""
    if decision.verdict is not Verdict.FAIL:
        return False
    if decision.rule != IMPORTED:
        return decision.is_forced
    own = None if line.score is None else policy.verdict_for(line.score)
    return own is not Verdict.FAIL or line.decided_by.startswith(FORCING_WORDS)


def _as_in_file(line: ResultLine, decision: Decision, policy: PolicySpec) -> Decision:
    """Return our decision if the file agrees, else the file's decision with our trace.

    If the file gives another reason for the same verdict and score, the file is trusted: it may know more
    about its evaluators than it contains.
    """
    score = None if line.score is None else rounded(line.score)
    verdict = Verdict(line.verdict) if line.verdict else None
    if verdict is None and score is not None:
        verdict = decision.verdict or policy.verdict_for(score)
    is_same = decision.status == "scored" and decision.verdict == verdict
    if is_same and _is_near(decision.score, score):
        decision = decision if score is None else replace(decision, score=score)
        if line.decided_by in ("", decision.decided_by[:MAX_CELL_LENGTH]):
            return decision
        score = decision.score
    message = "" if score is None else f" at {format_number(score)}"
    cell = line.decided_by[:MAX_CELL_LENGTH] or f"imported: {verdict or 'no verdict'}{message}"
    step = TraceStep(f"The file says: {cell}", passed=verdict is Verdict.PASS)
    return replace(
        decision,
        status="scored",
        verdict=verdict,
        score=score,
        decided_by=cell,
        rule=IMPORTED,
        evaluator=None,
        error=None,
        flip=None,
        cause=None,
        trace=(step, *decision.trace),
    )


def _nodes_as_in_file(
    line: ResultLine,
    nodes: Mapping[str, NodeResult],
    outcomes: Mapping[str, Outcome],
    policy: PolicySpec,
) -> Mapping[str, NodeResult]:
    """Return our results of the nodes, but composites as in the file where that says something else.

    The file may come from a suite that treats evaluators without a score otherwise, and does not say how.
    """
    found = dict(nodes)
    for path, evaluator in walk_lines(line.evaluators):
        node = found[path]
        says_nothing = evaluator.score is None and not evaluator.reasoning
        is_same = node.state == evaluator.status and _is_near(node.score, evaluator.score)
        if path in outcomes or says_nothing or is_same:
            continue
        score = None if evaluator.score is None else rounded(evaluator.score)
        found[path] = replace(
            node,
            state=evaluator.status,
            score=score,
            verdict=None if score is None else policy.verdict_for(score),
            forced_fail=None,
            arithmetic="",
            note=evaluator.reasoning,
        )
    return found


def _is_near(ours: float | None, theirs: float | None) -> bool:
    """Tell whether our score equals the file's, up to rounding; without a score in the file it does."""
    if ours is None or theirs is None:
        return theirs is None
    return abs(ours - theirs) <= NEAR


def line_outcomes(line: ResultLine, tree: EvaluatorSpec) -> dict[str, Outcome]:
    """Return the outcomes of leaves by path, and of composites whose rule is unknown."""
    lines_by_path = dict(walk_lines(line.evaluators))
    outcomes: dict[str, Outcome] = {}
    for path, node in walk(tree):
        if node.aggregator is not None and not node.aggregator.is_judging:
            continue
        evaluator = lines_by_path.get(path)
        if evaluator is not None:
            outcomes[path] = _outcome(evaluator, line.outcomes)
        elif path == ROOT_PATH and line.score is not None:
            outcomes[path] = Score(line.score)
    return outcomes


def _outcome(evaluator: EvaluatorLine, expected: tuple[OutcomeResult, ...]) -> Outcome:
    if evaluator.status == "skipped":
        return Skipped(evaluator.reasoning or "it was not run")
    if evaluator.score is None:
        details = evaluator_details(evaluator, supplies_outcomes=False)
        reason = evaluator.reasoning or "the file has no score of it"
        return Unscored(reason, details=details, usage=evaluator.usage)
    score = 1.0 - evaluator.score if evaluator.is_negated else evaluator.score
    return Score(
        score,
        raw_score=evaluator.raw_score,
        scale=evaluator.scale,
        reasoning=evaluator.reasoning,
        findings=evaluator.findings,
        details=evaluator_details(evaluator, supplies_outcomes=bool(expected)),
        usage=evaluator.usage,
    )


def _supplies_outcomes(outcome: Outcome) -> bool:
    return isinstance(outcome, Score) and bool(outcome.details.get("supplies_outcomes"))


def _outcomes_score(line: ResultLine) -> Score:
    """Return the outcomes as their judge's score, with the file's details of that judge."""
    share = sum(outcome.passed for outcome in line.outcomes) / len(line.outcomes)
    judge = line.outcomes_judge
    if judge is None:
        return Score(share, outcomes=line.outcomes)
    return Score(
        share,
        reasoning=judge.reasoning,
        findings=judge.findings,
        usage=judge.usage,
        outcomes=line.outcomes,
    )


# For a rule that is not in the file: the composite's score is used as it is.
AS_IN_FILE = {"type": "code_judge"}
USUAL = {"type": "weighted_average"}


def common_tree(
    lines: Sequence[ResultLine], own: EvaluatorSpec | None, policy: PolicySpec
) -> EvaluatorSpec:
    """Return the tree that scored most results of a file.

    Kinds and settings come from the suite's own tree where it has the same evaluators.
    """
    shapes = Counter(tree_shape(line.evaluators) for line in lines if line.evaluators)
    if not shapes:
        return own or _root((), AS_IN_FILE, None)
    shape = shapes.most_common(1)[0][0]
    alike = [line for line in lines if line.evaluators and tree_shape(line.evaluators) == shape]
    return evaluator_tree(alike, own, policy)


def evaluator_tree(
    lines: Sequence[ResultLine], own: EvaluatorSpec | None, policy: PolicySpec
) -> EvaluatorSpec:
    """Return the tree of results whose evaluators are alike.

    The outermost rule is the suite's, else the weighted average, where that gives every score of
    the file; else the scores are taken from the file.
    """
    known = dict(walk(own)) if own is not None else {}
    unruly = {path for line in lines for path in _unruly(line)}
    children = tuple(
        _node(evaluator, evaluator.name, known, unruly) for evaluator in lines[0].evaluators
    )
    rules = [dict(own.as_json()["config"]["aggregator"])] if own is not None else []
    for rule in (*rules, USUAL):
        tree = _root(children, rule, own)
        if _is_sound(tree) and all(_gives(tree, line, policy) for line in lines):
            return tree
    return _root(children, AS_IN_FILE, own)


def tree_shape(evaluators: Iterable[EvaluatorLine]) -> tuple[Any, ...]:
    """Return what makes trees alike: names, types, weights, pass marks and nesting."""
    return tuple(
        (
            evaluator.name,
            evaluator.type,
            evaluator.weight,
            evaluator.is_negated,
            evaluator.pass_mark,
            tree_shape(evaluator.children),
        )
        for evaluator in evaluators
    )


def _unruly(line: ResultLine) -> Iterator[str]:
    """Yield the composites without a rule whose score is not the weighted average of their children."""
    for path, evaluator in walk_lines(line.evaluators):
        if evaluator.score is None or evaluator.aggregator:
            continue
        scored = [child for child in evaluator.children if child.score is not None]
        average = weighted_mean(
            [child.score or 0.0 for child in scored], [child.weight for child in scored]
        )
        if (
            average is None
            or abs(average - evaluator.score) > NEAR
            or len(scored) < len(evaluator.children)
        ):
            yield path


def _node(
    evaluator: EvaluatorLine, path: str, known: Mapping[str, EvaluatorSpec], unruly: Collection[str]
) -> EvaluatorSpec:
    own = known.get(path)
    children = tuple(
        _node(child, below(path, child.name), known, unruly) for child in evaluator.children
    )
    is_composite = evaluator.aggregator is not None
    fits = (
        own is not None and own.is_composite == is_composite and own.negate == evaluator.is_negated
    )
    preset = dict(kind_for_spelling(evaluator.spelling)[1]) if evaluator.spelling else {}
    facts: dict[str, Any] = {
        "kind": evaluator.type,
        "negate": evaluator.is_negated,
        "config": preset,
    }
    if own is not None and fits:
        facts = {"kind": own.kind, "negate": own.negate, "config": own.config}
        facts |= {"required": own.required, "required_below": own.required_below}
    if is_composite:
        facts |= {
            "kind": COMPOSITE,
            "config": {"aggregator": _rule(evaluator, own if fits else None, path in unruly)},
        }
    mark = evaluator.pass_mark
    if mark is None and own is not None:
        # Files of other tools have no marks; the suite's changes no score.
        mark = own.pass_mark
    return EvaluatorSpec(
        name=evaluator.name,
        weight=evaluator.weight,
        pass_mark=mark,
        children=children,
        **facts,
    )


def _rule(
    evaluator: EvaluatorLine, own: EvaluatorSpec | None, is_unruly: bool
) -> Mapping[str, Any]:
    """Return how a composite combines its children: by the file's rule, the suite's, or the default."""
    usual = None if is_unruly else USUAL
    own_rule = own.as_json()["config"]["aggregator"] if own else None
    for rule in (_readable(evaluator.aggregator), own_rule, usual):
        if (
            rule
            and evaluator.children
            and _is_sound(_root(_leaves(evaluator.children), rule, None))
        ):
            return dict(rule)
    return AS_IN_FILE


def _readable(rule: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a file's rule in our stored form, None if it is not one of ours."""
    try:
        settings = read_config(COMPOSITE, {"aggregator": rule}) if rule else None
    except InvalidConfigError:
        return None
    if settings is None:
        return None
    return Aggregator.model_validate(settings.model_dump(mode="json")["aggregator"]).as_json()


def _leaves(children: Sequence[EvaluatorLine]) -> tuple[EvaluatorSpec, ...]:
    return tuple(EvaluatorSpec(name=child.name, kind="", weight=child.weight) for child in children)


def _root(
    children: tuple[EvaluatorSpec, ...], rule: Mapping[str, Any], own: EvaluatorSpec | None
) -> EvaluatorSpec:
    name = own.name if own is not None else "suite"
    node = EvaluatorSpec(
        name=name, kind=COMPOSITE, config={"aggregator": dict(rule)}, children=children
    )
    return EvaluatorSpec.model_validate(node.as_json())


def _is_sound(tree: EvaluatorSpec) -> bool:
    try:
        validate(tree)
    except (DomainError, TypeError, ValueError, AttributeError):
        return False
    return True


def _gives(tree: EvaluatorSpec, line: ResultLine, policy: PolicySpec) -> bool:
    """Tell whether the rules of a tree give the score in the file."""
    if line.score is None or line.status == "error":
        return True
    root_result = rules_for(tree, policy).nodes(line_outcomes(line, tree))[ROOT_PATH]
    return root_result.score is not None and abs(root_result.score - line.score) <= NEAR
