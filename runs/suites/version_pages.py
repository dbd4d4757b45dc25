"""The pages of a suite's versions: the list, one version in full, and two compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max

from evaluators.kinds import all_kinds
from evaluators.models import LanguageModel
from evaluators.templatetags import figures
from runs import lists
from runs.lists import Key, Keyset, ListQuery
from runs.models.suites import POLICY_CHOICES, Suite, SuiteVersion
from runs.specs.suites import CaseRevision, VersionSpec
from runs.suites.differences import (
    AGGREGATOR,
    CONFIG,
    METRIC,
    CaseDifference,
    Change,
    EvaluatorChange,
    FileChange,
    VersionDifference,
    compare_specs,
)
from runs.suites.queries import (
    COMBINES,
    Branch,
    GateRule,
    branches,
    count_leaves,
    policy_gates,
    policy_words,
)
from runs.texts import ChangedValueRow, ChangedValues

NAMES: Mapping[str, str] = {
    "title": "Title",
    "description": "Description",
    "tags": "Tags",
    "judge": "Judge",
    "max_minutes": "Longest time of a run, minutes",
    "pass_threshold": "Pass from",
    "borderline_threshold": "Borderline from",
    "case_gate": "Case gate",
    "fallback_threshold": "Pass score for cases without outcomes",
    "final_score": "Final score",
    "on_unscored": "If an evaluator can't score",
    "judge_outcomes": "Judge expected outcomes",
    "metrics_pass_threshold": "Score gate, at least",
    "cases_pass_threshold": "Pass-rate gate, at least",
    "max_pass_rate_drop": "Largest drop in pass rate",
    "max_avg_score_drop": "Largest drop in mean score",
    "max_latency_increase_pct": "Largest rise in mean latency",
    "count_reviews": "Human reviews override verdicts",
    "scale": "Scores from 0 to",
    "review_borderline": "Review borderline verdicts",
    "review_disagreement": "Review if gate and score disagree",
    "review_one_missed": "Review if one outcome is missed",
    "review_split_panel": "Review split panels",
    "review_samples": "Review if a judge's samples differ",
    "review_repetitions": "Review if repetitions differ",
    "review_near_threshold": "Review scores near a threshold",
    "review_required": "Review requirements missed narrowly",
    "review_verdict_like": "Review answers that read like a verdict",
    "review_distance": "Close means within",
    "review_pass_sample": "Random sample of passes",
    "review_fail_sample": "Random sample of fails",
    "review_reviewers": "Reviewers per result",
    "review_blind": "Hide the judge until a decision",
    "weight": "Weight",
    "required": "Required",
    "negate": "Inverted score",
    "pass_mark": "Pass mark",
    "gate": "Gate of the composite",
    "kind": "Kind",
    f"{AGGREGATOR}type": "Combines by",
    f"{AGGREGATOR}gate_threshold": "Gates must reach",
    f"{AGGREGATOR}remainder": "Averages",
    f"{AGGREGATOR}threshold": "Each must reach",
    f"{AGGREGATOR}share": "Share that must pass",
}
BANDS = {
    "pass_mark",
    *("pass_threshold", "borderline_threshold", "fallback_threshold"),
    *(f"{AGGREGATOR}gate_threshold", f"{AGGREGATOR}threshold", "review_distance"),
}
RATES = {
    *("metrics_pass_threshold", "cases_pass_threshold", f"{AGGREGATOR}share"),
    *("review_pass_sample", "review_fail_sample"),
}
DROPS = {"max_pass_rate_drop", "max_avg_score_drop"}


def value_label(fact: str) -> str:
    """Return a value's label; a setting of a kind and a metric keep their own names."""
    known = NAMES.get(fact)
    if fact.startswith(METRIC):
        return f"Metric {fact.removeprefix(METRIC)}"
    return (
        known or fact.removeprefix(AGGREGATOR).removeprefix(CONFIG).replace("_", " ").capitalize()
    )


def value_text(fact: str, value: Any, scale: int = 1) -> str | None:
    """Return a value as pages show it, scores on the suite's scale; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "above 0" if fact == "required" and value else "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(fact, value, scale)
    if isinstance(value, str):
        return _word(fact, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False, indent=1)


def _word(fact: str, value: str) -> str:
    if fact in POLICY_CHOICES and value in POLICY_CHOICES[fact].values:
        return str(POLICY_CHOICES[fact](value).label)
    if fact == "kind" and value in all_kinds():
        return all_kinds()[value].label
    return COMBINES.get(value, value) if fact == f"{AGGREGATOR}type" else value or "none"


def _number(fact: str, value: float, scale: int) -> str:
    if fact == "required":
        return f"{figures.bound(value, scale)} or more"
    if fact in BANDS:
        return figures.bound(value, scale)
    if fact in RATES:
        return figures.threshold(value)
    if fact in DROPS:
        return figures.points(value)
    if fact == "max_latency_increase_pct":
        return f"{figures.plain(value)}%"
    is_weight = fact == "weight" or fact.startswith(METRIC)
    return f"×{figures.plain(value)}" if is_weight else figures.plain(value)


VERSIONS_A_PAGE = 20
BY_NUMBER = Keyset(Key("number", int, is_descending=True))


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. `changes` are counts compared with the version before, None for the first one.

    `runs` counts the runs that used it; `last_run` is the number of the latest.
    """

    number: int
    note: str
    author: str
    created_at: datetime
    is_current: bool
    changes: Sequence[str] | None
    runs: int
    last_run: int | None


@dataclass(frozen=True, slots=True)
class VersionsQuery(ListQuery):
    """The page of a suite's versions to show."""

    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class VersionList:
    """One page of versions."""

    query: VersionsQuery
    rows: Sequence[VersionRow]
    total: int
    next_address: str


def version_list(suite: Suite, query: VersionsQuery) -> VersionList:
    """Return one page of versions, in a fixed number of queries."""
    page = BY_NUMBER.page(suite.versions.select_related("author"), query.after, VERSIONS_A_PAGE)
    runs = _runs(suite, [version.number for version in page.rows])
    return VersionList(
        query=query,
        rows=list(_rows(suite, page.rows, page.beyond, runs)),
        total=suite.versions.count(),
        next_address=page.next_address(query),
    )


def _rows(
    suite: Suite,
    versions: Sequence[SuiteVersion],
    older: SuiteVersion | None,
    runs: Mapping[int, tuple[int, int | None]],
) -> Iterator[VersionRow]:
    for version, past in zip(versions, [*versions[1:], older], strict=False):
        count, last = runs.get(version.number, (0, None))
        yield VersionRow(
            number=version.number,
            note=version.note,
            author=version.author.get_username() if version.author else "",
            created_at=version.created_at,
            is_current=version.number == suite.version,
            changes=compare_specs(past.spec, version.spec).words if past else None,
            runs=count,
            last_run=last,
        )


def _runs(suite: Suite, numbers: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    runs: Any = suite.runs.filter(suite_version__in=numbers).order_by()
    rows = runs.values_list("suite_version").annotate(count=Count("pk"), last=Max("number"))
    return {version: (count, last) for version, count, last in rows}


CASES_SHOWN = 100
RUNS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class VersionCase:
    """One case of a version in the revision it had; `is_kept` is false if that is no longer stored."""

    key: str
    title: str
    revision: int
    is_kept: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One version in full; `judge_is_gone` tells that no model has its judge's slug now."""

    version: SuiteVersion
    is_current: bool
    spec: VersionSpec
    judge_is_gone: bool
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
    """Return a version with up to a hundred of its cases, starting at `first_case`, in a fixed number of queries."""
    spec = version.spec
    cases = spec.cases
    shown = cases[first_case : first_case + CASES_SHOWN]
    after = first_case + len(shown)
    runs = suite.runs.filter(suite_version=version.number).order_by("-number")
    numbers = suite.versions.values_list("number", flat=True)
    return VersionPage(
        version=version,
        is_current=version.number == suite.version,
        spec=spec,
        judge_is_gone=bool(spec.judge)
        and not LanguageModel.objects.filter(slug=spec.judge).exists(),
        words=policy_words(spec.policy),
        gates=policy_gates(spec.policy),
        root=branches(spec.evaluators, scale=spec.policy.scale),
        evaluators=count_leaves(spec.evaluators),
        files=sorted(spec.files),
        cases=_version_cases(suite, shown),
        case_count=len(cases),
        first_case=first_case,
        next_case=after if after < len(cases) else None,
        runs=list(runs.values_list("number", flat=True)[:RUNS_SHOWN]),
        run_count=runs.count(),
        previous=numbers.filter(number__lt=version.number).order_by("-number").first(),
        following=numbers.filter(number__gt=version.number).order_by("number").first(),
    )


def _version_cases(suite: Suite, shown: Sequence[CaseRevision]) -> list[VersionCase]:
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


VERSIONS_OFFERED = 200
LONGEST = 20_000
# The parts of a case that a revision can change, with their labels.
OF_A_CASE: Mapping[str, str] = {
    "title": "title",
    "input": "input",
    "expected_output": "expected output",
    "expected_outcomes": "expected outcomes",
    "criteria": "criteria",
    "tags": "tags",
    "metadata": "metadata",
    "evaluators": "own evaluators",
    "evaluators_append": "how its own evaluators join",
    "recorded_output": "recorded output",
}


@dataclass(frozen=True, slots=True)
class ChangedEvaluatorRow:
    """One evaluator that differs, with the values that do; `path` is "" for the whole tree."""

    what: str
    path: str
    old_path: str
    icon: str
    label: str
    values: Sequence[ChangedValueRow]


@dataclass(frozen=True, slots=True)
class ChangedCaseRow:
    """One case that differs; `parts` names what changed."""

    what: str
    key: str
    old_revision: int | None
    new_revision: int | None
    parts: Sequence[str]


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """What differs between two versions, with one page of the cases."""

    older: SuiteVersion
    newer: SuiteVersion
    counts: Sequence[str]
    values: Sequence[ChangedValueRow]
    evaluators: Sequence[ChangedEvaluatorRow]
    files: Sequence[FileChange]
    cases: Sequence[ChangedCaseRow]
    case_count: int
    first_case: int
    next_case: int | None
    is_reordered: bool
    is_empty: bool


def version_comparison(
    suite: Suite, older: SuiteVersion, newer: SuiteVersion, *, first_case: int = 0
) -> VersionComparison:
    """Return what differs, with up to a hundred cases from `first_case` on, in a fixed number of queries."""
    difference = compare_specs(older.spec, newer.spec)
    shown = difference.cases[first_case : first_case + CASES_SHOWN]
    after = first_case + len(shown)
    values, evaluators = setting_rows(difference, (_scale(older), _scale(newer)))
    return VersionComparison(
        older=older,
        newer=newer,
        counts=difference.words,
        values=values,
        evaluators=evaluators,
        files=difference.files,
        cases=_changed_cases(suite, shown),
        case_count=len(difference.cases),
        first_case=first_case,
        next_case=after if after < len(difference.cases) else None,
        is_reordered=difference.is_reordered,
        is_empty=difference.is_empty,
    )


def setting_rows(
    difference: VersionDifference, scales: tuple[int, int], page: ChangedValues | None = None
) -> tuple[list[ChangedValueRow], list[ChangedEvaluatorRow]]:
    """Return the differences in texts and policy, and those of each evaluator; `page` if it has more values."""
    page = page or ChangedValues()
    values = list(_values((*difference.texts, *difference.policy), scales, page))
    return values, list(_evaluators(difference, scales, page))


def version_choices(suite: Suite) -> Sequence[tuple[int, str]]:
    """Return number and note of the versions to choose from, newest first."""
    return list(suite.versions.values_list("number", "note")[:VERSIONS_OFFERED])


def _scale(version: SuiteVersion) -> int:
    return version.spec.policy.scale


def _values(
    changes: Sequence[Change], scales: tuple[int, int], page: ChangedValues
) -> Iterator[ChangedValueRow]:
    for change in changes:
        old, new = (
            value_text(change.name, change.old, scales[0]),
            value_text(change.name, change.new, scales[1]),
        )
        is_text = isinstance(change.new, str) and " " in (old or "") and " " in (new or "")
        yield page.row(value_label(change.name), _cut(old), _cut(new), is_text=is_text)


def _cut(text: str | None) -> str | None:
    return f"{text[:LONGEST]} …" if text is not None and len(text) > LONGEST else text


def _evaluators(
    difference: VersionDifference, scales: tuple[int, int], page: ChangedValues
) -> Iterator[ChangedEvaluatorRow]:
    for change in difference.evaluators:
        kind = all_kinds().get(change.kind)
        yield ChangedEvaluatorRow(
            what=change.what,
            path=change.path,
            old_path=_old_path(change),
            icon=kind.icon if kind else "e-code",
            label=kind.label if kind else f"{change.kind}, unknown here",
            values=list(_values(change.changes, scales, page)),
        )


def _old_path(change: EvaluatorChange) -> str:
    """Return the earlier path if it was different; a change of order has none."""
    return (
        change.old_path
        if change.what in ("moved", "renamed") and change.old_path != change.path
        else ""
    )


def _changed_cases(suite: Suite, shown: Sequence[CaseDifference]) -> list[ChangedCaseRow]:
    changed = [case for case in shown if case.what == "changed"]
    rows = suite.cases.filter(key__in=[case.key for case in changed])
    revisions: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows.values("key", "revision", *OF_A_CASE) if changed else ():
        revisions[row["key"], row["revision"]] = row
    return [
        ChangedCaseRow(
            case.what, case.key, case.old_revision, case.new_revision, _parts(case, revisions)
        )
        for case in shown
    ]


def _parts(
    case: CaseDifference, revisions: Mapping[tuple[str, int], Mapping[str, Any]]
) -> list[str]:
    old = revisions.get((case.key, case.old_revision or 0))
    new = revisions.get((case.key, case.new_revision or 0))
    if old is None or new is None:
        return []
    return [words for name, words in OF_A_CASE.items() if old[name] != new[name]]
