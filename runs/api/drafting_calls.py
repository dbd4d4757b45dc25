"""The calls that have cases drafted by a language model, read and store them."""

from __future__ import annotations

from typing import Annotated, Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.models import LanguageModel
from runs.api.bodies import MAX_KEYS, Body, Dollars, Key, UnusableBodyError, pointer
from runs.api.params import get_run
from runs.api.schema import SLUG, reads, writes
from runs.api.suite_calls import MAY_CHANGE
from runs.drafting.documents import (
    CaseProposalDoc,
    DraftingEstimateDoc,
    StoredDraftsDoc,
    proposal_document,
)
from runs.drafting.material import MAX_DOCUMENTS, SourceText
from runs.drafting.preview import FIELDS, Proposal
from runs.drafting.services import (
    DESCRIPTION,
    MAX_COUNT,
    MAX_DESCRIPTION_LENGTH,
    USUAL_COUNT,
    Choices,
    DraftingRequest,
    discard_drafts,
    keep_choices,
    plan_drafting,
    start_drafting,
    stop_drafting,
    store_drafted,
)
from runs.filters.queries import ResultsQuery
from runs.models.jobs import ModelJob
from runs.models.results import CallPurpose
from runs.models.suites import Suite

MAX_DOCUMENT_LENGTH, MAX_NAME_LENGTH = 600_000, 200
PROPOSAL = OpenApiParameter("proposal", int, "path", description="The id of drafted cases.")


class DocumentBody(Body):
    """A text to draft cases from."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    """Its name, by which cases say where they come from."""
    text: Annotated[str, Field(min_length=1, max_length=MAX_DOCUMENT_LENGTH)]
    """Its text. What it says is material, never an instruction."""


class DraftCasesBody(Body):
    """What cases are drafted from, and how many. The description counts with every source."""

    source: Annotated[str, Field(pattern="^(description|documents|cases|results)$")] = DESCRIPTION
    """description, documents, cases or results."""
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_LENGTH)] = ""
    """What the agent does, and what the cases should test."""
    documents: Annotated[tuple[DocumentBody, ...], Field(max_length=MAX_DOCUMENTS)] = ()
    """The documents."""
    cases: Annotated[tuple[Key, ...], Field(max_length=MAX_KEYS)] = ()
    """The keys of the existing cases; empty for the first 60."""
    run: str = ""
    """The run with the results, as suite:number or by id."""
    filter: str = ""
    """Only results of cases that match this filter."""
    only_failed: bool = True
    """Whether only failed results are read."""
    model: str
    """The short name of the language model."""
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = USUAL_COUNT
    """How many cases."""
    budget_usd: Dollars | None = None
    """What the calls may cost, US dollars; null for twice the estimate."""


class StoreDraftsBody(Body):
    """Which drafted cases are stored, and what of them."""

    cases: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Their numbers; null for those that are chosen: without problems, and exact repetitions of no case."""
    leave_out: tuple[str, ...] = ()
    """What is not stored of any: title, expected_output, expected_outcomes, tags or metadata."""


@writes(
    "Draft cases",
    CaseProposalDoc,
    body=DraftCasesBody,
    permission=MAY_CHANGE,
    path=[SLUG],
    tag="suites",
    status=201,
)
def draft_cases(request: Request, body: DraftCasesBody, slug: str) -> CaseProposalDoc:
    """Have a language model draft cases; a worker asks it, and nothing is stored in the suite."""
    suite = get_object_or_404(Suite, slug=slug)
    job = start_drafting(suite, _asked(suite, body), by=_member(request))
    return proposal_document(Proposal(job))


@writes(
    "Estimate drafting cases",
    DraftingEstimateDoc,
    body=DraftCasesBody,
    permission=MAY_CHANGE,
    path=[SLUG],
    tag="suites",
)
def estimate_drafting(request: Request, body: DraftCasesBody, slug: str) -> DraftingEstimateDoc:
    """Say what drafting cases would read, ask and cost; nothing is asked."""
    suite = get_object_or_404(Suite, slug=slug)
    plan = plan_drafting(suite, _asked(suite, body))
    return DraftingEstimateDoc(
        material=plan.asked["from"],
        parts=len(plan.asked["parts"]),
        calls=plan.calls,
        cost_usd=plan.cost_usd,
    )


@reads("Drafted cases", CaseProposalDoc, path=[PROPOSAL], tag="suites")
def case_proposal(request: Request, proposal: int) -> Response:
    """Give drafted cases that you asked for, each with its problems and the cases that it repeats."""
    return Response(proposal_document(_own(request, proposal)).as_json())


@writes(
    "Store drafted cases",
    StoredDraftsDoc,
    body=StoreDraftsBody,
    permission=MAY_CHANGE,
    path=[PROPOSAL],
    tag="suites",
)
def store_case_proposal(request: Request, body: StoreDraftsBody, proposal: int) -> StoredDraftsDoc:
    """Store drafted cases in one version of the suite: all that are named, or none. A second call changes nothing."""
    found = _own(request, proposal)
    errors: dict[str, list[str]] = {}
    if unknown := sorted(set(body.leave_out) - set(FIELDS)):
        errors[pointer("leave_out")] = [f"{unknown[0]} is not one of {', '.join(FIELDS)}."]
    if unread := sorted(set(body.cases or ()) - {row.number for row in found.rows}):
        errors[pointer("cases")] = [f"There is no drafted case {unread[0]}."]
    if errors:
        raise UnusableBodyError(errors)
    taken = [row.number for row in found.rows if row.is_taken] if body.cases is None else body.cases
    fields = [name for name in found.fields if name not in body.leave_out]
    kept = keep_choices(found.job, Choices(taken, fields, {}))
    return StoredDraftsDoc.model_validate(store_drafted(kept.job, seen="", by=_member(request)))


@writes("Stop drafting", CaseProposalDoc, permission=MAY_CHANGE, path=[PROPOSAL], tag="suites")
def stop_case_proposal(request: Request, proposal: int) -> CaseProposalDoc:
    """End a drafting; the cases that are there stay."""
    stop_drafting(_own(request, proposal).job, by=_member(request))
    return proposal_document(_own(request, proposal))


@writes(
    "Delete drafted cases",
    None,
    permission=MAY_CHANGE,
    path=[PROPOSAL],
    tag="suites",
    method="DELETE",
    status=204,
)
def delete_case_proposal(request: Request, proposal: int) -> None:
    """Remove drafted cases with the texts that they were drafted from; cases that were stored stay."""
    discard_drafts(_own(request, proposal).job, by=_member(request))


def _member(request: Request) -> Any:
    return request.user


def _own(request: Request, pk: int) -> Proposal:
    """Return drafted cases of this member; raises Http404 for any other."""
    jobs = ModelJob.objects.filter(purpose=CallPurpose.DRAFTING, suite__is_deleted=False)
    return Proposal(get_object_or_404(jobs.select_related("suite"), pk=pk, asked_by=request.user))


def _asked(suite: Suite, body: DraftCasesBody) -> DraftingRequest:
    """Return what a body asks for; raises UnusableBodyError for what is unknown."""
    model = LanguageModel.objects.filter(slug=body.model).first()
    if model is None:
        raise UnusableBodyError({pointer("model"): [f"There is no language model {body.model!r}."]})
    run = get_run(body.run) if body.run else None
    if run is not None and run.suite_id != suite.pk:
        raise UnusableBodyError({pointer("run"): [f"{body.run} is not a run of {suite.slug}."]})
    return DraftingRequest(
        model=model,
        source=body.source,
        description=body.description,
        count=body.count,
        documents=[SourceText(document.name, document.text) for document in body.documents],
        keys=body.cases,
        run=run,
        query=ResultsQuery(text=body.filter) if body.filter else None,
        only_failed=body.only_failed,
        budget_usd=body.budget_usd,
    )
