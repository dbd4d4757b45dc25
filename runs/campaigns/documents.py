"""A campaign as a document with its leaderboard, for files and the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from runs.campaigns.board import BoardRow, CampaignQuery
from runs.campaigns.page import CampaignPage, CampaignRow, campaign_rows
from runs.documents import Document, Dollars, TextOrNone
from runs.formats.tables import csv_text
from runs.models.runs import Campaign, RunStatus
from runs.results.documents import GateState


class CampaignDoc(Document):
    """A campaign as lists show it."""

    id: int
    """Its id."""
    name: str
    """Its name."""
    suite: str
    """The short name of its suite."""
    headline: str
    """Who leads, in a sentence."""
    targets: list[str]
    """Its targets, the best first."""
    is_active: bool
    """Whether any of its runs is active."""
    created_at: datetime
    """When it was started."""
    created_by: TextOrNone
    """Who started it."""


class LeaderboardRowDoc(Document):
    """One run of the leaderboard."""

    rank: int | None
    """Its rank, from 1; null without one."""
    run: int
    """The number of the run in its suite."""
    run_id: int
    """The id of the run."""
    target: str
    """The name of its target."""
    status: RunStatus
    """The status of the run."""
    done: int
    """How many results have ended."""
    results: int
    """Of how many."""
    passed: int
    """How many passed."""
    pass_rate: float | None
    """The share that passed, 0 to 1; null where there is none."""
    pass_rate_low: float | None
    """The lower end of its 95% interval."""
    pass_rate_high: float | None
    """The upper end of its 95% interval."""
    cases_gate: GateState
    """The pass-rate gate."""
    reviews: int
    """How many decisions of reviewers count in the pass rate."""
    mean_score: float | None
    """The mean score, 0 to 1; null where there is none."""
    mean_score_low: float | None
    """The lower end of its 95% interval."""
    mean_score_high: float | None
    """The upper end of its 95% interval."""
    scored: int
    """How many results have a score."""
    metrics_gate: GateState
    """The score gate."""
    pass_count: int
    """Cases that passed."""
    borderline_count: int
    """Cases that are borderline."""
    fail_count: int
    """Cases that failed."""
    error_count: int
    """Cases that errored."""
    mean_latency_ms: float | None
    """The mean latency, milliseconds."""
    run_cost_usd: Dollars | None
    """What the target cost, US dollars; null where nothing is known."""
    evaluation_cost_usd: Dollars | None
    """What the judges cost, US dollars; null where nothing is known."""
    total_cost_usd: Dollars | None
    """What is known of both costs, US dollars; null where nothing is known."""
    cost_is_known_in_full: bool
    """Whether no more was spent than is known."""
    cost_per_passed_result_usd: Dollars | None
    """The total cost divided by the results that passed, US dollars; null where that is not known."""
    pareto: Literal["front", "dominated"] | None
    """Whether another run is both better and cheaper; null where that is not known."""
    dominated_by_run: int | None
    """The number of that run."""
    shared_cases: int | None
    """How many cases it shares with the first."""
    p_value: float | None
    """How likely such a difference from the first is by chance, 0 to 1."""
    differs_from_first: bool | None
    """Whether the difference from the first is proven; null where it was not tested."""

    @classmethod
    def make(cls, row: BoardRow) -> LeaderboardRowDoc:
        """Describe a row of the leaderboard."""
        run, costs, against = row.run, row.run.costs, row.against
        low, high = row.interval or (None, None)
        score_low, score_high = row.score_interval or (None, None)
        is_tested = against is not None and against.p is not None
        return cls(
            rank=row.rank,
            run=run.number,
            run_id=row.pk,
            target=run.target,
            status=RunStatus(run.status),
            done=run.done,
            results=run.executions,
            passed=row.passed,
            pass_rate=run.cases.share,
            pass_rate_low=low,
            pass_rate_high=high,
            cases_gate=run.cases.state,
            reviews=run.cases.reviews,
            mean_score=run.metrics.share,
            mean_score_low=score_low,
            mean_score_high=score_high,
            scored=row.scored,
            metrics_gate=run.metrics.state,
            pass_count=row.counts.get("pass", 0),
            borderline_count=row.counts.get("borderline", 0),
            fail_count=row.counts.get("fail", 0),
            error_count=row.counts.get("error", 0),
            mean_latency_ms=row.latency_ms,
            run_cost_usd=costs.run.usd,
            evaluation_cost_usd=costs.evaluation.usd,
            total_cost_usd=costs.total_usd,
            cost_is_known_in_full=not costs.is_partial,
            cost_per_passed_result_usd=row.passed_result_usd,
            pareto=("dominated" if row.beaten_by else "front") if row.is_offer else None,
            dominated_by_run=row.beaten_by.number if row.beaten_by else None,
            shared_cases=against.shared if against else None,
            p_value=against.p if against else None,
            differs_from_first=against.is_clear if against and is_tested else None,
        )


class CampaignDetailDoc(CampaignDoc):
    """A campaign with its leaderboard."""

    leaderboard: list[LeaderboardRowDoc]
    """Its runs, the best first."""


def campaign_documents(campaigns: Sequence[Campaign]) -> list[CampaignDoc]:
    """Describe campaigns as lists show them; a fixed number of queries."""
    return [_document(row) for row in campaign_rows(campaigns)]


def campaign_detail_document(campaign: Campaign) -> CampaignDetailDoc:
    """Describe a campaign with its leaderboard, by rank."""
    page = CampaignPage(campaign, CampaignQuery())
    (listed,) = campaign_documents([campaign])
    rows = [LeaderboardRowDoc.make(row) for row in page.rows]
    return CampaignDetailDoc(**dict(listed) | {"headline": page.headline, "leaderboard": rows})


def leaderboard_csv(rows: Sequence[BoardRow]) -> str:
    """Return the leaderboard as a CSV file; what is missing is empty."""
    names = [name for name in LeaderboardRowDoc.model_fields if name != "run_id"]
    lines = [dict(LeaderboardRowDoc.make(row)) for row in rows]
    return csv_text(names, ([_cell(line[name]) for name in names] for line in lines))


def _cell(value: object) -> object:
    return ("no", "yes")[value] if isinstance(value, bool) else value


def _document(row: CampaignRow) -> CampaignDoc:
    return CampaignDoc(
        id=row.pk,
        name=row.title,
        suite=row.suite_slug,
        headline=row.headline,
        targets=list(row.targets),
        is_active=row.is_active,
        created_at=row.created_at,
        created_by=row.started_by,
    )
