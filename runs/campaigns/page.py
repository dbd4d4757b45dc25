"""The page of a campaign, and the list of campaigns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from urllib.parse import urlencode

from django.db.models import F, QuerySet
from django.urls import reverse

from evaluators.models import LanguageModel
from evaluators.scoring.significance import Evidence
from evaluators.templatetags.figures import counted, money
from runs import lists
from runs.campaigns.board import (
    COLUMNS,
    BoardRow,
    CampaignQuery,
    CaseOutcomes,
    Matrix,
    board,
    evidence_against,
    headline,
    matrix,
    outcomes_by_case,
    sort_rows,
)
from runs.charts.queries import COSTS, ChartsQuery, ScoreCostChart, chart_runs, score_cost_chart
from runs.costs import with_origins
from runs.lists import NEWEST_FIRST, Control, HeadCell, ListQuery, head_cell
from runs.models.runs import ACTIVE_RUN_STATUSES, Campaign, Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import RunVerdict, run_verdict, with_list_columns


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """A campaign as lists show it: its targets by rank, and a headline."""

    pk: int
    name: str
    suite_title: str
    suite_slug: str
    targets: Sequence[str]
    states: Mapping[str, int]
    headline: str
    is_active: bool
    created_at: datetime
    started_by: str

    @property
    def title(self) -> str:
        """Return the name, or the number where it has none."""
        return self.name or f"Campaign {self.pk}"


@dataclass(frozen=True, slots=True)
class CampaignsQuery(ListQuery):
    """Which campaigns a page or the API lists."""

    suite: str = lists.text(help="Campaigns of the suite with this short name.")
    after: str = lists.after()

    def campaigns(self) -> QuerySet[Campaign]:
        """Return the campaigns that match."""
        campaigns = Campaign.objects.select_related("suite", "created_by")
        return campaigns.filter(suite__slug=self.suite) if self.suite else campaigns


@dataclass(frozen=True, slots=True)
class CampaignList:
    """One page of campaigns, of one `suite` or of all."""

    query: CampaignsQuery
    rows: Sequence[CampaignRow]
    suite: Suite | None
    next_address: str


def campaign_list(query: CampaignsQuery) -> CampaignList:
    """Return 50 campaigns, newest first, in a fixed number of queries."""
    page = NEWEST_FIRST.page(query.campaigns(), query.after)
    return CampaignList(
        query=query,
        rows=campaign_rows(page.rows),
        suite=Suite.objects.filter(slug=query.suite).first() if query.suite else None,
        next_address=page.next_address(query),
    )


def campaign_rows(campaigns: Sequence[Campaign]) -> Sequence[CampaignRow]:
    """Return the campaigns as lists show them, in a fixed number of queries."""
    runs: dict[int | None, list[Run]] = defaultdict(list)
    for run in with_list_columns(Run.objects.filter(campaign__in=campaigns)).order_by("pk"):
        runs[run.campaign_id].append(run)
    return [_row(campaign, runs[campaign.pk]) for campaign in campaigns]


def _row(campaign: Campaign, runs: Sequence[Run]) -> CampaignRow:
    rows = board(runs, {})
    return CampaignRow(
        pk=campaign.pk,
        name=campaign.name,
        suite_title=campaign.suite.title,
        suite_slug=campaign.suite.slug,
        targets=[row.run.target for row in rows],
        states=dict(Counter(row.run.status for row in rows)),
        headline=headline(rows),
        is_active=any(run.status in ACTIVE_RUN_STATUSES for run in runs),
        created_at=campaign.created_at,
        started_by=campaign.created_by.get_username() if campaign.created_by else "",
    )


NUMBERS = ("rate", "score", "latency", "target_cost", "evaluation_cost", "cost", "passed_result")
MAX_NAMED = 5
ENDINGS: Mapping[str, str] = {
    RunStatus.STOPPED: "was cancelled,were cancelled",
    RunStatus.BUDGET_REACHED: "reached its budget,reached their budgets",
    RunStatus.FAILED: "failed,failed",
}


class CampaignPage:
    """A campaign for its page and files, each part read on first use.

    The number of queries does not grow with runs and cases.
    """

    def __init__(self, campaign: Campaign, query: CampaignQuery) -> None:
        """Read nothing yet."""
        self.campaign = campaign
        self.query = query
        self.url = reverse("runs:campaign", args=[campaign.pk])

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Return the runs in the order of their start, without long columns."""
        runs = with_origins(with_list_columns(self.campaign.runs.all()))
        return list(runs.annotate(judge_slug=F("snapshot__judge__slug")).order_by("pk"))

    @property
    def first_run(self) -> Run | None:
        """Return the run that was started first; its settings hold for all."""
        return self.runs[0] if self.runs else None

    @cached_property
    def active(self) -> Sequence[Run]:
        """Return the runs that are queued or running."""
        return [run for run in self.runs if run.is_active]

    @property
    def state(self) -> str:
        """Return a text that changes when a run starts or ends."""
        return "-".join(run.status for run in self.runs)

    def ended_since(self, state: str) -> Sequence[tuple[Run, RunVerdict]]:
        """Return the runs that were active in an earlier state and have ended, each with its verdict."""
        earlier = state.split("-")
        if len(earlier) != len(self.runs):
            return ()
        return [
            (run, verdict)
            for run, status in zip(self.runs, earlier, strict=True)
            if status in ACTIVE_RUN_STATUSES
            and not run.is_active
            and (verdict := run_verdict(run, ()))
        ]

    @cached_property
    def cases(self) -> Mapping[int, CaseOutcomes]:
        """Return the outcome of each case in each run."""
        return outcomes_by_case(self.runs)

    @cached_property
    def rows(self) -> Sequence[BoardRow]:
        """Return the leaderboard by rank."""
        return board(self.runs, self._against)

    @property
    def sorted_rows(self) -> Sequence[BoardRow]:
        """Return the leaderboard in the order of the query."""
        return sort_rows(self.rows, self.query)

    @property
    def headline(self) -> str:
        """Return the campaign in a sentence or two."""
        return headline(self.rows)

    @property
    def columns(self) -> Sequence[HeadCell]:
        """Return the heads of the columns; the first click sorts the best first."""
        return [
            head_cell(self.query, name, label, is_number=name in NUMBERS, best_first=best_first)
            for name, (label, best_first) in COLUMNS.items()
        ]

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the hidden fields of the form of the chart."""
        return self.query.hidden("cost")

    @cached_property
    def chart(self) -> ScoreCostChart:
        """Return score against cost of the completed runs."""
        completed = [run for run in self.runs if run.status == RunStatus.COMPLETED]
        query = ChartsQuery(cost=self.query.cost, points="every")
        return score_cost_chart(chart_runs(completed, self.campaign.suite.slug), query)

    @property
    def controls(self) -> Sequence[Control]:
        """Return the field for the cost of the chart."""
        return (self.query.select("cost", "Cost", COSTS.items(), id="chart-cost"),)

    @cached_property
    def matrix(self) -> Matrix:
        """Return one page of the cases."""
        return matrix(self.runs, self.cases, self.query, self.campaign.suite.slug)

    @property
    def address(self) -> str:
        """Return the query part of the page's own address."""
        return self.query.here or "?"

    @property
    def title(self) -> str:
        """Return the name of the campaign, or its number where it has none."""
        return self.campaign.name or f"Campaign {self.campaign.pk}"

    @property
    def created_at(self) -> datetime:
        """Return when it was started."""
        return self.campaign.created_at

    @property
    def ended_early(self) -> str:
        """Name the runs that ended early, "" where there are none."""
        notes = []
        for status, words in ENDINGS.items():
            if names := [run.target_name for run in self.runs if run.status == status]:
                singular, plural = words.split(",")
                notes.append(f"{', '.join(names)} {singular if len(names) == 1 else plural}")
        return "; ".join(notes)

    @property
    def errored(self) -> str:
        """Count the errors of each run; errors have not passed, but may not be the fault of the target."""
        counts = [
            f"{run.target_name} {run.error_count} of {run.execution_count}"
            for run in self.runs
            if run.error_count
        ]
        return ", ".join(counts)

    @property
    def stop_text(self) -> str:
        """Say what a stop of all runs keeps and what it ends."""
        done = sum(run.done_count for run in self.active)
        left = sum(run.execution_count - run.done_count for run in self.active)
        spent = sum(run.run_cost_usd + run.evaluation_cost_usd for run in self.active)
        return (
            f"Finished and kept: {counted(done, 'result')} of {counted(len(self.active), 'run')}. Left: "
            f"{left}. {money(spent)} is spent so far; calls already sent may still be billed."
        )

    @cached_property
    def _gone(self) -> frozenset[int]:
        """Return the runs whose target is archived or deleted."""
        ready = self.campaign.runs.filter(target__archived_at=None, target__isnull=False)
        return frozenset(run.pk for run in self.runs) - set(ready.values_list("pk", flat=True))

    @property
    def gone_text(self) -> str:
        """Name the targets that cannot run again, "" where all can."""
        names = [run.target_name for run in self.runs if run.pk in self._gone]
        if not names:
            return ""
        more = len(names) - MAX_NAMED
        named = ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        are = "is" if len(names) == 1 else "are"
        return f"{named} {are} archived or deleted and would not run again"

    @property
    def again_url(self) -> str:
        """Return the address of the start form with the values of this campaign, "" without a target."""
        targets = [str(run.target_id) for run in self.runs if run.pk not in self._gone]
        if not targets:
            return ""
        run = self.runs[0]
        judge = LanguageModel.objects.filter(slug=vars(run)["judge_slug"] or "").first()
        values: dict[str, object] = {
            "target": targets,
            "repetitions": run.repetitions,
            "concurrency": run.concurrency,
            "note": self.campaign.name,
            "again": run.number,
        }
        if run.budget_usd is not None:
            values["budget"] = f"{run.budget_usd.normalize():f}"
        if judge:
            values["judge"] = judge.pk
        place = reverse("runs:run-new", args=[self.campaign.suite.slug])
        return f"{place}?{urlencode(values, doseq=True)}"

    @property
    def _against(self) -> Mapping[int, Evidence]:
        """Return the evidence against the first run, once all runs have ended."""
        if self.active:
            return {}
        rows = [row for row in board(self.runs, {}) if row.rank]
        others = [row.pk for row in rows if row.rank != 1]
        return evidence_against(rows[0].pk, others, self.cases) if others else {}
