"""What one result has cost over all its attempts, purse by purse, and the tokens behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, Sum

from runs.models import ANSWERED, CallPurpose, CallStatus, Result, ResultStatus, Run
from runs.reports.purses import known_of_both

IS_ANSWER = Q(status__in=ANSWERED)


@dataclass(frozen=True, slots=True)
class CallPurse:
    """The calls paid from one purse, failed ones included; tokens are None where none were reported.

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
class ResultPurses:
    """Both purses of a result."""

    run: CallPurse
    evaluation: CallPurse

    @property
    def total_usd(self) -> Decimal | None:
        """Return what is known of both; None when that is nothing and a purse is unknown."""
        return known_of_both(self.run.usd, self.evaluation.usd)

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


def result_purses(run: Run, result: Result) -> ResultPurses:
    """Return both purses of a result; one query."""
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
    for purse in (of_run, evaluation):
        purse.pop("purpose", None)
    if not run.snapshot["target"]["model"]:
        of_run |= _reported(result)
    if run.imported_from and result.evaluation_cost_usd is None:
        # Somebody's judges were paid, and the file does not tell what.
        evaluation |= {"answers": int(result.status == ResultStatus.SCORED)}
    return ResultPurses(
        CallPurse(**of_run, usd=_known(result.run_cost_usd, of_run)),
        CallPurse(**evaluation, usd=_known(result.evaluation_cost_usd, evaluation)),
    )


def _reported(result: Result) -> dict[str, Any]:
    """Return what a target that is no model of ours said of its output."""
    has_output = hasattr(result, "output")
    return {
        "answers": int(has_output),
        "priced": int(has_output and result.run_cost_usd is not None),
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
    }


def _known(usd: Decimal | None, purse: Mapping[str, Any]) -> Decimal | None:
    if usd is None and purse["answers"]:
        return None
    return usd or Decimal(0)
