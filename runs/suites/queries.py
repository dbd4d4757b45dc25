"""What the head of every suite page shows, a person's draft, and the policy in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.templatetags import figures
from runs.audit.queries import AuditChange, changes_between
from runs.models.reviews import ReviewItem
from runs.models.runs import Run, RunStatus
from runs.models.suites import CaseGate, FinalScore, OnUnscored, Suite, SuiteDraft
from runs.specs.suites import SuiteSpec
from runs.suites.differences import compare_specs
from runs.suites.drafts import DraftProblem, conflict_of, is_stored, problems_of
from runs.suites.evaluator_pages import Branch, branches, count_leaves
from runs.suites.versions import facts_of_change


@dataclass(frozen=True, slots=True)
class SuiteHead:
    """What the head of every page of a suite shows."""

    suite: Suite
    cases: int
    runs: int


@dataclass(frozen=True, slots=True)
class GateRule:
    """A gate of every run: its threshold as a share, and what is measured against it."""

    name: str
    limit: float
    meaning: str


@dataclass(frozen=True, slots=True)
class SuiteRules:
    """How a suite scores: its policy and evaluators. `root` is None when the current version cannot be read."""

    head: SuiteHead
    policy: PolicySpec
    gates: Sequence[GateRule]
    root: Branch | None
    evaluators: int


def suite_head(suite: Suite) -> SuiteHead:
    """Return the counts beside the tabs."""
    return SuiteHead(suite, suite.cases.filter(is_current=True).count(), suite.runs.count())


def suite_rules(suite: Suite, tree: Mapping[str, Any] | None) -> SuiteRules:
    """Return how a suite scores; `tree` is the evaluators of its current version as stored."""
    policy = suite.policy
    root = EvaluatorSpec.model_validate(tree) if tree else None
    return SuiteRules(
        head=suite_head(suite),
        policy=policy,
        gates=policy_gates(policy),
        root=branches(root, scale=policy.scale) if root else None,
        evaluators=count_leaves(root) if root else 0,
    )


def policy_gates(policy: PolicySpec) -> Sequence[GateRule]:
    """Return the two gates of a run (SCORING §8)."""
    passed = "the share of all executions that pass; errored ones count as not passed"
    return (
        GateRule("Metrics", policy.metrics_pass_threshold, "the mean score of what has a score"),
        GateRule("Cases", policy.cases_pass_threshold, passed),
    )


def policy_words(policy: PolicySpec) -> Mapping[str, str]:
    """Return the choices of a policy as pages name them."""
    return {
        "case_gate": str(CaseGate(policy.case_gate).label),
        "final_score": str(FinalScore(policy.final_score).label),
        "on_unscored": str(OnUnscored(policy.on_unscored).label),
    }


@dataclass(frozen=True, slots=True)
class DraftPanel:
    """What differs from the suite, what keeps it from being saved, and what the version would be.

    `others` are who saved a version since the draft began that changed the same parts.
    """

    stamp: str
    is_begun: bool
    base_version: int
    next_version: int
    changes: Sequence[AuditChange]
    problems: Sequence[DraftProblem]
    others: Sequence[str]

    @property
    def can_be_saved(self) -> bool:
        """Tell whether there is something to save and nothing in the way."""
        return bool(self.changes) and not self.problems and not self.others


def draft_panel(draft: SuiteDraft) -> DraftPanel:
    """Return the panel of a draft, stored or not."""
    suite = draft.suite
    conflict = conflict_of(draft)
    told = facts_of_change(compare_specs(suite.spec, SuiteSpec.model_validate(draft.content)))
    theirs = conflict.theirs if conflict else ()
    return DraftPanel(
        stamp=draft.stamp,
        is_begun=is_stored(draft),
        base_version=draft.base_version,
        next_version=suite.version + 1,
        changes=changes_between(told.before, told.after),
        problems=problems_of(suite, draft.content) if is_stored(draft) else (),
        others=tuple(
            version.author.get_username() if version.author else "somebody" for version in theirs
        ),
    )


RULE = "review_"


@dataclass(frozen=True, slots=True)
class Entered:
    """The results of one run in the review queue, counted by the reason they entered by."""

    run: int
    executions: int
    by_reason: Mapping[str, int]

    def words(self, rule: str) -> str:
        """Return how many executions a rule of the policy brought in, of how many."""
        count = figures.thousands(self.by_reason.get(rule.removeprefix(RULE), 0))
        return f"{count} of {figures.counted(self.executions, 'execution')} in run #{self.run}"


def entered_by_rule(suite: Suite) -> Entered | None:
    """Return it for the latest completed run that is no other scored again; None without one."""
    runs = Run.objects.filter(suite=suite, status=RunStatus.COMPLETED, source_run=None)
    run = runs.order_by("-number").only("number").first()
    if run is None:
        return None
    items = ReviewItem.objects.filter(result__run=run).values_list("reasons", flat=True)
    counts = Counter(reason for reasons in items.iterator() for reason in reasons.split())
    return Entered(run.number, run.results.count(), counts)
