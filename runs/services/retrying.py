"""Try results of a run again in place: errored, failed or chosen ones, wholly or one evaluator's part."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import ROOT_PATH, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.models import OPEN_RESULT_STATUSES, Attempt, ResultStatus, Retry, Run, RunOwner, Score
from runs.plan import OUTCOMES_PATH, needs_outcomes_call, read_plan
from runs.services.reopening import (
    CHUNK,
    Asked,
    check_budget,
    go_on,
    lacks_output,
    note,
    open_run,
    try_again,
)
from runs.services.script_rights import check_scripts_again

MISSING = (ResultStatus.ERROR, ResultStatus.CANCELLED, ResultStatus.SKIPPED)
WHICH = {
    "errored": (Q(status=ResultStatus.ERROR), "none is errored now"),
    "failed": (Q(status=ResultStatus.SCORED, verdict="fail"), "none has failed now"),
    "all_missing": (Q(status__in=MISSING), "none is missing now"),
}
IN_HAND = "they are being tried again already"
NONE_LEFT = "none is of that kind now"
MOST_NAMED = 12


class NothingToRetryError(DomainError):
    """No result is of the kind that was to be tried again."""

    code = "nothing_to_retry"


class NotOfThisRunError(DomainError):
    """A result that was named belongs to no run or to another."""

    code = "not_of_this_run"


class UnknownEvaluatorError(DomainError):
    """The run's frozen tree has no evaluator at that path."""

    code = "unknown_evaluator"


class ImportedRunError(DomainError):
    """The run was made of a file of results, so nothing here can carry it out."""

    code = "imported_run"


class RunElsewhereError(DomainError):
    """The run is being carried out by a command line."""

    code = "run_elsewhere"


def of_kind(which: str) -> Q:
    """Return what finds the results of a kind: errored, failed or all_missing."""
    return WHICH[which][0]


def retry_results(  # noqa: PLR0913 - every choice of the retry form
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
    """Have results tried again in place, as a new generation; returns how many.

    `which` is errored, failed or all_missing; `result_ids` name results instead, of which those
    that are open are left alone. With `keep_output` only scoring is repeated where there is an
    output, with `paths` only by those evaluators. `seen_retry` is the last request for retries
    that whoever asks knew of: results that a later one reached are left alone too, so that
    pressing twice tries them once. `budget_usd` is a new cap. Earlier outcomes are kept as
    attempts, and what was frozen when the run began decides again.

    Raises NothingToRetryError, NotOfThisRunError, UnknownEvaluatorError, BudgetSpentError,
    ScriptsRefusedError for scripts that may not run, ImportedRunError for a run that was made of a
    file, and RunElsewhereError while a command line carries the run out: it ends with what it began.
    """
    if run.imported_from:
        raise ImportedRunError(
            f"Run {run} was imported from {run.imported_from}: there is no target to ask and no "
            "evaluator to score again. Start a new run of the suite instead."
        )
    # The root stands for the whole tree.
    part = tuple(paths) if paths and ROOT_PATH not in paths else None
    asked = Asked(asked_by, keep_output or bool(paths), part)
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.is_active and held.owner == RunOwner.COMMAND_LINE:
            raise RunElsewhereError(
                f"Run {run} is being carried out by a command line, which ends with what it began. "
                "Wait for its end or cancel it, then retry."
            )
        check_paths(run, asked.paths or ())
        finished, cancelled, why_none = _chosen(held, which, result_ids, seen_retry)
        count = len(finished) + len(cancelled)
        if not count:
            raise NothingToRetryError(f"Run {run} has no such results to try again: {why_none}.")
        asks_target = not asked.keep_output or lacks_output(finished, cancelled)
        check_scripts_again(run, asked_by, asks_target=asks_target)
        check_budget(run, held, budget_usd)
        retry = try_again(held, finished, asked)
        go_on(cancelled, retry)
        retry.count = count
        retry.save(update_fields=("count",))
        taken_over = open_run(held, budget_usd=budget_usd)
        note(held, "retry", _retried(retry, taken_over=taken_over), by=asked_by)
    return count


def _chosen(
    run: Run, which: str, result_ids: Sequence[int] | None, seen_retry: int | None
) -> tuple[list[int], list[int], str]:
    """Return the finished and the cancelled results that are meant, and why there are none if so."""
    if result_ids is None:
        meant, why_none = WHICH[which]
        rows = list(run.results.filter(meant).order_by("id").values_list("id", "status"))
    else:
        rows, why_none = _named(run, result_ids), IN_HAND if result_ids else NONE_LEFT
    rows = [row for row in rows if row[1] not in OPEN_RESULT_STATUSES]
    reached = _reached_since(run, seen_retry)
    if rows and all(row[0] in reached for row in rows):
        why_none = IN_HAND
    rows = [row for row in rows if row[0] not in reached]
    cancelled = [pk for pk, status in rows if status == ResultStatus.CANCELLED]
    finished = [pk for pk, status in rows if status != ResultStatus.CANCELLED]
    return finished, cancelled, why_none


def _named(run: Run, result_ids: Sequence[int]) -> list[tuple[int, str]]:
    ids = sorted(set(result_ids))
    rows: list[tuple[int, str]] = []
    for start in range(0, len(ids), CHUNK):
        some = run.results.filter(pk__in=ids[start : start + CHUNK]).order_by("id")
        rows += some.values_list("id", "status")
    strangers = set(ids) - {pk for pk, _ in rows}
    if strangers:
        raise NotOfThisRunError(f"Result {min(strangers)} is not of run {run}; nothing is retried.")
    return rows


def _reached_since(run: Run, seen_retry: int | None) -> set[int]:
    """Return the results that were reached by requests made after the one that was last seen."""
    if seen_retry is None:
        return set()
    later = Attempt.objects.filter(retry__run=run, retry__gt=seen_retry)
    return set(later.values_list("result_id", flat=True))


def check_paths(run: Run, paths: Sequence[str]) -> None:
    """Raise UnknownEvaluatorError for a path that neither the frozen tree nor a case's own has."""
    if not paths:
        return
    root = read_plan(run.snapshot).root
    known = [path for path, _ in walk(root)]
    if needs_outcomes_call(root, all_kinds()):
        known.append(OUTCOMES_PATH)
    for path in paths:
        own = Score.objects.filter(result__run=run, path=path)
        if path not in known and not own.exists():
            named = [name for name in known if name]
            more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
            raise UnknownEvaluatorError(
                f"Run {run} was started without an evaluator {path!r}. "
                f"Its tree has {', '.join(named[:MOST_NAMED])}{more}."
            )


def _retried(retry: Retry, *, taken_over: bool) -> str:
    by = f" by {retry.asked_by_name}" if retry.asked_by_name else ""
    who = "; the workers go on with what a command line began" if taken_over else ""
    return f"{counted(retry.count, 'result')} tried again{by}: {retry}{who}"
