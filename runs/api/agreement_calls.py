"""The calls that show how far people agree with each other, judges with people and each other, and how judges drift."""

from __future__ import annotations

from decimal import Decimal
from typing import Self

from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.params import JudgesParams, RunScopeParams
from runs.api.schema import SLUG, reads
from runs.charts.drift import AGREEMENT, CHANGES, SCORES, DriftFigure, DriftSubject, read_drift
from runs.documents import Document
from runs.models.suites import Suite
from runs.reviews.agreement import JudgeAgreement, Rate
from runs.reviews.judge_agreement import EVALUATOR, RunScope
from runs.reviews.judges import JudgedOutputs, JudgedSubject, judged_outputs
from runs.reviews.judges_page import conclusion_text, judge_choice, judging_rows, pairs_of_judgings
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
    """Each pair of people, those with the most in common first."""
    disagreements: list[DisagreementDoc]
    """What they decided differently, the widest apart first; [] for evaluators, which have those of the verdict."""

    @classmethod
    def make(cls, subject: DecidedSubject, seed: int) -> Self:
        """Describe a subject."""
        figures = subject.figures(seed)
        listed = [] if subject.by == EVALUATOR else subject.disagreements()
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
                    kappa=kappa_document(pair.agreement),
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
    later: int
    """How many decisions came after those that count, to break a tie or unasked; the figures leave them out."""
    waiting: int
    """How many results wait for one more reviewer; they are not counted yet."""
    unread: int
    """How many results are left out because the record of their run cannot be read."""
    metrics_left: int
    """How many metrics have no subject, as others have labels on more results."""
    subjects: list[SubjectDoc]
    """What people decided: the verdict first, then evaluators, outcomes and metrics."""


def rate_document(rate: Rate) -> RateDoc:
    """Describe a share."""
    return RateDoc(share=rate.share, low=rate.low, high=rate.high, of=rate.of)


def kappa_document(agreement: JudgeAgreement) -> CoefficientDoc:
    """Describe the kappa of two sides."""
    return CoefficientDoc(value=agreement.kappa, low=agreement.low, high=agreement.high)


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
        later=found.later,
        waiting=found.waiting,
        unread=found.unread,
        metrics_left=found.metrics_left,
        subjects=[SubjectDoc.make(subject, suite.pk) for subject in found.subjects],
    )
    return Response(document.as_json())


class BiasDoc(Document):
    """A mean difference of scores with its 95% interval; null where there is nothing to count."""

    mean: float | None
    """The mean difference, −1 to 1."""
    low: float | None
    """The lower end of its interval."""
    high: float | None
    """The upper end of its interval."""
    of: int
    """How many results it is a mean of."""


class JudgingDoc(Document):
    """What one run gave the outputs for one evaluator."""

    run: int
    """The number of the run that judged."""
    judge: str
    """The models that it asked."""
    results: int
    """How many of the outputs it scored."""
    agreement: RateDoc
    """The share of people's decisions that it decided alike, with Wilson's interval."""
    kappa: CoefficientDoc
    """Cohen's kappa with people."""
    stricter: int
    """How often it decided lower than people."""
    more_lenient: int
    """How often it decided higher than people."""
    bias: BiasDoc
    """How much higher its scores are than those of the first judging."""
    usd_per_result: Decimal | None
    """What its calls cost, by result; null where a price is not known."""
    ms_per_result: float | None
    """How long its calls took, by result."""


class JudgesAgreementDoc(Document):
    """How far two judgings agree."""

    first: int
    """The number of the one run."""
    second: int
    """The number of the other run."""
    agreement: RateDoc
    """The share that they decided alike, with Wilson's interval."""
    kappa: CoefficientDoc
    """Cohen's kappa."""


class JudgeChoiceDoc(Document):
    """Which judge to use."""

    sentence: str
    """The answer with its evidence."""
    state: str
    """clear, unclear or too few."""
    decided: int
    """How many results people decided and every judge scored that is not left out."""
    left_out: list[int]
    """The runs that are not compared, because they scored too few of the results that the others share."""
    best: int | None
    """The run whose judge agrees best with people; null with too few decisions."""
    alike: list[int]
    """The runs whose judges may be as good."""
    p: float | None
    """The highest p of the best against another, Holm-corrected."""


class JudgedEvaluatorDoc(Document):
    """One evaluator, or the verdict, as several judgings gave it."""

    evaluator: str
    """The evaluator's path, "" for the verdict."""
    outputs: int
    """How many outputs any of them scored."""
    choice: JudgeChoiceDoc
    """Which judge to use for it."""
    judges: list[JudgingDoc]
    """The judgings, the first one first."""
    between: list[JudgesAgreementDoc]
    """Each pair of them."""


class JudgesDoc(Document):
    """The judgings of the same outputs."""

    suite: str
    """The short name of the suite."""
    outputs_of: int | None
    """The number of the run that has the outputs first; null where no other run judged them."""
    left_out: int
    """How many older judgings of these outputs are not counted."""
    unread: int
    """How many runs are left out because their record cannot be read."""
    evaluators: list[JudgedEvaluatorDoc]
    """The verdict first, then evaluators that ask a model."""


def _judged_evaluator(
    found: JudgedOutputs, subject: JudgedSubject, seed: int
) -> JudgedEvaluatorDoc:
    rows = list(judging_rows(found, subject, seed))
    choice = judge_choice(subject, seed)
    return JudgedEvaluatorDoc(
        evaluator=subject.path,
        outputs=len(subject.outputs),
        choice=JudgeChoiceDoc(
            sentence=conclusion_text(choice, rows),
            state=choice.state,
            decided=choice.decided,
            left_out=list(choice.left_out),
            best=choice.best,
            alike=list(choice.alike),
            p=choice.p,
        ),
        judges=[
            JudgingDoc(
                run=row.judging.number,
                judge=row.models,
                results=row.figures.n,
                agreement=rate_document(row.agreement.agreement),
                kappa=kappa_document(row.agreement),
                stricter=row.agreement.stricter,
                more_lenient=row.agreement.kinder,
                bias=BiasDoc(
                    mean=row.figures.bias.mean,
                    low=row.figures.bias.low,
                    high=row.figures.bias.high,
                    of=row.figures.bias.n,
                ),
                usd_per_result=row.cost.usd_per_result,
                ms_per_result=row.cost.ms_per_result,
            )
            for row in rows
        ],
        between=[
            JudgesAgreementDoc(
                first=first,
                second=second,
                agreement=rate_document(agreement.agreement),
                kappa=kappa_document(agreement),
            )
            for first, second, agreement in pairs_of_judgings(subject, seed)
        ],
    )


@reads("Judges of the same outputs", JudgesDoc, params=JudgesParams, path=[SLUG], tag="reviews")
def judges(request: Request, slug: str) -> Response:
    """Tell how far several judges of the same outputs agree with people and each other, and which one to use.

    They are the run that asked the target and those that judged its outputs again, at most six.
    """
    number = JudgesParams.read(request).get("run", 0)
    suite = get_object_or_404(Suite, slug=slug)
    found = judged_outputs(suite, number)
    if found and number and found.source.number != number:
        found = None
    document = JudgesDoc(
        suite=suite.slug,
        outputs_of=found.source.number if found else None,
        left_out=found.left_out if found else 0,
        unread=found.unread if found else 0,
        evaluators=[_judged_evaluator(found, subject, suite.pk) for subject in found.subjects]
        if found
        else [],
    )
    return Response(document.as_json())


class MeanScoreDoc(Document):
    """A mean score with its 95% interval."""

    mean: float
    """The mean score, 0 to 1."""
    low: float | None
    """The lower end of its interval, from resampled cases; null where it could not vary."""
    high: float | None
    """The upper end of its interval."""
    of: int
    """How many results it is a mean of."""


class DriftJudgingDoc(Document):
    """What one judging gave the outputs; null where no result has the figure."""

    run: int
    """The number of the run that judged."""
    score: MeanScoreDoc | None
    """The mean score."""
    changed: RateDoc | None
    """The share of verdicts that differ from the first judging, with Wilson's interval; null for the first."""
    agreement: RateDoc | None
    """The share of people's decisions that it decided alike, with Wilson's interval."""


class DriftSubjectDoc(Document):
    """Whole results, or one evaluator that asks a judge, in every judging."""

    evaluator: str
    """The evaluator's path, "" for whole results. Its verdicts are those of its scores by the bands of the run."""
    judgings: list[DriftJudgingDoc]
    """The judgings, the first one first."""


class DriftDoc(Document):
    """How a judge drifted over judgings of the same outputs by the same rules."""

    suite: str
    """The short name of the suite."""
    outputs_of: int | None
    """The number of the run that has the outputs; null where none were judged twice by the same rules."""
    outputs: int
    """How many outputs the first judging decided."""
    only_anchor: bool
    """Whether only cases with the tag anchor count; otherwise every case does."""
    model_changes: list[str]
    """Which models changed behind the name of a judge, in sentences."""
    subjects: list[DriftSubjectDoc]
    """Whole results first, then evaluators in tree order."""


@reads("Drift of judges", DriftDoc, path=[SLUG], tag="reviews")
def judge_drift(request: Request, slug: str) -> Response:
    """Tell how a judge drifted: its mean score, changed verdicts and agreement with people, by evaluator.

    The same outputs were judged by the same rules from time to time; the first judging and the newest five count.
    """
    drift = read_drift(get_object_or_404(Suite, slug=slug))
    document = DriftDoc(
        suite=slug,
        outputs_of=drift.anchor.source.number if drift else None,
        outputs=drift.outputs if drift else 0,
        only_anchor=drift.is_tagged if drift else False,
        model_changes=list(drift.changes) if drift else [],
        subjects=[_drift_subject(subject) for subject in drift.subjects] if drift else [],
    )
    return Response(document.as_json())


def _drift_subject(subject: DriftSubject) -> DriftSubjectDoc:
    found: dict[int, dict[str, DriftFigure]] = {}
    for name, figures in subject.figures.items():
        for figure in figures:
            found.setdefault(figure.run.number, {})[name] = figure
    return DriftSubjectDoc(
        evaluator=subject.path,
        judgings=[
            DriftJudgingDoc(
                run=number,
                score=_score_document(figures.get(SCORES)),
                changed=_share_document(figures.get(CHANGES)),
                agreement=_share_document(figures.get(AGREEMENT)),
            )
            for number, figures in sorted(found.items())
        ],
    )


def _score_document(figure: DriftFigure | None) -> MeanScoreDoc | None:
    if figure is None:
        return None
    low, high = figure.interval or (None, None)
    return MeanScoreDoc(mean=figure.value, low=low, high=high, of=figure.of)


def _share_document(figure: DriftFigure | None) -> RateDoc | None:
    if figure is None:
        return None
    low, high = figure.interval or (None, None)
    return RateDoc(share=figure.value, low=low, high=high, of=figure.of)
