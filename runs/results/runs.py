"""Runs: their list, their two gates with what these conclude, and the intervals of their scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum
from django.urls import reverse

from evaluators.scoring.intervals import bootstrap_interval
from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.policy import PolicySpec
from evaluators.templatetags.figures import counted, pct, thousands, threshold
from runs import lists
from runs.costs import CostPair, listed_costs, with_costs
from runs.engine.plan import JUDGED_AGAIN, MEASURES_JUDGE
from runs.lists import MAX_RUN_NUMBER, NEWEST_FIRST, Chip, Control, ListQuery, read_integer
from runs.models.results import Result, ResultStatus
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite
from runs.summary.run import (
    OUT_OF_REACH,
    Summary,
    SummaryProgress,
    cases_forecast,
    metrics_forecast,
)


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

    search: str = lists.search(
        help="Runs whose suite, target or note contains this text, or with this number as in #12."
    )
    suite: str = lists.text(help="Runs of the suite with this short name.")
    status: str = lists.choice(
        (ACTIVE, *RunStatus.values),
        help="The status of the run; active means queued or running.",
    )
    target: str = lists.text(help="Runs against the target of this name.")
    campaign: int | None = lists.integer(help="Runs of the campaign with this id.")
    since: datetime | None = lists.moment(help="Runs created at this time or later, ISO 8601.")
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
        if self.search:
            runs = runs.filter(self._named())
        filters = {columns[name]: getattr(self, name) for name in self.filters if name in columns}
        return runs.filter(**filters)

    def _named(self) -> Q:
        number = read_integer(self.search.removeprefix("#"), maximum=MAX_RUN_NUMBER)
        named = Q()
        for column in ("suite__title", "suite__slug", "target_name", "note"):
            named |= Q(**{f"{column}__icontains": self.search})
        return named if number is None else named | Q(number=number)

    def periods(self, *, now: datetime) -> Sequence[tuple[str, str]]:
        """Return the times since when runs can be listed, with that of the address."""
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        days = ((0, "Today"), (7, "Last 7 days"), (30, "Last 30 days"), (90, "Last 90 days"))
        offers = [((today - timedelta(days=count)).isoformat(), label) for count, label in days]
        own = self.since.isoformat() if self.since else ""
        if own and own not in dict(offers):
            offers.append((own, f"Since {self.since:%-d %b %Y}"))
        return offers


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as lists show it; `campaign` is the name and the id of its campaign.

    `counts` are its results by state, `verdicts` its cases, none while it is active. It uses the stored scores of
    the run `source_number`, or judges its outputs with `is_judged_again`, and with `measures_judge` only to measure
    its judge.
    """

    number: int
    is_baseline: bool
    suite: str
    suite_title: str
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
    is_judged_again: bool = False
    measures_judge: bool = False
    campaign: tuple[str, int] | None = None
    word: str = ""
    verdicts: Mapping[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the path of its page; to ask for the first one loads all pages, which takes a second."""
        return reverse("runs:run", args=[self.suite, self.number])


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


def run_list(query: RunsQuery, *, now: datetime) -> RunList:
    """Return 50 runs, newest first, in a fixed number of queries."""
    page = NEWEST_FIRST.page(query.runs(), query.after)
    rows = tuple(run_row(run) for run in page.rows)
    targets = Run.objects.order_by("target_name").values_list("target_name", flat=True).distinct()
    return RunList(
        query=query,
        rows=rows,
        controls=(
            query.search_box("search", "Filter runs", id="runs-text"),
            query.select(
                "suite", "Suite", Suite.objects.values_list("slug", "title"), "All suites"
            ),
            query.select("status", "Status", STATUSES, "Any status"),
            query.select("target", "Target", ((name, name) for name in targets), "All targets"),
            query.select("since", "Started", query.periods(now=now), "Any time"),
        ),
        hidden=query.hidden("q", "suite", "status", "target", "since"),
        removable=query.removable({"campaign": "Campaign"}),
        has_active=any(row.is_active for row in rows),
        next_address=page.next_address(query),
    )


def with_list_columns(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs with what lists show, without long columns, newest first."""
    light = runs.select_related("suite", "created_by", "campaign").defer(*HEAVY)
    return with_costs(
        light.annotate(
            policy_json=F("snapshot__policy"),
            source_number=F("source_run__number"),
            judged_again=F(f"snapshot__{JUDGED_AGAIN}__run"),
            measuring=F(f"snapshot__{MEASURES_JUDGE}__times"),
        )
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
        suite=run.suite.slug,
        suite_title=run.suite.title,
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
        verdicts={} if run.is_active else case_verdicts(run),
    )


def case_verdicts(run: Run) -> Mapping[str, int]:
    """Return the number of cases of an ended run by verdict, and of errored ones."""
    counts: Mapping[str, int] = (run.summary or {}).get("distribution") or {
        "pass": run.pass_count,
        "borderline": run.borderline_count,
        "fail": run.fail_count,
        "error": run.error_count,
    }
    return {name: counts.get(name, 0) for name in ("pass", "borderline", "fail", "error")}


def _campaign(run: Run) -> tuple[str, int] | None:
    if run.campaign is None:
        return None
    return run.campaign.name or f"Campaign {run.campaign.pk}", run.campaign.pk


def _source(run: Run) -> dict[str, Any]:
    """Return what a row says about the run's source; that may be deleted."""
    return {
        "source_number": vars(run).get("source_number"),
        "is_judged_again": vars(run).get("judged_again") is not None,
        "measures_judge": _measures_judge(run),
    }


def _measures_judge(run: Run) -> bool:
    """Tell whether a run measures its judge; lists annotate that in place of the snapshot, or have no such run."""
    known = vars(run)
    if "measuring" in known:
        return known["measuring"] is not None
    return "snapshot" in known and run.measures_judge


SCORE, RATE = "Mean score", "Pass rate"


@dataclass(frozen=True, slots=True)
class RunGate:
    """One gate: its figure and limit as shares, its state, and a note on what the figure counts.

    `reviews` is how many reviews count in its figure, 0 where the policy counts none (SCORING §4.6).
    """

    name: str
    share: float | None
    limit: float
    state: str
    note: str
    reviews: int = 0

    @property
    def with_reviews(self) -> str:
        """Say how many reviews its figure counts, "" for none."""
        return f"with {counted(self.reviews, 'review')}" if self.reviews else ""


def metrics_gate(run: Run, policy: PolicySpec) -> RunGate:
    """Return the mean overall score against its threshold, over the executions that have one.

    The gates of a run that measures the judge are always open.
    """
    limit = policy.metrics_pass_threshold
    if run.is_active and not _measures_judge(run):
        forecast = metrics_forecast(_progress(run), policy)
        return RunGate(SCORE, forecast.so_far, limit, _live(run, forecast.state), forecast.text)
    share = run.score_sum / run.score_count if run.score_count else None
    share, state = _ended(run, "metrics_gate", share, limit)
    note = f"{thousands(run.score_count)} of {counted(run.execution_count, 'result')} scored"
    return RunGate(SCORE, share, limit, state, note)


def cases_gate(run: Run, policy: PolicySpec) -> RunGate:
    """Return the share of executions that passed against its threshold; errors have not passed."""
    limit = policy.cases_pass_threshold
    if run.is_active and not _measures_judge(run):
        forecast = cases_forecast(_progress(run), policy)
        passed = f"{run.pass_count} of {run.done_count} passed · " if run.done_count else ""
        note = f"{passed}{forecast.text}"
        return RunGate(RATE, forecast.so_far, limit, _live(run, forecast.state), note)
    is_completed = run.status == RunStatus.COMPLETED
    total = run.execution_count if is_completed else run.done_count
    share, state = _ended(run, "cases_gate", run.pass_count / total if total else None, limit)
    summary = run.summary or {}
    passed = thousands(summary.get("passed", run.pass_count))
    note = f"{passed} of {counted(total, 'result')} passed"
    gate = RunGate(RATE, share, limit, state, note, summary.get("reviews", 0))
    return replace(gate, note=f"{note}, {gate.with_reviews}") if gate.reviews else gate


# Below this share of its results a run says little: its cases are executed in the order of the suite.
EARLY = 0.1


def _live(run: Run, state: str) -> str:
    """Return the state of a gate while its run is active: open before the first result, early while few are in."""
    if not run.done_count:
        return "open"
    is_early = run.done_count < EARLY * run.execution_count and state != OUT_OF_REACH
    return "early" if is_early else state


def _progress(run: Run) -> SummaryProgress:
    return SummaryProgress(
        total=run.execution_count,
        ended=run.done_count,
        passed=run.pass_count,
        score_sum=run.score_sum,
        score_count=run.score_count,
        repetitions=run.repetitions,
    )


def _ended(run: Run, gate: str, share: float | None, limit: float) -> tuple[float | None, str]:
    """Judge a completed run by its summary; other runs keep their gates open (SCORING §8)."""
    is_judged = run.status == RunStatus.COMPLETED and not _measures_judge(run)
    if run.summary:
        share = run.summary[gate]["so_far"]
        is_judged = run.summary[gate]["passed"] is not None
    if not is_judged or share is None:
        return share, "open"
    return share, "passed" if is_at_least(share, limit) else "failed"


PASSED, GATE_FAILED, NOT_EVALUATED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class ExitConclusion:
    """An exit code and the sentence that explains it."""

    code: int
    sentence: str


def conclude(run: Run) -> ExitConclusion:
    """Return the conclusion from a finished run.

    The cases gate counts as failed only if it would fail even with passes in place of the errors.
    Otherwise the errors decide, and the target was not evaluated. A run that measures the judge has no gates.
    """
    if run.status != RunStatus.COMPLETED or not run.summary:
        return ExitConclusion(NOT_EVALUATED, f"Not evaluated: {_why_it_ended(run)}")
    summary = Summary.from_json(run.summary)
    score, rate = summary.metrics_gate, summary.cases_gate
    if score.passed and rate.passed:
        return ExitConclusion(PASSED, f"Passed: both gates met{_with_reviews(summary)}.")
    if score.so_far is None:
        return ExitConclusion(
            NOT_EVALUATED, f"Not evaluated: none of {counted(summary.executions, 'result')} scored."
        )
    if score.passed is None:
        # Of completed runs with scores, only measurements of a judge have gates that are never judged.
        return ExitConclusion(PASSED, "Completed: the run measures the judge and has no gates.")
    gates = "; ".join(
        f"{name.lower()} {pct(gate.share)}, needs {threshold(gate.threshold)}"
        for name, gate in ((SCORE, score), (RATE, rate))
        if not gate.passed
    )
    best = (summary.passed + summary.errors) / summary.executions
    if score.passed and is_at_least(best, rate.threshold):
        return ExitConclusion(
            NOT_EVALUATED,
            f"Not evaluated: {gates}, but only because of errors in {thousands(summary.errors)} of "
            f"{counted(summary.executions, 'result')}. Check the errors and rerun those results.",
        )
    return ExitConclusion(GATE_FAILED, f"Failed: {gates}{_with_reviews(summary)}.")


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What the gates say of a run: the state of its mark, and a sentence."""

    state: str
    sentence: str

    @property
    def word(self) -> str:
        """Return the sentence up to its reasons."""
        return self.sentence.partition(":")[0]


VERDICT_STATES = {PASSED: "pass", GATE_FAILED: "fail", NOT_EVALUATED: "error"}


def run_verdict(run: Run, gates: Sequence[RunGate]) -> RunVerdict | None:
    """Return the verdict of a run, while it is active the outlook; None before there are figures."""
    if not run.is_active:
        if run.status != RunStatus.COMPLETED:
            return RunVerdict("cancelled", "Not evaluated: the run is incomplete")
        if not run.summary:
            return None
        conclusion = conclude(run)
        return RunVerdict(VERDICT_STATES[conclusion.code], conclusion.sentence.removesuffix("."))
    if not run.done_count:
        return None
    for state, mark, words in (
        ("out_of_reach", "fail", "Can't pass"),
        ("early", "waiting", ""),
        ("at_risk", "borderline", "At risk"),
    ):
        reached = [gate for gate in gates if gate.state == state]
        if reached and state == "early":
            done = f"{thousands(run.done_count)} of {counted(run.execution_count, 'result')}"
            return RunVerdict(mark, f"Too early to say: {done}")
        if reached:
            figures = "; ".join(
                f"{gate.name.lower()} {pct(gate.share)} so far, needs {threshold(gate.limit)}"
                for gate in reached
            )
            return RunVerdict(mark, f"{words}: {figures}")
    return RunVerdict("pass", "On course: both gates met so far")


def _with_reviews(summary: Summary) -> str:
    return f", with {counted(summary.reviews, 'review')}" if summary.reviews else ""


def _why_it_ended(run: Run) -> str:
    if run.is_active:
        return "the workers continue this run."
    reason = run.status_reason or RunStatus(run.status).label
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."


KEPT_AS = "score_interval"
# How many results a page may read for runs whose summaries lack the interval.
MAX_READ = 50_000
Interval = tuple[float, float]


def score_intervals(runs: Sequence[Run]) -> Mapping[int, Interval | None]:
    """Return the 95% interval of each run's mean score by primary key, None where there is none.

    Summaries of older runs lack it: it is computed from their results if these are few, by one query.
    """
    intervals: dict[int, Interval | None] = {run.pk: _kept(run) for run in runs}
    if older := _older(runs):
        groups = _score_sums(older)
        intervals |= {pk: bootstrap_interval(groups[pk], seed=pk) for pk in older}
    return intervals


def _kept(run: Run) -> Interval | None:
    ends = (run.summary or {}).get(KEPT_AS)
    return (ends[0], ends[1]) if ends else None


def _older(runs: Sequence[Run]) -> Sequence[int]:
    """Return the newest runs whose summaries lack the interval, as many as may be read."""
    read, older = 0, []
    for run in sorted(runs, key=lambda run: -run.pk):
        if run.summary and KEPT_AS not in run.summary:
            read += run.execution_count
            if read > MAX_READ:
                break
            older.append(run.pk)
    return older


def _score_sums(numbers: Sequence[int]) -> Mapping[int, list[tuple[float, int]]]:
    """Return for each case of each run the sum and the number of its scores."""
    scored = Result.objects.filter(run__in=numbers, status=ResultStatus.SCORED, score__isnull=False)
    rows = scored.order_by().values("run_id", "case_id")
    groups: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for run, total, count in rows.annotate(total=Sum("score"), count=Count("id")).values_list(
        "run_id", "total", "count"
    ):
        groups[run].append((total, count))
    return groups
