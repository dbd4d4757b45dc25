"""The evaluator tree of a draft as the page that edits it shows it: shares, changes, problems and remarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.tree import COMPOSITE, Node
from evaluators.templatetags import figures
from runs.drafting import tree_of
from runs.drafting.content import nodes_with_paths
from runs.drafting.facts import facts_of
from runs.drafting.remarks import Remark, remarks
from runs.models import Suite, SuiteDraft, Target
from runs.reports.trees import COMBINES, Branch, branches
from runs.services.draft_problems import DraftProblem
from runs.versions import parts_of

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
    remarks: Sequence[Remark]
    problems: Sequence[DraftProblem]
    children: Sequence[EditedRow]

    @property
    def name(self) -> str:
        """Return the evaluator's name."""
        return self.branch.name


@dataclass(frozen=True, slots=True)
class TreeEditor:
    """The whole tree, how many evaluators it has, and what is pointed out of the suite as a whole."""

    root: EditedRow
    count: int
    remarks: Sequence[Remark]

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
    remarks: Mapping[str, Sequence[Remark]]
    problems: Mapping[str, Sequence[DraftProblem]]
    fields: Mapping[str, Any]


def base_of(draft: SuiteDraft) -> Mapping[str, Any]:
    """Return the version a draft is based on, as versions store them."""
    suite = draft.suite
    if draft.base_version != suite.version:
        found = suite.versions.filter(number=draft.base_version).first()
        if found is not None:
            return dict(found.content)
    return parts_of(suite)


def tree_editor(
    content: Mapping[str, Any],
    base: Mapping[str, Any],
    *,
    fields: Mapping[str, Any],
    problems: Sequence[DraftProblem] = (),
) -> TreeEditor:
    """Return the rows of a draft's content beside the version it is based on; one query, for targets."""
    root, scale = tree_of(content), int(content["policy"]["scale"])
    told = _by_path(remarks(content, target_models=target_models()))
    by_node = defaultdict(list)
    for problem in problems:
        by_node[problem.node].append(problem)
    known = _Known(
        branches=_branches(root, scale),
        old=_branches(tree_of(base), scale),
        facts=facts_of(root),
        old_facts=facts_of(tree_of(base)),
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


def _by_path(found: Sequence[Remark]) -> Mapping[str, Sequence[Remark]]:
    told = defaultdict(list)
    for one in found:
        if one.code != SAID_BY_PROBLEMS:
            told[one.path].append(one)
    return told


def _branches(root: Node, scale: int) -> dict[str, Branch]:
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
