"""The completed runs that the charts of a suite show, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Q, QuerySet
from django.urls import reverse

from evaluators.scoring.policy import Policy
from evaluators.templatetags.figures import counted
from runs.models import ACTIVE_RUN_STATUSES, Run, RunStatus, Suite
from runs.reports.charts_query import ChartsQuery
from runs.reports.counted_purses import counted_purses, with_origins
from runs.reports.gates import RunGate, cases_gate, metrics_gate
from runs.reports.purses import Purses
from runs.reports.score_intervals import score_intervals

HEAVY = ("snapshot", "leaf_scores")
# What the charts say of runs that ended otherwise, or have yet to end.
ENDINGS: Mapping[str, str] = {
    RunStatus.STOPPED: "was cancelled,were cancelled",
    RunStatus.BUDGET_REACHED: "reached its budget,reached their budgets",
    RunStatus.FAILED: "failed,failed",
}


@dataclass(frozen=True, slots=True)
class ChartedRun:
    """One completed run in the figures that charts are made of.

    `interval` is the 95% interval of its pass rate as its summary keeps it, `score_interval` that
    of its mean score, `latency_ms` the mean over what reported one, `passed_cases` how many cases
    passed; None where there is none.
    """

    number: int
    url: str
    target: str
    suite_version: int
    created_at: datetime
    executions: int
    metrics: RunGate
    cases: RunGate
    interval: tuple[float, float] | None
    latency_ms: float | None
    passed_cases: int | None
    counts: Mapping[str, int]
    purses: Purses
    score_interval: tuple[float, float] | None = None


def charted_runs(suite: Suite, query: ChartsQuery) -> Sequence[ChartedRun]:
    """Return the last completed runs that were asked for, oldest first.

    Three queries, four where the summary of a run is from before intervals of scores were kept.
    """
    found = _of_target(suite, query).filter(status=RunStatus.COMPLETED)
    light = found.annotate(policy_json=F("snapshot__policy")).defer(*HEAVY)
    runs = list(with_origins(light).order_by("-number")[: query.last])
    return charted(runs, suite.slug)[::-1]


def charted(runs: Sequence[Run], slug: str) -> Sequence[ChartedRun]:
    """Return runs of `with_origins`, each told its `policy_json`, in the figures of charts; two queries or three."""
    purses, ends = counted_purses(runs), score_intervals(runs)
    return [_charted(run, slug, purses[run.pk], ends[run.pk]) for run in runs]


def left_out(suite: Suite, query: ChartsQuery, since: int) -> Sequence[str]:
    """Say which runs from number `since` on are in no chart because they were not completed."""
    is_again = ExpressionWrapper(Q(source_run__isnull=False), BooleanField())
    found = _named(suite, query).filter(number__gte=since).order_by().annotate(again=is_again)
    rows: Any = found.values_list("again", "status").annotate(total=Count("id"))
    totals = {status: total for again, status, total in rows if not again}
    said = []
    for status, words in ENDINGS.items():
        if total := totals.get(status, 0):
            one, many = words.split(",")
            said.append(f"{counted(total, 'run')} {one if total == 1 else many}")
    if active := sum(totals.get(status, 0) for status in ACTIVE_RUN_STATUSES):
        said.append(f"{counted(active, 'run')} {'is' if active == 1 else 'are'} still on")
    if made := sum(total for again, _, total in rows if again):
        said.append(f"{counted(made, 'run')} only scored stored answers again")
    return said


def charted_targets(suite: Suite) -> Sequence[str]:
    """Return the targets of the suite's completed runs by name."""
    runs: Any = suite.runs.filter(status=RunStatus.COMPLETED).order_by("target_name")
    return list(runs.values_list("target_name", flat=True).distinct())


def _of_target(suite: Suite, query: ChartsQuery) -> QuerySet[Run]:
    # One that was made of another's stored scores cost nothing and tells nothing new of the target.
    return _named(suite, query).filter(source_run=None)


def _named(suite: Suite, query: ChartsQuery) -> QuerySet[Run]:
    runs = suite.runs.all()
    return runs.filter(target_name=query.target) if query.target else runs


def _charted(
    run: Run, slug: str, purses: Purses, score_interval: tuple[float, float] | None
) -> ChartedRun:
    policy = Policy.from_json(run.policy_json)  # type: ignore[attr-defined]  # annotated above
    summary: Mapping[str, Any] = run.summary or {}
    interval = summary.get("interval")
    distribution: Mapping[str, int] = summary.get("distribution", {})
    return ChartedRun(
        number=run.number,
        url=reverse("runs:run", kwargs={"slug": slug, "number": run.number}),
        target=run.target_name,
        suite_version=run.suite_version,
        created_at=run.created_at,
        executions=run.done_count,
        metrics=metrics_gate(run, policy),
        cases=cases_gate(run, policy),
        interval=(interval[0], interval[1]) if interval else None,
        latency_ms=summary.get("means", {}).get("latency_ms"),
        passed_cases=distribution.get("pass", 0) if distribution else None,
        counts={name: count for name, count in distribution.items() if name != "total"},
        purses=purses,
        score_interval=score_interval,
    )
