"""Set results of a run to waiting again, keeping what they came to, and let hands go on with the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import Attempt, Result, ResultStatus, Retry, Run, RunEvent, RunOwner, RunStatus
from runs.models.clock import database_now
from runs.models.rows import insert_rows
from runs.reports.purses import counted_usd
from runs.services.queueing import queue_hands
from runs.services.review_queue import forget_outputs

CHUNK = 1000
EMPTIED: dict[str, Any] = {
    "status": ResultStatus.PENDING,
    "attempt": 0,
    "lease_token": "",
    "lease_until": None,
    "started_at": None,
    "finished_at": None,
    "keeps_output": False,
    **{"verdict": "", "score": None, "metrics_score": None, "decided_by": "", "is_forced": False},
    **{"error": "", "error_stage": "", "outcome_marks": "", "warnings": []},
}


OUTCOME_COLUMNS = (
    *("id", "attempt", "generation", "status", "verdict", "score", "error", "decided_by"),
    *("run_cost_usd", "evaluation_cost_usd", "finished_at"),
)
ATTEMPT_COLUMNS = (
    *("result_id", "retry_id", "attempt", "generation", "status", "verdict", "score", "reason"),
    *("run_cost_usd", "evaluation_cost_usd", "ended_at"),
)


class BudgetSpentError(DomainError):
    """The run's budget leaves nothing to go on with."""

    code = "budget_spent"


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants results tried again, and what of them: `paths` are evaluators, None all of them."""

    by: User | None
    keep_output: bool = False
    paths: tuple[str, ...] | None = None


def check_budget(run: Run, held: Run, budget_usd: Decimal | None) -> None:
    """Raise BudgetSpentError when a run would end at once because its budget is spent."""
    cap = budget_usd or held.budget_usd
    spent = counted_usd(held, snapshot=run.snapshot)
    if cap is not None and spent >= cap:
        raise BudgetSpentError(
            f"Run {run} has spent ${spent.normalize():f} of ${cap.normalize():f}. "
            "Go on with a higher budget."
        )


def try_again(run: Run, result_ids: Sequence[int], asked: Asked) -> Retry:
    """Make finished results a new generation that waits; their outcomes are kept as attempts.

    The caller holds the run.
    """
    retry = Retry.objects.create(
        run=run,
        asked_by=asked.by,
        asked_by_name=name_of(asked.by),
        asked_at=database_now(),
        keeps_output=asked.keep_output,
        paths=list(asked.paths) if asked.paths else None,
        count=len(result_ids),
    )
    for some in _stretches(result_ids):
        insert_rows(Attempt, ATTEMPT_COLUMNS, _attempts(some, retry))
        _uncount(run, some)
        some.update(generation=F("generation") + 1, retry_paths=retry.paths, **EMPTIED)
        if asked.keep_output:
            some.filter(output__isnull=False).update(keeps_output=True)
        _forget_replaced(some)
    return retry


def go_on(result_ids: Sequence[int], retry: Retry | None = None) -> None:
    """Set cancelled results to waiting: as they were, or by a newer request what that asks for."""
    for some in _stretches(result_ids):
        some.update(status=ResultStatus.PENDING, lease_token="", lease_until=None)
        if retry is None:
            continue
        some.update(keeps_output=False, retry_paths=retry.paths)
        if retry.keeps_output:
            some.filter(output__isnull=False).update(keeps_output=True)
        _forget_replaced(some)
        last = Attempt.objects.filter(
            result__in=some, generation=F("result__generation") - 1, retry__isnull=False
        )
        Attempt.objects.filter(pk__in=last.values("pk")).update(retry=retry)


def open_run(held: Run, *, budget_usd: Decimal | None) -> bool:
    """Let the workers claim from the run again; True when they take it over from a command line.

    Its figures come anew when it ends, and the time it took so far is kept.
    """
    changes: dict[str, Any] = {"budget_usd": budget_usd or held.budget_usd}
    if not held.is_active:
        worked_ms = held.worked_ms(now=database_now()) or 0
        changes |= {
            **{"status": RunStatus.QUEUED, "status_reason": "", "summary": None},
            **{"started_at": None, "finished_at": None, "leaf_scores": None},
            **{"owner": RunOwner.WORKERS, "owner_id": "", "heartbeat_at": None},
            "worked_before_ms": round(worked_ms),
        }
    Run.objects.filter(pk=held.pk).update(**changes)
    transaction.on_commit(partial(queue_hands, held))
    return not held.is_active and held.owner == RunOwner.COMMAND_LINE


def note(run: Run, action: str, text: str, *, by: User | None, form_key: str = "") -> None:
    """Tell the readers of the run what somebody did, and keep it, with the form's key, in the audit trail."""
    RunEvent.objects.create(run=run, kind=action, text=text[:500])
    AuditEntry.objects.create(
        actor=by,
        actor_name=name_of(by),
        action=action,
        object_type="run",
        object_id=str(run.pk),
        object_name=f"{run.suite.slug} #{run.number}",
        after={"text": text} | ({"form": form_key} if form_key else {}),
    )


def lacks_output(*result_ids: Sequence[int]) -> bool:
    """Tell whether one of the results has no output, so that its target is asked."""
    return any(
        some.filter(output__isnull=True).exists() for ids in result_ids for some in _stretches(ids)
    )


def name_of(user: User | None) -> str:
    """Return how the user is called, "" for nobody."""
    return user.get_username() if user is not None else ""


def _stretches(result_ids: Sequence[int]) -> Iterator[QuerySet[Result]]:
    for start in range(0, len(result_ids), CHUNK):
        yield Result.objects.filter(pk__in=result_ids[start : start + CHUNK])


def _forget_replaced(some: QuerySet[Result]) -> None:
    """Let go what people said of outputs that are replaced; what they said of one that stays counts on."""
    forget_outputs(list(some.filter(keeps_output=False).values_list("pk", flat=True)))


def _attempts(some: QuerySet[Result], retry: Retry) -> Iterator[tuple[Any, ...]]:
    """Yield what the results came to; their costs without what earlier attempts had spent."""
    earlier = {
        row["result"]: (row["run"], row["evaluation"])
        for row in Attempt.objects.filter(result__in=some)
        .order_by()
        .values("result")
        .annotate(run=Sum("run_cost_usd"), evaluation=Sum("evaluation_cost_usd"))
    }
    held = some.select_for_update(no_key=True).order_by().values_list(*OUTCOME_COLUMNS)
    for pk, *kept, error, decided_by, run_usd, evaluation_usd, finished_at in held:
        run_before, evaluation_before = earlier.get(pk, (None, None))
        yield (
            *(pk, retry.pk, *kept, error or decided_by),
            *(_added(run_usd, run_before), _added(evaluation_usd, evaluation_before)),
            finished_at or retry.asked_at,
        )


def _added(purse: Decimal | None, earlier: Decimal | None) -> Decimal | None:
    return None if purse is None else purse - (earlier or Decimal(0))


def _uncount(run: Run, some: QuerySet[Result]) -> None:
    """Take results that were finished out of the run's counters."""
    found = some.order_by().aggregate(
        done=Count("id"),
        passed=Count("id", filter=Q(verdict="pass")),
        borderline=Count("id", filter=Q(verdict="borderline")),
        failed=Count("id", filter=Q(verdict="fail")),
        errors=Count("id", filter=Q(status=ResultStatus.ERROR)),
        scores=Count("score"),
        score_sum=Sum("score", default=0.0),
    )
    Run.objects.filter(pk=run.pk).update(
        done_count=F("done_count") - found["done"],
        pass_count=F("pass_count") - found["passed"],
        borderline_count=F("borderline_count") - found["borderline"],
        fail_count=F("fail_count") - found["failed"],
        error_count=F("error_count") - found["errors"],
        score_count=F("score_count") - found["scores"],
        score_sum=F("score_sum") - found["score_sum"],
    )
