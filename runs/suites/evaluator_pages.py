"""The evaluator tree as pages show it: what each evaluator decides, its share, its problems and warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import COMPOSITE, Aggregator, EvaluatorSpec
from evaluators.templatetags import figures
from runs.models.suites import Suite, SuiteDraft, Target
from runs.specs.suites import SuiteSpec
from runs.suites.differences import facts_of
from runs.suites.drafts import DraftProblem
from runs.suites.edits import nodes_with_paths
from runs.suites.warnings import TreeWarning, remarks

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


def branches(root: EvaluatorSpec, *, scale: int = 1) -> Branch:
    """Return the tree with the share of the final score that each evaluator decides.

    What an evaluator must reach is said on the scale of the suite.
    """
    return _branch(root, "", (1.0, None), None, scale)


def count_leaves(root: EvaluatorSpec) -> int:
    """Return how many evaluators score by themselves."""
    return sum(count_leaves(child) for child in root.children) if root.children else 1


def _branch(
    node: EvaluatorSpec, path: str, part: Part, above: Aggregator | None, scale: int
) -> Branch:
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


def _children(
    node: EvaluatorSpec, path: str, share: float | None, scale: int
) -> tuple[Branch, ...]:
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


def _weights(node: EvaluatorSpec, combined: Aggregator) -> Mapping[str, float]:
    """Return what each child counts for; a child without an entry has no share of its own."""
    if combined.type in NOTES:
        return {}
    counted = [child for child in node.children if not _is_gate_alone(child, combined)]
    weights = {child.name: node.weight_of(child) for child in counted}
    if combined.type == "threshold":
        return {name: 1.0 for name, weight in weights.items() if weight > 0}
    return weights


def _is_gate_alone(child: EvaluatorSpec, combined: Aggregator) -> bool:
    return (
        combined.type == "safety_gate"
        and combined.remainder == "remaining"
        and child.name in combined.required
    )


def _weight(node: EvaluatorSpec, child: EvaluatorSpec, combined: Aggregator) -> float | None:
    if combined.type in NOTES or _is_gate_alone(child, combined):
        return None
    return node.weight_of(child)


def _note(child: EvaluatorSpec, above: Aggregator | None) -> str:
    if above is None:
        return "final score"
    if _is_gate_alone(child, above):
        return "gate alone"
    return NOTES.get(above.type, "")


def _marks(node: EvaluatorSpec, above: Aggregator | None, scale: int) -> tuple[str, ...]:
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


SLIDER = 10
SAID_BY_PROBLEMS = "unfinished"


@dataclass(frozen=True, slots=True)
class EditedRow:
    """One evaluator of the tree under change.

    `old_share` is what it decided in the version the draft is based on, where that is something else;
    `ways` are the steps it can be moved. `fields` hold what the form has for it.
    """

    id: str
    branch: Branch
    fields: Any
    is_root: bool
    is_composite: bool
    is_changed: bool
    old_share: float | None
    slider: int
    ways: Collection[str]
    inside: int
    can_go: bool
    remarks: Sequence[TreeWarning]
    problems: Sequence[DraftProblem]
    children: Sequence[EditedRow]

    @property
    def name(self) -> str:
        """Return the evaluator's name."""
        return self.branch.name

    @property
    def note(self) -> str:
        """Return what stands in place of a weight: the root and what a rule decides have none."""
        return self.branch.note if self.is_root or self.branch.weight is None else ""


@dataclass(frozen=True, slots=True)
class TreeEditor:
    """The whole tree, how many evaluators it has, and what is pointed out of the suite as a whole."""

    root: EditedRow
    count: int
    remarks: Sequence[TreeWarning]

    @property
    def rows(self) -> Iterator[EditedRow]:
        """Yield every row in the order of the tree."""
        waiting = [self.root]
        while waiting:
            row = waiting.pop()
            yield row
            waiting += reversed(row.children)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the rows are made of, each by path or id."""

    branches: Mapping[str, Branch]
    old: Mapping[str, Branch]
    facts: Mapping[str, Mapping[str, Any]]
    old_facts: Mapping[str, Mapping[str, Any]]
    remarks: Mapping[str, Sequence[TreeWarning]]
    problems: Mapping[str, Sequence[DraftProblem]]
    fields: Mapping[str, Any]


def base_of(draft: SuiteDraft) -> SuiteSpec:
    """Return what the version that a draft is based on says."""
    suite = draft.suite
    if draft.base_version != suite.version:
        version = suite.versions.filter(number=draft.base_version).first()
        if version is not None:
            return version.spec
    return suite.spec


def tree_editor(
    content: Mapping[str, Any],
    base: SuiteSpec,
    *,
    fields: Mapping[str, Any],
    problems: Sequence[DraftProblem] = (),
) -> TreeEditor:
    """Return the rows of a draft's content beside the version it is based on; one query, for targets."""
    spec = SuiteSpec.model_validate(content)
    root, scale = spec.evaluators, spec.policy.scale
    told = _by_path(remarks(content, target_models=target_models()))
    by_node = defaultdict(list)
    for problem in problems:
        by_node[problem.node].append(problem)
    known = _Known(
        branches=_branches(root, scale),
        old=_branches(base.evaluators, scale),
        facts=facts_of(root),
        old_facts=facts_of(base.evaluators),
        remarks=told,
        problems=by_node,
        fields=fields,
    )
    found = _row(content["evaluators"], "", None, 0, known)
    return TreeEditor(root=found, count=len(known.branches) - 1, remarks=told.get("", ()))


def target_models() -> Mapping[str, Collection[str]]:
    """Return by slug of a language model the names of the targets that are that model."""
    found: dict[str, list[str]] = defaultdict(list)
    chat = Target.objects.filter(archived_at=None, model__isnull=False)
    for slug, name in chat.order_by("name").values_list("model__slug", "name"):
        found[slug].append(name)
    return found


def rules_offered() -> Sequence[tuple[str, str]]:
    """Return the ways a composite can combine what it holds, as a form offers them."""
    return tuple(COMBINES.items())


def shares_text(branch: Branch) -> str:
    """Return what an evaluator decides, as its row says it."""
    return "" if branch.share is None else figures.pct(branch.share)


def composites(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return id and path of all that can hold evaluators, the outermost first."""
    found = nodes_with_paths(content["evaluators"])
    return [(node["id"], path or node["name"]) for path, node in found if node["kind"] == COMPOSITE]


def files_of(suite: Suite) -> list[str]:
    """Return the paths of the suite's files, as settings name them."""
    return [f"./{path}" for path in suite.files.order_by("path").values_list("path", flat=True)]


def _by_path(found: Sequence[TreeWarning]) -> Mapping[str, Sequence[TreeWarning]]:
    told = defaultdict(list)
    for one in found:
        if one.code != SAID_BY_PROBLEMS:
            told[one.path].append(one)
    return told


def _branches(root: EvaluatorSpec, scale: int) -> dict[str, Branch]:
    found: dict[str, Branch] = {}

    def gather(branch: Branch) -> None:
        found[branch.path] = branch
        for child in branch.children:
            gather(child)

    gather(branches(root, scale=scale))
    return found


def _row(
    node: Mapping[str, Any],
    path: str,
    parent: Mapping[str, Any] | None,
    position: int,
    known: _Known,
) -> EditedRow:
    branch = known.branches[path]
    before = known.old.get(node["origin"]) if node["origin"] is not None else None
    is_new = parent is not None and (node["origin"] != path or before is None)
    children = tuple(
        _row(child, f"{path}/{child['name']}" if path else child["name"], node, place, known)
        for place, child in enumerate(node["children"])
    )
    siblings = parent["children"] if parent else [node]
    return EditedRow(
        id=node["id"],
        branch=branch,
        fields=known.fields.get(node["id"]),
        is_root=parent is None,
        is_composite=node["kind"] == COMPOSITE,
        is_changed=is_new or known.facts[path] != known.old_facts.get(node["origin"]),
        old_share=_old_share(branch, before),
        slider=_slider(siblings, known.branches, path),
        ways=_ways(siblings, position, path) if parent else (),
        inside=sum(child.inside + 1 for child in children),
        can_go=len(siblings) > 1,
        remarks=known.remarks.get(path, ()),
        problems=known.problems.get(node["id"], ()),
        children=children,
    )


def _old_share(branch: Branch, before: Branch | None) -> float | None:
    """Return the share before, where the two would not read the same."""
    if before is None or before.share is None or shares_text(before) == shares_text(branch):
        return None
    return before.share


def _slider(siblings: Sequence[Mapping[str, Any]], found: Mapping[str, Branch], path: str) -> int:
    """Return up to which weight a slider reaches: ten, or as far as its largest sibling does."""
    above = path.rpartition("/")[0]
    names = (f"{above}/{one['name']}" if above else one["name"] for one in siblings)
    weights = [found[name].weight or 0 for name in names if name in found]
    largest = max(weights, default=0)
    return SLIDER if largest <= SLIDER else int(-(-largest // SLIDER) * SLIDER)


def _ways(siblings: Sequence[Mapping[str, Any]], position: int, path: str) -> Collection[str]:
    beside = [siblings[at] for at in (position - 1, position + 1) if 0 <= at < len(siblings)]
    alone = len(siblings) == 1
    can = {
        "up": position > 0,
        "down": position < len(siblings) - 1,
        "into": not alone and any(one["kind"] == COMPOSITE for one in beside),
        "out": not alone and "/" in path,
    }
    return tuple(way for way, possible in can.items() if possible)
