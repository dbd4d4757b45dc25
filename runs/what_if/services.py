"""Make a new run from the stored scores of a finished run, under the rules of a draft or another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.kinds.hybrid_judge.opinions import check_final_score
from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.engine.plan import CHANGED, content_hash, read_plan
from runs.models.database import database_now
from runs.models.runs import RESCORED, Run, RunStatus
from runs.models.suites import Case, Suite
from runs.queue import RESCORE_RUN, queue
from runs.running.checks import check_trees
from runs.running.retrying import log_action, user_name
from runs.running.rules import Origins, kept_sample_changes
from runs.specs.suites import SuiteSpec
from runs.what_if.changes import RuleSet
from runs.what_if.deciding import Stale
from runs.what_if.page import changes_rules, rules_for
from runs.what_if.rescoring import complete_rescoring
from runs.what_if.stored import WhatIfQuestion, ask

AT_ONCE = 200
MAX_NAMED = 5
ASKS_REMEMBERED = 100
ACTION = "rescore"


class CannotRescoreError(DomainError):
    """The stored scores of a run cannot answer for other rules."""

    code = "cannot_rescore"


class NewCallsNeededError(CannotRescoreError):
    """Evaluators changed so that only new calls can tell; `stale` are these."""

    code = "new_calls_needed"

    def __init__(self, message: str, stale: tuple[Stale, ...]) -> None:
        """Keep the evaluators for the page that names them."""
        super().__init__(message)
        self.stale = stale


def rescore_run(
    run: Run,
    rules: RuleSet,
    *,
    by: User | None,
    origins: Origins = None,
    text: str = "",
    form_key: str = "",
    like: Run | None = None,
) -> Run:
    """Return a new run of the same outputs under these rules, which names its source and costs nothing.

    A small run is complete at once; a worker completes a larger one, which is shown as running
    meanwhile. `origins` are the paths of evaluators in the run by their new paths, `text` is its note.
    A form that is sent twice with the same `form_key` makes one run, as do the rules of the run `like`.

    Raises NewCallsNeededError with the evaluators that stored scores cannot answer for,
    CannotRescoreError for a run without scores, RunNotEndedError for an active run, and DomainError for
    invalid rules.
    """
    own = Case.objects.filter(results__run=run, evaluators__isnull=False).distinct()
    for tree in check_trees(rules.root, list(own)).values():
        check_final_score(tree, rules.policy)
    rule_change = ask(run, rules, origins=origins)
    _check_scores(run, rule_change)
    if stale := rule_change.answer().stale:
        names = "; ".join(f"{evaluator.name}: {evaluator.why}" for evaluator in stale[:MAX_NAMED])
        more = f" and {len(stale) - MAX_NAMED} more" if len(stale) > MAX_NAMED else ""
        raise NewCallsNeededError(
            f"The stored scores of run {run} are not enough for these rules. {names}{more}. "
            "Start a new run instead.",
            stale,
        )
    with transaction.atomic():
        Suite.objects.select_for_update(of=("self",), no_key=True).get(pk=run.suite_id)
        try:
            is_losing_data = Run.objects.hold(run.pk).removal_id is not None
        except Run.DoesNotExist:
            raise CannotRescoreError(f"Run {run} was deleted.") from None
        if is_losing_data:
            # The copy would keep what is being removed.
            raise CannotRescoreError(
                f"Data of run {run} are being removed. Rescore it when that has ended."
            )
        if earlier := _made_before(form_key, by) or (like and _scored_like(run, like)):
            return earlier
        new_run = _create(run, rules, origins, by=by, text=text)
        _note_audit(run, new_run, by, form_key)
        if new_run.execution_count <= AT_ONCE:
            complete_rescoring(new_run.pk)
        else:
            transaction.on_commit(partial(queue, RESCORE_RUN, new_run.pk))
    new_run.refresh_from_db()
    return new_run


def _check_scores(run: Run, rule_change: WhatIfQuestion) -> None:
    stored = rule_change.stored
    if not any(stored.is_answered(result.id) for result in stored.results):
        whence = f", which was imported from {run.imported_from}," if run.imported_from else ""
        raise CannotRescoreError(
            f"Run {run}{whence} has no scores of evaluators, so it cannot be rescored."
        )


def _create(run: Run, rules: RuleSet, origins: Origins, *, by: User | None, text: str) -> Run:
    snapshot: dict[str, Any] = {
        # The own rules of the source do not apply; of its own settings, only the samples of judges do.
        **{name: value for name, value in run.snapshot.items() if name != CHANGED},
        "policy": rules.policy.as_json(),
        "evaluators": rules.root.as_json(),
        "files": dict(rules.files),
        RESCORED: {"run": run.number, "origins": None if origins is None else dict(origins)},
    }
    if kept := kept_sample_changes(rules.root, origins, run.snapshot):
        snapshot[CHANGED] = kept
    return Run.objects.create(
        suite_id=run.suite_id,
        number=run.suite.next_run_number(),
        status=RunStatus.RUNNING,
        source_run=run,
        target=run.target,
        target_name=run.target_name,
        judge_name=run.judge_name,
        is_scripted=run.is_scripted,
        suite_version=run.suite_version,
        repetitions=run.repetitions,
        concurrency=run.concurrency,
        note=text[:300],
        created_by=by,
        started_at=database_now(),
        heartbeat_at=database_now(),
        case_count=run.case_count,
        execution_count=run.results.count(),
        snapshot_hash=content_hash(snapshot),
        snapshot=snapshot,
    )


def _note_audit(run: Run, new_run: Run, by: User | None, form_key: str) -> None:
    name = f" by {user_name(by)}" if by is not None else ""
    text = f"Rescored from run {run}{name}, at no cost"
    log_action(new_run, ACTION, text, by=by, form_key=form_key)


def _made_before(form_key: str, by: User | None) -> Run | None:
    """Return the run that the same form has already made, if any."""
    if not form_key:
        return None
    entries = AuditEntry.objects.filter(actor=by, action=ACTION, object_type="run").order_by("-id")
    lately = entries.values_list("object_id", "after")[:ASKS_REMEMBERED]
    keys = [int(pk) for pk, after in lately if (after or {}).get("form") == form_key]
    return Run.objects.select_related("suite").filter(pk__in=keys).first()


def score_again(
    run: Run,
    base: SuiteSpec,
    content: Mapping[str, Any],
    *,
    version: int,
    by: User,
    form_key: str = "",
) -> Run:
    """Return a run of the stored scores under content that was edited from a version, `base`.

    Its note names the rules: the draft of that version, or the version if its rules are unchanged. The
    same `form_key` makes one run, no matter how often it is sent.

    Raises CannotRescoreError for an archived suite, and the errors of `rescore_run`.
    """
    if run.suite.archived_at is not None:
        raise CannotRescoreError(f"{run.suite.title} is archived. Restore it first.")
    rules, origins = rules_for(run, base, content)
    name = f"draft of v{version}" if changes_rules(base, content) else f"v{version}"
    return rescore_run(
        run,
        rules,
        by=by,
        origins=origins,
        text=f"under {name}",
        form_key=form_key,
    )


RULES = ("policy", "evaluators")


def score_like(run: Run, like: Run, *, by: User | None) -> Run:
    """Return the run under the frozen policy and evaluators of another run; it costs nothing.

    This is the run itself if it has these rules, else an earlier rescored run, else a new one. The
    judge stays that of the run.

    Raises CannotRescoreError for runs of two suites and for an archived suite, and what
    `rescore_run` refuses with, as where evaluators need new calls.
    """
    if has_same_rules(run, like):
        return run
    if reason := score_like_problem(run, like):
        raise CannotRescoreError(reason)
    if earlier := _scored_like(run, like):
        return earlier
    rules = RuleSet.of_plan(read_plan(like.snapshot))
    rules = replace(rules, judge=read_plan(run.snapshot).judge)
    return rescore_run(run, rules, by=by, text=f"under the policy of run #{like.number}", like=like)


def _scored_like(run: Run, like: Run) -> Run | None:
    """Return the newest run that was, or is being, rescored from a run under the rules of another, if any."""
    states = (RunStatus.RUNNING, RunStatus.COMPLETED)
    known = Run.objects.filter(source_run=run, status__in=states).exclude(pk=like.pk)
    rows = known.order_by("-number").select_related("suite").defer("leaf_scores", "summary")
    return next((rescored for rescored in rows if has_same_rules(rescored, like)), None)


def has_same_rules(run: Run, like: Run) -> bool:
    """Tell whether both runs froze the same policy and evaluators."""
    return all(run.snapshot[name] == like.snapshot[name] for name in RULES)


def score_like_problem(run: Run, like: Run) -> str:
    """Return why a run cannot be scored like another, without reading scores; "" if it can."""
    if run.suite_id != like.suite_id:
        return "Runs of two suites cannot be rescored under one policy."
    if run.suite.archived_at is not None:
        return f"{run.suite.title} is archived. Restore it first."
    if run.is_active:
        return f"Run #{run.number} is still running. Rescore it when it has ended."
    return ""
