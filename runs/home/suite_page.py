"""One suite: its policy in words, its tree with shares, and its last runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaluators.scoring.policy import PolicySpec
from runs.models.runs import RunStatus
from runs.models.suites import Suite
from runs.results.run_list import RunRow, listed, run_row
from runs.suites.queries import Branch, GateRule, SuiteHead, suite_rules

RUNS_SHOWN = 12
VERSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class RecentVersionRow:
    """An earlier version: what it changed, when and by whom."""

    number: int
    note: str
    created_at: datetime
    author: str


@dataclass(frozen=True, slots=True)
class SuitePage:
    """The overview of a suite. `root` is None when the current version cannot be read."""

    head: SuiteHead
    policy: PolicySpec
    gates: Sequence[GateRule]
    root: Branch | None
    evaluators: int
    runs: Sequence[RunRow]
    trend: Sequence[float]
    files: Sequence[str]
    changed_at: datetime | None
    changed_by: str
    note: str
    is_kept: bool
    earlier: Sequence[RecentVersionRow]

    @property
    def compared(self) -> int | None:
        """Return the number of the newest completed run that another can be held against; None without both."""
        completed = [row for row in self.runs if row.status == RunStatus.COMPLETED]
        newest = next((row for row in completed if not row.is_baseline), None)
        return newest.number if newest and len(completed) > 1 else None

    @property
    def trend_state(self) -> str:
        """Return the mark at the end of the trend: whether its last run passed the Metrics gate."""
        states = [row.metrics.state for row in self.runs if row.status == RunStatus.COMPLETED]
        return "pass" if states and states[0] == "passed" else "fail"


def suite_page(suite: Suite) -> SuitePage:
    """Return everything the overview shows, in a fixed number of queries."""
    version = (
        suite.versions.filter(number=suite.version)
        .values("content__evaluators", "created_at", "author__username", "note")
        .first()
    )
    rules = suite_rules(suite, version and version["content__evaluators"])
    rows = [run_row(run) for run in listed(suite.runs.all()).order_by("-number")[:RUNS_SHOWN]]
    return SuitePage(
        head=rules.head,
        policy=rules.policy,
        gates=rules.gates,
        root=rules.root,
        evaluators=rules.evaluators,
        runs=rows,
        trend=_trend(suite),
        files=list(suite.files.order_by("path").values_list("path", flat=True)),
        changed_at=version["created_at"] if version else None,
        changed_by=(version["author__username"] or "") if version else "",
        note=version["note"] if version else "",
        is_kept=version is not None,
        earlier=_earlier(suite),
    )


def _earlier(suite: Suite) -> Sequence[RecentVersionRow]:
    """Return the versions before the current one, newest first."""
    older: Any = suite.versions.filter(number__lt=suite.version)
    columns = ("number", "note", "created_at", "author__username")
    rows = older.order_by("-number").values_list(*columns)[:VERSIONS_SHOWN]
    return [RecentVersionRow(number, note, at, name or "") for number, note, at, name in rows]


def _trend(suite: Suite) -> Sequence[float]:
    """Return the metrics scores of the last completed runs, oldest first."""
    runs: Any = suite.runs.filter(status=RunStatus.COMPLETED, score_count__gt=0, source_run=None)
    newest = runs.order_by("-number").values_list("score_sum", "score_count")[:RUNS_SHOWN]
    return [total / count for total, count in reversed(newest)]
