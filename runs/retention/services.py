"""Delete runs, campaigns, suites and old texts: gone from all pages at once, from the database bit by bit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Sum

from evaluators.models import COMMAND_LINE, AuditEntry
from evaluators.sandbox.processes import process_name
from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.types import DomainError
from runs.engine.plan import METRICS_KIND, PAIRWISE_KIND
from runs.engine.ports import Cause
from runs.exports.services import remove_suite_exports
from runs.models.comments import Comment, Mention
from runs.models.database import atomic_batch, database_now, delete_rows, update_rows
from runs.models.jobs import JobState, ModelJob
from runs.models.removals import RETENTION, Removal, RemovalPart, RetentionRule
from runs.models.results import (
    REMOVED_HASH,
    Artifact,
    Attempt,
    ComparedOutput,
    EvaluatorScore,
    ExternalScore,
    ModelCall,
    PushedOutput,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import ALL_ALIKE, HEAVY_RUN_COLUMNS, Run
from runs.models.search import ResultText
from runs.models.suites import Case, FileContent, Suite, SuiteFile, SuiteVersion, Target
from runs.queue import queue_removal
from runs.retention.queries import (
    Hold,
    Selection,
    StoredLength,
    due_removals,
    find_holds,
    find_readers,
    select_runs,
    stored_data,
)
from runs.suites.services import lock_suite

logger = logging.getLogger(__name__)

# Each transaction removes this many results, or cases; others can write in between.
BATCH = 1_000
# Judges whose details hold figures, and the texts that name these.
PARTS_IN_DETAILS = (METRICS_KIND, HYBRID_KIND, PAIRWISE_KIND)
PART_KEYS = ("key", "name", "tier", "label", "policy", "better")
# What stands in place of an error.
GONE = "removed with the details of the run"
BASELINE_GONE = "what the baseline answered was removed with the outputs of the run"
# No slug of a suite that somebody names has a colon.
DELETED_SLUG = "deleted:{pk}"


class DataHeldError(DomainError):
    """Something keeps the data; `holds` say what, and where it can be changed."""

    code = "data_held"

    def __init__(self, holds: Sequence[Hold]) -> None:
        """Join the reasons to one message."""
        super().__init__("Nothing was deleted. " + " ".join(hold.text for hold in holds))
        self.holds = tuple(holds)


def begin_removal(
    selection: Selection,
    *,
    by: User | None,
    by_name: str = "",
    releases_reviews: bool = False,
    in_background: bool = True,
) -> Removal:
    """Begin to remove a part of some runs, and record it in the audit.

    Deleted runs, campaigns and suites are gone from every page when this returns; a worker deletes
    their rows. Without a worker (`in_background` false) the caller goes on with `remove_data`. With
    `releases_reviews` results that wait for reviewers leave the queue undecided.
    Raises DataHeldError.
    """
    with transaction.atomic():
        suite = lock_suite(selection.suite)
        now, is_whole = database_now(), selection.is_whole_suite
        # A run that was started meanwhile would go with its suite.
        held = _lock_runs(select_runs(suite) if is_whole else selection.runs)
        for run in held:
            run.suite = suite
        holds = find_holds(held, selection.part, now=now, is_whole_suite=is_whole)
        if blocking := [hold for hold in holds if not (releases_reviews and hold.is_review)]:
            raise DataHeldError(blocking)
        if holds:
            waiting = ReviewItem.objects.waiting()
            waiting.filter(result__run__in=[run.pk for run in held]).delete()
        stored = stored_data(held)
        removal = Removal.objects.create(
            part=selection.part,
            name=selection.name[:200],
            suite=suite if selection.is_whole_suite else None,
            asked_by=by,
            asked_by_name=by_name or (by.get_username() if by else COMMAND_LINE),
            result_count=stored.results,
        )
        chosen = Run.objects.filter(pk__in=[run.pk for run in held])
        if selection.part == RemovalPart.RUN:
            _hide(suite, held, removal, selection)
        else:
            chosen.update(removal=removal)
        if selection.part == RemovalPart.DETAILS:
            _delete_comments(Comment.objects.on_runs([run.pk for run in held]))
        remove_suite_exports(suite.pk)
        _audit(selection, removal, stored.as_facts())
        if in_background:
            transaction.on_commit(partial(queue_removal, removal.pk))
    return removal


def _lock_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that are still there, their rows locked until the transaction ends."""
    rows = Run.objects.filter(pk__in=[run.pk for run in runs]).defer(*HEAVY_RUN_COLUMNS)
    return list(rows.select_for_update(no_key=True).order_by("pk"))


def _hide(suite: Suite, runs: Sequence[Run], removal: Removal, selection: Selection) -> None:
    """Take runs, with their campaign or suite, from all pages."""
    ids = [run.pk for run in runs]
    # Queues, exports and figures of reviews do not look at the run.
    delete_rows(Review.objects.filter(result__run__in=ids).order_by())
    ReviewItem.objects.filter(run__in=ids).delete()
    _delete_comments(Comment.objects.on_runs(ids))
    Run.objects.filter(pk__in=ids).update(is_deleted=True, removal=removal, campaign=None)
    suite.last_deleted_run = max([suite.last_deleted_run, *(run.number for run in runs)])
    if selection.campaign is not None:
        selection.campaign.delete()
    if selection.is_whole_suite:
        suite.campaigns.all().delete()
        suite.saved_views.all().delete()
        suite.traces.all().remove()
        suite.jobs.open().update(state=JobState.STOPPED, token="", reason="Its suite was deleted.")
        _delete_comments(Comment.objects.filter(suite=suite))
        suite.is_deleted, suite.slug = True, DELETED_SLUG.format(pk=suite.pk)
        suite.archived_at = suite.archived_at or database_now()
        suite.baseline_run = None
    suite.save(
        update_fields=["last_deleted_run", "is_deleted", "slug", "archived_at", "baseline_run"]
    )


def _delete_comments(comments: QuerySet[Comment]) -> None:
    """Delete comments with their replies, which are about the same run, and the mentions in them."""
    delete_rows(Mention.objects.filter(comment__in=comments.order_by().values("pk")).order_by())
    delete_rows(comments.order_by())


def _audit(selection: Selection, removal: Removal, facts: Mapping[str, Any]) -> None:
    """Record what is deleted: one entry for a suite or campaign, else one for each run."""
    action = "delete" if selection.part == RemovalPart.RUN else f"remove_{selection.part}"
    objects: list[tuple[str, int, str]]
    if selection.is_whole_suite:
        objects = [("suite", selection.suite.pk, selection.suite.slug)]
    elif selection.campaign is not None:
        objects = [("campaign", selection.campaign.pk, removal.name)]
    else:
        slug = selection.suite.slug
        objects = [("run", run.pk, f"{slug} #{run.number}") for run in selection.runs]
    together = {} if len(objects) == 1 else {"together_with": len(objects) - 1}
    AuditEntry.objects.record_many(
        AuditEntry(
            actor=removal.asked_by,
            actor_name=removal.asked_by_name,
            action=action,
            object_type=kind,
            object_id=str(pk),
            object_name=name,
            before={**facts, **together},
            after={},
        )
        for kind, pk, name in objects
    )


def delete_recorded_outputs(target: Target, *, by: User | None) -> int:
    """Delete the outputs that a target replays, and return how many; raises DataHeldError."""
    with transaction.atomic():
        held = Target.objects.select_for_update(no_key=True).get(pk=target.pk)
        if holds := find_readers(held):
            raise DataHeldError(holds)
        outputs = held.recorded_outputs.order_by()
        size = outputs.aggregate(total=Sum(StoredLength("output"), default=0))["total"]
        count = delete_rows(outputs)
        AuditEntry.objects.record(
            "delete",
            by=by,
            object_type="recorded_outputs",
            object_id=held.pk,
            object_name=held.name,
            before={"outputs": count, "bytes": size},
            after={},
        )
    return count


def remove_data(removal_id: int) -> bool:
    """Remove a part of runs until nothing is left; False when another worker does it or it is done.

    Each transaction removes some rows and renews the heartbeat, so that another worker goes on where
    this one dies. An error is noted and raised; after MAX_TRIES without progress the removal has failed.
    """
    worker = process_name()
    if not _claim(removal_id, worker):
        return False
    try:
        while _remove_some(removal_id, worker):
            pass
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        mine = Removal.objects.filter(pk=removal_id, worker=worker)
        mine.update(error=text, worker="", heartbeat_at=None)
        Removal.objects.give_up(now=database_now())
        raise
    return not Removal.objects.filter(pk=removal_id).exists()


def _claim(removal_id: int, worker: str) -> bool:
    """Take a removal that no living worker holds; False when there is none."""
    now = database_now()
    waiting = Removal.objects.waiting(now=now).filter(pk=removal_id)
    changes = {"worker": worker, "heartbeat_at": now, "error": "", "tries": F("tries") + 1}
    return bool(waiting.update(**changes))


def retry_removal(removal: Removal, *, by: User | None, in_background: bool = True) -> bool:
    """Let workers try a failed removal again, and record it in the audit; False when it has not failed."""
    with transaction.atomic():
        failed = Removal.objects.filter(pk=removal.pk, failed_at__isnull=False)
        if not failed.update(failed_at=None, tries=0):
            return False
        AuditEntry.objects.record(
            "retry",
            by=by,
            object_type="removal",
            object_id=removal.pk,
            object_name=removal.name,
            before={"error": removal.error},
        )
        if in_background:
            transaction.on_commit(partial(queue_removal, removal.pk))
    return True


def _remove_some(removal_id: int, worker: str) -> bool:
    """Remove one batch; False when nothing is left, or another worker took over."""
    with atomic_batch():
        # The row stays locked, so that two workers never remove at the same time.
        mine = Removal.objects.filter(pk=removal_id, worker=worker)
        if not mine.update(heartbeat_at=database_now(), tries=0):
            return False
        removal = mine.get()
        run = Run.including_deleted.filter(removal=removal).order_by("pk").first()
        if run is not None:
            done = REMOVERS[RemovalPart(removal.part)](run, removal)
            mine.update(done_count=F("done_count") + done)
        elif removal.suite_id is None or not _delete_some_cases(removal.suite_id):
            _delete_suite(removal.suite_id)
            removal.delete()
            return False
    return True


def _delete_some(run: Run, removal: Removal) -> int:
    """Delete the next results of a run with everything that refers to them, at last the run."""
    batch = _next_results(run, removal)
    if batch is None:
        Removal.objects.filter(pk=removal.pk).update(next_position=0)
        ModelJob.objects.filter(sources=run).forget_texts()
        run.cases.all().delete()
        run.delete()
        return 0
    files = _files(batch)
    for relation in Result._meta.related_objects:
        related: type[models.Model] = relation.related_model
        rows = related._base_manager.filter(**{f"{relation.field.name}__in": batch})
        rows.order_by().delete()
    deleted = delete_rows(batch)
    _delete_unused(files)
    return deleted


def _next_results(run: Run, removal: Removal) -> QuerySet[Result] | None:
    """Return the results of a run at the next positions, and note these; None when none is left.

    Without the position, PostgreSQL would walk through the index entries of all deleted rows each time.
    """
    results = Result.objects.filter(run=run, position__gte=removal.next_position)
    first = results.order_by("position").values_list("position", flat=True).first()
    if first is None:
        return None
    end = first + max(1, BATCH // max(1, run.repetitions))
    Removal.objects.filter(pk=removal.pk).update(next_position=end)
    return results.filter(position__gte=first, position__lt=end).order_by()


def _delete_some_cases(suite_id: int) -> bool:
    ids = Case.objects.filter(suite=suite_id).order_by("pk").values_list("pk", flat=True)[:BATCH]
    cases = Case.objects.filter(pk__in=list(ids))
    for relation in Case._meta.related_objects:
        related: type[models.Model] = relation.related_model
        related._base_manager.filter(**{f"{relation.field.name}__in": cases}).delete()
    return bool(delete_rows(cases))


def _delete_suite(suite_id: int | None) -> None:
    """Delete a suite whose runs and cases are gone."""
    if suite_id is None:
        return
    suite = Suite.including_deleted.get(pk=suite_id)
    frozen = suite.versions.values_list("content__files", flat=True)
    shas = {sha for files in frozen for sha in (files or {}).values()}
    shas.update(suite.files.values_list("content_id", flat=True))
    suite.delete()
    _delete_unused(sorted(shas))


def _files(results: QuerySet[Result]) -> list[str]:
    """Return the contents of files that the results have."""
    rows = Artifact.objects.filter(result__in=results).order_by()
    return list(rows.values_list("content_id", flat=True).distinct())


def _delete_unused(shas: Sequence[str]) -> None:
    """Delete contents of files that nothing refers to any more: no result, suite, version or run."""
    if not shas:
        return
    # A transaction that is just storing one of them holds its row, and ends first.
    list(FileContent.objects.filter(pk__in=shas).order_by("pk").select_for_update().values("pk"))
    contents = FileContent.objects.filter(
        ~Exists(Artifact.objects.filter(content=OuterRef("pk"))),
        ~Exists(SuiteFile.objects.filter(content=OuterRef("pk"))),
        pk__in=shas,
    )
    unused = set(contents.values_list("pk", flat=True))
    if unused:
        unused -= set(_frozen_files())
    FileContent.objects.filter(pk__in=unused).delete()


def _frozen_files() -> Iterator[str]:
    """Yield the contents that versions of suites and snapshots of runs refer to."""
    for rows in (
        SuiteVersion.objects.values_list("content__files", flat=True),
        Run.objects.values_list("snapshot__files", flat=True),
    ):
        for files in rows.order_by().iterator():
            yield from (files or {}).values()


def _remove_outputs(run: Run, removal: Removal) -> int:
    """Remove the answers, files and texts of calls of the next results."""
    batch = _next_batch(run, removal)
    return 0 if batch is None else _forget_outputs(run, batch, removal)


def _next_batch(run: Run, removal: Removal) -> QuerySet[Result] | None:
    """Return the results at the next positions; None, and the run noted as done, when none is left."""
    held = Run.objects.hold(run.pk)
    # A run that was resumed meanwhile is left alone; its new texts are young.
    batch = None if held.is_active else _next_results(held, removal)
    if batch is not None:
        return batch
    changes: dict[str, Any] = {"removal": None}
    if not held.is_active:
        changes |= {"stored_bytes": None, "measured_at": None}
        if removal.part == RemovalPart.DETAILS and held.status_reason.startswith(ALL_ALIKE):
            error = held.status_reason.removeprefix(ALL_ALIKE).strip()
            changes["status_reason"] = f"{ALL_ALIKE} {plain_error(error)}"
        ModelJob.objects.filter(sources=held).forget_texts()
        for part in _parts_removed(held, removal):
            changes |= {
                f"{part}_removed_at": database_now(),
                f"{part}_removed_by": removal.asked_by_name,
            }
    Run.objects.filter(pk=run.pk).update(**changes)
    # Made since the removal began, they may have texts that are gone now.
    remove_suite_exports(held.suite_id)
    Removal.objects.filter(pk=removal.pk).update(next_position=0)
    return None


def _parts_removed(run: Run, removal: Removal) -> tuple[str, ...]:
    """Return what is gone now and was there before."""
    if removal.part == RemovalPart.OUTPUTS:
        return ("outputs",)
    return ("details",) if run.lacks_outputs else ("outputs", "details")


def _forget_outputs(run: Run, batch: QuerySet[Result], removal: Removal) -> int:
    files = _files(batch)
    Artifact.objects.filter(result__in=batch).delete()
    _delete_unused(files)
    outputs = ResultOutput.objects.filter(result__in=batch, removed_at=None)
    outputs.update(
        **{"text": "", "messages": [], "trace": None},
        removed_at=database_now(),
        removed_by=removal.asked_by_name,
    )
    compared = ComparedOutput.objects.filter(result__in=batch, problem="")
    compared.update(text="", problem=BASELINE_GONE)
    # What was pushed and never scored; a run that is resumed waits for it again.
    pushed = PushedOutput.objects.filter(result__in=batch, output__isnull=False)
    batch.filter(pk__in=pushed.values("pk"), status=ResultStatus.CANCELLED).update(
        awaits_output=True
    )
    delete_rows(pushed.order_by())
    Attempt.objects.filter(result__in=batch).update(content=None)
    calls = ModelCall.objects.filter(result__in=batch)
    calls.update(request={}, reply=None, request_hash=REMOVED_HASH)
    ids = list(batch.values_list("pk", flat=True))
    ResultText.objects.refresh(run.pk, ids)
    return len(ids)


def _remove_details(run: Run, removal: Removal) -> int:
    """Remove the outputs of the next results, and every other text that explains them."""
    batch = _next_batch(run, removal)
    if batch is None:
        return 0
    judged = EvaluatorScore.objects.filter(result__in=batch, kind__in=PARTS_IN_DETAILS)
    kept = [(plain_parts(details), pk) for pk, details in judged.values_list("pk", "details")]
    scores = EvaluatorScore.objects.filter(result__in=batch)
    scores.update(reasoning="", findings=[], warnings=[], details={})
    errors = batch.exclude(error="").values_list("error", "pk")
    update_rows(Result, ("error",), [(plain_error(error), pk) for error, pk in errors], key=("id",))
    batch.update(warnings=[])
    decided = ResultOutput.objects.filter(result__in=batch, decision__isnull=False)
    decisions = [
        (plain_decision(decision), pk)
        for pk, decision in decided.values_list("pk", "decision")
        if decision is not None
    ]
    update_rows(ResultOutput, ("decision",), decisions, key=("result_id",))
    update_rows(EvaluatorScore, ("details",), kept, key=("id",))
    outcomes = ResultOutput.objects.filter(result__in=batch, outcomes__isnull=False)
    marks = [
        ([{**outcome, "justification": ""} for outcome in rows or ()], pk)
        for pk, rows in outcomes.values_list("pk", "outcomes")
    ]
    update_rows(ResultOutput, ("outcomes",), marks, key=("result_id",))
    ModelCall.objects.filter(result__in=batch).update(error="")
    Attempt.objects.filter(result__in=batch).update(reason="", counted_reason="")
    ExternalScore.objects.filter(result__in=batch).update(reason="")
    Review.objects.filter(result__in=batch).update(note="")
    return _forget_outputs(run, batch, removal)


def plain_error(error: str) -> str:
    """Return the class of an error without what was answered or said."""
    known = next((cause for cause in Cause if error.startswith(f"{cause.label}: ")), None)
    return f"{known.label}: {GONE}" if known else GONE.capitalize()


def plain_decision(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision with its rules, names and figures, without anything that a judge or target said."""
    unscored = {node["path"] for node in decision["nodes"] if node["state"] == "unscored"}
    # The steps of an error, and those about evaluators without a score, give the reason.
    is_error = decision["status"] != ResultStatus.SCORED
    steps = () if is_error else decision["trace"]
    return {
        **decision,
        "trace": [step for step in steps if step["path"] not in unscored],
        "nodes": [
            {**node, "note": "" if node["path"] in unscored else node["note"]}
            for node in decision["nodes"]
        ],
        **{"hits": [], "misses": [], "warnings": []},
        "error": GONE.capitalize() if decision["error"] else decision["error"],
        "cause": None,
        "outcomes": [{**outcome, "justification": ""} for outcome in decision["outcomes"]],
    }


def plain_parts(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of metrics and dimensions, the final evaluation, or who won, without any text of a judge."""
    figures: dict[str, Any] = {
        name: [
            {key: value for key, value in part.items() if key in PART_KEYS or _is_figure(value)}
            for part in parts
        ]
        for name in ("metrics", "dimensions", "orders")
        if (parts := details.get(name))
    }
    if evaluation := details.get("final_evaluation"):
        overall = evaluation["judge_overall"] and {**evaluation["judge_overall"], "evidence": []}
        figures["final_evaluation"] = {**evaluation, "judge_overall": overall, "warnings": []}
    return figures | ({"verdict": details["verdict"]} if "verdict" in details else {})


def _is_figure(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


REMOVERS = {
    RemovalPart.RUN: _delete_some,
    RemovalPart.OUTPUTS: _remove_outputs,
    RemovalPart.DETAILS: _remove_details,
}


def change_rule(
    suite: Suite | None, *, outputs_days: int | None, details_days: int | None, by: User | None
) -> RetentionRule:
    """Set the rule of a suite, or the site's, and record it in the audit; None keeps data for good."""
    with transaction.atomic():
        rule, _ = RetentionRule.objects.select_for_update().get_or_create(suite=suite)
        before = _rule_facts(rule)
        rule.outputs_days, rule.details_days, rule.checked_at = outputs_days, details_days, None
        rule.save()
        _audit_rule(suite, before, _rule_facts(rule), by)
    return rule


def drop_rule(suite: Suite, *, by: User | None) -> None:
    """Let a suite follow the rule of the site again."""
    with transaction.atomic():
        rule = RetentionRule.objects.select_for_update().filter(suite=suite).first()
        if rule is not None:
            rule.delete()
            _audit_rule(suite, _rule_facts(rule), {"retention": "the site's"}, by)


def _rule_facts(rule: RetentionRule) -> dict[str, Any]:
    return {"outputs_days": rule.outputs_days, "details_days": rule.details_days}


def _audit_rule(
    suite: Suite | None, before: Mapping[str, Any], after: Mapping[str, Any], by: User | None
) -> None:
    if before == after:
        return
    AuditEntry.objects.record(
        "change",
        by=by,
        object_type="retention",
        object_id=suite.pk if suite else "",
        object_name=suite.slug if suite else "the site",
        before=before,
        after=after,
    )


def apply_retention(*, suite: Suite | None = None, in_background: bool = True) -> list[Removal]:
    """Begin to remove what the rules want removed now; runs that something keeps are left out."""
    removals = []
    for due in due_removals(now=database_now(), suite=suite):
        if not due.runs:
            continue
        try:
            removals.append(
                begin_removal(
                    due.selection, by=None, by_name=RETENTION, in_background=in_background
                )
            )
        except DataHeldError as refusal:
            # It was shared, retried or made the baseline a moment ago; the next time is soon.
            logger.info("Retention of %s waits: %s", due.suite.slug, refusal)
    return removals
