"""The cost of runs and results, of target and judges apart, as far as prices are known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
)
from django.db.models.functions import Coalesce

from evaluators.models import ZERO_USD
from evaluators.scoring.numbers import combined_cost
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, money
from runs.engine.plan import JUDGED_AGAIN
from runs.models.database import among
from runs.models.results import (
    ANSWERED,
    ENDED_RESULT_STATUSES,
    JUDGE_PURPOSES,
    CallPurpose,
    CallStatus,
    ModelCall,
    Result,
    ResultStatus,
    cost_purpose,
)
from runs.models.runs import Run, RunStatus
from runs.target_kinds import get_target_kind

# The judges of an imported run were paid elsewhere. No other run completes without a start.
JUDGED_ELSEWHERE = Q(status=RunStatus.COMPLETED, started_at=None, evaluation_cost_usd=0)
IS_ANSWER = Q(status__in=ANSWERED)
OUTPUT_COUNTS = "outputs"
UNPRICED_CALLS = Q(cost_usd=None, status__in=ANSWERED)
# Where no budget is given, at this many times the estimate models are asked no more: calls differ in their tokens, and
# some are repeated.
CAP_TIMES = 2
# Pages, API and command line refuse it alike.
ZERO_BUDGET = "The budget must be more than $0."


def budget_problem(budget_usd: Decimal, first_call_usd: Decimal, noun: str) -> str:
    """Return why a job cannot begin within its budget, "" where it can; with fewer `noun` it asks for less."""
    if budget_usd <= 0:
        return ZERO_BUDGET
    if budget_usd < first_call_usd:
        return (
            f"A budget of {money(budget_usd)} does not cover the first call, which costs about {money(first_call_usd)}. "
            f"Give more, or choose another model or fewer {noun}."
        )
    return ""


@dataclass(frozen=True, slots=True)
class Cost:
    """A target cost or a judge cost; `usd` is None where there were answers but no price is known.

    `priced` of `answers` had a price; `noun` says what they are. Refused and rate limited calls are
    not billed and do not count. Where a target says itself what it cost, executions count instead: one
    that failed may have cost something too. Counts and tokens of a run are there only where prices are
    missing. `calls` and `failed` are those of a result.
    """

    usd: Decimal | None
    answers: int = 0
    priced: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    noun: str = "call"
    calls: int = 0
    failed: int = 0

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.priced < self.answers

    @property
    def has_tokens(self) -> bool:
        """Tell whether tokens are known."""
        return self.input_tokens is not None or self.output_tokens is not None

    @property
    def tokens(self) -> int | None:
        """Return input and output tokens together, None when neither is known."""
        if not self.has_tokens:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True, slots=True)
class CostPair:
    """Target cost and judge cost of a run or of a result."""

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

    @property
    def calls(self) -> int:
        """Return the number of calls of a result."""
        return self.run.calls + self.evaluation.calls

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return self.run.failed + self.evaluation.failed


def with_costs(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Add columns that tell which costs of the runs lack a price, for lists."""
    calls = ModelCall.objects.filter(UNPRICED_CALLS, run=OuterRef("pk"))
    outputs = Result.objects.filter(
        run=OuterRef("pk"),
        run_cost_usd=None,
        status__in=ENDED_RESULT_STATUSES,
    )
    # Reading all outputs would slow a list, so before a run has its figures only a cost of zero is checked.
    # Ordered, PostgreSQL reads only the run's own results; otherwise it searches those of all runs.
    first = outputs.order_by("position", "repetition").values("pk")[:1]
    judged = Exists(calls.filter(purpose__in=JUDGE_PURPOSES))
    scored = Result.objects.filter(
        run=OuterRef("pk"), evaluation_cost_usd=None, status=ResultStatus.SCORED
    )
    return with_origins(runs).annotate(
        has_unpriced_target=Exists(calls.filter(purpose=CallPurpose.TARGET)),
        has_unpriced_evaluation=Case(When(JUDGED_ELSEWHERE, then=Exists(scored)), default=judged),
        unpriced_output=Case(When(run_cost_usd=0, done_count__gt=0, then=Subquery(first))),
    )


def listed_costs(run: Run) -> CostPair:
    """Return the costs of a run of `with_costs`: whether they are partial, without counts."""
    columns: Mapping[str, Any] = vars(run)
    lacks_price = (
        columns["has_unpriced_target"]
        if _calls_model(run)
        else columns["unpriced_output"] is not None
    )
    target = _listed_cost(run.run_cost_usd, is_partial=lacks_price)
    evaluation = _listed_cost(
        run.evaluation_cost_usd, is_partial=columns["has_unpriced_evaluation"]
    )
    if outputs := (run.summary or {}).get(OUTPUT_COUNTS):
        elsewhere = _costs(run, {}, {}, outputs)
        target = target if _calls_model(run) else elsewhere.run
        evaluation = elsewhere.evaluation if _is_imported(run) else evaluation
    return CostPair(target, evaluation)


def _listed_cost(usd: Decimal, *, is_partial: bool) -> Cost:
    return Cost(None if is_partial and not usd else usd, answers=int(is_partial))


def with_origins(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Add what `read_costs` needs of the snapshots, so that they need not be read whole."""
    return runs.annotate(
        target_model=F("snapshot__target__model"), imported_facts=F("snapshot__imported")
    )


def run_costs(run: Run) -> CostPair:
    """Return the costs of one run with their counts, in as many queries as `read_costs`."""
    return read_costs([run])[run.pk]


def read_costs(runs: Sequence[Run]) -> Mapping[int, CostPair]:
    """Return the costs of runs with their counts by primary key.

    At most three queries, for any number of runs: calls without a price, all answers where there are
    such calls, and outputs where the target or the judges were not called from here, unless the figures
    of the run have them. Pages of active runs ask every second, so answers are counted only where a
    price is missing.
    """
    unpriced = _count_calls([run.pk for run in runs], UNPRICED_CALLS)
    answers = _count_calls({run for run, _ in unpriced}, IS_ANSWER)
    called_elsewhere = [run for run in runs if not _calls_model(run) or _is_imported(run)]
    outputs: dict[int, Mapping[str, Any]] = {
        run.pk: run.summary[OUTPUT_COUNTS]
        for run in called_elsewhere
        if run.summary and OUTPUT_COUNTS in run.summary
    }
    outputs |= count_outputs([run.pk for run in called_elsewhere if run.pk not in outputs])
    return {run.pk: _costs(run, unpriced, answers, outputs.get(run.pk, {})) for run in runs}


def _calls_model(run: Run) -> bool:
    """Tell whether the run itself asks a language model of ours; outputs of another run have their own costs."""
    if run.source_run_id is not None:
        return False
    columns = vars(run)
    if "target_model" in columns:
        return bool(columns["target_model"])
    return bool(run.snapshot["target"]["model"])


def _is_imported(run: Run) -> bool:
    columns = vars(run)
    if "imported_facts" in columns:
        return bool(columns["imported_facts"])
    return bool(run.imported_from)


Calls = Mapping[tuple[int, str], Mapping[str, Any]]


def _count_calls(runs: Iterable[int], which: Q) -> Calls:
    """Count calls by run and by whose cost they are."""
    ids = list(runs)
    if not ids:
        return {}
    calls = ModelCall.objects.filter(which, run__in=ids).order_by()
    rows = calls.values("run_id", "purpose").annotate(
        answers=Count("id"), tokens_in=Sum("input_tokens"), tokens_out=Sum("output_tokens")
    )
    return {(row["run_id"], cost_purpose(row["purpose"])): row for row in rows}


def count_outputs(runs: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
    """Count by run the executions that ended, and those that were judged: the scored, and others with such a cost.

    An ended run keeps its counts in its summary under OUTPUT_COUNTS: counting reads all its results.
    """
    if not runs:
        return {}
    rows: Any = Result.objects.filter(run__in=runs, status__in=ENDED_RESULT_STATUSES).order_by()
    judged = Q(status=ResultStatus.SCORED) | Q(evaluation_cost_usd__isnull=False)
    counted = rows.values("run_id").annotate(
        answers=Count("id"),
        priced=Count("run_cost_usd"),
        tokens_in=Sum("input_tokens"),
        tokens_out=Sum("output_tokens"),
        scored=Count("id", filter=judged),
        scored_priced=Count("evaluation_cost_usd"),
    )
    return {row.pop("run_id"): row for row in counted}


def _costs(run: Run, unpriced: Calls, answers: Calls, outputs: Mapping[str, Any]) -> CostPair:
    def call_cost(usd: Decimal, purpose: CallPurpose) -> Cost:
        key = (run.pk, purpose.value)
        if key not in unpriced:
            return Cost(usd)
        return _partial_cost(
            usd, answers[key], answers[key]["answers"] - unpriced[key]["answers"], "call"
        )

    if _calls_model(run):
        target = call_cost(run.run_cost_usd, CallPurpose.TARGET)
    elif outputs.get("priced", 0) < outputs.get("answers", 0):
        target = _partial_cost(run.run_cost_usd, outputs, outputs["priced"], "result")
    else:
        target = Cost(run.run_cost_usd)
    if not _is_imported(run):
        return CostPair(target, call_cost(run.evaluation_cost_usd, CallPurpose.EVALUATION))
    # The judges were paid elsewhere; the file may have their costs.
    scored, priced = outputs.get("scored", 0), outputs.get("scored_priced", 0)
    usd = run.evaluation_cost_usd if priced else None
    return CostPair(target, Cost(usd, scored, priced, noun="result"))


def _partial_cost(usd: Decimal, counts: Mapping[str, Any], priced: int, noun: str) -> Cost:
    return Cost(
        usd if priced else None,
        counts["answers"],
        priced,
        counts["tokens_in"],
        counts["tokens_out"],
        noun=noun,
    )


def counted_usd(run: Run, *, snapshot: Mapping[str, Any]) -> Decimal:
    """Return what counts against a run's budget; outputs that are replayed cost nothing now."""
    target_usd = Decimal(0) if is_replayed(snapshot) else run.run_cost_usd
    total: Decimal = run.evaluation_cost_usd + target_usd
    return total


def dearest_usd(
    run_id: int, *, is_replayed: bool, among: Collection[int] | None = None
) -> Decimal | None:
    """Return the highest cost of a result that has ended, None if none has; one query.

    An error that cost nothing says nothing about the cost of others. `among` are the ids of the results to
    look at, all of the run by default.
    """
    judged = Coalesce("evaluation_cost_usd", ZERO_USD)
    costs = judged if is_replayed else judged + Coalesce("run_cost_usd", ZERO_USD)
    is_example = Q(status=ResultStatus.SCORED) | Q(status=ResultStatus.ERROR, usd__gt=0)
    results = Result.objects.filter(run_id=run_id)
    if among is not None:
        results = results.filter(id__in=among)
    ended = results.annotate(usd=costs).filter(is_example)
    dearest: Decimal | None = ended.aggregate(dearest=Max("usd"))["dearest"]
    return dearest


def missing_usd(run: Run, budget_usd: Decimal, *, snapshot: Mapping[str, Any]) -> Decimal | None:
    """Return what one more result may cost where the budget does not cover it, else None.

    A run begins no result that could exceed its budget.
    """
    left = budget_usd - counted_usd(run, snapshot=snapshot)
    dearest = dearest_usd(run.pk, is_replayed=is_replayed(snapshot)) or ZERO_USD
    return dearest if left <= 0 or dearest > left else None


def budget_words(spent_usd: Decimal, budget_usd: Decimal) -> str:
    """Return how much of a budget is spent."""
    return f"{money(spent_usd)} of the {money(budget_usd)} budget is spent"


def is_replayed(snapshot: Mapping[str, Any]) -> bool:
    """Tell whether the target's outputs existed before the run, so that asking costs nothing."""
    if JUDGED_AGAIN in snapshot:
        return True
    try:
        return get_target_kind(snapshot["target"]["kind"]).replays
    except DomainError:
        return False


def result_costs(run: Run, result: Result) -> CostPair:
    """Return the costs of a result; one query."""
    return read_result_costs(run, [result])[result.pk]


def read_result_costs(run: Run, results: Sequence[Result]) -> Mapping[int, CostPair]:
    """Return the costs of results of a run by primary key; one query."""
    rows = (
        ModelCall.objects.filter(result_id__in=among(result.pk for result in results))
        .order_by()
        .values("result_id", "purpose")
        .annotate(
            calls=Count("id"),
            failed=Count("id", filter=~Q(status=CallStatus.OK)),
            answers=Count("id", filter=IS_ANSWER),
            priced=Count("cost_usd", filter=IS_ANSWER),
            input_tokens=Sum("input_tokens"),
            output_tokens=Sum("output_tokens"),
        )
    )
    counts: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        found: dict[str, Any] = {**row}
        counts[found.pop("result_id"), cost_purpose(found.pop("purpose"))] = found
    calls_model, is_imported = _calls_model(run), _is_imported(run)
    return {
        result.pk: _result_costs(result, counts, calls_model=calls_model, is_imported=is_imported)
        for result in results
    }


def _result_costs(
    result: Result,
    counts: Mapping[tuple[int, str], dict[str, Any]],
    *,
    calls_model: bool,
    is_imported: bool,
) -> CostPair:
    target = counts.get((result.pk, CallPurpose.TARGET.value), {})
    evaluation = counts.get((result.pk, CallPurpose.EVALUATION.value), {})
    has_ended = result.status in ENDED_RESULT_STATUSES
    if not calls_model:
        # The target is no model of ours: it reports cost and tokens with its output.
        target |= {
            "answers": int(has_ended),
            "priced": int(has_ended and result.run_cost_usd is not None),
            "input_tokens": result.input_tokens,
            "output_tokens": result.output_tokens,
        }
    if is_imported and result.evaluation_cost_usd is None:
        # The judges were paid elsewhere, and the file does not have their costs.
        evaluation |= {"answers": int(has_ended)}
    return CostPair(
        Cost(_known_usd(result.run_cost_usd, target), **target),
        Cost(_known_usd(result.evaluation_cost_usd, evaluation), **evaluation),
    )


def booked_usd(result: Result, costs: CostPair) -> tuple[Decimal | None, Decimal | None]:
    """Return the target cost and the judge cost of a result for files and the API, None where unknown.

    A target or judge without a call cost nothing, which is known only once the result has ended.
    """
    if result.status in ENDED_RESULT_STATUSES:
        return costs.run.usd, costs.evaluation.usd
    return result.run_cost_usd, result.evaluation_cost_usd


def _known_usd(usd: Decimal | None, counts: Mapping[str, Any]) -> Decimal | None:
    return None if usd is None and counts.get("answers") else usd or Decimal(0)


def best_value_text(costs: Mapping[str, Decimal | None]) -> str:
    """Say which run has the cheapest passed result; "" where there is nothing to compare.

    `costs` are US dollars by the name of the run, None where nothing passed or a price is missing. Of equal ones the
    first is named.
    """
    if len(costs) < 2:
        return ""
    known = {name: usd for name, usd in costs.items() if usd is not None}
    without = f"{counted(len(costs) - len(known), 'run')} without a passed result or a known price"
    if not known:
        return f"Best value is unknown: {without}."
    best = min(known, key=lambda name: known[name])
    rest = f" Not compared: {without}." if len(known) < len(costs) else ""
    return f"Best value: {best}, {money(known[best])} per passed result.{rest}"
