"""The purses of many runs with their counts, in as many queries as for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Count, F, Q, QuerySet

from runs.models import ANSWERED, CallPurpose, ModelCall, Result, ResultStatus, Run
from runs.reports.purses import ENDED, Purse, Purses

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


def counted_purses(runs: Sequence[Run]) -> Mapping[int, Purses]:
    """Return the purses of runs of `with_origins` by primary key; two queries however many."""
    numbers = [run.pk for run in runs]
    calls, outputs = _calls(numbers), _outputs(numbers)
    return {run.pk: _purses(run, vars(run), calls, outputs) for run in runs}


def _purses(run: Run, told: Mapping[str, Any], calls: Counted, outputs: Counted) -> Purses:
    """Return both purses by the rules that a run's own page follows."""
    if told["target_model"]:
        of_run = _purse(run.run_cost_usd, calls.get((run.pk, CallPurpose.TARGET)), "call")
    else:
        of_run = _purse(run.run_cost_usd, outputs.get((run.pk, "answered")), "output")
    if told["imported_facts"]:
        judged = outputs.get((run.pk, "scored"), NOTHING)
        usd = run.evaluation_cost_usd if judged.priced else None
        return Purses(of_run, Purse(usd, *judged, noun="result"))
    judged_by = calls.get((run.pk, CallPurpose.EVALUATION))
    return Purses(of_run, _purse(run.evaluation_cost_usd, judged_by, "call"))


def _purse(usd: Decimal, counts: Counts | None, noun: str) -> Purse:
    answers, priced = counts or NOTHING
    known = None if answers and not priced else usd
    return Purse(known, answers, priced, noun=noun)


def _calls(runs: Iterable[int]) -> Counted:
    rows = ModelCall.objects.filter(run__in=runs, status__in=ANSWERED).order_by()
    counted = rows.values("run_id", "purpose").annotate(all=Count("id"), priced=Count("cost_usd"))
    return {(row["run_id"], row["purpose"]): Counts(row["all"], row["priced"]) for row in counted}


def _outputs(runs: Iterable[int]) -> Counted:
    """Count the outputs that targets answered, and the results that were scored."""
    rows: Any = Result.objects.filter(run__in=runs, status__in=ENDED).order_by()
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
