"""Say what each evaluator of a suite decides: how its children combine and its share of the score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Aggregator, Node
from evaluators.templatetags import figures

COMBINES = {
    "weighted_average": "weighted average",
    "minimum": "minimum",
    "maximum": "maximum",
    "safety_gate": "safety gate",
    "all_or_nothing": "all or nothing",
    "threshold": "share of passes",
    "code_judge": "script decides",
    "llm_judge": "judge decides",
}
# What a child adds where no share of the score can be told beforehand.
NOTES = {
    "minimum": "lowest score counts",
    "maximum": "highest score counts",
    "code_judge": "seen by the script",
    "llm_judge": "seen by the judge",
}


# The share of the final score and the weight of an evaluator, None where a rule decides.
Part = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Branch:
    """One evaluator of the tree as the suite's page shows it.

    `share` is the part of the final score it decides, 0 to 1; None when a rule decides and `note`
    says which. `marks` are what it must reach whatever the total is.
    """

    name: str
    path: str
    icon: str
    label: str
    combines: str
    marks: tuple[str, ...]
    weight: float | None
    share: float | None
    note: str
    children: tuple[Branch, ...]


def branches(root: Node, *, scale: int = 1) -> Branch:
    """Return the tree with the share of the final score that each evaluator decides.

    What an evaluator must reach is said on the scale of the suite.
    """
    return _branch(root, "", (1.0, None), None, scale)


def count_leaves(root: Node) -> int:
    """Return how many evaluators score by themselves."""
    return sum(count_leaves(child) for child in root.children) if root.children else 1


def _branch(node: Node, path: str, part: Part, above: Aggregator | None, scale: int) -> Branch:
    share, weight = part
    kind = all_kinds().get(node.kind)
    return Branch(
        name=node.name,
        path=path,
        icon=kind.icon if kind else "e-code",
        label=kind.label if kind else f"{node.kind}, unknown here",
        combines=COMBINES[node.aggregator.type] if node.aggregator else "",
        marks=_marks(node, above, scale),
        weight=weight,
        share=share,
        note=_note(node, above),
        children=_children(node, path, share, scale),
    )


def _children(node: Node, path: str, share: float | None, scale: int) -> tuple[Branch, ...]:
    combined = node.aggregator
    if combined is None:
        return ()
    weights = _weights(node, combined)
    total = sum(weights.values())
    return tuple(
        _branch(
            child,
            f"{path}/{child.name}" if path else child.name,
            (
                share * weights[child.name] / total
                if share is not None and child.name in weights and total
                else None,
                _weight(node, child, combined),
            ),
            combined,
            scale,
        )
        for child in node.children
    )


def _weights(node: Node, combined: Aggregator) -> Mapping[str, float]:
    """Return what each child counts for; a child without an entry has no share of its own."""
    if combined.type in NOTES:
        return {}
    counted = [child for child in node.children if not _is_gate_alone(child, combined)]
    weights = {child.name: node.weight_of(child) for child in counted}
    if combined.type == "threshold":
        return {name: 1.0 for name, weight in weights.items() if weight > 0}
    return weights


def _is_gate_alone(child: Node, combined: Aggregator) -> bool:
    return (
        combined.type == "safety_gate"
        and combined.remainder == "remaining"
        and child.name in combined.required
    )


def _weight(node: Node, child: Node, combined: Aggregator) -> float | None:
    if combined.type in NOTES or _is_gate_alone(child, combined):
        return None
    return node.weight_of(child)


def _note(child: Node, above: Aggregator | None) -> str:
    if above is None:
        return "final score"
    if _is_gate_alone(child, above):
        return "gate alone"
    return NOTES.get(above.type, "")


def _marks(node: Node, above: Aggregator | None, scale: int) -> tuple[str, ...]:
    marks = ["negated"] if node.negate else []
    if node.required_below is not None:
        marks.append(f"required, {figures.bound(node.required_below, scale)} or more")
    elif node.required:
        marks.append("required, above 0")
    if above is not None and above.type == "safety_gate" and node.name in above.required:
        marks.append(f"gate, {figures.bound(above.gate_threshold, scale)} or more")
    if above is not None and above.type == "all_or_nothing":
        marks.append(f"{figures.bound(above.threshold, scale)} or more")
    return tuple(marks)
