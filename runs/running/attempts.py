"""Which attempt at a result counts: usually the newest, or an earlier one that a person chooses for a reason."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.finishing import renew_figures
from runs.models.attempt_contents import pack_contents, unpack_content
from runs.models.database import insert_rows
from runs.models.results import Attempt, Result, ResultOutput
from runs.models.runs import Run, RunEvent
from runs.running.retrying import (
    ATTEMPT_COLUMNS,
    attempt_rows,
    change_counters,
    mark_reviews_stale,
    refresh_cases,
)

MAX_REASON_LENGTH = 1000


class CannotCountError(DomainError):
    """An attempt cannot be the one that counts."""

    code = "cannot_count"


def choose_attempt(attempt: Attempt, *, by: User, reason: str) -> None:
    """Let an attempt be the outcome of its result; the other attempts are kept, so that each can count again.

    The figures of the run follow. Reviews of an output that differs become stale. The reason is in the audit. Raises
    CannotCountError.
    """
    reason = reason.strip()
    if not reason:
        raise CannotCountError("Give the reason why this attempt is to count.")
    if len(reason) > MAX_REASON_LENGTH:
        raise CannotCountError(f"The reason is longer than {MAX_REASON_LENGTH:,} characters.")
    with transaction.atomic():
        run = Run.objects.hold(attempt.result.run_id)
        result = Result.objects.select_related("case").get(pk=attempt.result_id)
        attempt = Attempt.objects.get(pk=attempt.pk)
        _check(run, attempt)
        some = Result.objects.filter(pk=result.pk)
        text = _output_text(result)
        before = _put_aside(result)
        change_counters(run, some, by=-1)
        unpack_content(result, bytes(attempt.content or b""))
        change_counters(run, some, by=1)
        Attempt.objects.filter(pk=attempt.pk).update(
            is_counted=True, counted_by=by.get_username(), counted_reason=reason
        )
        if _output_text(result) != text:
            mark_reviews_stale([result.pk])
        refresh_cases(run, some)
        name = f"{run.suite.slug} {run} {result.case.key}, repetition {result.repetition}"
        RunEvent.objects.create(
            run=run,
            kind="attempt",
            text=f"{attempt} of {result.case.key} counts, chosen by {by.get_username()}: {reason}"[
                :500
            ],
        )
        AuditEntry.objects.record(
            "choose_attempt",
            by=by,
            object_type="result",
            object_id=result.pk,
            object_name=name,
            before=_facts(before),
            after=_facts(attempt) | {"reason": reason},
        )
        # Until new ones are packed, pages read the scores of the attempt that counts from their rows.
        Run.objects.filter(pk=run.pk).update(leaf_scores=None)
        renew_figures(run.pk)


def _check(run: Run, attempt: Attempt) -> None:
    if run.is_active:
        raise CannotCountError(f"Run {run} is running. Choose when it has ended.")
    if run.removal_id is not None:
        raise CannotCountError(f"Data of run {run} are being removed.")
    if attempt.is_counted:
        raise CannotCountError("This attempt counts already.")
    if attempt.content is None:
        raise CannotCountError(
            "The output and the scores of this attempt are not stored, so it cannot count."
        )


def _put_aside(result: Result) -> Attempt:
    """Keep the outcome that counts as an attempt, and return that."""
    contents = pack_contents([result.pk])
    counted = Attempt.objects.filter(result=result, is_counted=True)
    if not counted.exists():
        some = Result.objects.filter(pk=result.pk)
        insert_rows(Attempt, ATTEMPT_COLUMNS, attempt_rows(some, None, contents))
        return Attempt.objects.filter(result=result).latest("pk")
    row = counted.get()
    counted.update(
        is_counted=False, counted_by="", counted_reason="", content=contents.get(result.pk)
    )
    return row


def _output_text(result: Result) -> str | None:
    return ResultOutput.objects.filter(pk=result.pk).values_list("text", flat=True).first()


def _facts(attempt: Attempt) -> dict[str, object]:
    return {"attempt": str(attempt), "verdict": attempt.verdict, "score": attempt.score}
