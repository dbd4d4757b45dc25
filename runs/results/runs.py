"""The list of runs, for pages and the API: its query, its columns and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from runs import lists
from runs.costs import CostPair, listed_costs, with_costs
from runs.lists import NEWEST_FIRST, Chip, Control, ListQuery
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite
from runs.results.gates import RunGate, cases_gate, metrics_gate


def run_word(run: Run) -> str:
    """Return the name of a run in addresses, its suite and its number: `support-agent:12`."""
    return f"{run.suite.slug}:{run.number}"


ACTIVE = "active"
STATUSES = ((ACTIVE, "Active"), *RunStatus.choices)
# Long columns that lists do not show.
HEAVY = ("snapshot", "leaf_scores", "suite__content", "suite__description", "suite__tags")


@dataclass(frozen=True, slots=True)
class RunsQuery(ListQuery):
    """Which runs a page or the API lists."""

    suite: str = lists.text(help="Runs of the suite with this slug.")
    status: str = lists.choice(
        (ACTIVE, *RunStatus.values),
        help="How far the run is; “active” are those that are queued or running.",
    )
    target: str = lists.text(help="Runs against the target of this name.")
    campaign: int | None = lists.integer(help="Runs of the campaign with this id.")
    since: datetime | None = lists.moment(help="Runs made at this time or later, ISO 8601.")
    after: str = lists.after()

    def runs(self) -> QuerySet[Run]:
        """Return the runs that match, as lists show them."""
        columns = {
            "suite": "suite__slug",
            "target": "target_name",
            "campaign": "campaign",
            "since": "created_at__gte",
        }
        runs = with_list_columns(Run.objects.all())
        if self.status:
            is_active = self.status == ACTIVE
            runs = runs.filter(status__in=ACTIVE_RUN_STATUSES if is_active else (self.status,))
        filters = {columns[name]: getattr(self, name) for name in self.filters if name in columns}
        return runs.filter(**filters)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as lists show it; `campaign` is the name and the address of its campaign."""

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
    costs: CostPair
    created_at: datetime
    started_by: str
    source_number: int | None = None
    source_url: str = ""
    campaign: tuple[str, str] | None = None
    word: str = ""


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of runs, with its filters."""

    query: RunsQuery
    rows: tuple[RunRow, ...]
    controls: tuple[Control, ...]
    hidden: tuple[tuple[str, str], ...]
    removable: tuple[Chip, ...]
    has_active: bool
    next_address: str


def run_list(query: RunsQuery) -> RunList:
    """Return 50 runs, newest first, in a fixed number of queries."""
    page = NEWEST_FIRST.page(query.runs(), query.after)
    rows = tuple(run_row(run) for run in page.rows)
    targets = Run.objects.order_by("target_name").values_list("target_name", flat=True).distinct()
    return RunList(
        query=query,
        rows=rows,
        controls=(
            query.select(
                "suite", "Suite", Suite.objects.values_list("slug", "title"), "All suites"
            ),
            query.select("status", "Status", STATUSES, "Any status"),
            query.select("target", "Target", ((name, name) for name in targets), "All targets"),
        ),
        hidden=query.hidden("suite", "status", "target"),
        removable=query.removable({"campaign": "Campaign", "since": "Since"}),
        has_active=any(row.is_active for row in rows),
        next_address=page.next_address(query),
    )


def with_list_columns(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs with what lists show, without long columns, newest first."""
    light = runs.select_related("suite", "created_by", "campaign").defer(*HEAVY)
    return with_costs(
        light.annotate(policy_json=F("snapshot__policy"), source_number=F("source_run__number"))
    ).order_by("-pk")


def listed_policy(run: Run) -> PolicySpec:
    """Return the frozen policy of a run of `with_list_columns`."""
    return PolicySpec.model_validate(run.policy_json)  # type: ignore[attr-defined]  # `with_list_columns` annotates it


def run_row(run: Run) -> RunRow:
    """Return one run of `with_list_columns` as lists show it."""
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
