"""The calls that align a judge with people: estimate, start, read, stop, resume, and take a candidate."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.models import LanguageModel
from runs.api.bodies import (
    AlignBody,
    ResumeBody,
    TakeCandidateBody,
    UnusableBodyError,
    pointer,
)
from runs.api.run_calls import MAY_START
from runs.api.schema import SLUG, reads, writes
from runs.api.suite_calls import MAY_CHANGE
from runs.models.jobs import ModelJob
from runs.models.suites import Suite
from runs.reviews.alignment.documents import (
    AlignmentDoc,
    AlignmentEstimateDoc,
    AlignmentsDoc,
    TakenCandidateDoc,
)
from runs.reviews.alignment.planning import AlignmentRequest, plan_alignment
from runs.reviews.alignment.services import (
    alignments,
    resume_alignment,
    start_alignment,
    stop_alignment,
    take_candidate,
)
from runs.reviews.alignment.views import MAX_LISTED
from runs.suites.drafts import get_draft

ALIGNMENT = OpenApiParameter("alignment", int, "path", description="The id of an alignment.")
PLACE = [SLUG, ALIGNMENT]


@reads("Alignments of a suite", AlignmentsDoc, path=[SLUG], tag="reviews")
def suite_alignments(request: Request, slug: str) -> Response:
    """List the newest alignments of a suite's judges with people, at most 20."""
    jobs = alignments(get_object_or_404(Suite, slug=slug))[:MAX_LISTED]
    document = AlignmentsDoc(alignments=[AlignmentDoc.make(job) for job in jobs])
    return Response(document.as_json())


@writes(
    "Align a judge with people",
    AlignmentDoc,
    body=AlignBody,
    permission=MAY_START,
    path=[SLUG],
    tag="reviews",
    status=201,
)
def align(request: Request, body: AlignBody, slug: str) -> AlignmentDoc:
    """Let a model write other instructions for an evaluator, and judge held-out decisions by each of them.

    Its calls are booked as those of an alignment and count in no run. Nothing changes in the suite.
    """
    suite, asked = _asked(body, slug)
    job = start_alignment(suite, asked, by=_member(request))
    return AlignmentDoc.make(_job(slug, job.pk))


@writes(
    "Estimate aligning a judge",
    AlignmentEstimateDoc,
    body=AlignBody,
    permission=MAY_START,
    path=[SLUG],
    tag="reviews",
)
def estimate_alignment(request: Request, body: AlignBody, slug: str) -> AlignmentEstimateDoc:
    """Say what an alignment would ask, cost and could prove; nothing is started."""
    suite, asked = _asked(body, slug)
    return AlignmentEstimateDoc.make(plan_alignment(suite, asked), body.budget_usd)


@reads("An alignment", AlignmentDoc, path=PLACE, tag="reviews")
def alignment(request: Request, slug: str, alignment: int) -> Response:
    """Show an alignment with its candidates and what the held-out half says of them."""
    return Response(AlignmentDoc.make(_job(slug, alignment)).as_json())


@writes("Stop an alignment", AlignmentDoc, permission=MAY_START, path=PLACE, tag="reviews")
def stop_alignment_call(request: Request, slug: str, alignment: int) -> AlignmentDoc:
    """End an alignment; what was paid for is kept. One that has ended stays as it is."""
    stop_alignment(_job(slug, alignment), by=_member(request))
    return AlignmentDoc.make(_job(slug, alignment))


@writes(
    "Resume an alignment",
    AlignmentDoc,
    body=ResumeBody,
    permission=MAY_START,
    path=PLACE,
    tag="reviews",
)
def resume_alignment_call(
    request: Request, body: ResumeBody, slug: str, alignment: int
) -> AlignmentDoc:
    """Continue an alignment that ended early: only what was not answered is asked."""
    resume_alignment(_job(slug, alignment), body.budget_usd, by=_member(request))
    return AlignmentDoc.make(_job(slug, alignment))


@writes(
    "Take a candidate into your draft",
    TakenCandidateDoc,
    body=TakeCandidateBody,
    permission=MAY_CHANGE,
    path=PLACE,
    tag="reviews",
)
def take_candidate_call(
    request: Request, body: TakeCandidateBody, slug: str, alignment: int
) -> TakenCandidateDoc:
    """Put the instructions of a candidate into your draft of the suite, which you then save on its pages."""
    job, member = _job(slug, alignment), _member(request)
    draft = take_candidate(
        job,
        body.candidate,
        get_draft(job.suite, member).stamp,
        by=member,
        replaces=body.replace,
    )
    return TakenCandidateDoc(
        evaluator=job.subject, candidate=body.candidate, base_version=draft.base_version
    )


def _asked(body: AlignBody, slug: str) -> tuple[Suite, AlignmentRequest]:
    suite = get_object_or_404(Suite, slug=slug)
    writer = LanguageModel.objects.filter(slug=body.writer).first()
    if writer is None:
        raise UnusableBodyError(
            {pointer("writer"): [f"There is no language model {body.writer!r}."]}
        )
    return suite, AlignmentRequest(body.evaluator, writer, body.candidates, body.budget_usd)


def _member(request: Request) -> Any:
    return request.user


def _job(slug: str, pk: int) -> ModelJob:
    return get_object_or_404(alignments(get_object_or_404(Suite, slug=slug)), pk=pk)
