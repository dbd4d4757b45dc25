"""A breakdown of runs: pass rate and mean score of their cases by tag or metadata, what fails most first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.significance import Evidence, evidence_apart, holm
from evaluators.templatetags.figures import chance_words
from runs import lists
from runs.filters.fields import METADATA
from runs.filters.queries import ResultsQuery
from runs.lists import Control, ListQuery
from runs.models.runs import RecentValues, Run
from runs.results.display import metadata_keys
from runs.results.groups import group_address, group_list
from runs.summary.groups import GroupedCase, GroupFigures

TAGS = ""
MAX_GROUPS = 40


@dataclass(frozen=True, slots=True)
class BreakdownQuery(ListQuery):
    """By what cases are grouped: a key of their metadata, "" for their tags."""

    by: str = lists.setting()


def breakdown_control(by: str, keys: Sequence[str]) -> Control:
    """Return the field that chooses by what cases are grouped."""
    return Control("by", "Group by", by, ((TAGS, "Tag"), *((key, key) for key in keys)))


def field_name(by: str) -> str:
    """Return the field of a filter that asks for a group."""
    return f"{METADATA}{by}" if by else "tag"


@dataclass(frozen=True, slots=True)
class RunGroup:
    """A group of the cases of a run, which `query` lists on its page, "" where no filter can be so long.

    `passed` of `counted` results passed, and `scored` of `results` decide the mean score. `difference` is the pass
    rate minus that of the run's other cases, None where there are none to compare; the p of its evidence is corrected
    for all groups of the run.
    """

    label: str
    query: str
    cases: int
    passed: int
    counted: int
    pass_rate: float | None
    interval: tuple[float, float] | None
    mean_score: float | None
    scored: int
    results: int
    difference: float | None
    evidence: Evidence

    @property
    def chance(self) -> str:
        """Say what the p of the difference means."""
        return chance_words(self.evidence.p, is_clear=self.evidence.is_clear)

    @property
    def tone(self) -> str:
        """Return the tone of a difference that is unlikely to be chance, "" for others."""
        if not self.evidence.is_clear or not self.difference:
            return ""
        return "good" if self.difference > 0 else "bad"


# Groups by their name, None for the cases that have none.
RunGroups = Mapping[str | None, RunGroup]
# A page of charts shows several large runs at once.
KEPT: RecentValues[RunGroups] = RecentValues(50)


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """One group with its figures by run, None where a run has no such case."""

    label: str
    cells: Sequence[tuple[Run, RunGroup | None]]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The groups of one run or more; `left_out` more are not listed, and `tested` are compared with the other cases."""

    by: str
    keys: Sequence[str]
    runs: Sequence[Run]
    rows: Sequence[BreakdownRow]
    left_out: int
    tested: int

    @property
    def controls(self) -> Sequence[Control]:
        """Return the field that chooses by what the cases are grouped."""
        return (breakdown_control(self.by, self.keys),)

    @property
    def grouping(self) -> str:
        """Return how the table of a run is asked for all groups with all their figures."""
        return ResultsQuery(group=field_name(self.by)).address()


def read_breakdown(runs: Sequence[Run], by: str) -> Breakdown:
    """Return the cases of runs in groups; three queries for each run, a fourth where cases are repeated."""
    keys = metadata_keys(*runs)
    by = by if by in keys else TAGS
    found = [run_groups(run, by) for run in runs]
    rows = {
        name: [groups.get(name) for groups in found]
        for name in dict.fromkeys(name for groups in found for name in groups)
    }
    ordered = sorted(rows, key=lambda name: _failing_most(name, rows[name]))
    return Breakdown(
        by=by,
        keys=keys,
        runs=runs,
        rows=[
            BreakdownRow(
                next(group.label for group in rows[name] if group),
                list(zip(runs, rows[name], strict=True)),
            )
            for name in ordered[:MAX_GROUPS]
        ]
        if any(name is not None for name in rows)
        else [],
        left_out=max(0, len(rows) - MAX_GROUPS),
        tested=sum(group.evidence.p is not None for groups in found for group in groups.values()),
    )


def _failing_most(
    name: str | None, by_run: Sequence[RunGroup | None]
) -> tuple[float, int, bool, str]:
    """Return the place of a group: the lowest pass rate over all runs, then the most cases."""
    groups = [group for group in by_run if group]
    counted = sum(group.counted for group in groups)
    rate = sum(group.passed for group in groups) / counted if counted else math.inf
    return rate, -sum(group.cases for group in groups), name is None, name or ""


def run_groups(run: Run, by: str) -> RunGroups:
    """Return the groups of the cases of a run by their names; those of a run that is over are kept."""
    if run.is_active:
        return _read_groups(run, by)
    return KEPT.get((run.pk, run.results_version, by), lambda: _read_groups(run, by))


def _read_groups(run: Run, by: str) -> RunGroups:
    query = ResultsQuery(group=field_name(by))
    grouping = group_list(run, query, run.cases.live(run))
    if grouping is None:
        raise AssertionError("tags and metadata can group cases")
    # A case is in each of its groups.
    cases = {id(case): case for group in grouping.groups for case in group.members}.values()
    everything = _Shares.count(list(cases))
    inside = [_Shares.count(group.members) for group in grouping.groups]
    outside = [everything.without(shares) for shares in inside]
    tests = [
        evidence_apart(shares.cases, others.cases, seed=run.pk)
        for shares, others in zip(inside, outside, strict=True)
    ]
    return {
        group.name: RunGroup(
            label=grouping.group_label(group.name),
            query=group_address(query, grouping.field, group.name),
            cases=group.cases,
            passed=group.passed,
            counted=group.counted,
            pass_rate=group.pass_rate,
            interval=group.interval,
            mean_score=group.mean_score,
            scored=group.scored,
            results=group.executions,
            difference=_difference(group, others.passed, others.counted),
            evidence=evidence,
        )
        for group, others, evidence in zip(grouping.groups, outside, holm(tests), strict=True)
    }


@dataclass(frozen=True, slots=True)
class _Shares:
    """How many of some results passed, and the number of cases by the share of theirs that did."""

    passed: int
    counted: int
    cases: Counter[float]

    @classmethod
    def count(cls, cases: Sequence[GroupedCase]) -> _Shares:
        ended = [case for case in cases if case.counted]
        return cls(
            sum(case.passed for case in ended),
            sum(case.counted for case in ended),
            Counter(case.passed / case.counted for case in ended),
        )

    def without(self, group: _Shares) -> _Shares:
        return _Shares(
            self.passed - group.passed, self.counted - group.counted, self.cases - group.cases
        )


def _difference(group: GroupFigures, passed: int, counted: int) -> float | None:
    if group.pass_rate is None or not counted:
        return None
    return group.pass_rate - passed / counted
