"""The suites that ran last, for the rail of every page."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, OuterRef, Subquery
from django.urls import reverse

from runs.models import Run, RunStatus, Suite
from runs.reports.gates import cases_gate, metrics_gate
from runs.reports.run_list import listed_policy

MOST_PINNED = 5
# Every page asks: it reads what the dot before a suite is made of and no more.
READ = (
    *("number", "status", "summary", "repetitions", "execution_count", "done_count"),
    *("pass_count", "score_sum", "score_count", "suite__slug", "suite__title"),
)


@dataclass(frozen=True, slots=True)
class PinnedSuite:
    """A suite with where its last run leads and how that stands."""

    title: str
    url: str
    verdict: str


def pinned_suites() -> list[PinnedSuite]:
    """Return up to five suites, the one that ran last first; one query."""
    last = Run.objects.filter(suite=OuterRef("suite")).order_by("-number").values("pk")[:1]
    runs = Run.objects.filter(pk=Subquery(last), suite__archived_at=None).order_by("-pk")
    told = runs.select_related("suite").only(*READ).annotate(policy_json=F("snapshot__policy"))
    return [_pinned(run.suite, run) for run in told[:MOST_PINNED]]


def _pinned(suite: Suite, run: Run) -> PinnedSuite:
    place = {"slug": suite.slug}
    is_live = run.is_active
    url = (
        reverse("runs:run", kwargs=place | {"number": run.number})
        if is_live
        else reverse("runs:suite", kwargs=place)
    )
    return PinnedSuite(suite.title, url, _verdict(run))


def _verdict(run: Run) -> str:
    named = {
        RunStatus.QUEUED: "waiting",
        RunStatus.RUNNING: "running",
        RunStatus.STOPPED: "cancelled",
        RunStatus.BUDGET_REACHED: "cancelled",
        RunStatus.FAILED: "error",
    }
    if run.status in named:
        return named[RunStatus(run.status)]
    policy = listed_policy(run)
    gates = {metrics_gate(run, policy).state, cases_gate(run, policy).state}
    return "fail" if "failed" in gates else "pass" if gates == {"passed"} else "borderline"
