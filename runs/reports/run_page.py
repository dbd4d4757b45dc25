"""One run: what changes while it is on, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Count, Q, Sum
from django.urls import reverse

from evaluators.scoring.policy import Policy
from runs.models import OPEN_RESULT_STATUSES, Case, ResultStatus, Run, RunEvent, RunStatus
from runs.reports.case_groups import case_groups, count_states, policy_of
from runs.reports.gates import RunGate, cases_gate, metrics_gate
from runs.reports.purses import Purses, budget_words, counted_usd, purses
from runs.reports.run_dimensions import JudgedDimensions, dimensions_of
from runs.reports.run_end import RunEnd, run_end
from runs.reports.run_errors import ErrorGroup, run_errors
from runs.reports.run_evaluators import EvaluatorRow, evaluators_of, reads_evaluators_at_once
from runs.reports.run_metrics import JudgedMetrics, metrics_of
from runs.reports.run_repetitions import RunRepetitions, repetitions_of_run
from runs.reports.run_usage import RunUsage, usage_of_run

MOST_MARKS = 400
EVENTS_SHOWN, MOST_EVENTS = 8, 200
RATE_WINDOW = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run is; the span left is None when nothing tells."""

    done: int
    executions: int
    share: float
    cases_done: int
    cases: int
    per_minute: float | None
    at_once: int
    elapsed_ms: float | None
    left_ms: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Both purses so far, what the whole run may come to, and where it stops."""

    purses: Purses
    forecast_usd: Decimal | None
    budget_words: str
    share: float | None


@dataclass(frozen=True, slots=True)
class RunLive:
    """Everything that changes while a run is on; `folded` are the older events, of `event_count`.

    `is_moving` tells that figures may still change: after a stop until the last call is booked.
    """

    status: str
    is_active: bool
    is_moving: bool
    is_completed: bool
    end: RunEnd | None
    progress: Progress
    metrics: RunGate
    cases: RunGate
    costs: Costs
    counts: Mapping[str, int]
    marks: tuple[tuple[str, str, str], ...]
    errors: tuple[ErrorGroup, ...]
    errors_left: int
    events: tuple[RunEvent, ...]
    folded: tuple[RunEvent, ...]
    event_count: int
    policy: Policy
    evaluators: tuple[EvaluatorRow, ...] | None
    judged: tuple[JudgedMetrics, ...]
    dimensions: tuple[JudgedDimensions, ...]
    repeated: RunRepetitions | None
    usage: RunUsage


def run_live(run: Run, *, now: datetime) -> RunLive:
    """Return how the run goes at a moment, in a fixed number of queries."""
    policy = policy_of(run)
    has_marks = run.case_count <= MOST_MARKS
    rows = _states(run) if has_marks else ()
    counts = _count(rows) if has_marks else _distribution(run)
    end = run_end(run, now=now)
    errors, open_ = run_errors(run), _open(run)
    events = tuple(run.events.all()[:MOST_EVENTS])
    return RunLive(
        status=run.status,
        is_active=run.is_active,
        is_moving=run.is_active or bool(end and end.is_settling),
        is_completed=run.status == RunStatus.COMPLETED,
        end=end,
        progress=_progress(run, counts, open_, now),
        metrics=metrics_gate(run, policy),
        cases=cases_gate(run, policy),
        costs=_costs(run, open_[1]),
        counts=counts,
        marks=tuple(_mark(run, *row) for row in rows),
        errors=errors,
        errors_left=run.error_count - sum(group.count for group in errors),
        events=events[:EVENTS_SHOWN],
        folded=events[EVENTS_SHOWN:],
        event_count=len(events) if len(events) < MOST_EVENTS else run.events.count(),
        policy=policy,
        evaluators=evaluators_of(run) if reads_evaluators_at_once(run) else None,
        judged=metrics_of(run),
        dimensions=dimensions_of(run),
        repeated=repetitions_of_run(run),
        usage=usage_of_run(run),
    )


def _states(run: Run) -> tuple[tuple[str, Case], ...]:
    groups = list(case_groups(run).order_by("place", "case_id").values_list("case_id", "state"))
    cases = Case.objects.only("key", "title").in_bulk([case for case, _ in groups])
    return tuple((state, cases[case]) for case, state in groups)


def _distribution(run: Run) -> Mapping[str, int]:
    """Return how many cases are in each state; an ended run has counted them already."""
    if run.is_active or not run.summary:
        return count_states(case_groups(run))
    words = {"not_run": "cancelled", "waiting": "cancelled"}
    found = run.summary["distribution"].items()
    return {words.get(state, state): count for state, count in found if state != "total"}


def _count(rows: tuple[tuple[str, Case], ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state, _ in rows:
        counts[state] = counts.get(state, 0) + 1
    return counts


def _mark(run: Run, state: str, case: Case) -> tuple[str, str, str]:
    place = {"slug": run.suite.slug, "number": run.number, "key": case.key, "repetition": 1}
    words = {"error": "errored"}
    title = f"{case.key} {case.title}".strip()
    return state, reverse("runs:result", kwargs=place), f"{title}: {words.get(state, state)}"


def _progress(
    run: Run, counts: Mapping[str, int], open_: tuple[int, int], now: datetime
) -> Progress:
    per_minute = _rate(run, now)
    claimed, left = open_
    open_cases = counts.get("running", 0) + counts.get("waiting", 0)
    return Progress(
        done=run.done_count,
        executions=run.execution_count,
        share=run.done_count / run.execution_count if run.execution_count else 0.0,
        cases_done=sum(counts.values()) - open_cases - counts.get("cancelled", 0),
        cases=run.case_count,
        per_minute=per_minute,
        # Hands claim more than they carry out at once.
        at_once=min(claimed, run.concurrency * max(1, run.hands.count())) if claimed else 0,
        elapsed_ms=run.worked_ms(now=now),
        left_ms=left / per_minute * 60_000 if per_minute and left else None,
    )


def _open(run: Run) -> tuple[int, int]:
    """Return how many executions are claimed, and how many are left with those that wait."""
    if not run.is_active:
        return 0, 0
    still = run.results.filter(status__in=OPEN_RESULT_STATUSES).order_by()
    found = still.aggregate(
        claimed=Count("pk", filter=Q(status=ResultStatus.RUNNING)), left=Count("pk")
    )
    return found["claimed"], found["left"]


def _rate(run: Run, now: datetime) -> float | None:
    """Return executions a minute over the last minute; None once the run is over.

    What a resumed run had finished before does not tell how fast it goes now.
    """
    if not run.is_active or run.started_at is None or now <= run.started_at:
        return None
    span = min(now - run.started_at, RATE_WINDOW)
    recent = run.results.filter(finished_at__gte=now - span).count()
    return recent / span.total_seconds() * 60 or None


def _costs(run: Run, left: int) -> Costs:
    known = purses(run)
    forecast = _forecast(run, left) if run.is_active and known.total_usd is not None else None
    spent = counted_usd(run, snapshot=run.snapshot) if run.budget_usd else known.total_usd
    ceiling = run.budget_usd or forecast
    return Costs(
        purses=known,
        forecast_usd=forecast,
        budget_words=budget_words(spent, run.budget_usd)
        if spent is not None and run.budget_usd
        else "No budget set",
        share=float(spent / ceiling) if spent is not None and ceiling else None,
    )


def _forecast(run: Run, left: int) -> Decimal | None:
    """Return what the whole run may come to, if what is left costs what an execution cost so far."""
    total: Decimal = run.run_cost_usd + run.evaluation_cost_usd
    # What was tried again was carried out before, too.
    carried = run.done_count + (run.retries.aggregate(sum=Sum("count"))["sum"] or 0)
    return total + left * total / carried if carried else None
