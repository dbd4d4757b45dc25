"""All runs of all suites as one list, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import F, Q, QuerySet
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from runs.costs import RunCosts, listed_costs, with_costs
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite
from runs.results.run_figures import RunGate, cases_gate, metrics_gate


def run_word(run: Run) -> str:
    """Return how an address names a run: its suite and its number, `support-agent:12`."""
    return f"{run.suite.slug}:{run.number}"


PAGE_SIZE = 50
ACTIVE = "active"
MAX_NUMBER_LENGTH = 18
# Long columns that a list never shows.
HEAVY = ("snapshot", "leaf_scores", "suite__description", "suite__tags")


@dataclass(frozen=True, slots=True)
class RunsQuery:
    """Which runs are asked for; it lives in the address of the page."""

    suite: str = ""
    status: str = ""
    target: str = ""
    campaign: int | None = None
    after: int | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> RunsQuery:
        """Read the parameters of an address; what it does not know, it leaves out."""
        status = parameters.get("status", "")
        return cls(
            suite=parameters.get("suite", ""),
            status=status if status in (ACTIVE, *RunStatus.values) else "",
            target=parameters.get("target", ""),
            campaign=_number(parameters.get("campaign", "")),
            after=_number(parameters.get("after", "")),
        )

    def as_parameters(self) -> dict[str, str]:
        """Return the parameters, without those at their default."""
        named = {"suite": self.suite, "status": self.status, "target": self.target}
        numbers = {"campaign": self.campaign, "after": self.after}
        named |= {name: str(value) for name, value in numbers.items() if value is not None}
        return {name: value for name, value in named.items() if value}

    def address(self, **changes: Any) -> str:
        """Return the query part of the address with some of it changed, from the first page on."""
        return "?" + urlencode(replace(self, **{"after": None} | changes).as_parameters())

    @property
    def is_narrowed(self) -> bool:
        """Tell whether anything is left out."""
        return bool(self.suite or self.status or self.target or self.campaign)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as lists show it; `campaign` is name and address of the one it was started in."""

    number: int
    url: str
    is_baseline: bool
    suite_title: str
    suite_url: str
    target: str
    judge: str
    is_scripted: bool
    note: str
    status: str
    is_active: bool
    reason: str
    done: int
    executions: int
    counts: Mapping[str, int]
    metrics: RunGate
    cases: RunGate
    costs: RunCosts
    created_at: datetime
    started_by: str
    source_number: int | None = None
    source_url: str = ""
    campaign: tuple[str, str] | None = None
    word: str = ""


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of runs with what it can be narrowed by."""

    query: RunsQuery
    rows: tuple[RunRow, ...]
    suites: tuple[tuple[str, str], ...]
    targets: tuple[str, ...]
    statuses: tuple[tuple[str, str], ...]
    has_active: bool
    next_address: str
    live_address: str


def run_list(query: RunsQuery) -> RunList:
    """Return 50 runs, newest first, in a fixed number of queries."""
    found = list(_matching(query)[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    rows = tuple(run_row(run) for run in shown)
    targets = Run.objects.order_by("target_name").values_list("target_name", flat=True).distinct()
    return RunList(
        query=query,
        rows=rows,
        suites=tuple(Suite.objects.values_list("slug", "title")),
        targets=tuple(targets),
        statuses=((ACTIVE, "Active"), *((str(value), label) for value, label in RunStatus.choices)),
        has_active=any(row.is_active for row in rows),
        next_address=query.address(after=shown[-1].pk) if len(found) > PAGE_SIZE else "",
        live_address=query.address(after=query.after),
    )


def listed(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs with what a list shows of them and nothing heavy, newest first."""
    light = runs.select_related("suite", "created_by", "campaign").defer(*HEAVY)
    return with_costs(
        light.annotate(policy_json=F("snapshot__policy"), source_number=F("source_run__number"))
    ).order_by("-pk")


def listed_policy(run: Run) -> PolicySpec:
    """Return the frozen policy of a run of `listed`."""
    return PolicySpec.model_validate(run.policy_json)  # type: ignore[attr-defined]  # `listed` annotates it


def _matching(query: RunsQuery) -> QuerySet[Run]:
    runs = listed(Run.objects.all())
    narrow = Q()
    if query.suite:
        narrow &= Q(suite__slug=query.suite)
    if query.target:
        narrow &= Q(target_name=query.target)
    if query.campaign is not None:
        narrow &= Q(campaign=query.campaign)
    if query.status:
        wanted = ACTIVE_RUN_STATUSES if query.status == ACTIVE else (query.status,)
        narrow &= Q(status__in=wanted)
    if query.after is not None:
        narrow &= Q(pk__lt=query.after)
    return runs.filter(narrow)


def run_row(run: Run) -> RunRow:
    """Return one run of `listed` as lists show it."""
    done = run.pass_count + run.borderline_count + run.fail_count + run.error_count
    rest = "waiting" if run.is_active else "cancelled"
    policy = listed_policy(run)
    return RunRow(
        number=run.number,
        is_baseline=run.pk == run.suite.baseline_run_id,
        url=reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number}),
        suite_title=run.suite.title,
        suite_url=reverse("runs:suite", kwargs={"slug": run.suite.slug}),
        target=run.target_name,
        judge=run.judge_name,
        is_scripted=run.is_scripted,
        note=run.note,
        status=run.status,
        is_active=run.is_active,
        reason=run.status_reason,
        done=run.done_count,
        executions=run.execution_count,
        counts={
            "pass": run.pass_count,
            "borderline": run.borderline_count,
            "fail": run.fail_count,
            "error": run.error_count,
            rest: max(run.execution_count - done, 0),
        },
        metrics=metrics_gate(run, policy),
        cases=cases_gate(run, policy),
        costs=listed_costs(run),
        created_at=run.created_at,
        started_by=run.created_by.get_username() if run.created_by else "",
        **_source(run),
        campaign=_campaign(run),
        word=run_word(run),
    )


def _campaign(run: Run) -> tuple[str, str] | None:
    if run.campaign is None:
        return None
    name = run.campaign.name or f"Campaign {run.campaign.pk}"
    return name, reverse("runs:campaign", args=[run.campaign.pk])


def _source(run: Run) -> dict[str, Any]:
    number = vars(run).get("source_number")
    if number is None:
        return {}
    url = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": number})
    return {"source_number": number, "source_url": url}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < MAX_NUMBER_LENGTH else None
