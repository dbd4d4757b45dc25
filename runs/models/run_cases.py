"""The state of each case of a run over its repetitions, stored so that lists read one row a case.

`RunCase.objects.refresh` keeps the rows in step with the results. The second half sorts and counts them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import uuid4

from django.db import models
from django.db.models import (
    Avg,
    Count,
    F,
    FloatField,
    Q,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, Round

from evaluators.models import money_field
from evaluators.scoring.numbers import mean, rounded, sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import SCORE_DIGITS, Verdict
from runs.models.database import insert_rows, read_rows, update_rows
from runs.models.results import Result, ResultStatus, VerdictChoice
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.cases import STATES, CaseState, ExecutionRecord, RepetitionFigures, case_state

CHUNK = 500
RUNNING, WAITING = "running", "waiting"
# Cases with `live_state`; stubs cannot follow annotations.
LiveCases = models.QuerySet[Any, Any]
EXECUTION_COLUMNS = ("status", "verdict", "reviewed_verdict", "score", "is_forced")
FIGURE_COLUMNS = (
    *("latency_ms", "metrics_score", "outcome_marks", "run_cost_usd", "evaluation_cost_usd"),
)
STATE_COLUMNS = (
    *("state", "executions", "ended", "scored", "passed", "is_flaky", "score", "spread"),
    *("latency_ms", "metrics_score", "outcome_share", "run_cost_usd", "evaluation_cost_usd"),
)
# The states of cases by the execution columns of their results.
KnownStates = dict[tuple[tuple[Any, ...], ...], CaseState]
VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}


class CaseStateChoice(models.TextChoices):
    """Where a case stands: open work first, then the verdict of its repetitions, then errors."""

    WAITING = WAITING, "Waiting"
    PASS = VerdictChoice.PASS.value, "Pass"
    BORDERLINE = VerdictChoice.BORDERLINE.value, "Borderline"
    FAIL = VerdictChoice.FAIL.value, "Fail"
    ERROR = "error", "Errored"
    CANCELLED = "cancelled", "Cancelled"


class RunCaseQuerySet(models.QuerySet["RunCase"]):
    """The cases of runs."""

    def add_open(
        self,
        run: Run,
        cases: Iterable[tuple[int, int]],
        paid: Mapping[int, Sequence[Decimal | None]] | None = None,
    ) -> None:
        """Add cases by id and position, with all their repetitions open.

        `paid` has by id what the target has cost in each repetition, where it was asked before.
        """
        usual = (None,) * run.repetitions
        costs = paid or {}
        columns = ("run_id", "case_id", "position", "executions", "run_cost_usd")
        rows = ((run.pk, *case, costs.get(case[0], usual)) for case in cases)
        insert_rows(RunCase, columns, ((*row, len(some), sum_known(some)) for *row, some in rows))

    def refresh(
        self, run_id: int, cases: Iterable[int], *, policy: PolicySpec | None = None
    ) -> None:
        """Store where these cases of a run stand, by the rule applied to their results, and give these a new version.

        Everything that changes results calls this in the same transaction, while it holds the run.
        `policy` is the run's; without it, it is read.
        """
        ids = sorted(set(cases))
        if not ids:
            return
        if policy is None:
            runs = Run.objects.select_related("suite").defer("summary", "leaf_scores")
            policy = runs.get(pk=run_id).readable_policy()
        known: KnownStates = {}
        for start in range(0, len(ids), CHUNK):
            # Through the ORM this query would take longer than the rule.
            rows = read_rows(
                Result,
                ("case_id", *EXECUTION_COLUMNS, *FIGURE_COLUMNS),
                equal={"run_id": run_id},
                among=("case_id", ids[start : start + CHUNK]),
            )
            by_case: dict[int, list[Sequence[Any]]] = defaultdict(list)
            for case, *row in rows:
                by_case[case].append(row)
            states = (
                (*_state_columns(results, policy, known), run_id, case)
                for case, results in by_case.items()
            )
            update_rows(RunCase, STATE_COLUMNS, states, key=("run_id", "case_id"))
        Run.objects.filter(pk=run_id).update(results_version=uuid4())

    def live(self, *runs: Run) -> LiveCases:
        """Add `live_state` to the cases of these runs: the state, or `running` while a worker works on the case.

        Only the leases tell which cases run, because claiming changes nothing but leases. One subquery
        for each active run, not one for each case: most cases of a long run wait.
        """
        claimed = Result.objects.filter(status=ResultStatus.RUNNING)
        # SQLite tests them in this order, so most cases are not looked up among the claimed ones.
        held = [
            Q(state=WAITING) & Q(run=run) & Q(case__in=claimed.filter(run=run).values("case"))
            for run in runs
            if run.is_active
        ]
        running = [When(held_by_run, then=Value(RUNNING)) for held_by_run in held]
        state = models.Case(*running, default=F("state"), output_field=models.CharField())
        cases: LiveCases = self.annotate(live_state=state)
        return cases


def _state_columns(
    results: Sequence[Sequence[Any]], policy: PolicySpec, known: KnownStates
) -> tuple[Any, ...]:
    """Return the columns of a case from those of its results; `known` keeps the states that recur."""
    executions = tuple([tuple(row[:5]) for row in results])
    state = known.get(executions)
    if state is None:
        state = case_state([_execution(*row) for row in executions], policy)
        known[executions] = state
    _, _, _, _, _, latencies, metrics, marks, run_costs, evaluation_costs = zip(
        *results, strict=True
    )
    return (
        *(state.state, len(results), state.ended, state.scored, state.passed, state.is_flaky),
        *(state.score, state.spread, _mean(latencies), _mean(metrics)),
        _mean([mark.count("1") / len(mark) for mark in marks if mark]),
        *(sum_known(run_costs), sum_known(evaluation_costs)),
    )


def live_state(rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> str:
    """Return where a case stands by the rows of its results."""
    if any(row["status"] == ResultStatus.RUNNING for row in rows):
        return RUNNING
    return case_state([execution_from(row) for row in rows], policy).state


def execution_from(row: Mapping[str, Any]) -> ExecutionRecord:
    """Return a row of results in the form that the rule for cases takes."""
    return _execution(*(row[name] for name in EXECUTION_COLUMNS))


def _execution(
    status: str, verdict: str, reviewed_verdict: str, score: float | None, is_forced: bool
) -> ExecutionRecord:
    return ExecutionRecord(
        "", status, VERDICTS.get(verdict), score, is_forced, VERDICTS.get(reviewed_verdict)
    )


def _mean(values: Sequence[float | None]) -> float | None:
    if len(values) == 1:
        return values[0]
    average = mean([value for value in values if value is not None])
    return None if average is None else rounded(average)


class RunCase(models.Model):
    """A case of a run over its repetitions, written with the results that decide it.

    `runs.summary.cases.case_state` is the rule for the state and the figures. `score` is the mean of
    the scored repetitions, `spread` the highest − the lowest of two or more. Of `executions`, `ended`
    have ended; of those, `scored` have a verdict and `passed` passed. Latency, metrics and the share of met
    outcomes are means over the repetitions that have them. Costs are sums of the known ones.
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


RANKS = {
    "running": 0,
    "error": 1,
    "fail": 2,
    "borderline": 3,
    "pass": 4,
    "cancelled": 5,
    "waiting": 6,
}
# The place of a case without a score when the lowest score comes first.
UNSCORED_PLACES = {"running": -3.0, "error": -2.0, "cancelled": 2.0, "waiting": 3.0}
NO_USD = Value(0, output_field=money_field())
FIGURES: Mapping[str, Any] = {
    "case": F("position"),
    "score": F("score"),
    "spread": F("spread"),
    "metrics": F("metrics_score"),
    "outcomes": F("outcome_share"),
    "latency": F("latency_ms"),
    "target_cost": F("run_cost_usd"),
    "judge_cost": F("evaluation_cost_usd"),
    "cost": models.Case(
        When(run_cost_usd=None, evaluation_cost_usd=None, then=None),
        default=Coalesce(F("run_cost_usd"), NO_USD) + Coalesce(F("evaluation_cost_usd"), NO_USD),
    ),
}


def sorted_cases(cases: LiveCases, name: str) -> LiveCases:
    """Add `sort_value`, which a column sorts by; a missing figure is below every other."""
    value: Any
    if name in FIGURES:
        known = Round(Cast(FIGURES[name], FloatField()), SCORE_DIGITS)
        value = Coalesce(known, Value(-1.0))
    else:
        places = RANKS if name == "verdict" else UNSCORED_PLACES
        default = Value(9.0) if name == "verdict" else Coalesce(F("score"), Value(-1.0))
        whens = [When(live_state=state, then=Value(float(at))) for state, at in places.items()]
        value = models.Case(*whens, default=default, output_field=FloatField())
    sorted_: LiveCases = cases.annotate(sort_value=value)
    return sorted_


def count_states(cases: LiveCases) -> Mapping[str, int]:
    """Return how many cases are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for (state, _), count in count_states_and_flaky(cases).items():
        counts[state] += count
    return counts


def count_states_and_flaky(cases: LiveCases) -> Counter[tuple[str, bool]]:
    """Return the number of cases by state and whether they are flaky; one query."""
    rows: Any = cases.order_by().values_list("live_state", "is_flaky").annotate(count=Count("pk"))
    return Counter({(state, is_flaky): count for state, is_flaky, count in rows})


def repetition_figures(run: Run) -> RepetitionFigures:
    """Return the figures of a run's repetitions so far; one query."""
    ended = Q(ended=F("executions"))
    figures = run.cases.aggregate(
        settled=Count("pk", filter=ended),
        all_passed=Count("pk", filter=ended & Q(passed=F("executions"))),
        any_passed=Count("pk", filter=ended & Q(passed__gt=0)),
        comparable=Count("pk", filter=Q(scored__gt=1)),
        flaky=Count("pk", filter=Q(is_flaky=True)),
        mean_spread=Avg("spread"),
        spread_cases=Count("spread"),
    )
    spread = figures.pop("mean_spread")
    return RepetitionFigures(**figures, spread=None if spread is None else rounded(spread))
