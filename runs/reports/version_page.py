"""One version of a suite as it was: policy, evaluators, files and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.models import LanguageModel
from evaluators.scoring.policy import Policy
from runs.drafting import edited_parts, tree_of
from runs.drafting.content import policy_of
from runs.models import Suite, SuiteVersion
from runs.reports.suite import GateRule, policy_gates, policy_words
from runs.reports.trees import Branch, branches, count_leaves

CASES_SHOWN = 100
RUNS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class VersionCase:
    """One case of a version in the revision it had; `is_kept` is off where that is no longer stored."""

    key: str
    title: str
    revision: int
    is_kept: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class VersionPage:
    """What a version said. `judge` is the slug it names; `judge_is_gone` when no model has it now."""

    version: SuiteVersion
    is_current: bool
    title: str
    description: str
    tags: Sequence[str]
    judge: str
    judge_is_gone: bool
    policy: Policy
    words: Mapping[str, str]
    gates: Sequence[GateRule]
    root: Branch
    evaluators: int
    files: Sequence[str]
    cases: Sequence[VersionCase]
    case_count: int
    first_case: int
    next_case: int | None
    runs: Sequence[int]
    run_count: int
    previous: int | None
    following: int | None


def version_page(suite: Suite, version: SuiteVersion, *, first_case: int = 0) -> VersionPage:
    """Return a version with a hundred of its cases from a place on, in a fixed number of queries."""
    parts = edited_parts(version.content)
    policy, root = policy_of(parts), tree_of(parts)
    cases = version.content.get("cases") or []
    shown = cases[first_case : first_case + CASES_SHOWN]
    after = first_case + len(shown)
    runs = suite.runs.filter(suite_version=version.number).order_by("-number")
    numbers = suite.versions.values_list("number", flat=True)
    judge = str(parts["judge"])
    return VersionPage(
        version=version,
        is_current=version.number == suite.version,
        title=parts["title"],
        description=parts["description"],
        tags=parts["tags"],
        judge=judge,
        judge_is_gone=bool(judge) and not LanguageModel.objects.filter(slug=judge).exists(),
        policy=policy,
        words=policy_words(policy),
        gates=policy_gates(policy),
        root=branches(root, scale=policy.scale),
        evaluators=count_leaves(root),
        files=sorted(version.content.get("files") or {}),
        cases=_cases(suite, shown),
        case_count=len(cases),
        first_case=first_case,
        next_case=after if after < len(cases) else None,
        runs=list(runs.values_list("number", flat=True)[:RUNS_SHOWN]),
        run_count=runs.count(),
        previous=numbers.filter(number__lt=version.number).order_by("-number").first(),
        following=numbers.filter(number__gt=version.number).order_by("number").first(),
    )


def _cases(suite: Suite, shown: Sequence[Mapping[str, Any]]) -> list[VersionCase]:
    rows = suite.cases.filter(key__in=[case["key"] for case in shown])
    known = {
        (key, revision): (title, is_current)
        for key, revision, title, is_current in rows.values_list(
            "key", "revision", "title", "is_current"
        )
    }
    return [
        VersionCase(
            key=case["key"],
            title=known.get((case["key"], case["revision"]), ("", False))[0],
            revision=case["revision"],
            is_kept=(case["key"], case["revision"]) in known,
            is_current=known.get((case["key"], case["revision"]), ("", False))[1],
        )
        for case in shown
    ]
