"""One run: its head, and what changes while it is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.urls import reverse

from evaluators.scoring.policy import Policy
from runs.models import (
    Case,
    ResultStatus,
    Run,
    RunEvent,
    RunStatus,
)
from runs.reports.case_groups import case_groups, count_states, policy_of
from runs.reports.gates import RunGate, cases_gate, metrics_gate
from runs.reports.purses import Purses, purses
from runs.reports.run_errors import ErrorGroup, run_errors
from runs.reports.run_evaluators import EvaluatorRow, evaluators_of, reads_evaluators_at_once

MOST_MARKS = 400
MOST_EVENTS = 6
RATE_WINDOW = timedelta(seconds=60)
RESUMABLE = (RunStatus.STOPPED, RunStatus.BUDGET_REACHED, RunStatus.FAILED)


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One evaluator of the frozen tree, and what is set beside the defaults."""

    depth: int
    name: str
    kind: str
    facts: str


@dataclass(frozen=True, slots=True)
class RunHead:
    """What the head of the page says and offers; `fold` is what was frozen when the run began."""

    status: str
    is_active: bool
    can_resume: bool
    missing: int
    errored: int
    failed: int
    started_by: str
    at: datetime
    finished_at: datetime | None
    took_ms: float | None
    policy: Policy
    judge: Mapping[str, Any] | None
    models: tuple[Mapping[str, Any], ...]
    target: Mapping[str, Any]
    files: tuple[str, ...]
    snapshot_hash: str
    evaluators: tuple[OutlineLine, ...]
    stop_title: str
    stop_text: str


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
    budget_usd: Decimal | None
    share: float | None


@dataclass(frozen=True, slots=True)
class RunLive:
    """Everything that changes while a run is on."""

    status: str
    is_active: bool
    is_completed: bool
    reason: str
    progress: Progress
    metrics: RunGate
    cases: RunGate
    costs: Costs
    counts: Mapping[str, int]
    marks: tuple[tuple[str, str, str], ...]
    errors: tuple[ErrorGroup, ...]
    errors_left: int
    events: tuple[RunEvent, ...]
    policy: Policy
    evaluators: tuple[EvaluatorRow, ...] | None


def run_head(run: Run) -> RunHead:
    """Return the head of a run's page."""
    snapshot = run.snapshot
    took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
    return RunHead(
        status=run.status,
        is_active=run.is_active,
        can_resume=run.status in RESUMABLE and run.done_count < run.execution_count,
        missing=run.execution_count - run.done_count,
        errored=run.error_count,
        failed=run.fail_count,
        started_by=run.created_by.get_username() if run.created_by else "",
        at=run.created_at,
        finished_at=run.finished_at,
        took_ms=_ms(took),
        policy=policy_of(run),
        judge=snapshot.get("judge"),
        models=tuple(snapshot.get("models", {}).values()),
        target=snapshot["target"],
        files=tuple(sorted(snapshot.get("files", {}))),
        snapshot_hash=run.snapshot_hash,
        evaluators=tuple(_outline(snapshot["evaluators"])),
        stop_title=f"Cancel run #{run.number}?",
        stop_text=_stop_text(run),
    )


def run_live(run: Run, *, now: datetime) -> RunLive:
    """Return how the run goes at a moment, in a fixed number of queries."""
    policy = policy_of(run)
    has_marks = run.case_count <= MOST_MARKS
    rows = _states(run) if has_marks else ()
    counts = _count(rows) if has_marks else _distribution(run)
    errors = run_errors(run)
    return RunLive(
        status=run.status,
        is_active=run.is_active,
        is_completed=run.status == RunStatus.COMPLETED,
        reason=run.status_reason,
        progress=_progress(run, counts, now),
        metrics=metrics_gate(run, policy),
        cases=cases_gate(run, policy),
        costs=_costs(run),
        counts=counts,
        marks=tuple(_mark(run, *row) for row in rows),
        errors=errors,
        errors_left=run.error_count - sum(group.count for group in errors),
        events=tuple(run.events.all()[:MOST_EVENTS]),
        policy=policy,
        evaluators=evaluators_of(run) if reads_evaluators_at_once(run) else None,
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


def _progress(run: Run, counts: Mapping[str, int], now: datetime) -> Progress:
    ended = run.finished_at if not run.is_active else None
    elapsed = (ended or now) - run.started_at if run.started_at else None
    per_minute = _rate(run, elapsed, now)
    open_cases = counts.get("running", 0) + counts.get("waiting", 0)
    left = run.execution_count - run.done_count
    return Progress(
        done=run.done_count,
        executions=run.execution_count,
        share=run.done_count / run.execution_count if run.execution_count else 0.0,
        cases_done=sum(counts.values()) - open_cases - counts.get("cancelled", 0),
        cases=run.case_count,
        per_minute=per_minute,
        at_once=_at_once(run) if run.is_active else 0,
        elapsed_ms=_ms(elapsed),
        left_ms=left / per_minute * 60_000 if run.is_active and per_minute and left else None,
    )


def _rate(run: Run, elapsed: timedelta | None, now: datetime) -> float | None:
    """Return executions a minute over the last minute; None once the run is over.

    What a resumed run had finished before does not tell how fast it goes now.
    """
    if not run.is_active or elapsed is None or elapsed <= timedelta():
        return None
    span = min(elapsed, RATE_WINDOW)
    recent = run.results.filter(finished_at__gte=now - span).count()
    return recent / span.total_seconds() * 60 or None


def _at_once(run: Run) -> int:
    """Return how many executions are under way: hands claim more than they carry out at once."""
    claimed = run.results.filter(status=ResultStatus.RUNNING).count()
    return min(claimed, run.concurrency * max(1, run.hands.count()))


def _costs(run: Run) -> Costs:
    known = purses(run)
    total = run.run_cost_usd + run.evaluation_cost_usd
    is_known = run.done_count and known.total_usd is not None
    forecast = total / run.done_count * run.execution_count if is_known else None
    ceiling = run.budget_usd or forecast
    return Costs(
        purses=known,
        forecast_usd=forecast if run.is_active else None,
        budget_usd=run.budget_usd,
        share=float(total / ceiling) if ceiling else None,
    )


def _stop_text(run: Run) -> str:
    spent = run.run_cost_usd + run.evaluation_cost_usd
    left = run.execution_count - run.done_count
    kept = f"{run.done_count} of {run.execution_count} executions are finished and are kept."
    return f"{kept} What is under way stops now; {left} are left. ${spent:.2f} is already spent."


def _outline(node: Mapping[str, Any], depth: int = 0) -> list[OutlineLine]:
    facts = [f"×{node.get('weight', 1):g}"] if depth else []
    if node.get("required_below") is not None:
        facts.append(f"required {node['required_below']:g}")
    elif node.get("required"):
        facts.append("required")
    aggregator = node.get("config", {}).get("aggregator") or {}
    kind = str(aggregator.get("type") or node["kind"]).replace("_", " ")
    lines = [OutlineLine(depth, str(node["name"]), kind, ", ".join(facts))]
    for child in node.get("children", ()):
        lines += _outline(child, depth + 1)
    return lines


def _ms(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds() * 1000
