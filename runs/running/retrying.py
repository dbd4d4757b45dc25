"""Stop a run, resume it, and retry its results in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum

from evaluators.kinds import all_kinds
from evaluators.models import COMMAND_LINE, AuditEntry
from evaluators.scoring.tree import ROOT_PATH, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.costs import counted_usd, missing_usd
from runs.engine.plan import OUTCOMES_PATH, needs_outcomes_call, read_plan
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.finishing import finish_run
from runs.models.attempt_contents import pack_contents
from runs.models.database import among, database_now, insert_rows
from runs.models.results import (
    OPEN_RESULT_STATUSES,
    Attempt,
    EvaluatorScore,
    ExternalScore,
    PushedOutput,
    Result,
    ResultStatus,
    Retry,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import (
    LEASE,
    OWNER_COLUMNS,
    RESUMABLE_RUN_STATUSES,
    Run,
    RunEvent,
    RunOwner,
    RunStatus,
)
from runs.queue import queue_workers
from runs.running.checks import check_run_scripts
from runs.target_kinds import target_kinds


def mark_reviews_stale(result_ids: Sequence[int]) -> None:
    """Mark the reviews of outputs that will be replaced as stale; their results leave the queue.

    The reviews stay with the earlier attempt but do not count for the new output. The caller holds the
    run.
    """
    reviews = Review.objects.filter(result_id__in=result_ids, stale_at=None)
    reviews.update(stale_at=database_now())
    ReviewItem.objects.filter(result_id__in=result_ids).delete()
    Result.objects.filter(pk__in=result_ids).exclude(reviewed_verdict="").update(
        reviewed_verdict=""
    )


CHUNK = 1000
# An output that was removed cannot be scored again.
HAS_OUTPUT = Q(output__isnull=False, output__removed_at=None)
OUTPUTS_GONE = (
    "judges stored outputs, and some of these results have none any more. Start a new run instead."
)
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
    *("run_cost_usd", "evaluation_cost_usd", "ended_at", "content"),
)
# A retry of more results keeps only what became of them: their outputs and scores would take minutes to copy.
MAX_KEPT_CONTENTS = 1000


class BudgetSpentError(DomainError):
    """The run's budget is spent."""

    code = "budget_spent"


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """Who retries results, and which part: `paths` are evaluators, None all of them."""

    by: User | None
    keep_output: bool = False
    paths: tuple[str, ...] | None = None


def check_budget(run: Run, held: Run, budget_usd: Decimal | None) -> None:
    """Raise BudgetSpentError when a run would end at once because its budget is spent."""
    cap = budget_usd or held.budget_usd
    if cap is None:
        return
    spent = counted_usd(held, snapshot=run.snapshot)
    next_usd = missing_usd(held, cap, snapshot=run.snapshot)
    if next_usd is not None:
        more = f", and one more result may cost ${next_usd.normalize():f}" if spent < cap else ""
        raise BudgetSpentError(
            f"Run {run} has spent ${spent.normalize():f} of ${cap.normalize():f}{more}. "
            "Resume it with a higher budget."
        )


def start_retry(run: Run, result_ids: Sequence[int], request: RetryRequest) -> Retry:
    """Make finished results a new generation that waits; their outcomes are kept as attempts.

    The caller holds the run.
    """
    retry = Retry.objects.create(
        run=run,
        asked_by=request.by,
        asked_by_name=user_name(request.by),
        asked_at=database_now(),
        keeps_output=request.keep_output,
        paths=list(request.paths) if request.paths else None,
        count=len(result_ids),
    )
    for some in _batches(result_ids):
        _keep_attempts(some, retry, keeps_content=len(result_ids) <= MAX_KEPT_CONTENTS)
        change_counters(run, some, by=-1)
        some.update(generation=F("generation") + 1, retry_paths=retry.paths, **EMPTIED)
        if request.keep_output:
            some.filter(HAS_OUTPUT).update(keeps_output=True)
        if awaits_outputs(run):
            _await_outputs(some)
        _forget_replaced(some)
        refresh_cases(run, some)
    return retry


def awaits_outputs(run: Run) -> bool:
    """Tell whether programs push the outputs of a run (`runs.running.pushing`)."""
    kind = target_kinds().get(run.snapshot["target"]["kind"])
    return kind is not None and kind.awaits


def _await_outputs(some: QuerySet[Result]) -> None:
    """Let results wait for another output, except those that keep theirs."""
    again = some.filter(keeps_output=False)
    PushedOutput.objects.filter(result__in=again).delete()
    again.update(awaits_output=True)


def requeue_results(run: Run, result_ids: Sequence[int], retry: Retry | None = None) -> None:
    """Set cancelled results to waiting, as they were or with the settings of a newer request."""
    for some in _batches(result_ids):
        some.update(status=ResultStatus.PENDING, lease_token="", lease_until=None)
        refresh_cases(run, some)
        if retry is None:
            # Outputs may have been removed since the request.
            removed = _ids(some.filter(keeps_output=True).exclude(HAS_OUTPUT))
            results: QuerySet[Result] = Result.objects.filter(pk__in=removed)
            results.update(keeps_output=False)
        else:
            results = some
            some.update(keeps_output=False, retry_paths=retry.paths)
            if retry.keeps_output:
                some.filter(HAS_OUTPUT).update(keeps_output=True)
            last = Attempt.objects.filter(
                result__in=some, generation=F("result__generation") - 1, retry__isnull=False
            )
            Attempt.objects.filter(pk__in=last.values("pk")).update(retry=retry)
        if awaits_outputs(run):
            _await_outputs(results)
        _forget_replaced(results)


def reopen_run(held: Run, *, budget_usd: Decimal | None, owner_id: str = "") -> bool:
    """Let workers claim from the run again; True when they take it over from a command line.

    With an `owner_id`, the process of that name executes a run that is over. Its figures are computed
    again at its end. The time that it took so far is kept.
    """
    changes: dict[str, Any] = {"budget_usd": budget_usd or held.budget_usd}
    was_own, is_over = held.owner == RunOwner.COMMAND_LINE, not held.is_active
    if is_over:
        now = database_now()
        worked_ms = held.worked_ms(now=now) or 0
        held.assign_to(owner_id, now=now)
        changes |= {
            **{"status": RunStatus.QUEUED, "status_reason": "", "summary": None},
            **{"started_at": None, "finished_at": None, "leaf_scores": None},
            **{name: getattr(held, name) for name in OWNER_COLUMNS},
            **{"worked_before_ms": round(worked_ms), "waits_since": now},
        }
    Run.objects.filter(pk=held.pk).update(**changes)
    if not owner_id:
        transaction.on_commit(partial(queue_workers, held))
    return is_over and was_own and not owner_id


def log_action(run: Run, action: str, text: str, *, by: User | None, form_key: str = "") -> None:
    """Record an action in the log of the run and, with the form's key, in the audit log."""
    RunEvent.objects.create(run=run, kind=action, text=text[:500])
    _audit(run, action, text, by=by, form_key=form_key)


def _audit(run: Run, action: str, text: str, *, by: User | None, form_key: str = "") -> None:
    AuditEntry.objects.record(
        action,
        by=by,
        nobody=COMMAND_LINE if run.owner_id else "",
        object_type="run",
        object_id=run.pk,
        object_name=f"{run.suite.slug} #{run.number}",
        after={"text": text} | ({"form": form_key} if form_key else {}),
    )


def lacks_output(*result_ids: Sequence[int]) -> bool:
    """Tell whether any of the results has no output, so that the target is asked."""
    return any(some.exclude(HAS_OUTPUT).exists() for ids in result_ids for some in _batches(ids))


def user_name(user: User | None) -> str:
    """Return the name of the user, "" for nobody."""
    return user.get_username() if user is not None else ""


def _batches(result_ids: Sequence[int]) -> Iterator[QuerySet[Result]]:
    for start in range(0, len(result_ids), CHUNK):
        yield Result.objects.filter(pk__in=result_ids[start : start + CHUNK])


def refresh_cases(run: Run, results: QuerySet[Result]) -> None:
    run.cases.refresh(run.pk, list(results.order_by().values_list("case_id", flat=True)))


def _forget_replaced(some: QuerySet[Result]) -> None:
    """Mark the reviews of replaced outputs as stale, and remove external scores; those of kept outputs stay."""
    replaced = list(some.filter(keeps_output=False).values_list("pk", flat=True))
    mark_reviews_stale(replaced)
    ExternalScore.objects.filter(result__in=among(replaced)).delete()


def _keep_attempts(some: QuerySet[Result], retry: Retry, *, keeps_content: bool) -> None:
    """Keep the outcomes of the results as attempts; where a person chose which counts, all have a row already."""
    chosen = list(Attempt.objects.filter(result__in=some, is_counted=True))
    has_choice = [attempt.result_id for attempt in chosen]
    newest = Attempt.objects.filter(
        result__in=has_choice,
        generation=F("result__generation"),
        attempt=F("result__attempt"),
    )
    # The retry asks for the attempt after the newest, whichever counted.
    Attempt.objects.filter(pk__in=list(newest.values_list("pk", flat=True))).update(retry=retry)
    contents = pack_contents(_ids(some)) if keeps_content else {}
    for attempt in chosen:
        attempt.is_counted, attempt.counted_by, attempt.counted_reason = False, "", ""
        # Scores of other tools may have come since the choice.
        attempt.content = contents.get(attempt.result_id, attempt.content)
    columns = ("is_counted", "counted_by", "counted_reason", "content")
    Attempt.objects.bulk_update(chosen, columns)
    others = some.exclude(pk__in=has_choice)
    insert_rows(Attempt, ATTEMPT_COLUMNS, attempt_rows(others, retry, contents))


def attempt_rows(
    some: QuerySet[Result], retry: Retry | None, contents: Mapping[int, bytes]
) -> Iterator[tuple[Any, ...]]:
    """Yield the outcomes of the results as rows, with their costs less those of earlier attempts."""
    earlier = {
        row["result"]: (row["run"], row["evaluation"])
        for row in Attempt.objects.filter(result__in=some)
        .order_by()
        .values("result")
        .annotate(run=Sum("run_cost_usd"), evaluation=Sum("evaluation_cost_usd"))
    }
    # Of an outcome without a time it is only known that it had ended by now.
    now = database_now() if retry is None else retry.asked_at
    held = some.select_for_update(no_key=True).order_by().values_list(*OUTCOME_COLUMNS)
    for pk, *kept, error, decided_by, run_usd, evaluation_usd, finished_at in held:
        run_before, evaluation_before = earlier.get(pk, (None, None))
        yield (
            *(pk, retry and retry.pk, *kept, error or decided_by),
            *(_added(run_usd, run_before), _added(evaluation_usd, evaluation_before)),
            *(finished_at or now, contents.get(pk)),
        )


def _added(cost: Decimal | None, earlier: Decimal | None) -> Decimal | None:
    return None if cost is None else cost - (earlier or Decimal(0))


def change_counters(run: Run, some: QuerySet[Result], *, by: int) -> None:
    """Add finished results to the run's counters, `by` 1, or subtract them, by -1."""
    counts = some.order_by().aggregate(
        done=Count("id"),
        passed=Count("id", filter=Q(verdict="pass")),
        borderline=Count("id", filter=Q(verdict="borderline")),
        failed=Count("id", filter=Q(verdict="fail")),
        errors=Count("id", filter=Q(status=ResultStatus.ERROR)),
        scores=Count("score"),
        score_sum=Sum("score", default=0.0),
    )
    Run.objects.filter(pk=run.pk).update(
        done_count=F("done_count") + by * counts["done"],
        pass_count=F("pass_count") + by * counts["passed"],
        borderline_count=F("borderline_count") + by * counts["borderline"],
        fail_count=F("fail_count") + by * counts["failed"],
        error_count=F("error_count") + by * counts["errors"],
        score_count=F("score_count") + by * counts["scores"],
        score_sum=F("score_sum") + by * counts["score_sum"],
    )


class RunNotActiveError(DomainError):
    """The run is over already."""

    code = "run_not_active"


class CannotResumeError(DomainError):
    """The run cannot be resumed."""

    code = "cannot_resume"


def stop_run(run: Run, *, stopped_by: User | None) -> None:
    """End an active run; finished results are kept and later ones are refused.

    Raises RunNotActiveError when it is over already.
    """
    name = user_name(stopped_by)
    reason = f"Cancelled by {name}" if name else "Cancelled"
    with transaction.atomic():
        if not finish_run(run.pk, RunStatus.STOPPED, reason=reason):
            raise RunNotActiveError(f"Run {run} has already ended.")
        _audit(run, "stop", reason, by=stopped_by)


def resume_run(
    run: Run,
    *,
    resumed_by: User | None,
    budget_usd: Decimal | None = None,
    owner_id: str = "",
) -> int:
    """Resume a run that ended early; return how many results wait now.

    The errors of a broken target are retried. `budget_usd` is a new cap. Workers continue a run that a
    command line started, or else the process with the name `owner_id` alone. Raises CannotResumeError
    when the run is not over, nothing is left, or outputs that it judges again are gone, BudgetSpentError
    when the budget is spent, ScriptsRefusedError when it runs scripts that are not allowed.
    """
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.is_active:
            raise CannotResumeError(f"Run {run} is already running; {_why_active(held)}.")
        if held.status not in RESUMABLE_RUN_STATUSES:
            raise CannotResumeError(f"Run {run} did not end early; there is nothing to resume.")
        left, broken = cancelled_results(held), broken_results(held)
        count = len(left) + len(broken)
        if not count:
            raise CannotResumeError(f"Run {run} has no results left to execute.")
        if run.is_judged_again and lacks_output(left, broken):
            raise CannotResumeError(f"Run {run} {OUTPUTS_GONE}")
        check_run_scripts(run, resumed_by)
        check_budget(run, held, budget_usd)
        requeue_results(held, left)
        if broken:
            start_retry(held, broken, RetryRequest(resumed_by))
        taken_over = reopen_run(held, budget_usd=budget_usd, owner_id=owner_id)
        message = _resume_message(resumed_by, count, taken_over=taken_over, is_own=bool(owner_id))
        log_action(held, "resume", message, by=resumed_by)
    return count


def _why_active(run: Run) -> str:
    if run.owner != RunOwner.COMMAND_LINE:
        return "there is nothing to resume"
    silence = 2 * LEASE.total_seconds()
    return f"if its command line was killed, the site notices within {silence:g} seconds"


def cancelled_results(run: Run) -> list[int]:
    """Return the cancelled results of a run."""
    return _ids(run.results.filter(status=ResultStatus.CANCELLED))


def broken_results(run: Run) -> list[int]:
    """Return the results of a failed run whose target was broken."""
    if run.status != RunStatus.FAILED:
        return []
    return _ids(run.results.filter(Q(status=ResultStatus.ERROR, error_stage="target")))


def _ids(results: QuerySet[Result]) -> list[int]:
    return list(results.order_by("id").values_list("id", flat=True))


def _resume_message(user: User | None, count: int, *, taken_over: bool, is_own: bool) -> str:
    by = f" by {user_name(user)}" if user is not None else " at a command line" if is_own else ""
    takeover = "; the workers continue what a command line began" if taken_over else ""
    return f"Resumed{by} with {counted(count, 'result')} to go{takeover}"


MISSING = (ResultStatus.ERROR, ResultStatus.CANCELLED, ResultStatus.SKIPPED)
WHICH = {
    "errored": (Q(status=ResultStatus.ERROR), "no result has an error"),
    "failed": (Q(status=ResultStatus.SCORED, verdict="fail"), "no result failed"),
    "all_missing": (Q(status__in=MISSING), "no result is missing"),
}
UNDER_WAY = "they are already being rerun"
NONE_LEFT = "none of them can be rerun now"
MAX_NAMED = 12


class NothingToRetryError(DomainError):
    """No result matches the request."""

    code = "nothing_to_retry"


class ResultNotInRunError(DomainError):
    """A named result does not belong to the run."""

    code = "not_of_this_run"


class EvaluatorNotInRunError(DomainError):
    """The run's frozen tree has no evaluator at that path."""

    code = "unknown_evaluator"


class ImportedRunError(DomainError):
    """The run was imported from a file, so it cannot be executed here."""

    code = "imported_run"


class RunElsewhereError(DomainError):
    """A command line executes the run."""

    code = "run_elsewhere"


def retryable_results(run: Run) -> QuerySet[Result]:
    """Return the results that can be retried: finished ones, and all once the run is over.

    Results of an imported run cannot: there is no target to ask.
    """
    return run.results.exclude(status__in=_not_retryable(run))


def _not_retryable(run: Run) -> tuple[ResultStatus, ...]:
    if run.imported_from:
        return tuple(ResultStatus)
    return (
        (*OPEN_RESULT_STATUSES, ResultStatus.CANCELLED) if run.is_active else OPEN_RESULT_STATUSES
    )


def ids_with_same_error(run: Run, result_id: int) -> list[int]:
    """Return the results of the run that ended in the same error as this one, itself included."""
    errored = run.results.filter(status=ResultStatus.ERROR)
    like = errored.filter(pk=result_id).values("error_stage", "error").first()
    return list(errored.filter(**like).values_list("pk", flat=True)) if like else []


def matching_results(run: Run, query: ResultsQuery) -> QuerySet[Result]:
    """Return the retryable results of every case that the filter lists, on all pages."""
    cases = in_state(matching_cases(run, query), query)
    return retryable_results(run).filter(case__in=cases.values("case_id"))


def results_filter(which: str) -> Q:
    """Return the condition for results of a kind: errored, failed or all_missing."""
    return WHICH[which][0]


def retry_results(
    run: Run,
    *,
    asked_by: User | None,
    which: str = "errored",
    result_ids: Sequence[int] | None = None,
    keep_output: bool = False,
    paths: Sequence[str] | None = None,
    budget_usd: Decimal | None = None,
    seen_retry: int | None = None,
) -> int:
    """Retry results in place as a new generation; return how many.

    `which` is errored, failed or all_missing; `result_ids` name results instead, and open ones are
    skipped. With `keep_output` only scoring is repeated where there is an output, with `paths` only by
    those evaluators; a run that judges stored outputs again always keeps them. `seen_retry` is the last
    retry that the caller knew of: results of later retries are skipped too, so that pressing twice
    retries once. `budget_usd` is a new cap. Earlier outcomes are kept as attempts, and the frozen
    snapshot decides again.

    Raises NothingToRetryError, ResultNotInRunError, EvaluatorNotInRunError, BudgetSpentError,
    ScriptsRefusedError for scripts that are not allowed, ImportedRunError for an imported run, and
    RunElsewhereError while a command line executes the run.
    """
    if run.imported_from:
        raise ImportedRunError(
            f"Run {run} was imported from {run.imported_from}: it has no target to rerun and no "
            "evaluator to rescore. Start a new run of the suite instead."
        )
    # The root stands for the whole tree.
    part = tuple(paths) if paths and ROOT_PATH not in paths else None
    keeps = keep_output or bool(paths) or run.is_judged_again
    request = RetryRequest(asked_by, keeps, part)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.is_active and held.owner == RunOwner.COMMAND_LINE:
            raise RunElsewhereError(
                f"Run {run} is still running at a command line. "
                "Wait until it ends or cancel it, then rerun the results."
            )
        check_paths(run, request.paths or ())
        finished, cancelled, why_none = _chosen(held, which, result_ids, seen_retry)
        count = len(finished) + len(cancelled)
        if not count:
            raise NothingToRetryError(f"Run {run} has nothing to rerun: {why_none}.")
        if run.measures_judge and _are_scored(finished):
            raise NothingToRetryError(
                f"Run {run} only measures the judge, so only its errors can be rescored: choosing among its "
                "judgings would change how far they differ."
            )
        asks_target = not request.keep_output or lacks_output(finished, cancelled)
        if asks_target and run.is_judged_again:
            raise NothingToRetryError(f"Run {run} {OUTPUTS_GONE}")
        check_run_scripts(run, asked_by, asks_target=asks_target)
        check_budget(run, held, budget_usd)
        retry = start_retry(held, finished, request)
        requeue_results(held, cancelled, retry)
        retry.count = count
        retry.save(update_fields=("count",))
        taken_over = reopen_run(held, budget_usd=budget_usd)
        log_action(held, "retry", _retry_message(retry, taken_over=taken_over), by=asked_by)
    return count


def _chosen(
    run: Run, which: str, result_ids: Sequence[int] | None, seen_retry: int | None
) -> tuple[list[int], list[int], str]:
    """Return the finished and the cancelled results of the request, and the reason if there are none."""
    if result_ids is None:
        condition, why_none = WHICH[which]
        rows = list(run.results.filter(condition).order_by("id").values_list("id", "status"))
    else:
        rows, why_none = _named(run, result_ids), UNDER_WAY if result_ids else NONE_LEFT
    rows = [row for row in rows if row[1] not in OPEN_RESULT_STATUSES]
    reached = _reached_since(run, seen_retry)
    if rows and all(row[0] in reached for row in rows):
        why_none = UNDER_WAY
    rows = [row for row in rows if row[0] not in reached]
    cancelled = [pk for pk, status in rows if status == ResultStatus.CANCELLED]
    finished = [pk for pk, status in rows if status != ResultStatus.CANCELLED]
    return finished, cancelled, why_none


def _are_scored(result_ids: Sequence[int]) -> bool:
    """Tell whether any of the results has a score."""
    return any(some.filter(status=ResultStatus.SCORED).exists() for some in _batches(result_ids))


def _named(run: Run, result_ids: Sequence[int]) -> list[tuple[int, str]]:
    ids = sorted(set(result_ids))
    rows: list[tuple[int, str]] = []
    for start in range(0, len(ids), CHUNK):
        some = run.results.filter(pk__in=ids[start : start + CHUNK]).order_by("id")
        rows += some.values_list("id", "status")
    unknown = set(ids) - {pk for pk, _ in rows}
    if unknown:
        raise ResultNotInRunError(
            f"Result {min(unknown)} does not belong to run {run}. Nothing was rerun."
        )
    return rows


def _reached_since(run: Run, seen_retry: int | None) -> set[int]:
    """Return the results of retries that were requested after the last one seen."""
    if seen_retry is None:
        return set()
    later = Attempt.objects.filter(retry__run=run, retry__gt=seen_retry)
    return set(later.values_list("result_id", flat=True))


def check_paths(run: Run, paths: Sequence[str]) -> None:
    """Raise EvaluatorNotInRunError for a path that neither the frozen tree nor a case's own has."""
    if not paths:
        return
    plan = read_plan(run.snapshot)
    root = plan.root
    known = [path for path, _ in walk(root)]
    if needs_outcomes_call(root, all_kinds(), plan.policy):
        known.append(OUTCOMES_PATH)
    for path in paths:
        own = EvaluatorScore.objects.filter(result__run=run, path=path)
        if path not in known and not own.exists():
            named = [name for name in known if name]
            more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
            raise EvaluatorNotInRunError(
                f"Run {run} was started without an evaluator {path!r}. "
                f"Its tree has {', '.join(named[:MAX_NAMED])}{more}."
            )


def _retry_message(retry: Retry, *, taken_over: bool) -> str:
    by = f" by {retry.asked_by_name}" if retry.asked_by_name else ""
    takeover = "; the workers continue what a command line began" if taken_over else ""
    return f"{counted(retry.count, 'result')} rerun{by}: {retry}{takeover}"
