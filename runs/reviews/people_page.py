"""The page of agreement between people: its figures, each pair of reviewers, and the disagreements to talk over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import counted
from runs.engine.review_rules import combine_decisions
from runs.formats.tables import csv_text
from runs.lists import Control, NumberedPage, numbered_page
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.suites import Suite
from runs.reviews.agreement_page import (
    ON_A_PAGE,
    category_label,
    coefficient_text,
    kappa_text,
    rate_interval,
    scope_controls,
)
from runs.reviews.judge_agreement import (
    EVALUATOR,
    METRIC,
    OUTCOMES,
    VERDICT,
    CountedRun,
    counted_runs,
    mixture_text,
)
from runs.reviews.people import (
    MAX_METRICS,
    Decided,
    DecidedSubject,
    PeopleDecisions,
    PeopleQuery,
    people_decisions,
)
from runs.reviews.reliability import PeopleAgreement, ReviewerPair

MAX_PAIRS = 50
SUBJECT_KINDS = {
    VERDICT: "whole result",
    EVALUATOR: "results that it scored",
    OUTCOMES: "each outcome met or missed",
    METRIC: "metric, labels 0 to 5",
}


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """What people decided in the list: its figures, and the address that shows its pairs and disagreements."""

    label: str
    kind: str
    figures: PeopleAgreement
    address: str
    is_on: bool

    @property
    def alpha(self) -> str:
        """Return alpha with its interval."""
        return coefficient_text(self.figures.alpha, self.figures.low, self.figures.high)

    @property
    def share_interval(self) -> str:
        """Return the interval of the share of equal decisions."""
        return rate_interval(self.figures.share)

    @property
    def machine_interval(self) -> str:
        """Return the interval of the share of decisions that the automatic verdict equals."""
        return rate_interval(self.figures.machine)

    @property
    def conclusion(self) -> str:
        """Say how far the automatic verdict agrees with people, measured by how far they agree with each other."""
        people, machine = self.figures.share, self.figures.machine
        if self.figures.is_few:
            return "Too few results were decided by two people to compare the judge with them."
        if not machine.of:
            return "The judge decided none of these, so there is nothing to compare with people."
        if None in (people.low, machine.low):
            return "Agreement is the same in every case, so there are no intervals to compare."
        if (machine.high or 0) < (people.low or 0):
            return "The judge agrees with people less than they agree with each other."
        if (machine.low or 0) > (people.high or 0):
            return "The judge agrees with people more than they agree with each other."
        return (
            "Nothing shows that the judge agrees with people less than they agree with each other."
        )


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two reviewers in the list, and the address of their disagreements."""

    pair: ReviewerPair
    address: str
    is_on: bool

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_text(self.pair.agreement)

    @property
    def share_interval(self) -> str:
        """Return the interval of the agreement."""
        return rate_interval(self.pair.agreement.agreement)

    @property
    def differing(self) -> int:
        """Return how many decisions differ."""
        return self.pair.agreement.stricter + self.pair.agreement.kinder


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one person decided, with a note."""

    reviewer: str
    category: str
    label: str
    note: str


@dataclass(frozen=True, slots=True)
class DisagreementRow:
    """A result that people decided differently; `how` says how its verdict came about."""

    decided: Decided
    title: str
    opinions: Sequence[Opinion]
    machine: str
    machine_label: str
    how: str


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """The whole page; `sentences` say what the figures rest on."""

    query: PeopleQuery
    subjects: Sequence[SubjectRow]
    chosen: SubjectRow
    pairs: Sequence[PairRow]
    pair_count: int
    disagreements: Sequence[DisagreementRow]
    pages: NumberedPage[Decided]
    has_verdicts: bool
    is_ordinal: bool
    choices: Sequence[CountedRun]
    mixed: str
    sentences: Sequence[str]
    unread: int

    @property
    def all_address(self) -> str:
        """Return the address that lists the disagreements of all."""
        return self.query.address(first="", second="")

    @property
    def controls(self) -> list[Control]:
        """Return the fields of the filter."""
        return scope_controls(self.query, self.choices)

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the hidden fields of the filter."""
        return self.query.hidden("since", "run", "judge", "first", "second")


def people_page(suite: Suite, query: PeopleQuery) -> PeoplePage:
    """Return the page of a suite; the number of queries does not grow with runs, results or decisions."""
    decisions = people_decisions(suite, query.span)
    shown = decisions.subject(query.by, query.evaluator)
    query = replace(query, by=shown.by, evaluator=shown.path)
    subjects = [
        SubjectRow(
            label=subject_label(subject),
            kind=SUBJECT_KINDS[subject.by],
            figures=subject.figures(suite.pk),
            address=query.address(by=subject.by, evaluator=subject.path, first="", second=""),
            is_on=subject is shown,
        )
        for subject in decisions.subjects
    ]
    pairs = shown.pairs(suite.pk)
    choices = counted_runs(suite)
    disagreements = shown.disagreements(query.first, query.second)
    pages = numbered_page(disagreements, query, ON_A_PAGE)
    return PeoplePage(
        query=query,
        subjects=subjects,
        chosen=next(row for row in subjects if row.is_on),
        pairs=[
            PairRow(
                pair,
                query.address(first=pair.first, second=pair.second),
                (query.first, query.second) == (pair.first, pair.second),
            )
            for pair in pairs[:MAX_PAIRS]
        ],
        pair_count=len(pairs),
        disagreements=list(disagreement_rows(pages.rows, shown)),
        pages=pages,
        has_verdicts=shown.by in (VERDICT, EVALUATOR),
        is_ordinal=shown.is_ordinal,
        choices=choices,
        mixed=mixture_text([run for run in choices if run.pk in decisions.runs]),
        sentences=list(_sentences(decisions)),
        unread=decisions.unread,
    )


def subject_label(subject: DecidedSubject) -> str:
    """Return the name of what people decided."""
    return {VERDICT: "Verdict", OUTCOMES: "Expected outcomes"}.get(subject.by) or subject.path


def disagreement_rows(
    shown: Sequence[Decided], subject: DecidedSubject
) -> Iterator[DisagreementRow]:
    """Yield disagreements with titles and notes; two queries where there is any."""
    ids = {entry.result.pk for entry in shown}
    titles = dict(Result.objects.filter(pk__in=ids).values_list("pk", "case__title"))
    notes: dict[tuple[int, str], str] = {}
    reviews = Review.objects.standing().filter(result__in=ids).exclude(note="")
    for review in reviews.select_related("reviewer"):
        notes[review.result_id, review.reviewer_word] = review.note
    for entry in shown:
        how = ""
        if subject.by in (VERDICT, EVALUATOR):
            verdicts = [Verdict(verdict) for verdict in entry.opinions.values()]
            how = combine_decisions(verdicts, 1).how
        yield DisagreementRow(
            decided=entry,
            title=titles.get(entry.result.pk, ""),
            opinions=[
                Opinion(
                    name, category, category_label(category), notes.get((entry.result.pk, name), "")
                )
                for name, category in entry.opinions.items()
            ],
            machine=entry.unit.machine,
            machine_label=category_label(entry.unit.machine),
            how=how,
        )


def _sentences(decisions: PeopleDecisions) -> Iterator[str]:
    """Yield sentences on what the figures rest on and what they leave out."""
    if decisions.results:
        yield (
            f"{decisions.blind} of {counted(decisions.results, 'result')} with two decisions or more "
            f"{'was' if decisions.results == 1 else 'were'} decided blind. People who see the automatic verdict "
            "first tend to follow it, so they seem to agree more."
        )
    if decisions.unasked:
        yield (
            f"{counted(decisions.unasked, 'result')} got a second opinion that the suite does not ask for. People "
            "choose such results, so the figures may not hold for others."
        )
    if decisions.later:
        yield (
            f"{counted(decisions.later, 'decision')} came after those that count, to break a tie or unasked: "
            f"{'it is' if decisions.later == 1 else 'they are'} left out of the figures, and listed below where "
            "people differ."
        )
    if decisions.waiting:
        yield (
            f"{counted(decisions.waiting, 'result')} {'waits' if decisions.waiting == 1 else 'wait'} for one more "
            "reviewer and will be counted after that decision."
        )
    if decisions.metrics_left:
        yield (
            f"Only the {MAX_METRICS} metrics with labels on the most results have figures; "
            f"{counted(decisions.metrics_left, 'other')} {'is' if decisions.metrics_left == 1 else 'are'} left out."
        )


PEOPLE_COLUMNS = (
    *("decided", "kind", "first", "second", "results", "of", "agreement", "agreement_low"),
    *("agreement_high", "coefficient", "value", "value_low", "value_high"),
    *("automatic_agreement", "automatic_low", "automatic_high"),
)


def people_csv(suite: Suite, query: PeopleQuery) -> str:
    """Return the figures as CSV: a line for all reviewers of each subject, then one for each pair of them."""
    return csv_text(PEOPLE_COLUMNS, _csv_rows(suite, query))


def _csv_rows(suite: Suite, query: PeopleQuery) -> Iterator[Sequence[object]]:
    for subject in people_decisions(suite, query.span).subjects:
        name = (subject_label(subject), SUBJECT_KINDS[subject.by])
        figures = subject.figures(suite.pk)
        share, machine = figures.share, figures.machine
        yield (
            *(*name, "", "", figures.n, figures.of, share.share, share.low, share.high),
            *("alpha", figures.alpha, figures.low, figures.high),
            *(machine.share, machine.low, machine.high),
        )
        for pair in subject.pairs(suite.pk):
            pair_figures = pair.agreement
            rate = pair_figures.agreement
            yield (
                *(*name, pair.first, pair.second, pair_figures.n, figures.n),
                *(rate.share, rate.low, rate.high),
                *("kappa", pair_figures.kappa, pair_figures.low, pair_figures.high, *("",) * 3),
            )
