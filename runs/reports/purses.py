"""What a run has cost, purse by purse, as far as prices are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Case, Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum, Value, When

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import money
from runs.models import ANSWERED, CallPurpose, ModelCall, Result, ResultStatus, Run, RunStatus
from runs.summary.figures import total_of
from runs.targets import target_kind_named

ENDED = (ResultStatus.SCORED, ResultStatus.ERROR)
# Judges of a run that was imported were paid elsewhere. Nothing else is completed without a beginning.
UNTOLD = Q(status=RunStatus.COMPLETED, started_at=None, evaluation_cost_usd=0)
UNPRICED_CALLS = Q(cost_usd=None, status__in=ANSWERED)


@dataclass(frozen=True, slots=True)
class Purse:
    """One purse: `usd` is what is known of it, None where there were answers and no price for any.

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
class Purses:
    """Both purses of a run."""

    run: Purse
    evaluation: Purse

    @property
    def total_usd(self) -> Decimal | None:
        """Return what is known of both; None when that is nothing and a purse is unknown."""
        return known_of_both(self.run.usd, self.evaluation.usd)

    @property
    def is_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self.run.is_partial or self.evaluation.is_partial


def known_of_both(*purses: Decimal | None) -> Decimal | None:
    """Return what is known of purses together; None when that is nothing and one is unknown."""
    total = total_of(purses)
    return None if not total and None in purses else total


def with_purses(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs, each told which purses hold answers without a price."""
    calls = ModelCall.objects.filter(UNPRICED_CALLS, run=OuterRef("pk"))
    outputs = Result.objects.filter(run=OuterRef("pk"), run_cost_usd=None, status__in=ENDED)
    in_order = outputs.exclude(error_stage="target").order_by("position", "repetition")
    # Reading every output would be slow in a list: only a purse that holds nothing is doubted. The
    # order leads PostgreSQL to the run's own results: else it looks for one among those of all.
    silent = Case(When(run_cost_usd=0, done_count__gt=0, then=Subquery(in_order.values("pk")[:1])))
    judged = Exists(calls.filter(purpose=CallPurpose.EVALUATION))
    return runs.annotate(
        has_unpriced_target=Exists(calls.filter(purpose=CallPurpose.TARGET)),
        has_unpriced_evaluation=Case(When(UNTOLD, then=Value(True)), default=judged),
        silent_output=silent,
    )


def listed_purses(run: Run) -> Purses:
    """Return the purses of a run of `with_purses`: whether they are partial, without counts."""
    told: Mapping[str, Any] = vars(run)
    in_target = told["has_unpriced_target"] or told["silent_output"] is not None
    return Purses(
        _listed(run.run_cost_usd, is_partial=in_target),
        _listed(run.evaluation_cost_usd, is_partial=told["has_unpriced_evaluation"]),
    )


def purses(run: Run) -> Purses:
    """Return the purses of one run with their counts; two queries, three where a price is missing."""
    unpriced = ModelCall.objects.filter(UNPRICED_CALLS, run=run).order_by()
    missing = dict(unpriced.values_list("purpose").annotate(total=Count("id")))
    facts = _answers(run) if missing else {}
    if run.snapshot["target"]["model"]:
        of_run = _of_calls(run.run_cost_usd, CallPurpose.TARGET, missing, facts)
    else:
        of_run = _reported(run)
    if run.imported_from:
        return Purses(of_run, _judged_elsewhere(run))
    evaluation = _of_calls(run.evaluation_cost_usd, CallPurpose.EVALUATION, missing, facts)
    return Purses(of_run, evaluation)


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


def _listed(usd: Decimal, *, is_partial: bool) -> Purse:
    return Purse(None if is_partial and not usd else usd, answers=int(is_partial))


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
) -> Purse:
    if purpose not in missing:
        return Purse(usd)
    found = facts[purpose]
    answers, priced = found["answers"], found["answers"] - missing[purpose]
    return Purse(usd if priced else None, answers, priced, found["tokens_in"], found["tokens_out"])


def _reported(run: Run) -> Purse:
    """Return the purse of a target that says itself what its outputs cost."""
    outputs = run.results.filter(status__in=ENDED).exclude(error_stage="target").order_by()
    found = outputs.aggregate(
        answers=Count("id"),
        priced=Count("run_cost_usd"),
        tokens_in=Sum("input_tokens"),
        tokens_out=Sum("output_tokens"),
    )
    answers, priced = found["answers"], found["priced"]
    if priced >= answers:
        return Purse(run.run_cost_usd)
    usd = run.run_cost_usd if priced else None
    return Purse(usd, answers, priced, found["tokens_in"], found["tokens_out"], noun="output")


def _judged_elsewhere(run: Run) -> Purse:
    """Return the judges' purse of a run that was imported, as far as its file tells of it."""
    scored = run.results.filter(status=ResultStatus.SCORED).order_by()
    found = scored.aggregate(answers=Count("id"), priced=Count("evaluation_cost_usd"))
    usd = run.evaluation_cost_usd if found["priced"] else None
    return Purse(usd, found["answers"], found["priced"], noun="result")
