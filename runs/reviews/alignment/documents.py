"""An alignment and its price, as API and command line describe them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Self

from runs.documents import Document
from runs.models.jobs import ModelJob
from runs.reviews.agreement import JudgeAgreement
from runs.reviews.alignment.page import AlignmentFigures, alignment_figures, power_text
from runs.reviews.alignment.planning import AlignmentPlan
from runs.reviews.alignment.services import cap_usd


class AlignmentEstimateDoc(Document):
    """What an alignment would ask, cost and could prove."""

    decisions: int
    """How many decided results count."""
    held_out: int
    """How many of them decide, and are never shown to the writer."""
    disagreements: int
    """How many disagreements the writer sees."""
    calls: int
    """How many calls it takes when nothing is repeated."""
    cost_usd: Decimal | None
    """About what it costs, US dollars; null where no earlier call tells."""
    cost_reason: str
    """Why the cost is not known, "" where it is."""
    budget_usd: Decimal
    """At most what it costs, US dollars."""
    can_prove: bool
    """Whether a candidate could count at all."""
    power: str
    """What the held-out half can prove, in words."""
    left_out: list[str]
    """Which decisions do not count, and why."""

    @classmethod
    def make(cls, plan: AlignmentPlan, budget_usd: Decimal | None) -> Self:
        """Describe a plan; raises CannotAlignError where the budget is not known."""
        spec, estimate = plan.spec, plan.estimate
        return cls(
            decisions=len(spec.seen) + len(spec.held_out),
            held_out=len(spec.held_out),
            disagreements=plan.disagreements,
            calls=estimate.calls,
            cost_usd=estimate.cost_usd,
            cost_reason=estimate.reason,
            budget_usd=cap_usd(estimate, budget_usd),
            can_prove=plan.power.is_able,
            power=power_text(spec, spec.candidates),
            left_out=list(plan.left_out),
        )


class HeldOutDoc(Document):
    """How far instructions agree with people on the held-out results."""

    judged: int
    """How many results they scored."""
    of: int
    """Of how many."""
    agreed: int
    """How often they gave people's verdict."""
    share: float | None
    """The same as a share, 0 to 1; null without any."""
    low: float | None
    """The lower end of its 95% interval (Wilson)."""
    high: float | None
    """The upper end of its interval."""
    kappa: float | None
    """Cohen's kappa; null where all verdicts are one category."""

    @classmethod
    def make(cls, people: JudgeAgreement, judged: int, of: int) -> Self:
        """Describe an agreement."""
        rate = people.agreement
        return cls(
            judged=judged,
            of=of,
            agreed=sum(people.matrix[place][place] for place in range(len(people.categories))),
            share=rate.share,
            low=rate.low,
            high=rate.high,
            kappa=people.kappa,
        )


class CandidateDoc(Document):
    """Instructions that the writer proposed, and what the held-out half says of them."""

    number: int
    """Its number, from 1."""
    text: str
    """The instructions."""
    reason: str
    """How the writer explains them."""
    held_out: HeldOutDoc
    """Its agreement with people."""
    gain: float | None
    """The difference of its agreement from today's, −1 to 1."""
    gain_low: float | None
    """The lower end of its 95% interval (seeded resamples of cases)."""
    gain_high: float | None
    """The upper end of its interval."""
    won: int
    """How many results turn to people's verdict."""
    lost: int
    """How many turn away from it."""
    p: float | None
    """The p of the exact McNemar test over cases, corrected by Holm; null where the cases are too few."""
    finding: str
    """better, worse, unproven, incomplete or too_few."""
    cases_needed: int | None
    """How many held-out cases would prove such a difference; null where no number would."""


class AlignmentDoc(Document):
    """One alignment of a judge with people."""

    id: int
    """Its id."""
    suite: str
    """The short name of the suite."""
    version: int
    """The version of the suite whose instructions the candidates are compared with."""
    evaluator: str
    """The path of the evaluator."""
    state: str
    """waiting, running, done, stopped, budget_reached or failed."""
    reason: str
    """Why it ended early, "" if it did not."""
    writer: str
    """The name of the model that writes."""
    asked_by: str | None
    """Who started it; null for the command line and former members."""
    asked_at: datetime
    """When it was started."""
    finished_at: datetime | None
    """When it ended."""
    calls: int
    """How many calls it made."""
    planned_calls: int
    """How many it makes when nothing is repeated."""
    cost_usd: Decimal
    """What it cost so far, US dollars."""
    budget_usd: Decimal | None
    """What it may cost."""
    conclusion: str
    """Whether a candidate is better, and on what evidence."""
    today_text: str
    """The instructions that the candidates are compared with."""
    today: HeldOutDoc
    """Their agreement with people."""
    candidates: list[CandidateDoc]
    """The candidates, in the order of the writer."""
    best: int | None
    """The number of the candidate that agrees best; null without any."""

    @classmethod
    def make(cls, job: ModelJob) -> Self:
        """Describe an alignment; two queries."""
        found = alignment_figures(job)
        return cls(
            id=job.pk,
            suite=job.suite.slug,
            version=found.spec.version,
            evaluator=found.spec.path,
            state=job.state,
            reason=job.reason,
            writer=job.model_name,
            asked_by=job.asked_by.get_username() if job.asked_by else None,
            asked_at=job.asked_at,
            finished_at=job.finished_at,
            calls=job.calls.count(),
            planned_calls=job.planned_calls,
            cost_usd=job.spent_usd(),
            budget_usd=job.budget_usd,
            conclusion=found.conclusion,
            today_text=found.spec.text,
            today=HeldOutDoc.make(found.today.people, found.today.n, found.today.of),
            candidates=_candidates(found),
            best=found.best.key if found.best else None,
        )


def _candidates(found: AlignmentFigures) -> list[CandidateDoc]:
    return [
        CandidateDoc(
            number=each.key,
            text=written.text,
            reason=written.reason,
            held_out=HeldOutDoc.make(each.judging.people, each.judging.n, each.judging.of),
            gain=each.gain.mean,
            gain_low=each.gain.low,
            gain_high=each.gain.high,
            won=each.won,
            lost=each.lost,
            p=each.evidence.p,
            finding=each.finding.value,
            cases_needed=each.cases_needed,
        )
        for each, written in zip(found.candidates, found.outcome.candidates, strict=True)
    ]


class TakenCandidateDoc(Document):
    """A candidate that is in your draft."""

    evaluator: str
    """The path of the evaluator, as the alignment names it."""
    candidate: int
    """The number of the candidate."""
    base_version: int
    """The version of the suite that your draft changes."""


class AlignmentsDoc(Document):
    """The newest alignments of a suite."""

    alignments: list[AlignmentDoc]
    """The newest first, at most 20."""
