"""What the pages of a suite show: its rules, its evaluators with their shares, and a draft of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from evaluators.kinds import all_kinds
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, Aggregator, EvaluatorSpec
from evaluators.templatetags import figures
from runs.audit.queries import AuditChange, changes_between
from runs.models.reviews import ReviewItem
from runs.models.runs import Run, RunStatus
from runs.models.suites import POLICY_CHOICES, Case, Suite, SuiteDraft, Target
from runs.specs.suites import SuiteSpec
from runs.suites.differences import change_facts, compare_specs, evaluator_facts
from runs.suites.drafts import (
    DraftProblem,
    TreeWarning,
    find_conflict,
    find_problems,
    is_stored,
    tree_warnings,
)
from runs.suites.edits import nodes_with_paths


@dataclass(frozen=True, slots=True)
class GateRule:
    """A gate of every run: its threshold as a share, and what it measures."""

    name: str
    limit: float
    meaning: str


@dataclass(frozen=True, slots=True)
class SuiteRules:
    """How a suite scores: its policy and evaluators. `root` is None when the current version is unreadable."""

    policy: PolicySpec
    gates: Sequence[GateRule]
    root: Branch | None
    evaluators: int


def suite_rules(suite: Suite, tree: Mapping[str, Any] | None) -> SuiteRules:
    """Return how a suite scores; `tree` is the evaluators of its current version as stored."""
    policy = suite.policy
    root = EvaluatorSpec.model_validate(tree) if tree else None
    return SuiteRules(
        policy=policy,
        gates=policy_gates(policy),
        root=branches(root, scale=policy.scale) if root else None,
        evaluators=count_leaves(root) if root else 0,
    )


def policy_gates(policy: PolicySpec) -> Sequence[GateRule]:
    """Return the two gates of a run (SCORING §8)."""
    passed = "the share of all results that pass; errors count as not passed"
    return (
        GateRule("Mean score", policy.metrics_pass_threshold, "the mean of all scores"),
        GateRule("Pass rate", policy.cases_pass_threshold, passed),
    )


def policy_words(policy: PolicySpec) -> Mapping[str, str]:
    """Return the labels of a policy's choices."""
    return {
        name: str(choices(getattr(policy, name)).label) for name, choices in POLICY_CHOICES.items()
    }


@dataclass(frozen=True, slots=True)
class DraftPanel:
    """A draft's differences from the suite, what keeps it from being saved, and its version numbers.

    `others` are the people who saved other changes since the draft began; without `is_checked` the problems
    are not known.
    """

    stamp: str
    is_begun: bool
    base_version: int
    next_version: int
    changes: Sequence[AuditChange]
    problems: Sequence[DraftProblem]
    is_checked: bool
    others: Sequence[str]

    @property
    def can_be_saved(self) -> bool:
        """Tell whether there is something to save and nothing prevents it."""
        return bool(self.changes) and not self.problems and not self.others


def draft_panel(draft: SuiteDraft, *, is_checked: bool = True) -> DraftPanel:
    """Return the panel of a draft, stored or not.

    To find its problems takes the code of every kind, so the page of the tree asks for them after it is shown.
    """
    suite = draft.suite
    conflict = find_conflict(draft)
    theirs = conflict.theirs if conflict else ()
    return DraftPanel(
        stamp=draft.stamp,
        is_begun=is_stored(draft),
        base_version=draft.base_version,
        next_version=suite.version + 1,
        changes=_draft_changes(suite.spec, SuiteSpec.model_validate(draft.content)),
        problems=find_problems(suite, draft.content) if is_checked and is_stored(draft) else (),
        is_checked=is_checked or not is_stored(draft),
        others=tuple(
            version.author.get_username() if version.author else "somebody" for version in theirs
        ),
    )


def _draft_changes(saved: SuiteSpec, edited: SuiteSpec) -> Sequence[AuditChange]:
    if edited == saved:
        return ()
    facts = change_facts(compare_specs(saved, edited))
    return changes_between(facts.before, facts.after)


RULE = "review_"


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The results of one run in the review queue, counted by reason."""

    run: int
    executions: int
    by_reason: Mapping[str, int]

    def words(self, rule: str) -> str:
        """Return how many of the run's results a rule sent to review, "" where it sent none."""
        count = self.by_reason.get(rule.removeprefix(RULE), 0)
        results = figures.counted(self.executions, "result")
        return f"{figures.thousands(count)} of {results} in run #{self.run}" if count else ""


def queue_counts(suite: Suite) -> QueueCounts | None:
    """Return the counts of the latest completed run that is not a rescore; None without one."""
    runs = Run.objects.filter(suite=suite, status=RunStatus.COMPLETED, source_run=None)
    run = runs.order_by("-number").only("number").first()
    if run is None:
        return None
    items = ReviewItem.objects.filter(run=run).values_list("reasons", flat=True)
    counts = Counter(reason for reasons in items.iterator() for reason in reasons.split())
    return QueueCounts(run.number, run.results.count(), counts)


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
# What a child contributes where its share of the score is not known in advance.
NOTES = {
    "minimum": "lowest score counts",
    "maximum": "highest score counts",
    "code_judge": "seen by the script",
    "llm_judge": "seen by the judge",
}


# An evaluator's share of the final score and its weight, None where a rule decides.
Part = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Branch:
    """One evaluator of the tree as the suite's page shows it.

    `share` is the part of the final score it decides, 0 to 1; None when a rule decides, which `note`
    names. `marks` are conditions it must meet regardless of the total; `pass_mark` is on the suite's scale, "" for none.
    """

    name: str
    path: str
    icon: str
    label: str
    combines: str
    marks: tuple[str, ...]
    pass_mark: str
    weight: float | None
    share: float | None
    note: str
    children: tuple[Branch, ...]


def branches(root: EvaluatorSpec, *, scale: int = 1) -> Branch:
    """Return the tree with the share of the final score that each evaluator decides.

    Minimums are shown on the suite's scale.
    """
    return _branch(root, "", (1.0, None), None, scale)


def count_leaves(root: EvaluatorSpec) -> int:
    """Return how many evaluators score on their own."""
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
        pass_mark="" if node.pass_mark is None else figures.bound(node.pass_mark, scale),
        weight=weight,
        share=share,
        note=_note(node, above),
        children=_children(node, path, share, scale),
    )


def _children(
    node: EvaluatorSpec, path: str, share: float | None, scale: int
) -> tuple[Branch, ...]:
    aggregator = node.aggregator
    if aggregator is None:
        return ()
    weights = _weights(node, aggregator)
    total = sum(weights.values())
    return tuple(
        _branch(
            child,
            f"{path}/{child.name}" if path else child.name,
            (
                share * weights[child.name] / total
                if share is not None and child.name in weights and total
                else None,
                _weight(node, child, aggregator),
            ),
            aggregator,
            scale,
        )
        for child in node.children
    )


def _weights(node: EvaluatorSpec, aggregator: Aggregator) -> Mapping[str, float]:
    """Return the weight of each child; a child without an entry has no share."""
    if aggregator.type in NOTES:
        return {}
    counted = [child for child in node.children if not aggregator.is_gate_alone(child.name)]
    weights = {child.name: node.child_weight(child) for child in counted}
    if aggregator.type == "threshold":
        return {name: 1.0 for name, weight in weights.items() if weight > 0}
    return weights


def _weight(node: EvaluatorSpec, child: EvaluatorSpec, aggregator: Aggregator) -> float | None:
    if aggregator.type in NOTES or aggregator.is_gate_alone(child.name):
        return None
    return node.child_weight(child)


def _note(child: EvaluatorSpec, above: Aggregator | None) -> str:
    if above is None:
        return "final score"
    if above.is_gate_alone(child.name):
        return "gate only"
    return NOTES.get(above.type, "")


def _marks(node: EvaluatorSpec, above: Aggregator | None, scale: int) -> tuple[str, ...]:
    marks = ["inverted"] if node.negate else []
    if node.required_below is not None:
        marks.append(f"required, {figures.bound(node.required_below, scale)} or more")
    elif node.required:
        marks.append("required, above 0")
    if above is not None and above.is_gate(node.name):
        marks.append(f"gate, {figures.bound(above.gate_threshold, scale)} or more")
    if above is not None and above.type == "all_or_nothing":
        marks.append(f"{figures.bound(above.threshold, scale)} or more")
    return tuple(marks)


SLIDER = 10
SHOWN_AS_PROBLEM = "unfinished"


@dataclass(frozen=True, slots=True)
class EditedRow:
    """One evaluator of the edited tree.

    `old_share` is its share in the base version where that differs; `ways` are the steps it can be
    moved. `fields` are its fields of the form.
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
    warnings: Sequence[TreeWarning]
    problems: Sequence[DraftProblem]
    children: Sequence[EditedRow]

    @property
    def name(self) -> str:
        """Return the evaluator's name."""
        return self.branch.name

    @property
    def note(self) -> str:
        """Return the text in place of a weight: the root has none, nor do children where a rule decides."""
        return self.branch.note if self.is_root or self.branch.weight is None else ""


@dataclass(frozen=True, slots=True)
class TreeEditor:
    """The whole tree, and how many evaluators it has."""

    root: EditedRow
    count: int

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
    """The data of the rows, by path or id."""

    branches: Mapping[str, Branch]
    old: Mapping[str, Branch]
    facts: Mapping[str, Mapping[str, Any]]
    old_facts: Mapping[str, Mapping[str, Any]]
    warnings: Mapping[str, Sequence[TreeWarning]]
    problems: Mapping[str, Sequence[DraftProblem]]
    fields: Mapping[str, Any]


def base_spec(draft: SuiteDraft) -> SuiteSpec:
    """Return the spec of the version a draft is based on."""
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
    """Return the rows of a draft's content, compared with its base version; one query, for targets."""
    spec = SuiteSpec.model_validate(content)
    root, scale = spec.evaluators, spec.policy.scale
    warnings = defaultdict(list)
    for warning in tree_warnings(content, target_models=target_models()):
        if warning.code != SHOWN_AS_PROBLEM:
            warnings[warning.path].append(warning)
    by_node = defaultdict(list)
    for problem in problems:
        by_node[problem.node].append(problem)
    known = _Known(
        branches=_branches(root, scale),
        old=_branches(base.evaluators, scale),
        facts=evaluator_facts(root),
        old_facts=evaluator_facts(base.evaluators),
        warnings=warnings,
        problems=by_node,
        fields=fields,
    )
    row = _row(content["evaluators"], "", None, 0, known)
    return TreeEditor(root=row, count=len(known.branches) - 1)


def target_models() -> Mapping[str, Collection[str]]:
    """Return the names of the targets that use each language model, by its slug."""
    names: dict[str, list[str]] = defaultdict(list)
    chat = Target.objects.filter(archived_at=None, model__isnull=False)
    for slug, name in chat.order_by("name").values_list("model__slug", "name"):
        names[slug].append(name)
    return names


def aggregator_choices() -> Sequence[tuple[str, str]]:
    """Return the ways a composite can combine its children, as form choices."""
    return tuple(COMBINES.items())


def shares_text(branch: Branch) -> str:
    """Return the share an evaluator decides, as its row shows it."""
    return "" if branch.share is None else figures.pct(branch.share)


def composites(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return id and path of every composite, the outermost first."""
    nodes = nodes_with_paths(content["evaluators"])
    return [(node["id"], path or node["name"]) for path, node in nodes if node["kind"] == COMPOSITE]


def list_file_paths(suite: Suite) -> list[str]:
    """Return the paths of the suite's files as settings write them."""
    return [f"./{path}" for path in suite.files.order_by("path").values_list("path", flat=True)]


def _branches(root: EvaluatorSpec, scale: int) -> dict[str, Branch]:
    by_path: dict[str, Branch] = {}

    def gather(branch: Branch) -> None:
        by_path[branch.path] = branch
        for child in branch.children:
            gather(child)

    gather(branches(root, scale=scale))
    return by_path


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
        warnings=known.warnings.get(path, ()),
        problems=known.problems.get(node["id"], ()),
        children=children,
    )


def _old_share(branch: Branch, before: Branch | None) -> float | None:
    """Return the earlier share where it would be shown differently."""
    if before is None or before.share is None or shares_text(before) == shares_text(branch):
        return None
    return before.share


def _slider(
    siblings: Sequence[Mapping[str, Any]], branches: Mapping[str, Branch], path: str
) -> int:
    """Return the largest weight of a slider: ten, or the largest among the siblings."""
    above = path.rpartition("/")[0]
    names = (f"{above}/{sibling['name']}" if above else sibling["name"] for sibling in siblings)
    weights = [branches[name].weight or 0 for name in names if name in branches]
    largest = max(weights, default=0)
    return SLIDER if largest <= SLIDER else int(-(-largest // SLIDER) * SLIDER)


def _ways(siblings: Sequence[Mapping[str, Any]], position: int, path: str) -> Collection[str]:
    neighbours = [siblings[at] for at in (position - 1, position + 1) if 0 <= at < len(siblings)]
    alone = len(siblings) == 1
    can = {
        "up": position > 0,
        "down": position < len(siblings) - 1,
        "into": not alone and any(sibling["kind"] == COMPOSITE for sibling in neighbours),
        "out": not alone and "/" in path,
    }
    return tuple(way for way, possible in can.items() if possible)


def with_counts(suites: QuerySet[Suite]) -> QuerySet[Suite]:
    """Return suites with their case and run counts, their judge and their baseline run."""
    cases = Case.objects.filter(suite=OuterRef("pk"), is_current=True)
    runs = Run.objects.filter(suite=OuterRef("pk"))
    return (
        suites.select_related("judge", "baseline_run")
        .annotate(case_count=_count(cases), run_count=_count(runs))
        .defer("baseline_run__snapshot", "baseline_run__summary", "baseline_run__leaf_scores")
    )


def _count(rows: QuerySet[Any]) -> Any:
    total = rows.order_by().values("suite").annotate(total=Count("pk")).values("total")
    return Coalesce(Subquery(total, output_field=IntegerField()), 0)
