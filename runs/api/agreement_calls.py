"""The calls that show how far people agree with each other."""

from __future__ import annotations

from typing import Self

from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.params import RunScopeParams
from runs.api.schema import SLUG, reads
from runs.documents import Document
from runs.models.suites import Suite
from runs.reviews.agreement import Rate
from runs.reviews.judge_agreement import RunScope
from runs.reviews.people import Decided, DecidedSubject, people_decisions
from runs.reviews.people_page import subject_label


class RateDoc(Document):
    """A share with its 95% interval; null where there is nothing to count."""

    share: float | None
    """The share, 0 to 1."""
    low: float | None
    """The lower end of its interval."""
    high: float | None
    """The upper end of its interval."""
    of: int
    """How many it is a share of."""


class CoefficientDoc(Document):
    """Agreement beyond chance with its 95% interval; null where all decisions are one category."""

    value: float | None
    """−1 to 1: 1 is all, 0 what chance would give."""
    low: float | None
    """The lower end of its interval."""
    high: float | None
    """The upper end of its interval."""


class PairDoc(Document):
    """How far two people agree about what both decided."""

    first: str
    """The one person."""
    second: str
    """The other person."""
    decided: int
    """How many things both decided."""
    agreement: RateDoc
    """The share that they decided alike, with Wilson's interval."""
    kappa: CoefficientDoc
    """Cohen's kappa, with quadratic weights for the labels of a metric."""
    first_stricter: int
    """How often the first person decided lower."""
    second_stricter: int
    """How often the second person decided lower."""


class DisagreementDoc(Document):
    """A thing that people decided differently."""

    result: int
    """The id of its result."""
    run: int
    """The number of its run."""
    case: str
    """The key of its case."""
    repetition: int
    """Which repetition it is, from 1."""
    part: str
    """The outcome that is meant, "" for the whole."""
    automatic: str | None
    """The automatic verdict; null where there is none."""
    decisions: dict[str, str]
    """What each person decided, in the order of their decisions."""

    @classmethod
    def make(cls, decided: Decided) -> Self:
        """Describe a disagreement."""
        result = decided.result
        return cls(
            result=result.pk,
            run=result.run.number,
            case=result.case.key,
            repetition=result.repetition,
            part=decided.part,
            automatic=decided.unit.machine or None,
            decisions=dict(decided.opinions),
        )


class SubjectDoc(Document):
    """How far people agree about one thing that they decide."""

    kind: str
    """verdict, evaluator (the verdicts on results that it scored), outcomes or metric."""
    name: str
    """The evaluator's path, the metric's key, or Verdict and Expected outcomes."""
    decided: int
    """How many things two or more people decided; the figures are of these."""
    of: int
    """How many things anybody decided."""
    reviewers: list[str]
    """Who decided them."""
    agreement: RateDoc
    """The share of pairs of decisions that are equal."""
    alpha: CoefficientDoc
    """Krippendorff's alpha, ordinal for verdicts and metrics, nominal for outcomes."""
    automatic: RateDoc
    """The share of these decisions that the automatic verdict equals."""
    pairs: list[PairDoc]
    """Every two people, those with the most in common first."""
    disagreements: list[DisagreementDoc]
    """What they decided differently, the widest apart first; [] for evaluators, which have those of the verdict."""

    @classmethod
    def make(cls, subject: DecidedSubject, seed: int) -> Self:
        """Describe a subject."""
        figures = subject.figures(seed)
        listed = [] if subject.by == "evaluator" else subject.disagreements()
        return cls(
            kind=subject.by,
            name=subject_label(subject),
            decided=figures.n,
            of=figures.of,
            reviewers=list(figures.reviewers),
            agreement=rate_document(figures.share),
            alpha=CoefficientDoc(value=figures.alpha, low=figures.low, high=figures.high),
            automatic=rate_document(figures.machine),
            pairs=[
                PairDoc(
                    first=pair.first,
                    second=pair.second,
                    decided=pair.agreement.n,
                    agreement=rate_document(pair.agreement.agreement),
                    kappa=CoefficientDoc(
                        value=pair.agreement.kappa, low=pair.agreement.low, high=pair.agreement.high
                    ),
                    first_stricter=pair.agreement.stricter,
                    second_stricter=pair.agreement.kinder,
                )
                for pair in subject.pairs(seed)
            ],
            disagreements=[DisagreementDoc.make(decided) for decided in listed],
        )


class PeopleAgreementDoc(Document):
    """How far people agree with each other about the results of a suite."""

    suite: str
    """The short name of the suite."""
    results: int
    """How many results have two decisions or more."""
    blind: int
    """How many of them were decided without sight of the automatic verdict."""
    unasked: int
    """How many of them got a second opinion that the suite does not ask for."""
    ties_broken: int
    """How many further decisions broke a tie; they are among the disagreements, not in the figures."""
    waiting: int
    """How many results wait for one more reviewer; they are not counted yet."""
    subjects: list[SubjectDoc]
    """What people decided: the verdict first, then evaluators, outcomes and metrics."""


def rate_document(rate: Rate) -> RateDoc:
    """Describe a share."""
    return RateDoc(share=rate.share, low=rate.low, high=rate.high, of=rate.of)


@reads(
    "Agreement between people",
    PeopleAgreementDoc,
    params=RunScopeParams,
    path=[SLUG],
    tag="reviews",
)
def people_agreement(request: Request, slug: str) -> Response:
    """Tell how far people agree with each other about the results of a suite.

    Only closed reviews count.
    """
    span = RunScope(**RunScopeParams.read(request))
    suite = get_object_or_404(Suite, slug=slug)
    found = people_decisions(suite, span)
    document = PeopleAgreementDoc(
        suite=suite.slug,
        results=found.results,
        blind=found.blind,
        unasked=found.unasked,
        ties_broken=found.later,
        waiting=found.waiting,
        subjects=[SubjectDoc.make(subject, suite.pk) for subject in found.subjects],
    )
    return Response(document.as_json())
