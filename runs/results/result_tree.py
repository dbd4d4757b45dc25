"""The evaluators of one result as the tree that led to its verdict, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.decision import Decision, NodeResult
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, JUDGING_AGGREGATORS, EvaluatorSpec
from evaluators.templatetags import figures
from runs.engine.plan import METRICS_KIND, OUTCOMES_PATH
from runs.models.results import EvaluatorScore, ScoreState

AGGREGATORS = {
    "weighted_average": "weighted average",
    "minimum": "minimum",
    "maximum": "maximum",
    "safety_gate": "safety gate",
    "all_or_nothing": "all or nothing",
    "threshold": "share that passes",
    "code_judge": "script over its children",
    "llm_judge": "judge over its children",
}
WORST_FIRST = {"unscored": 0, "fail": 1, "borderline": 2, "pass": 3, "skipped": 4}
DEFAULT_TEMPLATE = "kinds/_default.html"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One evaluator with its result; `row` is its stored score, None when nothing was recorded.

    `state` is scored, unscored, skipped or open. `reaches_mark` is None without a score or a pass mark. `is_decisive`
    marks the path to the evaluator that decided.
    """

    name: str
    path: str
    kind: str
    label: str
    icon: str
    weight: float
    is_root: bool
    is_negated: bool
    pass_mark: float | None
    reaches_mark: bool | None
    marks: tuple[str, ...]
    state: str
    score: float | None
    verdict: str
    note: str
    arithmetic: str
    is_decisive: bool
    is_open: bool
    config: Mapping[str, Any]
    row: EvaluatorScore | None
    details: Mapping[str, Any]
    templates: tuple[str, ...]
    children: tuple[TreeNode, ...]

    @property
    def is_judged(self) -> bool:
        """Tell whether a script or a judge makes its score from its children."""
        aggregator = self.config.get("aggregator") or {}
        return bool(self.children) and aggregator.get("type") in JUDGING_AGGREGATORS

    @property
    def worst_first(self) -> list[TreeNode]:
        """Return its children: what decided first, then by verdict and score; what was skipped last."""
        return sorted(
            self.children,
            key=lambda child: (
                not child.is_decisive,
                WORST_FIRST.get(child.verdict or child.state, len(WORST_FIRST)),
                1.0 if child.score is None else child.score,
            ),
        )

    @property
    def is_culprit(self) -> bool:
        """Tell whether the path that decided the verdict ends here."""
        return self.is_decisive and not any(child.is_decisive for child in self.children)

    @property
    def tone(self) -> str:
        """Return the tone of the verdict."""
        return {"pass": "good", "borderline": "warn", "fail": "bad"}.get(self.verdict, "error")


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A hit or miss with the evaluator that found it."""

    text: str
    evidence: str
    evaluator: str


def result_tree(
    root: EvaluatorSpec,
    decision: Decision | None,
    rows: Mapping[str, EvaluatorScore],
    policy: PolicySpec,
) -> TreeNode:
    """Return the tree with the score, verdict and arithmetic of every node (SCORING §3, §4)."""
    return _node(root, "", decision, rows, policy)


def remarks(tree: TreeNode, *, passed: bool) -> tuple[FindingRow, ...]:
    """Return the hits, or the misses, of all evaluators in tree order (SCORING §2).

    Findings of negated evaluators are stored negated.
    """
    return tuple(
        FindingRow(finding["text"], finding.get("evidence", ""), node.name)
        for node in walk_rows(tree)
        if node.row is not None
        for finding in node.row.findings
        if bool(finding["passed"]) == passed
    )


def outcomes_row(rows: Mapping[str, EvaluatorScore]) -> EvaluatorScore | None:
    """Return the score that comes with the outcomes: their own judge outside the tree, or a metrics judge."""
    judges = [row for row in rows.values() if row.kind == METRICS_KIND]
    supplying = (row for row in judges if row.details.get("supplies_outcomes"))
    return rows.get(OUTCOMES_PATH) or next(supplying, next(iter(judges), None))


def walk_rows(node: TreeNode) -> Iterator[TreeNode]:
    """Yield a node and everything under it."""
    yield node
    for child in node.children:
        yield from walk_rows(child)


def _node(
    node: EvaluatorSpec,
    path: str,
    decision: Decision | None,
    rows: Mapping[str, EvaluatorScore],
    policy: PolicySpec,
) -> TreeNode:
    decided = decision.nodes.get(path) if decision else None
    row = rows.get(path)
    children = tuple(
        _node(child, f"{path}/{child.name}".lstrip("/"), decision, rows, policy)
        for child in node.children
    )
    state, score = _state(decided, row, node)
    is_decisive = bool(decided and decided.on_deciding_path)
    kind = all_kinds().get(node.kind)
    is_composite = node.kind == COMPOSITE
    return TreeNode(
        name=node.name,
        path=path,
        kind=node.kind,
        label=_label(node, kind.label if kind else node.kind),
        icon=kind.icon if kind else "e-composite",
        weight=decided.weight if decided else node.weight,
        is_root=not path,
        is_negated=node.negate,
        pass_mark=node.pass_mark,
        reaches_mark=node.reaches_mark(score),
        marks=_marks(node, policy.scale),
        state=state,
        score=score,
        verdict=_verdict(decided, score, policy),
        note=_note(decided, row),
        arithmetic=decided.arithmetic if decided else "",
        is_decisive=is_decisive,
        is_open=(is_composite and state != ScoreState.SKIPPED)
        or is_decisive
        or state == ScoreState.UNSCORED,
        config=node.config,
        row=row,
        details=row.details if row else {},
        templates=(f"kinds/{node.kind}.html", DEFAULT_TEMPLATE),
        children=children,
    )


def _state(
    decided: NodeResult | None, row: EvaluatorScore | None, node: EvaluatorSpec
) -> tuple[str, float | None]:
    if decided:
        return decided.state, decided.score
    if row is None:
        return "open", None
    return row.state, None if row.score is None else node.counted_score(row.score)


def _verdict(decided: NodeResult | None, score: float | None, policy: PolicySpec) -> str:
    if decided:
        return str(decided.verdict or "")
    return "" if score is None else str(policy.verdict_for(score))


def _note(decided: NodeResult | None, row: EvaluatorScore | None) -> str:
    if decided and decided.forced_fail:
        return decided.forced_fail
    if decided and decided.note:
        return decided.note
    return row.reasoning if row and row.state != ScoreState.SCORED else ""


def _label(node: EvaluatorSpec, kind_label: str) -> str:
    if node.aggregator is not None:
        return AGGREGATORS.get(node.aggregator.type, node.aggregator.type)
    return kind_label


def _marks(node: EvaluatorSpec, scale: int) -> tuple[str, ...]:
    marks = []
    if node.required_below is not None:
        marks.append(f"required {figures.bound(node.required_below, scale)}")
    elif node.required:
        marks.append("required")
    if node.negate:
        marks.append("inverted")
    if node.pass_mark is not None:
        marks.append(f"pass mark {figures.bound(node.pass_mark, scale)}")
    return tuple(marks)


@dataclass(frozen=True, slots=True)
class MetricBar:
    """One metric, 0 to 5, and its share of the weights, 0 to 1 (SCORING §5)."""

    name: str
    score: float
    binary: bool
    share: float


@dataclass(frozen=True, slots=True)
class MetricTier:
    """The metrics of one tier; "" where they have none."""

    name: str
    bars: tuple[MetricBar, ...]

    @property
    def worst_first(self) -> list[MetricBar]:
        """Return its metrics, the lowest score first."""
        return sorted(self.bars, key=lambda bar: bar.score)


@dataclass(frozen=True, slots=True)
class ResultMetrics:
    """The metrics of one evaluator and its score, 0 to 1; metrics without a tier come last."""

    path: str
    score: float
    tiers: tuple[MetricTier, ...]

    @property
    def worst_first(self) -> list[MetricTier]:
        """Return its tiers, the one with the lowest metric first."""
        return sorted(self.tiers, key=lambda tier: tier.worst_first[0].score)


def result_metrics(tree: TreeNode) -> tuple[ResultMetrics, ...]:
    """Return the metrics of every evaluator that scored some, in tree order."""
    return tuple(
        ResultMetrics(node.path, node.row.score or 0.0, _tiers(node.details["metrics"]))
        for node in walk_rows(tree)
        if node.state == ScoreState.SCORED
        and node.kind == METRICS_KIND
        and node.row
        and node.details.get("metrics")
    )


def _tiers(parts: Sequence[Mapping[str, Any]]) -> tuple[MetricTier, ...]:
    # Imported results may have weights that do not add up to 1; what counts is their share.
    total = sum(part["weight"] for part in parts) or 1.0
    by_tier: dict[str, list[MetricBar]] = {}
    for part in parts:
        bar = MetricBar(
            part["name"], part["score"], bool(part.get("binary")), part["weight"] / total
        )
        by_tier.setdefault(part.get("tier") or "", []).append(bar)
    names = sorted(by_tier, key=lambda name: not name)
    return tuple(MetricTier(name, tuple(by_tier[name])) for name in names)
