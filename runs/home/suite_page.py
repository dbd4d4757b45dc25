"""The overview of a suite: how its targets do now, its worst cases, its last runs and its current version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, Max, Q
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from runs.costs import best_value_text
from runs.models.reviews import ReviewItem
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import RunRow, RunVerdict, run_row, run_verdict, with_list_columns
from runs.suites.queries import Branch, GateRule, suite_rules
from runs.summary.judge_spread import JUDGE_SPREAD, SpreadFigures

RUNS_SHOWN = 12
VERSIONS_SHOWN = 20
TARGETS_SHOWN = 5
# How many completed runs are read for the state of the targets, and their columns.
HISTORY = 60
READ = ("number", "status", "status_reason", "summary", "target_name", "created_at", "suite_id")
WORST_RUNS, WORST_SHOWN = 10, 8
BAD_STATES = ("fail", "error")


@dataclass(frozen=True, slots=True)
class RecentVersionRow:
    """An earlier version of a suite."""

    number: int
    note: str
    created_at: datetime
    author: str


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """How one target did in its newest completed run; `verdict` is None where that has no summary.

    `since` is the number of the first of its last runs that all ended like the newest, None where only that did.
    `before` tells how the run before it ended, "" where there is none.
    """

    run: RunRow
    verdict: RunVerdict | None
    cost_a_pass_usd: Decimal | None
    passed: int
    since: int | None
    since_url: str
    since_at: datetime | None
    before: str


@dataclass(frozen=True, slots=True)
class WorstCase:
    """A case that failed or errored in `failed` of the last runs, last in the run `last`."""

    key: str
    title: str
    failed: int
    last: int


@dataclass(frozen=True, slots=True)
class SuitePage:
    """The overview of a suite; `root` is None when the current version cannot be read.

    `more_targets` counts targets that are not in `health`; `best_value` compares all of them. `worst` looks over the
    newest `recent` runs. Reviewers decided on `reviewed` results, `agreed` of them with the automatic verdict.
    `measurement` is the newest run that measured a judge, with its figures of whole results.
    """

    policy: PolicySpec
    gates: Sequence[GateRule]
    root: Branch | None
    evaluators: int
    health: Sequence[TargetHealth]
    more_targets: int
    best_value: str
    worst: Sequence[WorstCase]
    recent: int
    reviewed: int
    agreed: int
    measurement: tuple[Run, SpreadFigures] | None
    runs: Sequence[RunRow]
    files: Sequence[str]
    changed_at: datetime | None
    changed_by: str
    note: str
    is_kept: bool
    earlier: Sequence[RecentVersionRow]

    @property
    def compared(self) -> int | None:
        """Return the number of the newest completed run that can be compared with another; None without two."""
        completed = [
            row for row in self.runs if row.status == RunStatus.COMPLETED and not row.measures_judge
        ]
        newest = next((row for row in completed if not row.is_baseline), None)
        return newest.number if newest and len(completed) > 1 else None


def suite_page(suite: Suite) -> SuitePage:
    """Return the overview of a suite in a fixed number of queries."""
    version = (
        suite.versions.filter(number=suite.version)
        .values("content__evaluators", "created_at", "author__username", "note")
        .first()
    )
    rules = suite_rules(suite, version and version["content__evaluators"])
    rows = [
        run_row(run) for run in with_list_columns(suite.runs.all()).order_by("-number")[:RUNS_SHOWN]
    ]
    health = _health(suite)
    worst, recent = _worst(suite)
    decided = _decided(suite)
    return SuitePage(
        policy=rules.policy,
        gates=rules.gates,
        root=rules.root,
        evaluators=rules.evaluators,
        health=health[:TARGETS_SHOWN],
        more_targets=max(0, len(health) - TARGETS_SHOWN),
        best_value=best_value_text(
            {
                f"{target.run.target} #{target.run.number}": target.cost_a_pass_usd
                for target in health
            }
        ),
        worst=worst,
        recent=recent,
        reviewed=decided["reviewed"],
        agreed=decided["agreed"],
        measurement=_measurement(suite),
        runs=rows,
        files=list(suite.files.order_by("path").values_list("path", flat=True)),
        changed_at=version["created_at"] if version else None,
        changed_by=(version["author__username"] or "") if version else "",
        note=version["note"] if version else "",
        is_kept=version is not None,
        earlier=_earlier(suite),
    )


def _measurement(suite: Suite) -> tuple[Run, SpreadFigures] | None:
    """Return the newest run that shows the spread of its judge, with the figures of whole results; one query.

    It measured the judge of its source, or its evaluators took several samples.
    """
    known = suite.runs.filter(**{f"summary__{JUDGE_SPREAD}__whole__results__gt": 0})
    run = known.defer("leaf_scores").select_related("source_run").order_by("-number").first()
    spread = None if run is None else run.judge_spread
    if run is None or spread is None or spread.whole is None:
        return None
    return run, spread.whole


def _earlier(suite: Suite) -> Sequence[RecentVersionRow]:
    """Return the versions before the current one, newest first."""
    older: Any = suite.versions.filter(number__lt=suite.version)
    columns = ("number", "note", "created_at", "author__username")
    rows = older.order_by("-number").values_list(*columns)[:VERSIONS_SHOWN]
    return [RecentVersionRow(number, note, at, name or "") for number, note, at, name in rows]


def _health(suite: Suite) -> Sequence[TargetHealth]:
    """Return how every target did in its newest completed run, the one that ran last first; two queries.

    Runs that scored stored outputs again show nothing new about a target, so they do not count here.
    """
    ended = suite.runs.filter(status=RunStatus.COMPLETED, source_run=None).order_by("-number")
    by_target: dict[str, list[Run]] = defaultdict(list)
    for run in ended.only(*READ)[:HISTORY]:
        by_target[run.target_name].append(run)
    newest = [runs[0].pk for runs in by_target.values()]
    rows = {run.pk: run_row(run) for run in with_list_columns(Run.objects.filter(pk__in=newest))}
    return [_target_health(suite, rows[runs[0].pk], runs) for runs in by_target.values()]


def _best_value(health: Sequence[TargetHealth]) -> str:
    """Say which target has the cheapest passed result; "" where there is nothing to compare."""
    costs = {
        f"{target.run.target} #{target.run.number}": target.cost_a_pass_usd for target in health
    }
    is_known = any(usd is not None for usd in costs.values())
    return best_value_text(costs) if is_known else ""


def _target_health(suite: Suite, row: RunRow, runs: Sequence[Run]) -> TargetHealth:
    """Return how a target did from the row of its newest run and all its runs, newest first."""
    verdict, states = run_verdict(runs[0], ()), [_state(run) for run in runs]
    alike = next((n for n, state in enumerate(states) if state != states[0]), len(runs))
    first = runs[alike - 1] if alike > 1 else None
    passed = (runs[0].summary or {}).get("passed", 0)
    total = row.costs.total_usd
    return TargetHealth(
        run=row,
        verdict=verdict,
        passed=passed,
        cost_a_pass_usd=total / passed if total is not None and passed else None,
        since=first.number if first else None,
        since_url=reverse("runs:run", args=[suite.slug, first.number]) if first else "",
        since_at=first.created_at if first else None,
        before=states[alike] if alike < len(runs) else "",
    )


def _state(run: Run) -> str:
    verdict = run_verdict(run, ())
    return verdict.state if verdict else ""


def _decided(suite: Suite) -> Mapping[str, int]:
    """Count the results that reviewers have decided on, and those where they agreed with the automatic verdict."""
    decided = ReviewItem.objects.filter(run__suite=suite, closed_at__isnull=False)
    agrees = Q(result__reviewed_verdict=F("result__verdict"))
    return decided.aggregate(reviewed=Count("pk"), agreed=Count("pk", filter=agrees))


def _worst(suite: Suite) -> tuple[Sequence[WorstCase], int]:
    """Return the cases that failed or errored most often over the last runs, and how many runs these are."""
    ended = suite.runs.filter(status=RunStatus.COMPLETED, source_run=None).order_by("-number")
    recent = list(ended.values_list("pk", flat=True)[:WORST_RUNS])
    bad = RunCase.objects.filter(run__in=recent, state__in=BAD_STATES).order_by()
    rows = bad.values("case__key").annotate(
        failed=Count("pk"), last=Max("run__number"), title=Max("case__title")
    )
    worst = [
        WorstCase(
            key=row["case__key"],
            title=row["title"],
            failed=row["failed"],
            last=row["last"],
        )
        for row in rows.order_by("-failed", "-last", "case__key")[:WORST_SHOWN]
    ]
    return worst, len(recent)
