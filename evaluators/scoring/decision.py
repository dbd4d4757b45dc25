"""Decide on one output: its verdict by the policy, and the decision with its reasons as it is stored (SCORING §4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators.scoring.aggregate import Values, is_forced, is_held_back
from evaluators.scoring.compile import NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import OutcomeResult, Unscored, Verdict

ROOT = 0
FORCING_RULES = ("required", "safety_gate", "all_or_nothing", "threshold")


@dataclass(frozen=True, slots=True)
class CaseBasis:
    """What decides one case: its score, its outcomes, or the score because there are no outcomes.

    `rule` is score, expected_outcomes, fallback, or unjudged if the outcomes could not be judged.
    `reason` says why it is fallback or unjudged.
    """

    rule: str = "score"
    outcomes: tuple[OutcomeResult, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VerdictResult:
    """A verdict and its rule; `index` is the node that decided, −1 if none did.

    `source` is the node whose score is the final score, −1 if there is none.
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


def case_basis(
    policy: PolicySpec,
    expected: Sequence[str],
    results: tuple[OutcomeResult, ...] | Unscored | None,
) -> CaseBasis:
    """Return what decides the case under `case_gate` of the policy (SCORING §4.3)."""
    judged = () if results is None or isinstance(results, Unscored) else tuple(results)
    if not policy.outcomes_decide:
        return CaseBasis("score", judged)
    if isinstance(results, Unscored):
        return CaseBasis("unjudged", (), results.reason)
    if judged and expected and len(judged) != len(expected):
        return CaseBasis(
            "unjudged", judged, f"{len(judged)} of {len(expected)} outcomes were judged"
        )
    if judged:
        return CaseBasis("expected_outcomes", judged)
    reason = "no outcomes produced" if expected else "no expected outcomes"
    return CaseBasis("fallback", (), reason)


def decide_verdict(
    tree: CompiledTree, values: Values, basis: CaseBasis, judged: CompiledNode | None = None
) -> VerdictResult:
    """Return the verdict; an error has none. `judged` is the node whose judge gives the final score."""
    if None in values.scores:
        unscored = tuple(node.index for node in _missing_scores(tree, values, basis))
        if unscored:
            return VerdictResult("unscored", index=unscored[0], unscored=unscored)
    if basis.rule == "unjudged":
        return VerdictResult("unjudged")
    source = _score_source(tree, values, judged)
    final = _final_score(tree, values, source)
    if final is None and basis.rule != "expected_outcomes":
        is_judged = tree.policy.final_score == "judge_overall"
        return VerdictResult("no_judge_overall" if is_judged else "nothing_to_aggregate")
    forced = next(forcing_nodes(tree, values), None)
    if forced is not None:
        return VerdictResult("required", Verdict.FAIL, final, forced.index, source=source)
    failed = values.failures[ROOT]
    if failed != NO_INDEX:
        return VerdictResult(tree.nodes[ROOT].rule, Verdict.FAIL, final, failed, source=source)
    verdict = _verdict_by_basis(tree.policy, values, basis, final)
    return VerdictResult(basis.rule, verdict, final, ROOT, source=source)


def _score_source(tree: CompiledTree, values: Values, judged: CompiledNode | None) -> int:
    """Return the node that the policy takes the final score from (SCORING §4.4).

    If a gate failed before the judge was called, the final score is the 0 of its composite (SCORING §3).
    """
    if tree.policy.final_score != "judge_overall":
        return ROOT
    for index in (ROOT,) if judged is None else judged.behind:
        if tree.nodes[index].gates and values.failures[index] != NO_INDEX:
            return index
    if judged is None or is_held_back(tree, judged, values):
        return NO_INDEX
    return judged.index


def _final_score(tree: CompiledTree, values: Values, source: int) -> float | None:
    """Return the final score, 0 to 1; None if its source has none."""
    if source == NO_INDEX:
        return None
    score = values.scores[source]
    policy = tree.policy
    if score is None and (policy.final_score, policy.on_unscored) == ("judge_overall", "zero"):
        return 0.0
    return score


def forcing_nodes(tree: CompiledTree, values: Values) -> Iterator[CompiledNode]:
    """Yield the nodes that force a fail, in tree order; a node held back by a gate forces nothing."""
    for node in tree.nodes if values.parts else tree.required:
        if is_forced(node, values) and not is_held_back(tree, node, values):
            yield node


def _missing_scores(tree: CompiledTree, values: Values, basis: CaseBasis) -> Iterator[CompiledNode]:
    """Yield the evaluators without a score that the verdict needs (SCORING §4.1)."""
    is_error = tree.policy.on_unscored == "error" and basis.rule in ("score", "fallback")
    for node in tree.leaves:
        if values.scores[node.index] is not None:
            continue
        is_needed = node.strict or (is_error and node.needed)
        if is_needed and not is_held_back(tree, node, values):
            yield node


def _verdict_by_basis(
    policy: PolicySpec, values: Values, basis: CaseBasis, final: float | None
) -> Verdict:
    if basis.rule == "expected_outcomes":
        met = all(outcome.passed for outcome in basis.outcomes)
        return Verdict.PASS if met else Verdict.FAIL
    score = round(0.0 if final is None else final, values.digits)
    if basis.rule == "fallback":
        reached = score >= rounded(policy.fallback_threshold)
        return Verdict.PASS if reached else Verdict.FAIL
    if score >= rounded(policy.pass_threshold):
        return Verdict.PASS
    return Verdict.BORDERLINE if score >= rounded(policy.borderline_threshold) else Verdict.FAIL


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The result of one evaluator in the tree.

    `state` is scored, unscored or skipped; `score` is after negation, 0 to 1; `verdict` is the
    node's own, by the bands or by its own rule. `weight` is its weight in its parent, `share` the
    part of the final score it decides (0 to 1). `forced_fail` explains how its own rule or a
    requirement failed it. `note` explains a missing score.
    """

    path: str
    name: str
    kind: str
    state: str
    score: float | None = None
    verdict: Verdict | None = None
    weight: float = 1.0
    share: float = 0.0
    forced_fail: str | None = None
    arithmetic: str = ""
    note: str = ""
    on_deciding_path: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "path": self.path,
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "score": self.score,
            "verdict": None if self.verdict is None else self.verdict.value,
            "weight": self.weight,
            "share": self.share,
            "forced_fail": self.forced_fail,
            "arithmetic": self.arithmetic,
            "note": self.note,
            "on_deciding_path": self.on_deciding_path,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> NodeResult:
        """Read what as_json returned."""
        return cls(**{**values, "verdict": _verdict(values["verdict"])})


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step towards the verdict; `passed` is None if the step tested nothing."""

    text: str
    path: str | None = None
    passed: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"text": self.text, "path": self.path, "passed": self.passed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TraceStep:
        """Read what as_json returned."""
        return cls(**values)


VERDICT_WORDS = {
    Verdict.PASS: "Passed",
    Verdict.BORDERLINE: "Borderline",
    Verdict.FAIL: "Failed",
    None: "No verdict",
}


@dataclass(frozen=True, slots=True)
class CausePart:
    """A piece of a cause; with a `path` it names that evaluator."""

    text: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictCause:
    """Why a result has its verdict: the verdict in a word, and why, as pieces of one text.

    `to_change` says what would change it; empty for a pass, and where there is no verdict.
    """

    word: str
    parts: tuple[CausePart, ...]
    to_change: tuple[CausePart, ...] = ()

    @property
    def reason(self) -> str:
        """Return why, without the verdict."""
        return "".join(part.text for part in self.parts)

    def __str__(self) -> str:
        """Return the whole text."""
        change = "".join(part.text for part in self.to_change)
        return f"{self.word}: {self.reason} {change}".rstrip()

    def as_json(self) -> list[Any]:
        """Return plain JSON values."""
        parts, change = (
            [[part.text, part.path] for part in some] for some in (self.parts, self.to_change)
        )
        return [self.word, parts, change]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> VerdictCause:
        """Read what as_json returned."""
        word, *texts = values
        return cls(word, *(tuple(CausePart(*part) for part in parts) for parts in texts))


@dataclass(frozen=True, slots=True)
class Flip:
    """The smallest change that reaches the next verdict (SCORING §4.5).

    With a `path`, the score of that evaluator would have to rise from `from_score` to `to_score`.
    With `outcomes`, those expected outcomes would have to be met. With neither, no single score
    reaches it. `verdict` is the verdict it would reach.
    """

    text: str
    path: str | None = None
    from_score: float | None = None
    to_score: float | None = None
    verdict: Verdict | None = None
    outcomes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "text": self.text,
            "path": self.path,
            "from_score": self.from_score,
            "to_score": self.to_score,
            "verdict": None if self.verdict is None else self.verdict.value,
            "outcomes": list(self.outcomes),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Flip:
        """Read what as_json returned."""
        changed = {
            "verdict": _verdict(values["verdict"]),
            "outcomes": tuple(values["outcomes"]),
        }
        return cls(**{**values, **changed})


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict of one result with everything that led to it (SCORING §4).

    `status` is scored or error; an error has neither verdict nor score. `score` is the final
    score, 0 to 1, to 9 decimals; it can be None with a verdict that only the outcomes decided.
    `decided_by` is short enough for a table cell, `rule` names the rule for machines, `evaluator`
    is the path of the node that decided. `nodes` holds every node by path in tree order.
    """

    status: str
    verdict: Verdict | None = None
    score: float | None = None
    decided_by: str = ""
    rule: str = ""
    evaluator: str | None = None
    trace: tuple[TraceStep, ...] = ()
    flip: Flip | None = None
    nodes: Mapping[str, NodeResult] = field(default_factory=dict)
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    outcomes: tuple[OutcomeResult, ...] = ()
    cause: VerdictCause | None = None

    @property
    def passed(self) -> bool:
        """Tell whether the verdict is pass."""
        return self.verdict is Verdict.PASS

    @property
    def is_forced(self) -> bool:
        """Tell whether a rule forced the fail regardless of the score (SCORING §8)."""
        return self.verdict is Verdict.FAIL and self.rule in FORCING_RULES

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "status": self.status,
            "verdict": None if self.verdict is None else self.verdict.value,
            "score": self.score,
            "decided_by": self.decided_by,
            "rule": self.rule,
            "evaluator": self.evaluator,
            "trace": [step.as_json() for step in self.trace],
            "flip": None if self.flip is None else self.flip.as_json(),
            "nodes": [node.as_json() for node in self.nodes.values()],
            "hits": list(self.hits),
            "misses": list(self.misses),
            "warnings": list(self.warnings),
            "error": self.error,
            "outcomes": [
                {"text": o.text, "passed": o.passed, "justification": o.justification}
                for o in self.outcomes
            ],
            "cause": None if self.cause is None else self.cause.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Decision:
        """Read what as_json returned."""
        nodes = (NodeResult.from_json(node) for node in values["nodes"])
        changed = {
            "verdict": _verdict(values["verdict"]),
            "trace": tuple(TraceStep.from_json(step) for step in values["trace"]),
            "flip": None if values["flip"] is None else Flip.from_json(values["flip"]),
            "nodes": {node.path: node for node in nodes},
            "hits": tuple(values["hits"]),
            "misses": tuple(values["misses"]),
            "warnings": tuple(values["warnings"]),
            "outcomes": tuple(OutcomeResult(**outcome) for outcome in values["outcomes"]),
            "cause": VerdictCause.from_json(values["cause"]) if values.get("cause") else None,
        }
        return cls(**{**values, **changed})


def _verdict(word: str | None) -> Verdict | None:
    return None if word is None else Verdict(word)
