"""Where each case of a run stands over its repetitions: stored, so that lists read one row a case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Value, When

from evaluators.models import money_field
from evaluators.scoring.numbers import mean, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import DomainError, Verdict
from runs.models.database import insert_rows, update_rows
from runs.models.results import Result, ResultStatus, VerdictChoice
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.cases import case_state
from runs.summary.figures import ExecutionRecord, total_of

CHUNK = 500
RUNNING, WAITING = "running", "waiting"
# Cases with `live_state`; stubs cannot follow annotations.
LiveCases = models.QuerySet[Any, Any]
RESULT_COLUMNS = (
    *("status", "verdict", "reviewed_verdict", "score", "is_forced", "latency_ms"),
    *("metrics_score", "outcome_marks", "run_cost_usd", "evaluation_cost_usd"),
)
STATE_COLUMNS = (
    *("state", "executions", "ended", "scored", "passed", "is_flaky", "score", "spread"),
    *("latency_ms", "metrics_score", "outcome_share", "run_cost_usd", "evaluation_cost_usd"),
)


class CaseStateChoice(models.TextChoices):
    """Where a case stands: open work first, then the verdict of its repetitions, then errors."""

    WAITING = WAITING, "Waiting"
    PASS = VerdictChoice.PASS.value, "Pass"
    BORDERLINE = VerdictChoice.BORDERLINE.value, "Borderline"
    FAIL = VerdictChoice.FAIL.value, "Fail"
    ERROR = "error", "Errored"
    CANCELLED = "cancelled", "Cancelled"


class RunCaseQuerySet(models.QuerySet["RunCase"]):
    """Cases of runs, and how they are kept in step with their results."""

    def open(self, run: Run, cases: Iterable[tuple[int, int]]) -> None:
        """Add cases by id and position, each with all its repetitions to do."""
        columns = ("run_id", "case_id", "position", "executions")
        insert_rows(RunCase, columns, ((run.pk, *case, run.repetitions) for case in cases))

    def refresh(
        self, run_id: int, cases: Iterable[int], *, policy: PolicySpec | None = None
    ) -> None:
        """Write where these cases of a run stand, by the rule applied to their results.

        The caller holds the run and has changed the results in the same transaction. `policy` is
        the one frozen in the run; it is read where the caller does not have it.
        """
        ids = sorted(set(cases))
        if not ids:
            return
        policy = policy or _frozen_policy(run_id)
        for start in range(0, len(ids), CHUNK):
            results = Result.objects.filter(run=run_id, case__in=ids[start : start + CHUNK])
            by_case: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
            for case, *row in results.order_by().values_list("case_id", *RESULT_COLUMNS):
                by_case[case].append(tuple(row))
            states = ((*_state_row(rows, policy), run_id, case) for case, rows in by_case.items())
            update_rows(RunCase, STATE_COLUMNS, states, key=("run_id", "case_id"))

    def live(self) -> LiveCases:
        """Add `live_state`: the state, but `running` where a worker is at work on the case.

        Who works on what is known from the leases alone: claiming writes nothing else.
        """
        held = Result.objects.filter(
            run=OuterRef("run"), case=OuterRef("case"), status=ResultStatus.RUNNING
        )
        running = When(Q(state=WAITING) & Exists(held), then=Value(RUNNING))
        state = models.Case(running, default=F("state"), output_field=models.CharField())
        cases: LiveCases = self.annotate(live_state=state)
        return cases


def _frozen_policy(run_id: int) -> PolicySpec:
    """Return the policy of a run, or its suite's where the snapshot cannot be read."""
    run = Run.objects.select_related("suite").defer("summary", "leaf_scores").get(pk=run_id)
    try:
        return run.policy
    except (DomainError, KeyError, TypeError):
        return run.suite.policy


def _state_row(results: Sequence[tuple[Any, ...]], policy: PolicySpec) -> tuple[Any, ...]:
    """Return the columns of a case from those of its results."""
    state = case_state([_execution(*row[:5]) for row in results], policy)
    marks = [row[7] for row in results if row[7]]
    return (
        *(state.state, len(results), state.ended, state.scored, state.passed, state.is_flaky),
        *(state.score, state.spread, _mean([row[5] for row in results])),
        *(_mean([row[6] for row in results]), _mean([m.count("1") / len(m) for m in marks])),
        *(total_of([row[8] for row in results]), total_of([row[9] for row in results])),
    )


def live_state(rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> str:
    """Return where a case stands by the rows of its results."""
    if any(row["status"] == ResultStatus.RUNNING for row in rows):
        return RUNNING
    return case_state([execution_from(row) for row in rows], policy).state


def execution_from(row: Mapping[str, Any]) -> ExecutionRecord:
    """Return a row of results as the rule of cases takes it."""
    return _execution(*(row[name] for name in RESULT_COLUMNS[:5]))


def _execution(
    status: str, verdict: str, reviewed_verdict: str, score: float | None, is_forced: bool
) -> ExecutionRecord:
    return ExecutionRecord(
        case="",
        status=status,
        verdict=Verdict(verdict) if verdict else None,
        score=score,
        is_forced=is_forced,
        reviewed_verdict=Verdict(reviewed_verdict) if reviewed_verdict else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) == 1:
        return known[0]
    average = mean(known)
    return None if average is None else rounded(average)


class RunCase(models.Model):
    """A case of a run over its repetitions, written with the results that decide it.

    `state` and the figures are those of `runs.summary.cases.case_state`, the one rule. `score` is the mean
    of the scored repetitions, `spread` highest - lowest of two or more; `passed` of `scored` have
    passed, `ended` of `executions` were carried out. Latency, metrics and share of met outcomes are means
    over the repetitions that have them, costs are sums of what is known.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="cases", db_index=False)
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveIntegerField()
    state = models.CharField(
        max_length=10, choices=CaseStateChoice.choices, db_default=CaseStateChoice.WAITING
    )
    executions = models.PositiveIntegerField(default=1)
    ended = models.PositiveIntegerField(db_default=0)
    scored = models.PositiveIntegerField(db_default=0)
    passed = models.PositiveIntegerField(db_default=0)
    is_flaky = models.BooleanField(db_default=False)
    score = models.FloatField(null=True, blank=True)
    spread = models.FloatField(null=True, blank=True)
    latency_ms = models.FloatField(null=True, blank=True)
    metrics_score = models.FloatField(null=True, blank=True)
    outcome_share = models.FloatField(null=True, blank=True)
    run_cost_usd = money_field(null=True, blank=True)
    evaluation_cost_usd = money_field(null=True, blank=True)

    objects = RunCaseQuerySet.as_manager()

    class Meta:
        """In the order of the suite."""

        ordering = ("position", "id")
        constraints = (models.UniqueConstraint(fields=("run", "case"), name="run_case_one_a_case"),)

    def __str__(self) -> str:
        """Return the state."""
        return self.state
