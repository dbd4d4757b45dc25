"""Which execution, which person and which output each decision of a file is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import User

from evaluators.scoring.types import DomainError
from runs.formats.csv_cases import Rejected
from runs.formats.reviews import ReviewLine
from runs.models import Result, Review, Run, Suite
from runs.models.clock import database_now
from runs.models.review_queue import ENDED
from runs.reports.review_lines import output_digest
from runs.services.reviews import clean_tags

CHUNK = 500
# Moments outside of it are no moments of a review, and no page could show those at the ends of the calendar.
EARLIEST, AHEAD = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
# Who decided and when: the id of a member or a name, the moment, and the verdict.
Identity = tuple[int, int | str, datetime | None, str]
Place = tuple[str, int, str, int]
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Matched:
    """A decision with the execution it is of and the member who decided, None for a name from outside."""

    review: ReviewLine
    result: Result
    member: User | None

    @property
    def who(self) -> int | str:
        """Return what tells the reviewer apart: a member's id, else the name."""
        return self.member.pk if self.member else self.review.reviewer

    @property
    def is_standing(self) -> bool:
        """Tell whether the file says that it counts."""
        return self.review.withdrawn_at is None and self.review.stale_at is None


@dataclass(frozen=True, slots=True)
class Matching:
    """What a file would add: new decisions, `known` ones that are here already, and rows that fit nothing here."""

    new: tuple[Matched, ...]
    known: int
    rejected: tuple[Rejected, ...]

    @property
    def strangers(self) -> list[str]:
        """Return the reviewers who are no members here, whose names are kept as they are."""
        return sorted({one.review.reviewer for one in self.new if one.member is None})


class _MismatchError(Exception):
    """A decision fits nothing here: the column to blame and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        self.column, self.reason = column, reason
        super().__init__(reason)


def runs_named(reviews: Sequence[ReviewLine]) -> Mapping[tuple[str, int], int]:
    """Return the ids of the runs that decisions name, by suite and number."""
    named = {(one.suite, one.run) for one in reviews}
    slugs, numbers = {slug for slug, _ in named}, {number for _, number in named}
    runs = Run.objects.filter(suite__slug__in=slugs, number__in=numbers)
    found = {
        (slug, number): pk for slug, number, pk in runs.values_list("suite__slug", "number", "pk")
    }
    return {place: pk for place, pk in found.items() if place in named}


def match_reviews(reviews: Sequence[ReviewLine]) -> Matching:
    """Find the execution and the reviewer of each decision; nothing is stored.

    A reviewer is the member of that user name, else a name from outside. A decision is here already where the same
    person gave the same verdict on the same execution at the same moment; one without a moment where such a verdict
    of theirs stands. One on another output than the execution has now fits nothing, unless the file itself says
    that it is stale. The number of queries grows with each 500 decisions.
    """
    runs = runs_named(reviews)
    slugs = set(
        Suite.objects.filter(slug__in={one.suite for one in reviews}).values_list("slug", flat=True)
    )
    results = _results(reviews, runs)
    members = {
        member.get_username(): member
        for member in User.objects.filter(username__in={one.reviewer for one in reviews})
    }
    known, latest = _known(results.values()), database_now() + AHEAD
    new, rejected, times = [], [], 0
    for review in reviews:
        try:
            result = _result(review, slugs, runs, results)
            _check(review, result)
            _check_moments(review, latest)
        except _MismatchError as error:
            rejected.append(Rejected(review.line, error.column, error.reason, ()))
            continue
        one = Matched(review, result, members.get(review.reviewer))
        identity: Identity = (result.pk, one.who, review.created_at, review.verdict)
        if identity in known:
            times += 1
            continue
        known.add(identity)
        new.append(one)
    return Matching(tuple(new), times, tuple(rejected))


def _batches(every: Sequence[One]) -> Iterator[Sequence[One]]:
    return (every[start : start + CHUNK] for start in range(0, len(every), CHUNK))


def _results(
    reviews: Sequence[ReviewLine], runs: Mapping[tuple[str, int], int]
) -> dict[Place, Result]:
    found: dict[Place, Result] = {}
    for batch in _batches(sorted({one.case for one in reviews})):
        rows = Result.objects.filter(run__in=runs.values(), case__key__in=batch)
        fields = (
            "status",
            "generation",
            "verdict",
            "score",
            "repetition",
            "reviewed_verdict",
            "run",
        )
        related = rows.select_related("run__suite", "case", "output")
        shown = ("run__suite__slug", "run__number", "case__key", "case__expected_outcomes")
        for row in related.only(*fields, *shown, "output__text"):
            found[row.run.suite.slug, row.run.number, row.case.key, row.repetition] = row
    return found


def _known(results: Iterable[Result]) -> set[Identity]:
    known: set[Identity] = set()
    for batch in _batches([one.pk for one in results]):
        for review in Review.objects.filter(result__in=batch):
            who = review.reviewer_id or review.reviewer_name
            known.add((review.result_id, who, review.created_at, review.verdict))
            if review.withdrawn_at is None and review.stale_at is None:
                known.add((review.result_id, who, None, review.verdict))
    return known


def _result(
    review: ReviewLine,
    slugs: set[str],
    runs: Mapping[tuple[str, int], int],
    results: Mapping[Place, Result],
) -> Result:
    if review.suite not in slugs:
        raise _MismatchError("suite", f"there is no suite {review.suite}")
    if (review.suite, review.run) not in runs:
        raise _MismatchError("run", f"there is no run #{review.run} of {review.suite}")
    place = (review.suite, review.run, review.case, review.repetition)
    result = results.get(place)
    if result is None:
        again = f", repetition {review.repetition}" if review.repetition > 1 else ""
        column = "case" if (*place[:3], 1) not in results else "repetition"
        raise _MismatchError(column, f"run #{review.run} has no execution of {review.case}{again}")
    return result


def _check(review: ReviewLine, result: Result) -> None:
    if result.status not in ENDED:
        raise _MismatchError("case", "this execution has not ended; import its review when it has")
    expected: Any = result.case.expected_outcomes
    if review.outcomes and len(review.outcomes) != len(expected):
        said = f"{len(review.outcomes)} given, and the case has {len(expected)} expected outcomes"
        raise _MismatchError("outcomes", said)
    try:
        clean_tags(review.tags)
    except DomainError as refusal:
        raise _MismatchError("tags", str(refusal)) from refusal
    if review.stale_at is not None:
        return
    output = getattr(result, "output", None)
    text = output.text if output else ""
    another = "the review is of another output than the execution has now, so it is not counted for this one"
    if review.output_sha256 and review.output_sha256 != output_digest(text):
        raise _MismatchError("output_sha256", another)
    if not review.output_sha256 and review.generation not in (None, result.generation):
        raise _MismatchError("generation", another)


def _check_moments(review: ReviewLine, latest: datetime) -> None:
    for column in ("created_at", "withdrawn_at", "stale_at"):
        moment = getattr(review, column)
        if moment is None:
            continue
        if moment < EARLIEST:
            raise _MismatchError(column, "it is before 1970")
        if moment > latest:
            raise _MismatchError(
                column, "it is in the future, and would stand before all that follow"
            )
