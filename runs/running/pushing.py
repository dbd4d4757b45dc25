"""Take the outputs that programs push into a run, and end the waiting for those that never come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import GAPS, counted
from runs.engine.plan import content_hash
from runs.engine.ports import Cause, TargetFailure
from runs.finishing import complete_run
from runs.models.database import among, database_now, insert_rows
from runs.models.results import TARGET_STAGE, PushedOutput, Result, ResultStatus
from runs.models.runs import RESUMABLE_RUN_STATUSES, Run
from runs.queue import queue_workers
from runs.running.retrying import RunNotActiveError, awaits_outputs, log_action, user_name
from runs.target_kinds._outputs import output_from_json
from runs.target_kinds.pushed import ERROR

MAX_PUSHES = 1_000
MAX_SHOWN_LENGTH = 60
NOT_PUSHED = TargetFailure("no output was pushed", Cause.MISSING)


class OutputsNotAwaitedError(DomainError):
    """A run asks its target itself."""

    code = "outputs_not_awaited"


class UnusablePushesError(DomainError):
    """Some pushes cannot be used, so none was taken; `problems` says why by their place in the batch."""

    code, thing, field = "unusable_pushes", "Output", "outputs"

    def __init__(self, problems: Mapping[int, str]) -> None:
        """Name the first."""
        self.problems = problems
        first = min(problems)
        super().__init__(f"{self.thing} {first + 1}: {problems[first]} Nothing was stored.")


@dataclass(frozen=True, slots=True)
class Push:
    """What a program sends for one execution: an output in the form of a recorded line, or its `error`."""

    case: str
    output: Mapping[str, Any]
    repetition: int = 1


@dataclass(frozen=True, slots=True)
class RefusedPush:
    """A push, by its place in the batch, that does not count."""

    place: int
    reason: str


@dataclass(slots=True)
class PushSummary:
    """How many pushes were taken, how many had been taken before, and which were refused.

    `awaited` is how many results of the run still wait for an output.
    """

    accepted: int = 0
    repeated: int = 0
    awaited: int = 0
    refused: list[RefusedPush] = field(default_factory=list)


def push_outputs(run: Run, pushes: Sequence[Push]) -> PushSummary:
    """Store the outputs and have them scored; safe to repeat, in any order.

    An output that was pushed before changes nothing. Another one for the same result replaces it while it waits
    to be scored, and is refused after that and within one batch. Raises UnusablePushesError for cases that the run
    does not have and outputs that cannot be read, OutputsNotAwaitedError for a run that asks its target itself, and
    RunNotActiveError for new outputs of a run that is over; then nothing has changed.
    """
    if not awaits_outputs(run):
        raise OutputsNotAwaitedError(
            f"Run {run} asks its target {run.target_name} itself. Outputs can be pushed to runs against a "
            "target of the kind “Pushed outputs”."
        )
    problems = {place: text for place, push in enumerate(pushes) if (text := _problem(push))}
    if problems:
        raise UnusablePushesError(problems)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        results = _results(run, pushes)
        if unknown := _unknown(run, pushes, results):
            raise UnusablePushesError(unknown)
        summary, accepted = PushSummary(), dict[int, PushedOutput]()
        for place, push in enumerate(pushes):
            _take(place, push, results[push.case, push.repetition], summary, accepted)
        if accepted and not held.is_active:
            can_resume = held.status in RESUMABLE_RUN_STATUSES
            remedy = "Resume it" if can_resume else "Rerun the results"
            raise RunNotActiveError(
                f"Run {run} is over, so it takes no new outputs. {remedy}, then push again."
            )
        _store(accepted)
        summary.awaited = run.results.filter(
            status=ResultStatus.PENDING, awaits_output=True
        ).count()
        if accepted:
            transaction.on_commit(partial(queue_workers, held))
    return summary


def _problem(push: Push) -> str:
    error = push.output.get(ERROR)
    if error is not None:
        is_empty = not error or not str(error).strip()
        return "Its error is empty. Say what went wrong, or leave error out." if is_empty else ""
    # null is no answer, and an empty text is one.
    if push.output.get("output") in (None, []) and not push.output.get("messages"):
        return "It has neither output nor error. Add one of them."
    try:
        output_from_json(push.output)
    except (ValueError, TypeError, AttributeError) as error:
        return f"It cannot be read: {error}."
    return ""


def _results(run: Run, pushes: Iterable[Push]) -> dict[tuple[str, int], Result]:
    """Return the results that the pushes are for, by case and repetition."""
    rows = run.results.filter(case__key__in=among({push.case for push in pushes}, "text"))
    rows = rows.select_for_update(of=("self",), no_key=True).select_related("case", "pushed")
    rows = rows.only("status", "repetition", "awaits_output", "case__key", "pushed__digest")
    return {(row.case.key, row.repetition): row for row in rows.order_by()}


def _unknown(
    run: Run, pushes: Sequence[Push], results: Mapping[tuple[str, int], Result]
) -> dict[int, str]:
    known = {case for case, _ in results}
    return {
        place: unknown_place(run, push.case, push.repetition, known)
        for place, push in enumerate(pushes)
        if (push.case, push.repetition) not in results
    }


def unknown_place(run: Run, case: str, repetition: int, known: Collection[str]) -> str:
    """Say that a run has no result for a case and repetition; `known` are the cases it has."""
    if case in known:
        count = counted(run.repetitions, "repetition").translate(GAPS)
        return f"Run {run} has {count} of case {case}, and no repetition {repetition}."
    return f"Run {run} has no case {case[:MAX_SHOWN_LENGTH]!r}."


def _take(
    place: int,
    push: Push,
    result: Result,
    summary: PushSummary,
    accepted: dict[int, PushedOutput],
) -> None:
    """Decide about one push: accepted, repeated or refused."""
    digest = content_hash(push.output)
    before = accepted.get(result.pk) or getattr(result, "pushed", None)
    if before is not None and before.digest == digest:
        summary.repeated += 1
    elif result.status == ResultStatus.RUNNING:
        summary.refused.append(RefusedPush(place, "It has another output, which is being scored."))
    elif result.status in (ResultStatus.SCORED, ResultStatus.ERROR):
        what = (
            "It has another output, which is scored already" if before else "It ended as an error"
        )
        reason = f"{what}. Rerun the result first."
        summary.refused.append(RefusedPush(place, reason))
    elif result.pk in accepted:
        reason = "An earlier output of the batch is for the same result. Give each its repetition."
        summary.refused.append(RefusedPush(place, reason))
    else:
        accepted[result.pk] = PushedOutput(result_id=result.pk, digest=digest, output=push.output)
        summary.accepted += 1


def _store(accepted: Mapping[int, PushedOutput]) -> None:
    # Their results are locked. An upsert of several rows would be sent as arrays, in which the driver quotes each
    # quote and backslash in Python: seconds for some megabytes.
    PushedOutput.objects.filter(pk__in=among(accepted)).delete()
    rows = ((row.result_id, row.digest, row.output) for row in accepted.values())
    insert_rows(PushedOutput, ("result_id", "digest", "output"), rows)
    Result.objects.filter(pk__in=among(accepted)).update(awaits_output=False)


def close_run(run: Run, *, by: User | None) -> int:
    """End the waiting for outputs: results without one become errors. Return how many.

    The run completes once the others are scored. Raises OutputsNotAwaitedError and RunNotActiveError.
    """
    if not awaits_outputs(run):
        raise OutputsNotAwaitedError(f"Run {run} asks its target itself; it waits for no outputs.")
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if not held.is_active:
            raise RunNotActiveError(f"Run {run} is over already.")
        waiting = run.results.filter(status=ResultStatus.PENDING, awaits_output=True)
        cases = list(waiting.order_by().values_list("case_id", flat=True))
        waiting.update(
            status=ResultStatus.ERROR,
            awaits_output=False,
            error=str(NOT_PUSHED),
            error_stage=TARGET_STAGE,
            finished_at=database_now(),
        )
        Run.objects.filter(pk=run.pk).update(
            done_count=F("done_count") + len(cases), error_count=F("error_count") + len(cases)
        )
        run.cases.refresh(run.pk, cases)
        who = f" by {user_name(by)}" if by is not None else ""
        missing = f"; {counted(len(cases), 'output')} never came" if cases else ""
        log_action(held, "close", f"Closed{who} for outputs{missing}", by=by)
    complete_run(run.pk)
    return len(cases)
