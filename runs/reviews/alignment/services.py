"""Start an alignment, stop and resume it, and take one of its candidates into a draft."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, money
from runs.costs import CAP_TIMES, budget_problem
from runs.models.jobs import RESUMABLE_JOB_STATES, JobState, ModelJob, ModelJobQuerySet
from runs.models.results import CallPurpose
from runs.models.runs import Run
from runs.models.suites import Suite, SuiteDraft
from runs.queue import queue_job
from runs.reviews.alignment.planning import (
    AlignmentEstimate,
    AlignmentRequest,
    CannotAlignError,
    plan_alignment,
)
from runs.reviews.alignment.specs import AlignmentOutcome, AlignmentSpec
from runs.suites.drafts import change_draft, get_draft
from runs.suites.edits import Configure, nodes_with_paths
from runs.suites.services import SuiteArchivedError


class AlignmentUnderWayError(DomainError):
    """The evaluator is being aligned already."""

    code = "alignment_under_way"


class OtherInstructionsError(DomainError):
    """A draft has other instructions than those that the alignment compared its candidates with."""

    code = "other_instructions"


def alignments(suite: Suite) -> ModelJobQuerySet:
    """Return the alignments of a suite, the newest first."""
    jobs = ModelJob.objects.filter(suite=suite, purpose=CallPurpose.ALIGNMENT)
    return jobs.select_related("suite", "model", "asked_by")


def cap_usd(estimate: AlignmentEstimate, budget_usd: Decimal | None) -> Decimal:
    """Return the budget: the one that was given, else twice the estimate.

    Raises CannotAlignError without both, and where the budget does not even cover the writer.
    """
    if budget_usd is not None:
        if problem := budget_problem(budget_usd, estimate.prices.writer_usd, "candidates"):
            raise CannotAlignError(problem)
        return budget_usd
    if not estimate.cost_usd:
        raise CannotAlignError(
            f"Give a budget: what this costs is not known, because there is {estimate.reason}."
            if estimate.reason
            else "Give a budget: the prices of the models are 0, so no estimate can limit the cost."
        )
    return CAP_TIMES * estimate.cost_usd


def price_text(estimate: AlignmentEstimate, budget_usd: Decimal) -> str:
    """Return the price in words: `About $0.42, at most $1.00, 60 calls.`."""
    most = f"most {money(budget_usd)}, {counted(estimate.calls, 'call')}."
    about = estimate.cost_usd
    return f"At {most}" if about is None else f"About {money(about)}, at {most}"


def start_alignment(
    suite: Suite,
    request: AlignmentRequest,
    *,
    by: User | None,
    form_key: str = "",
    in_background: bool = True,
) -> ModelJob:
    """Start an alignment and queue it; a form that is sent twice starts one.

    Raises DomainError with the reason, also if the evaluator is being aligned.
    """
    of_form = alignments(suite).filter(asked_by=by, form_key=form_key).exclude(form_key="")
    if before := of_form.first():
        return before
    plan = plan_alignment(suite, request)
    job = ModelJob(
        suite=suite,
        purpose=CallPurpose.ALIGNMENT,
        subject=request.path,
        request=plan.spec.as_json(),
        model=request.writer,
        model_name=request.writer.name,
        planned_calls=plan.estimate.calls,
        budget_usd=cap_usd(plan.estimate, request.budget_usd),
        asked_by=by,
        form_key=form_key,
    )
    try:
        with transaction.atomic():
            job.save()
            job.sources.set(Run.objects.filter(pk__in=plan.sources).only("pk"))
            _record("start", job, by)
            if in_background:
                transaction.on_commit(partial(queue_job, job.pk))
    except IntegrityError as error:
        # The same form may have come meanwhile.
        if before := of_form.first():
            return before
        other = alignments(suite).open().filter(subject=request.path).first()
        if other is None:
            raise
        who = other.asked_by.get_username() if other.asked_by else "A command line"
        raise AlignmentUnderWayError(
            f"{who} is aligning {request.path} already. Wait for the result, or stop it."
        ) from error
    return job


def stop_alignment(job: ModelJob, *, by: User | None) -> bool:
    """Stop an open alignment; what was paid for is kept. False where it has ended."""
    with transaction.atomic():
        if not job.stop(by):
            return False
        _record("stop", job, by)
    return True


def resume_alignment(job: ModelJob, budget_usd: Decimal | None, *, by: User | None) -> None:
    """Continue an alignment that ended early: only what was not answered is asked.

    A new budget replaces the old one and includes what was spent. Raises CannotAlignError.
    """
    budget = job.budget_usd if budget_usd is None else budget_usd
    spent = job.spent_usd()
    if budget is not None and budget <= spent:
        raise CannotAlignError(
            f"{money(spent)} is spent already. Give a budget of more than that to continue."
        )
    try:
        with transaction.atomic():
            ended = ModelJob.objects.filter(pk=job.pk, state__in=RESUMABLE_JOB_STATES)
            columns = {"heartbeat_at": None, "finished_at": None, "worker": "", "token": ""}
            if not ended.update(
                state=JobState.WAITING, reason="", tries=0, budget_usd=budget, **columns
            ):
                raise CannotAlignError("This alignment has not ended early, so nothing is left.")
            _record("resume", job, by)
            transaction.on_commit(partial(queue_job, job.pk))
    except IntegrityError as error:
        raise AlignmentUnderWayError(
            f"{job.subject} is being aligned already. Wait for the result, or stop it."
        ) from error


def _record(action: str, job: ModelJob, by: User | None) -> None:
    AuditEntry.objects.record(
        action,
        by=by,
        object_type="alignment",
        object_id=job.pk,
        object_name=f"{job.subject} of {job.suite.slug}",
        after={"writer": job.model_name, "budget_usd": str(job.budget_usd)},
    )


def take_candidate(
    job: ModelJob, number: int, stamp: str, *, by: User, replaces: bool = False
) -> SuiteDraft:
    """Put the text of a candidate into the person's draft, and leave everything else as it is.

    `stamp` names the draft that the page showed. Raises OtherInstructionsError, unless it `replaces` them, where the
    draft has other instructions than the alignment began with; DraftChangedError; CannotAlignError.
    """
    suite, spec = job.suite, AlignmentSpec.model_validate(job.request)
    if suite.archived_at is not None:
        raise SuiteArchivedError(f"{suite.title} is archived and cannot be changed. Restore it.")
    candidates = AlignmentOutcome.model_validate(job.outcome or {}).candidates
    if not 1 <= number <= len(candidates):
        raise CannotAlignError("The alignment has no such candidate.")
    draft = get_draft(suite, by)
    node = draft_node(draft, spec)
    if node is None:
        raise CannotAlignError(f"Your draft has no evaluator {spec.path} of this kind any more.")
    if not replaces and node["config"].get(spec.setting, "") not in (spec.text, spec.written):
        raise OtherInstructionsError(
            f"{spec.path} has other instructions in your draft than in v{spec.version}, with which the candidates "
            "were compared. Choose whether to replace them."
        )
    config = {**node["config"], spec.setting: candidates[number - 1].text}
    return change_draft(draft, stamp, Configure(node["id"], config))


def draft_node(draft: SuiteDraft, spec: AlignmentSpec) -> dict[str, Any] | None:
    """Return the evaluator of a draft that the alignment is about, also where the draft renamed it."""
    nodes = (node for _, node in nodes_with_paths(draft.content["evaluators"]))
    same = (node for node in nodes if node["kind"] == spec.node.kind)
    return next((node for node in same if node["origin"] == spec.path), None)
