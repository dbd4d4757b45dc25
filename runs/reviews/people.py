"""Agreement between people: what two or more decided about the results of a suite, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from runs import lists
from runs.engine.plan import Plan
from runs.engine.review_rules import LABELS, VERDICTS
from runs.models.results import Result
from runs.models.reviews import UNKNOWN_REVIEWER, Review, ReviewItem
from runs.models.suites import Suite
from runs.reviews.agreement import MARKS
from runs.reviews.judge_agreement import (
    EVALUATOR,
    MARK_WORDS,
    METRIC,
    OUTCOMES,
    VERDICT,
    DecisionsQuery,
    RunScope,
    evaluator_verdicts,
    metric_scores,
    readable_plans,
    reviewed_results,
)
from runs.reviews.reliability import (
    FEWEST_DECISIONS,
    DecidedUnit,
    PeopleAgreement,
    ReviewerPair,
    measure_pairs,
    measure_people,
)


@dataclass(frozen=True, slots=True)
class PeopleQuery(DecisionsQuery):
    """What people decided, and the names of the two whose disagreements are listed, "" for anybody."""

    first: str = lists.text()
    second: str = lists.text()


@dataclass(frozen=True, slots=True)
class Decided:
    """What people decided about one thing of a result; `part` names an outcome, "" for the rest.

    `unit` has the decisions that count in the figures. `opinions` has the later ones, too.
    """

    result: Result
    unit: DecidedUnit
    opinions: Mapping[str, str]
    part: str = ""


@dataclass(frozen=True, slots=True)
class DecidedSubject:
    """One thing that people decide: the verdict, that on results with an evaluator, outcomes, or a metric."""

    by: str
    path: str
    decided: Sequence[Decided]
    categories: tuple[str, ...] = VERDICTS

    @property
    def is_ordinal(self) -> bool:
        """Tell whether two categories can be further apart than two others."""
        return len(self.categories) > FEWEST_DECISIONS

    def figures(self, seed: int) -> PeopleAgreement:
        """Measure how far people agree about it."""
        units = [entry.unit for entry in self.decided]
        return measure_people(units, self.categories, is_ordinal=self.is_ordinal, seed=seed)

    def pairs(self, seed: int) -> list[ReviewerPair]:
        """Measure how far each pair of people agrees; former members have no name to tell them apart."""
        units = [entry.unit for entry in self.decided]
        is_quadratic = self.categories == LABELS
        pairs = measure_pairs(units, self.categories, is_quadratic=is_quadratic, seed=seed)
        return [
            pair
            for pair in pairs
            if not any(name.startswith(UNKNOWN_REVIEWER) for name in (pair.first, pair.second))
        ]

    def disagreements(self, first: str = "", second: str = "") -> list[Decided]:
        """Return what people decided differently, the widest apart first, then the newest.

        With names it is what these two, or one of them and anybody, decided differently.
        """
        named = [name for name in (first, second) if name]

        def differ(entry: Decided) -> bool:
            if not set(named) <= set(entry.opinions):
                return False
            compared = named if len(named) > 1 else entry.opinions
            return len({entry.opinions[name] for name in compared}) > 1

        def order(entry: Decided) -> tuple[int, int]:
            places = [self.categories.index(category) for category in entry.opinions.values()]
            return min(places) - max(places), -entry.result.pk

        return sorted(filter(differ, self.decided), key=order)


@dataclass(frozen=True, slots=True)
class PeopleDecisions:
    """What people decided in the runs that count.

    Of the `results`, `blind` were decided without sight of the automatic verdict; `unasked` have a second opinion
    that nobody had asked for; `waiting` wait for one more reviewer because the others differ, so nobody sees them
    yet. `unread` are of runs whose record cannot be read. `later` decisions came after those that count: to break a
    tie, or unasked. `metrics_left` are too many to be measured.
    """

    subjects: Sequence[DecidedSubject]
    runs: frozenset[int]
    results: int
    blind: int
    unasked: int
    later: int
    waiting: int
    unread: int
    metrics_left: int

    def subject(self, by: str, path: str) -> DecidedSubject:
        """Return the subject, the verdict where there is none of this name."""
        named = (entry for entry in self.subjects if (entry.by, entry.path) == (by, path))
        return next(named, self.subjects[0])


@dataclass(frozen=True, slots=True)
class _Opinions:
    """The reviews of one result that stand, by reviewer in the order of their first decision.

    The first `asked` of them count: a later one is asked for only where these differ, or given by somebody who knows
    them, so it would change how often people seem to differ.
    """

    reviews: Mapping[str, Review]
    asked: int

    def counted(self, categories: Mapping[str, str]) -> dict[str, str]:
        """Return what counts in the figures of what reviewers decided."""
        names = list(self.reviews)[: self.asked]
        return {name: categories[name] for name in names if name in categories}


def people_decisions(suite: Suite, span: RunScope | None = None) -> PeopleDecisions:
    """Return what people decided about the results of a suite, over the runs of a span or all.

    Only results whose review is closed count, so that nobody sees decisions of others before their own.
    """
    span = span or RunScope()
    every = list(reviewed_results(suite, span))
    plans = dict(readable_plans({row.run_id for row in every}))
    rows = [row for row in every if row.run_id in plans]
    opinions = _opinions(rows, plans)
    by_id = {row.pk: row for row in rows}
    verdicts = {pk: _verdicts(entry) for pk, entry in opinions.items()}
    subjects = [
        DecidedSubject(VERDICT, "", _decide(by_id, opinions, verdicts, _machine_verdicts(rows)))
    ]
    for path, judged in evaluator_verdicts(rows, plans).items():
        machine = {entry.result: entry.pair.machine for entry in judged}
        scored = {pk: verdicts[pk] for pk in machine}
        subjects.append(DecidedSubject(EVALUATOR, path, _decide(by_id, opinions, scored, machine)))
    if outcomes := list(_outcomes(rows, opinions)):
        subjects.append(DecidedSubject(OUTCOMES, "", outcomes, MARKS))
    metrics, metrics_left = _metrics(by_id, opinions)
    subjects += metrics
    several = [row for row in rows if len(opinions[row.pk].reviews) >= FEWEST_DECISIONS]
    standing = Count(
        "result__reviews",
        filter=Q(result__reviews__withdrawn_at=None, result__reviews__stale_at=None),
    )
    waiting = ReviewItem.objects.waiting().filter(run__in=span.of(suite)).order_by()
    waiting = waiting.annotate(decisions=standing).filter(decisions__gte=FEWEST_DECISIONS)
    return PeopleDecisions(
        subjects=subjects,
        runs=frozenset(row.run_id for row in rows),
        results=len(several),
        blind=sum(plans[row.run_id].policy.review_blind for row in several),
        unasked=sum(
            plans[row.run_id].policy.review_reviewers < FEWEST_DECISIONS for row in several
        ),
        later=sum(max(len(entry.reviews) - entry.asked, 0) for entry in opinions.values()),
        waiting=waiting.count(),
        unread=len(every) - len(rows),
        metrics_left=metrics_left,
    )


def _opinions(rows: Sequence[Result], plans: Mapping[int, Plan]) -> dict[int, _Opinions]:
    found: dict[int, dict[str, Review]] = {row.pk: {} for row in rows}
    order: dict[int, dict[str, None]] = {row.pk: {} for row in rows}
    reviews = Review.objects.filter(result__in=found, stale_at=None).select_related("reviewer")
    for review in reviews.order_by("id"):
        names = found[review.result_id]
        name = review.reviewer_word or UNKNOWN_REVIEWER
        if name == UNKNOWN_REVIEWER and name in names:
            name = f"{name} ({review.pk})"
        order[review.result_id][name] = None
        if review.withdrawn_at is None:
            names[name] = review
    return {
        row.pk: _Opinions(
            {name: found[row.pk][name] for name in order[row.pk] if name in found[row.pk]},
            max(plans[row.run_id].policy.review_reviewers, FEWEST_DECISIONS),
        )
        for row in rows
    }


def _verdicts(opinions: _Opinions) -> dict[str, str]:
    return {name: review.verdict for name, review in opinions.reviews.items()}


def _machine_verdicts(rows: Sequence[Result]) -> dict[int, str]:
    return {row.pk: row.verdict for row in rows}


def _decide(
    rows: Mapping[int, Result],
    opinions: Mapping[int, _Opinions],
    categories: Mapping[int, Mapping[str, str]],
    machine: Mapping[int, str],
    part: str = "",
) -> list[Decided]:
    """Return what people decided by result, with the category of the machine."""
    decided = []
    for pk, by_name in categories.items():
        if by_name:
            counted = opinions[pk].counted(by_name)
            unit = DecidedUnit(rows[pk].case.key, counted, machine.get(pk, ""))
            decided.append(Decided(rows[pk], unit, by_name, part))
    return decided


def _outcomes(rows: Sequence[Result], opinions: Mapping[int, _Opinions]) -> Iterator[Decided]:
    for row in rows:
        marks = {name: review.outcome_marks for name, review in opinions[row.pk].reviews.items()}
        for place in range(max(map(len, marks.values()), default=0)):
            by_name = {
                name: MARK_WORDS[text[place]]
                for name, text in marks.items()
                if text[place : place + 1] in MARK_WORDS
            }
            machine = MARK_WORDS.get(row.outcome_marks[place : place + 1], "")
            yield from _decide(
                {row.pk: row},
                opinions,
                {row.pk: by_name},
                {row.pk: machine},
                f"outcome {place + 1}",
            )


# A file of reviews may name any, and the figures of each are drawn again 2,000 times.
MAX_METRICS = 100


def _metrics(
    rows: Mapping[int, Result], opinions: Mapping[int, _Opinions]
) -> tuple[list[DecidedSubject], int]:
    """Return the metrics that people labelled on the most results, and how many others there are."""
    by_metric: dict[str, dict[int, dict[str, str]]] = {}
    for pk, entry in opinions.items():
        for name, review in entry.reviews.items():
            for key, label in review.metric_labels.items():
                by_metric.setdefault(key, {}).setdefault(pk, {})[name] = str(label)
    judged = metric_scores(rows) if by_metric else {}
    usual = sorted(by_metric, key=lambda key: (-len(by_metric[key]), key))
    subjects = []
    for key in sorted(usual[:MAX_METRICS]):
        machine = {pk: labels.get(key, "") for pk, labels in judged.items()}
        decided = _decide(rows, opinions, by_metric[key], machine)
        subjects.append(DecidedSubject(METRIC, key, decided, LABELS))
    return subjects, max(0, len(usual) - MAX_METRICS)
