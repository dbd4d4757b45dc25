"""Drafted cases as the API describes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from runs.cases.duplicates import RepeatedCase
from runs.documents import Document, Dollars
from runs.drafting.preview import Proposal


class DraftingEstimateDoc(Document):
    """What drafting would read, ask and cost."""

    material: str
    """What the model reads, in words."""
    parts: int
    """In how many parts it is read."""
    calls: int
    """How many calls it takes if none is repeated."""
    cost_usd: Dollars | None
    """What they cost, US dollars; null if the model has no price."""


class RepeatedCaseDoc(Document):
    """A case that a drafted one repeats."""

    key: str
    """Its key; of an earlier drafted case, the key that this would get."""
    is_drafted: bool
    """Whether it is an earlier drafted case, not one of the suite."""
    likeness: float
    """100 if nothing but capitals, punctuation and white space differs; else how alike both are, from 85."""


class DraftedCaseDoc(Document):
    """One drafted case. Its input and its expectations are those of the suite's cases."""

    number: int
    """Its number, by which it is stored."""
    key: str
    """The key that it would get."""
    title: str
    """Its title."""
    input: list[dict[str, str]]
    """The messages with role and content."""
    expected_output: str
    """A correct answer; "" for none."""
    expected_outcomes: list[str]
    """What an answer must achieve."""
    tags: list[str]
    """Its tags."""
    part: str
    """The part of the material that it comes from."""
    problems: list[str]
    """Why it cannot be stored; empty if it can."""
    repeats: list[RepeatedCaseDoc]
    """The cases that it repeats, the most alike first."""
    is_chosen: bool
    """Whether it is stored if nothing else is chosen: it can be, and repeats no case exactly."""


class StoredDraftsDoc(Document):
    """What was stored of drafted cases."""

    added: int
    """How many cases were added."""
    left: int
    """How many were left out."""
    version: int
    """The version that the suite is at since."""


class CaseProposalDoc(Document):
    """Cases that a model drafted, or is drafting."""

    id: int
    """Its id."""
    suite: str
    """The short name of the suite."""
    state: str
    """waiting, running, done, budget_reached, stopped or failed."""
    reason: str
    """Why it ended early; "" if it did not."""
    model: str
    """The name of the model."""
    material: str
    """What the model reads, in words; "" once its texts are removed."""
    asked_at: datetime
    """When it was asked for."""
    budget_usd: Dollars | None
    """Where it stops, US dollars: the budget, or twice the estimate without one; null without known prices."""
    cost_usd: Dollars
    """What its calls have cost so far, US dollars."""
    cases: list[DraftedCaseDoc]
    """The drafted cases, once it has ended."""
    stored: StoredDraftsDoc | None
    """What was stored; null before."""


def proposal_document(proposal: Proposal) -> CaseProposalDoc:
    """Describe drafted cases with what speaks against each."""
    job = proposal.job
    return CaseProposalDoc.model_validate(
        {
            "id": job.pk,
            "suite": proposal.suite.slug,
            "state": job.state,
            "reason": job.reason or str(proposal.outcome.get("problem", "")),
            "model": job.model_name,
            "material": str(job.request.get("from", "")),
            "asked_at": job.asked_at,
            "budget_usd": job.budget_usd,
            "cost_usd": job.spent_usd(),
            "cases": _cases(proposal),
            "stored": proposal.stored,
        }
    )


def _cases(proposal: Proposal) -> list[DraftedCaseDoc]:
    return [
        DraftedCaseDoc(
            number=row.number,
            key=row.key,
            title=str(row.cells.get("title") or ""),
            input=[
                {"role": str(turn["role"]), "content": str(turn["content"])}
                for turn in (row.case.input if row.case else ())
            ],
            expected_output=str(row.cells.get("expected_output") or ""),
            expected_outcomes=list(row.cells.get("expected_outcomes") or ()),
            tags=list(row.cells.get("tags") or ()),
            part=row.part,
            problems=list(row.problems),
            repeats=[
                *_repeated(row.duplicates, is_drafted=False),
                *_repeated(row.repeats, is_drafted=True),
            ],
            is_chosen=row.is_taken,
        )
        for row in proposal.rows
    ]


def _repeated(duplicates: Sequence[RepeatedCase], *, is_drafted: bool) -> list[RepeatedCaseDoc]:
    return [
        RepeatedCaseDoc(key=each.key, is_drafted=is_drafted, likeness=round(each.ratio, 1))
        for each in duplicates
    ]
