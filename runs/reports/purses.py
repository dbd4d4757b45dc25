"""What a run has cost, purse by purse, as far as prices are known."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet

from runs.models import CallPurpose, CallStatus, ModelCall, Result, ResultStatus, Run
from runs.summary.figures import total_of

ANSWERED = (CallStatus.OK, CallStatus.UNREADABLE)
ENDED = (ResultStatus.SCORED, ResultStatus.ERROR)


@dataclass(frozen=True, slots=True)
class Purses:
    """US dollars; None where there were answers and no price is known for any: that is never $0."""

    run_usd: Decimal | None
    evaluation_usd: Decimal | None

    @property
    def total_usd(self) -> Decimal | None:
        """Return what is known of both; None when that is nothing and a purse is unknown."""
        total = total_of((self.run_usd, self.evaluation_usd))
        return None if not total and None in (self.run_usd, self.evaluation_usd) else total


def with_purses(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs, each told whether a purse that holds nothing is of unknown content."""
    outputs = Result.objects.filter(run=OuterRef("pk"), run_cost_usd=None, status__in=ENDED)
    replies = ModelCall.objects.filter(
        run=OuterRef("pk"), cost_usd=None, purpose=CallPurpose.EVALUATION, status__in=ANSWERED
    )
    return runs.annotate(
        is_run_unpriced=_both(Q(run_cost_usd=0), Exists(outputs.exclude(error_stage="target"))),
        is_evaluation_unpriced=_both(Q(evaluation_cost_usd=0), Exists(replies)),
    )


def listed_purses(run: Run) -> Purses:
    """Return the purses of a run of `with_purses`."""
    is_run_unpriced: bool = run.is_run_unpriced  # type: ignore[attr-defined]  # annotated
    is_evaluation_unpriced: bool = run.is_evaluation_unpriced  # type: ignore[attr-defined]  # same
    return Purses(
        None if is_run_unpriced else run.run_cost_usd,
        None if is_evaluation_unpriced else run.evaluation_cost_usd,
    )


def purses(run: Run) -> Purses:
    """Return the purses of any run; one query, when one of them holds nothing."""
    if run.run_cost_usd and run.evaluation_cost_usd:
        return Purses(run.run_cost_usd, run.evaluation_cost_usd)
    light = with_purses(Run.objects.only("run_cost_usd", "evaluation_cost_usd"))
    return listed_purses(light.get(pk=run.pk))


def _both(first: Q, second: Exists) -> ExpressionWrapper[Q]:
    return ExpressionWrapper(first & Q(second), output_field=BooleanField())
