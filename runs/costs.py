"""What runs and results have cost, target and judge apart, as far as prices are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import money
from runs.models.results import (
    ANSWERED,
    ENDED_RESULT_STATUSES,
    CallPurpose,
    CallStatus,
    ModelCall,
    Result,
    ResultStatus,
)
from runs.models.runs import Run, RunStatus
from runs.summary.figures import combined_cost
from runs.target_kinds import target_kind_named

# The judges of an imported run were paid elsewhere. No other run is completed without a start.
JUDGED_ELSEWHERE = Q(status=RunStatus.COMPLETED, started_at=None, evaluation_cost_usd=0)
UNPRICED_CALLS = Q(cost_usd=None, status__in=ANSWERED)


@dataclass(frozen=True, slots=True)
class Cost:
    """A target cost or a judge cost: `usd` is what is known, None where there were answers and no price for any.

    `priced` of `answers` had a price; `noun` says what they are. Answers alone are counted: what
    was refused or rate limited is not billed. Counts and tokens are filled in where prices are
    missing, otherwise 0 and None.
    """

    usd: Decimal | None
    answers: int = 0
    priced: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    noun: str = "call"

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.priced < self.answers

    @property
    def has_tokens(self) -> bool:
        """Tell whether tokens are known."""
        return self.input_tokens is not None or self.output_tokens is not None


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Target cost and judge cost of a run."""

    run: Cost
    evaluation: Cost

    @property
    def total_usd(self) -> Decimal | None:
        """Return what is known of both; None when that is nothing and one is unknown."""
        return combined_cost(self.run.usd, self.evaluation.usd)

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.run.is_partial or self.evaluation.is_partial


def with_costs(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs with columns that tell which of their costs lack a price."""
    calls = ModelCall.objects.filter(UNPRICED_CALLS, run=OuterRef("pk"))
    outputs = Result.objects.filter(
        run=OuterRef("pk"), run_cost_usd=None, status__in=ENDED_RESULT_STATUSES
    )
    in_order = outputs.exclude(error_stage="target").order_by("position", "repetition")
    # Reading every output would be slow in a list: only a cost of zero is doubted. The
    # order leads PostgreSQL to the run's own results: else it looks for one among those of all.
    silent = Case(When(run_cost_usd=0, done_count__gt=0, then=Subquery(in_order.values("pk")[:1])))
    judged = Exists(calls.filter(purpose=CallPurpose.EVALUATION))
    return runs.annotate(
        has_unpriced_target=Exists(calls.filter(purpose=CallPurpose.TARGET)),
        has_unpriced_evaluation=Case(When(JUDGED_ELSEWHERE, then=Value(True)), default=judged),
        silent_output=silent,
    )


def listed_costs(run: Run) -> RunCosts:
    """Return the costs of a run of `with_costs`: whether they are partial, without counts."""
    columns: Mapping[str, Any] = vars(run)
    in_target = columns["has_unpriced_target"] or columns["silent_output"] is not None
    return RunCosts(
        _listed(run.run_cost_usd, is_partial=in_target),
        _listed(run.evaluation_cost_usd, is_partial=columns["has_unpriced_evaluation"]),
    )


def run_costs(run: Run) -> RunCosts:
    """Return the costs of one run with their counts; two queries, three where a price is missing.

    A run that is on is asked every second: its calls are counted only where a price is missing.
    """
    unpriced = ModelCall.objects.filter(UNPRICED_CALLS, run=run).order_by()
    missing = dict(unpriced.values_list("purpose").annotate(total=Count("id")))
    facts = _answers(run) if missing else {}
    if run.snapshot["target"]["model"]:
        of_run = _of_calls(run.run_cost_usd, CallPurpose.TARGET, missing, facts)
    else:
        of_run = _reported_by_run(run)
    if run.imported_from:
        return RunCosts(of_run, _judged_elsewhere(run))
    evaluation = _of_calls(run.evaluation_cost_usd, CallPurpose.EVALUATION, missing, facts)
    return RunCosts(of_run, evaluation)


def counted_usd(run: Run, *, snapshot: Mapping[str, Any]) -> Decimal:
    """Return what counts against a run's budget: what a replayed output once cost is not spent now."""
    target_usd = Decimal(0) if is_replayed(snapshot) else run.run_cost_usd
    total: Decimal = run.evaluation_cost_usd + target_usd
    return total


def budget_words(spent_usd: Decimal, budget_usd: Decimal) -> str:
    """Say how much of a budget is spent, with a digit more where it is small."""
    spent, cap = (money(usd, 2 if usd >= 1 else 3) for usd in (spent_usd, budget_usd))
    return f"{spent} of a budget of {cap} is spent"


def is_replayed(snapshot: Mapping[str, Any]) -> bool:
    """Tell whether the target's outputs were there before the run, so that asking costs nothing."""
    try:
        return target_kind_named(snapshot["target"]["kind"]).replays
    except DomainError:
        return False


def _listed(usd: Decimal, *, is_partial: bool) -> Cost:
    return Cost(None if is_partial and not usd else usd, answers=int(is_partial))


def _answers(run: Run) -> dict[str, Mapping[str, Any]]:
    calls = ModelCall.objects.filter(run=run, status__in=ANSWERED).order_by()
    rows = calls.values("purpose").annotate(
        answers=Count("id"), tokens_in=Sum("input_tokens"), tokens_out=Sum("output_tokens")
    )
    return {row["purpose"]: row for row in rows}


def _of_calls(
    usd: Decimal,
    purpose: CallPurpose,
    missing: Mapping[str, int],
    facts: Mapping[str, Mapping[str, Any]],
) -> Cost:
    if purpose not in missing:
        return Cost(usd)
    found = facts[purpose]
    answers, priced = found["answers"], found["answers"] - missing[purpose]
    return Cost(usd if priced else None, answers, priced, found["tokens_in"], found["tokens_out"])


def _reported_by_run(run: Run) -> Cost:
    """Return the cost of a target that reports what its outputs cost."""
    outputs = (
        run.results.filter(status__in=ENDED_RESULT_STATUSES)
        .exclude(error_stage="target")
        .order_by()
    )
    found = outputs.aggregate(
        answers=Count("id"),
        priced=Count("run_cost_usd"),
        tokens_in=Sum("input_tokens"),
        tokens_out=Sum("output_tokens"),
    )
    answers, priced = found["answers"], found["priced"]
    if priced >= answers:
        return Cost(run.run_cost_usd)
    usd = run.run_cost_usd if priced else None
    return Cost(usd, answers, priced, found["tokens_in"], found["tokens_out"], noun="output")


def _judged_elsewhere(run: Run) -> Cost:
    """Return the judge cost of an imported run, as far as its file has it."""
    scored = run.results.filter(status=ResultStatus.SCORED).order_by()
    found = scored.aggregate(answers=Count("id"), priced=Count("evaluation_cost_usd"))
    usd = run.evaluation_cost_usd if found["priced"] else None
    return Cost(usd, found["answers"], found["priced"], noun="result")


PRICED_OUTPUT = Q(run_cost_usd__isnull=False)


class Counts(NamedTuple):
    """How many answers there were and how many of them have a price."""

    answers: int = 0
    priced: int = 0


Counted = Mapping[tuple[int, str], Counts]
NOTHING = Counts()


def with_origins(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs, each told where its costs are known from, without their snapshots."""
    return runs.annotate(
        target_model=F("snapshot__target__model"), imported_facts=F("snapshot__imported")
    )


def costs_of_runs(runs: Sequence[Run]) -> Mapping[int, RunCosts]:
    """Return the costs of runs of `with_origins` by primary key; two queries however many runs."""
    numbers = [run.pk for run in runs]
    calls, outputs = _calls(numbers), _outputs(numbers)
    return {run.pk: _costs(run, vars(run), calls, outputs) for run in runs}


def _costs(run: Run, columns: Mapping[str, Any], calls: Counted, outputs: Counted) -> RunCosts:
    """Return both costs by the rules of `run_costs`."""
    if columns["target_model"]:
        of_run = _cost(run.run_cost_usd, calls.get((run.pk, CallPurpose.TARGET)), "call")
    else:
        of_run = _cost(run.run_cost_usd, outputs.get((run.pk, "answered")), "output")
    if columns["imported_facts"]:
        judged = outputs.get((run.pk, "scored"), NOTHING)
        usd = run.evaluation_cost_usd if judged.priced else None
        return RunCosts(of_run, Cost(usd, *judged, noun="result"))
    judged_by = calls.get((run.pk, CallPurpose.EVALUATION))
    return RunCosts(of_run, _cost(run.evaluation_cost_usd, judged_by, "call"))


def _cost(usd: Decimal, counts: Counts | None, noun: str) -> Cost:
    answers, priced = counts or NOTHING
    known = None if answers and not priced else usd
    return Cost(known, answers, priced, noun=noun)


def _calls(runs: Iterable[int]) -> Counted:
    rows = ModelCall.objects.filter(run__in=runs, status__in=ANSWERED).order_by()
    counted = rows.values("run_id", "purpose").annotate(all=Count("id"), priced=Count("cost_usd"))
    return {(row["run_id"], row["purpose"]): Counts(row["all"], row["priced"]) for row in counted}


def _outputs(runs: Iterable[int]) -> Counted:
    """Count the outputs that targets answered, and the results that were scored."""
    rows: Any = Result.objects.filter(run__in=runs, status__in=ENDED_RESULT_STATUSES).order_by()
    answered, scored = ~Q(error_stage="target"), Q(status=ResultStatus.SCORED)
    counted = rows.values("run_id").annotate(
        answered=Count("id", filter=answered),
        answered_priced=Count("id", filter=answered & PRICED_OUTPUT),
        scored=Count("id", filter=scored),
        scored_priced=Count("evaluation_cost_usd", filter=scored),
    )
    return {
        (row["run_id"], part): Counts(row[part], row[f"{part}_priced"])
        for row in counted
        for part in ("answered", "scored")
    }


IS_ANSWER = Q(status__in=ANSWERED)


@dataclass(frozen=True, slots=True)
class CallCost:
    """The calls for one purpose, failed ones included; tokens are None where none were reported.

    `usd` is None where there were answers and no price is known for any. `priced` of `answers`
    had a price: what was refused or rate limited is not billed.
    """

    calls: int
    failed: int
    answers: int
    priced: int
    input_tokens: int | None
    output_tokens: int | None
    usd: Decimal | None

    @property
    def tokens(self) -> int | None:
        """Return the tokens in and out together."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.priced < self.answers


@dataclass(frozen=True, slots=True)
class ResultCosts:
    """Target cost and judge cost of a result."""

    run: CallCost
    evaluation: CallCost

    @property
    def total_usd(self) -> Decimal | None:
        """Return what is known of both; None when that is nothing and one is unknown."""
        return combined_cost(self.run.usd, self.evaluation.usd)

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.run.is_partial or self.evaluation.is_partial

    @property
    def calls(self) -> int:
        """Return how many calls were made."""
        return self.run.calls + self.evaluation.calls

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return self.run.failed + self.evaluation.failed


def result_costs(run: Run, result: Result) -> ResultCosts:
    """Return the costs of a result; one query."""
    rows = (
        result.model_calls.order_by()
        .values("purpose")
        .annotate(
            calls=Count("id"),
            failed=Count("id", filter=~Q(status=CallStatus.OK)),
            answers=Count("id", filter=IS_ANSWER),
            priced=Count("cost_usd", filter=IS_ANSWER),
            input_tokens=Sum("input_tokens"),
            output_tokens=Sum("output_tokens"),
        )
    )
    found: dict[str, dict[str, Any]] = {row["purpose"]: {**row} for row in rows}
    nothing: dict[str, Any] = {"calls": 0, "failed": 0, "answers": 0, "priced": 0}
    nothing |= {"input_tokens": None, "output_tokens": None}
    of_run = nothing | found.get(CallPurpose.TARGET, {})
    evaluation = nothing | found.get(CallPurpose.EVALUATION, {})
    for cost in (of_run, evaluation):
        cost.pop("purpose", None)
    if not run.snapshot["target"]["model"]:
        of_run |= _reported_by_result(result)
    if run.imported_from and result.evaluation_cost_usd is None:
        # Judges were paid elsewhere, and the file does not say how much.
        evaluation |= {"answers": int(result.status == ResultStatus.SCORED)}
    return ResultCosts(
        CallCost(**of_run, usd=_known(result.run_cost_usd, of_run)),
        CallCost(**evaluation, usd=_known(result.evaluation_cost_usd, evaluation)),
    )


def _reported_by_result(result: Result) -> dict[str, Any]:
    """Return what a target that is no model of ours said of its output."""
    has_output = hasattr(result, "output")
    return {
        "answers": int(has_output),
        "priced": int(has_output and result.run_cost_usd is not None),
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
    }


def _known(usd: Decimal | None, cost: Mapping[str, Any]) -> Decimal | None:
    if usd is None and cost["answers"]:
        return None
    return usd or Decimal(0)
