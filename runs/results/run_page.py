"""The page of a run: its head, its live figures, its errors, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Min, Q, Sum
from django.urls import reverse

from evaluators.kinds import all_kinds
from evaluators.models import LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import counted, money, thousands
from runs.costs import CostPair, budget_words, counted_usd, missing_usd, run_costs
from runs.engine.plan import CHANGED, JUDGED_AGAIN
from runs.engine.ports import Cause
from runs.models.results import OPEN_RESULT_STATUSES, ResultStatus
from runs.models.reviews import Review
from runs.models.run_cases import count_states, sorted_cases
from runs.models.runs import (
    ALL_ALIKE,
    LEASE,
    RESUMABLE_RUN_STATUSES,
    Run,
    RunEvent,
    RunOwner,
    RunStatus,
)
from runs.results.judge_figures import RunSpread, run_spread, version_warnings
from runs.results.pairwise import RunPairwise, run_pairwise
from runs.results.run_figures import (
    EvaluatorRow,
    JudgedDimensions,
    JudgedMetrics,
    RunRepetitions,
    RunUsage,
    dimensions_by_judge,
    evaluator_rows,
    metrics_by_judge,
    reads_evaluators_at_once,
    run_repetitions,
    run_usage,
)
from runs.results.runs import RunGate, RunVerdict, cases_gate, metrics_gate, run_verdict
from runs.suites.differences import METRIC
from runs.suites.version_pages import value_label, value_text

NOTHING, LEFT_OUT = "none", "left out"


def run_changes(snapshot: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe each setting changed for the run: "Pass from 0.80 → 0.75", "tone: Weight ×2 → ×3"."""
    scale = PolicySpec.model_validate(snapshot["policy"]).scale
    texts = []
    for change in snapshot.get(CHANGED) or ():
        absent = LEFT_OUT if change["name"].startswith(METRIC) else NOTHING
        old, new = (
            value_text(change["name"], change[side], scale) or absent for side in ("old", "new")
        )
        path = change["evaluator"]
        owner = "" if path is None else f"{path or 'The whole suite'}: "
        texts.append(f"{owner}{value_label(change['name'])} {old} → {new}")
    return tuple(texts)


NEW_RUN = "This run keeps the settings it started with, so start a new one afterwards."
GOES_ON = "Then run what is left."
# By the status of the answer, else by the class of the error: the page to open, and the remedy.
OF_STATUS = {
    "401": ("model", f"Enter a key that the server accepts. {GOES_ON}"),
    "402": ("model", f"Pay for the account behind the key, or enter another key. {GOES_ON}"),
    "403": ("model", f"Enter a key that may use this model. {GOES_ON}"),
    "404": ("model", f"Correct the model id or the address. {NEW_RUN}"),
    "429": ("model", f"Enter a key that has quota left, or lower its limits. {GOES_ON}"),
}
OF_CAUSE = {
    Cause.REFUSED: ("target", f"Correct the parameters sent to the model. {NEW_RUN}"),
    Cause.RATE_LIMITED: ("model", f"Lower its concurrency or requests per minute. {GOES_ON}"),
    Cause.TIMEOUT: ("model", f"Give it more time to answer. {GOES_ON}"),
    Cause.SERVER_ERROR: ("model", f"Wait until its server works again. {GOES_ON}"),
    Cause.CONNECTION: ("model", f"Start the server at its address. {GOES_ON}"),
    Cause.BAD_REPLY: ("model", f"Test the language model to see what it answers. {GOES_ON}"),
}
OWN_TIMEOUT = ("target", f"Give the target more time. {NEW_RUN}")
OTHERWISE = ("target", f"Correct the target. {GOES_ON}")


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """A remedy, and the page to apply it; `url` is "" when that page no longer exists."""

    remedy: str
    url: str
    action: str


def find_error_cause(run: Run, error: str) -> ErrorCause:
    """Return the remedy for an error that all first executions share."""
    target = run.snapshot["target"]
    slug = target["model"]
    owner, remedy = _remedy(error, target["config"]) if slug else OTHERWISE
    if owner == "target":
        url = reverse("runs:target", args=[run.target_id]) if run.target_id else ""
        return ErrorCause(remedy, url, "Open the target")
    known = LanguageModel.objects.filter(slug=slug).exists()
    url = reverse("evaluators:language-model", args=[slug]) if known else ""
    return ErrorCause(remedy, url, "Open the language model")


def _remedy(error: str, config: Mapping[str, Any]) -> tuple[str, str]:
    status = re.search(r"\((\d{3})\)", error)
    if status and status[1] in OF_STATUS and Cause.REFUSED.label in error:
        return OF_STATUS[status[1]]
    if f"{Cause.TIMEOUT.label}: " in error and config.get("timeout_s"):
        return OWN_TIMEOUT
    cause = next((cause for cause in OF_CAUSE if f"{cause.label}: " in error), None)
    return OTHERWISE if cause is None else OF_CAUSE[cause]


MAX_ERRORS = 5


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Results with the same error, and the first of them.

    `replies_url` leads to the judge's replies where they could not be read, else it is "".
    """

    text: str
    count: int
    like: int
    key: str
    url: str
    replies_url: str


def run_errors(run: Run) -> tuple[ErrorGroup, ...]:
    """Return the most frequent errors of a run."""
    if not run.error_count:
        return ()
    errored = run.results.filter(status=ResultStatus.ERROR).order_by()
    groups = errored.values("error_stage", "error").annotate(total=Count("id"), first=Min("id"))
    rows = list(groups.order_by("-total", "first")[:MAX_ERRORS])
    firsts = run.results.select_related("case").in_bulk([row["first"] for row in rows])
    return tuple(_group(run, row, firsts) for row in rows)


def _group(run: Run, row: Mapping[str, Any], firsts: Mapping[int, Any]) -> ErrorGroup:
    first = firsts[row["first"]]
    place = (run.suite.slug, run.number, first.case.key, first.repetition)
    is_parse = row["error_stage"] == "parse"
    return ErrorGroup(
        text=row["error"],
        count=row["total"],
        like=row["first"],
        key=first.case.key,
        url=reverse("runs:result", args=place),
        replies_url=reverse("runs:result-calls", args=place) if is_parse else "",
    )


CANCELLED = Q(status=ResultStatus.CANCELLED)
OF_TARGET = Q(status=ResultStatus.ERROR, error_stage="target")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The early end of a run.

    `kept` of `executions` are finished. A resume executes the `left` ones, and again the `broken` ones, in
    which the target failed. `earlier` of those left had a result before a retry that was stopped.
    `needs_budget` tells whether the budget must be raised first, `is_settling` whether calls under way may
    still be booked.
    """

    status: str
    reason: str
    kept: int
    executions: int
    left: int
    earlier: int
    broken: int
    needs_budget: bool
    is_settling: bool
    budget_usd: Decimal | None
    spent_usd: Decimal
    error_cause: ErrorCause | None

    @property
    def to_go(self) -> int:
        """Return how many results a resume would execute."""
        return self.left + self.broken

    @property
    def action(self) -> str:
        """Return the label of a resume."""
        left = f"Run the {thousands(self.left)} left" if self.left else ""
        again = f"retry {thousands(self.broken)}" if self.broken else ""
        text = " and ".join(part for part in (left, again) if part)
        return text[:1].upper() + text[1:]

    @property
    def spent_words(self) -> str:
        """Say how much of the budget is spent."""
        if self.budget_usd is None:
            return ""
        if self.status == RunStatus.BUDGET_REACHED:
            return f"Stopped at the {money(self.budget_usd)} budget ({money(self.spent_usd)} spent)"
        return budget_words(self.spent_usd, self.budget_usd)


def run_end(run: Run, *, now: datetime) -> RunEnd | None:
    """Return the early end of a run; None for active and completed runs."""
    if run.status not in RESUMABLE_RUN_STATUSES:
        return None
    counted = run.results.order_by().aggregate(
        left=Count("pk", filter=CANCELLED),
        earlier=Count("pk", filter=CANCELLED & Q(generation__gt=1)),
        broken=Count("pk", filter=OF_TARGET),
    )
    broken = counted["broken"] if run.status == RunStatus.FAILED else 0
    spent = counted_usd(run, snapshot=run.snapshot)
    return RunEnd(
        status=run.status,
        reason=run.status_reason,
        kept=run.done_count,
        executions=run.execution_count,
        left=counted["left"],
        earlier=counted["earlier"],
        broken=broken,
        needs_budget=run.budget_usd is not None
        and missing_usd(run, run.budget_usd, snapshot=run.snapshot) is not None,
        is_settling=run.run_workers.filter(heartbeat_at__gte=now - LEASE).exists(),
        budget_usd=run.budget_usd,
        spent_usd=spent,
        error_cause=find_error_cause(run, run.status_reason)
        if run.status_reason.startswith(ALL_ALIKE)
        else None,
    )


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One evaluator of the frozen tree, and its settings other than the defaults."""

    depth: int
    name: str
    kind: str
    facts: str


@dataclass(frozen=True, slots=True)
class RunHead:
    """The head of the page, and what was frozen when the run started.

    `took_ms` is the time worked over all parts of the run, several with `has_batches`. `own_host` is the
    machine of the command line that executes the run, "" for workers. `changes` are the settings changed
    for this run. `source_number` is the run whose stored scores it uses, None for others; `judged_again` has the
    facts of a run that judges the outputs of another again.
    """

    status: str
    is_active: bool
    own_host: str
    errored: int
    failed: int
    took_ms: float | None
    has_batches: bool
    policy: PolicySpec
    judge: Mapping[str, Any] | None
    models: tuple[Mapping[str, Any], ...]
    agents: tuple[Mapping[str, Any], ...]
    target: Mapping[str, Any]
    files: tuple[str, ...]
    snapshot_hash: str
    evaluators: tuple[OutlineLine, ...]
    source_number: int | None
    judged_again: Mapping[str, Any] | None
    changes: tuple[str, ...]
    verdict: RunVerdict | None
    stop_text: str


def run_head(run: Run, *, now: datetime) -> RunHead:
    """Return the head of a run's page."""
    snapshot = run.snapshot
    return RunHead(
        status=run.status,
        is_active=run.is_active,
        own_host=run.owner_id.split("/")[0] if run.owner == RunOwner.COMMAND_LINE else "",
        errored=0 if run.imported_from else run.error_count,
        failed=run.fail_count if run.allows_rescore else 0,
        took_ms=None if run.is_active else run.worked_ms(now=now),
        has_batches=bool(run.worked_before_ms),
        policy=run.policy,
        judge=snapshot.get("judge"),
        models=tuple(snapshot.get("models", {}).values()),
        agents=tuple(agent for _, agent in sorted(snapshot.get("agents", {}).items())),
        target=snapshot["target"],
        files=tuple(sorted(snapshot.get("files", {}))),
        snapshot_hash=run.snapshot_hash,
        evaluators=tuple(_outline(snapshot["evaluators"], asks_agents="agents" in snapshot)),
        source_number=(snapshot.get("rescored") or {}).get("run"),
        judged_again=snapshot.get(JUDGED_AGAIN),
        changes=run_changes(snapshot),
        verdict=_verdict(run, _gates(run)),
        stop_text=_stop_text(run, _open(run).left),
    )


def _gates(run: Run) -> tuple[RunGate, RunGate]:
    return metrics_gate(run, run.policy), cases_gate(run, run.policy)


def _verdict(run: Run, gates: tuple[RunGate, RunGate]) -> RunVerdict | None:
    """Return the verdict on the target; a measurement of the judge has none."""
    return None if run.measures_judge else run_verdict(run, gates)


def _review_note(run: Run, rate: RunGate) -> str:
    """Say whether human reviews change the figures, "" where there are none."""
    if rate.reviews:
        return f"Numbers include {counted(rate.reviews, 'human review')}."
    if run.policy.count_reviews or not Review.objects.standing().filter(result__run=run).exists():
        return ""
    return "Human reviews are shown but don't change these numbers."


def _stop_text(run: Run, left: int) -> str:
    """Say what a stop keeps, what it leaves, and what is spent."""
    spent = run.run_cost_usd + run.evaluation_cost_usd
    done = f"{thousands(run.done_count)} of {counted(run.execution_count, 'result')}"
    return (
        f"{done} {'is' if run.execution_count == 1 else 'are'} finished and kept; the "
        f"{counted(left, 'result')} left can be run later. {money(spent)} is spent so far; calls "
        "already sent may still be billed."
    )


def _outline(node: Mapping[str, Any], depth: int = 0, *, asks_agents: bool) -> list[OutlineLine]:
    facts = [f"×{node.get('weight', 1):g}"] if depth else []
    if node.get("required_below") is not None:
        facts.append(f"required {node['required_below']:g}")
    elif node.get("required"):
        facts.append("required")
    if node.get("pass_mark") is not None:
        facts.append(f"pass mark {node['pass_mark']:g}")
    aggregator = node.get("config", {}).get("aggregator") or {}
    kind = str(aggregator.get("type") or node["kind"]).replace("_", " ")
    registered = all_kinds().get(node["kind"]) if asks_agents else None
    if agents := registered.judge_targets(node["config"]) if registered else ():
        # On a panel, models may vote too.
        word = "with" if registered and registered.uses_judge else "by"
        facts.append(f"{word} {', '.join(dict.fromkeys(agents))}")
    lines = [OutlineLine(depth, str(node["name"]), kind, ", ".join(facts))]
    for child in node.get("children", ()):
        lines += _outline(child, depth + 1, asks_agents=asks_agents)
    return lines


MAX_MARKS = 400
EVENTS_SHOWN, MAX_EVENTS = 8, 200
RATE_WINDOW = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the run is; `left_ms` is None when it cannot be estimated.

    `awaited` results wait for a program to push their output.
    """

    done: int
    executions: int
    share: float
    cases_done: int
    cases: int
    per_minute: float | None
    at_once: int
    awaited: int
    elapsed_ms: float | None
    left_ms: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Both costs so far, the forecast for the whole run, and the budget."""

    costs: CostPair
    forecast_usd: Decimal | None
    budget_usd: Decimal | None
    share: float | None


@dataclass(frozen=True, slots=True)
class RunLive:
    """Everything that changes while a run is active; `folded` holds the older ones of `event_count` events.

    `is_moving` tells whether figures may still change, which they do after a stop until the last call is
    booked, and until a run that is over has its final ones.
    """

    status: str
    is_active: bool
    is_moving: bool
    is_completed: bool
    end: RunEnd | None
    verdict: RunVerdict | None
    stop_text: str
    progress: RunProgress
    metrics: RunGate
    cases: RunGate
    review_note: str
    costs: Costs
    counts: Mapping[str, int]
    marks: tuple[tuple[str, str, str], ...]
    errors: tuple[ErrorGroup, ...]
    errors_left: int
    events: tuple[RunEvent, ...]
    folded: tuple[RunEvent, ...]
    event_count: int
    policy: PolicySpec
    evaluators: tuple[EvaluatorRow, ...] | None
    judged: tuple[JudgedMetrics, ...]
    dimensions: tuple[JudgedDimensions, ...]
    repeated: RunRepetitions | None
    usage: RunUsage
    judge_spread: RunSpread | None
    pairwise: RunPairwise | None
    judge_changes: list[str]

    @property
    def is_finishing(self) -> bool:
        """Tell whether all results are in, and only the final figures are missing."""
        return self.is_active and self.progress.done == self.progress.executions


def lacks_figures(run: Run) -> bool:
    """Tell whether a run is completed, but its final figures are still computed."""
    return run.status == RunStatus.COMPLETED and run.summary is None


def run_live(run: Run, *, now: datetime, counts: Mapping[str, int] | None = None) -> RunLive:
    """Return the live figures of a run in a fixed number of queries; `counts` are its cases by state, if known."""
    policy = run.policy
    has_marks = run.case_count <= MAX_MARKS
    rows = _states(run) if has_marks else ()
    counts = _count(rows) if has_marks else _distribution(run, counts)
    end = run_end(run, now=now)
    errors, still, gates = run_errors(run), _open(run), _gates(run)
    events = tuple(run.events.all()[:MAX_EVENTS])
    return RunLive(
        status=run.status,
        is_active=run.is_active,
        is_moving=run.is_active or run.summary is None or bool(end and end.is_settling),
        is_completed=run.status == RunStatus.COMPLETED,
        end=end,
        verdict=_verdict(run, gates),
        stop_text=_stop_text(run, still.left),
        progress=_progress(run, counts, still, now),
        metrics=gates[0],
        cases=gates[1],
        review_note=_review_note(run, gates[1]),
        costs=_costs(run, still.left),
        counts=counts,
        marks=tuple(_mark(run, *row) for row in rows),
        errors=errors,
        errors_left=run.error_count - sum(group.count for group in errors),
        events=events[:EVENTS_SHOWN],
        folded=events[EVENTS_SHOWN:],
        event_count=len(events) if len(events) < MAX_EVENTS else run.events.count(),
        policy=policy,
        evaluators=evaluator_rows(run) if reads_evaluators_at_once(run) else None,
        judged=metrics_by_judge(run),
        dimensions=dimensions_by_judge(run),
        repeated=run_repetitions(run),
        usage=run_usage(run),
        judge_spread=None if run.is_active or not run.judge_name else run_spread(run),
        pairwise=None if run.is_active or not run.pairwise_baseline else run_pairwise(run),
        judge_changes=[] if run.is_active else version_warnings(run),
    )


def _states(run: Run) -> tuple[tuple[str, str, str], ...]:
    """Return the cases that need attention first, then by score."""
    rows = sorted_cases(run.cases.live(run), "attention").order_by("sort_value", "position")
    return tuple(rows.values_list("live_state", "case__key", "case__title"))


def _distribution(run: Run, counts: Mapping[str, int] | None) -> Mapping[str, int]:
    """Return the number of cases by state, from the summary of an ended run."""
    if run.is_active or not run.summary:
        return count_states(run.cases.live(run)) if counts is None else counts
    words = {"not_run": "cancelled", "waiting": "cancelled"}
    distribution = run.summary["distribution"].items()
    return {words.get(state, state): count for state, count in distribution if state != "total"}


def _count(rows: tuple[tuple[str, str, str], ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state, *_ in rows:
        counts[state] = counts.get(state, 0) + 1
    return counts


def _mark(run: Run, state: str, key: str, name: str) -> tuple[str, str, str]:
    place = {"slug": run.suite.slug, "number": run.number, "key": key, "repetition": 1}
    words = {"error": "errored"}
    title = f"{key} {name}".strip()
    return state, reverse("runs:result", kwargs=place), f"{title}: {words.get(state, state)}"


def _progress(
    run: Run, counts: Mapping[str, int], still: OpenResults, now: datetime
) -> RunProgress:
    per_minute = _rate(run, now)
    # Nobody knows when the outputs of the awaited ones will come.
    left = 0 if still.awaited else still.left
    open_cases = counts.get("running", 0) + counts.get("waiting", 0)
    return RunProgress(
        done=run.done_count,
        executions=run.execution_count,
        share=run.done_count / run.execution_count if run.execution_count else 0.0,
        cases_done=sum(counts.values()) - open_cases - counts.get("cancelled", 0),
        cases=run.case_count,
        per_minute=per_minute,
        # Workers claim more results than they execute at once.
        at_once=min(still.claimed, run.concurrency),
        awaited=still.awaited,
        elapsed_ms=run.worked_ms(now=now),
        left_ms=left / per_minute * 60_000 if per_minute and left else None,
    )


@dataclass(frozen=True, slots=True)
class OpenResults:
    """How many results are claimed, how many wait for a program to push their output, and all that are left."""

    claimed: int = 0
    awaited: int = 0
    left: int = 0


def _open(run: Run) -> OpenResults:
    if not run.is_active:
        return OpenResults()
    still = run.results.filter(status__in=OPEN_RESULT_STATUSES).order_by()
    return OpenResults(
        **still.aggregate(
            claimed=Count("pk", filter=Q(status=ResultStatus.RUNNING)),
            awaited=Count("pk", filter=Q(awaits_output=True)),
            left=Count("pk"),
        )
    )


def _rate(run: Run, now: datetime) -> float | None:
    """Return executions a minute over the last minute; None for an ended run.

    Results from before a resume do not count.
    """
    if not run.is_active or run.started_at is None or now <= run.started_at:
        return None
    span = min(now - run.started_at, RATE_WINDOW)
    recent = run.results.filter(finished_at__gte=now - span).count()
    return recent / span.total_seconds() * 60 or None


def _costs(run: Run, left: int) -> Costs:
    known = run_costs(run)
    forecast = _forecast(run, left) if run.is_active and known.total_usd is not None else None
    spent = counted_usd(run, snapshot=run.snapshot) if run.budget_usd else known.total_usd
    ceiling = run.budget_usd or forecast
    return Costs(
        costs=known,
        forecast_usd=forecast,
        budget_usd=run.budget_usd,
        share=float(spent / ceiling) if spent is not None and ceiling else None,
    )


def _forecast(run: Run, left: int) -> Decimal | None:
    """Estimate the cost of the whole run from the mean cost of its executions so far."""
    total: Decimal = run.run_cost_usd + run.evaluation_cost_usd
    # What stored outputs cost is known from the start.
    grows = run.evaluation_cost_usd if run.is_judged_again else total
    # Retried executions were paid before, too.
    paid = run.done_count + (run.retries.aggregate(sum=Sum("count"))["sum"] or 0)
    return total + left * grows / paid if paid else None
