"""Decisions of reviewers as files: exported, previewed and imported."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.db.models.functions import Lower

from evaluators.models import COMMAND_LINE, AuditEntry
from evaluators.scoring.types import DomainError
from runs.engine.review_rules import ReviewReason, read_reasons
from runs.exports.specs import ExportSpec, file_kind
from runs.formats.reviews import (
    COLUMNS,
    MARKS,
    ReadReviews,
    ReviewLine,
    read_reviews,
    review_cells,
    review_json,
)
from runs.formats.table_cases import Rejected
from runs.formats.tables import csv_parts
from runs.models.database import among, database_now, read_ids
from runs.models.results import Result, ResultOutput
from runs.models.reviews import ENDED, QueueQuery, Review, ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.models.temporary import ReviewUpload
from runs.requests import CHANGE_MEMBERS
from runs.reviews.services import (
    MAX_NAME_LENGTH,
    clean_tags,
    reviewer_count,
    store_consensus,
)

CHUNK = 500
NOT_THEIRS = (
    "this is a member's name, and only an admin can import decisions of other members; write the "
    "name of a person outside, or your own"
)


def reviews_jsonl(query: QueueQuery) -> Iterator[str]:
    """Yield the file as JSON Lines."""
    return map(review_json, review_lines(query))


def reviews_csv(query: QueueQuery) -> Iterator[str]:
    """Yield the file as a table; numbers are exact, lists have semicolons between."""
    return csv_parts(COLUMNS, map(review_cells, review_lines(query)), digits=None)


def review_lines(query: QueueQuery) -> Iterator[ReviewLine]:
    """Yield the decisions in the order they were made, withdrawn and stale ones too.

    Those on executions that are copies of others or are tried again are found where only suite and run are asked
    for: what asks more of the queue finds only what is in it. One query finds all, one more reads each 500.
    """
    ids = read_ids(_matching(query))
    for batch in _parts(ids):
        rows = Review.objects.filter(pk__in=batch).order_by("created_at", "id")
        related = ("result__run__suite", "result__case", "result__output", "result__review_item")
        heavy = ("result__run__snapshot", "result__run__summary", "result__run__leaf_scores")
        reviews = rows.select_related("reviewer", *related).defer(
            *heavy, "result__output__trace", "result__output__messages", "result__output__decision"
        )
        yield from map(_line, reviews)


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the ids of decisions in parts whose outputs are read together."""
    for start in range(0, len(ids), CHUNK):
        some = ids[start : start + CHUNK]
        results = dict(Review.objects.filter(pk__in=among(some)).values_list("pk", "result"))
        for part in ResultOutput.objects.batches((results.get(pk, 0) for pk in some), "text"):
            yield some[: len(part)]
            some = some[len(part) :]


# What a decision takes in each file; the names of columns repeat in JSON Lines.
ROW_BYTES = {"jsonl": 800, "csv": 400}
WRITERS: Mapping[str, Callable[[QueueQuery], Iterator[str]]] = {
    "jsonl": reviews_jsonl,
    "csv": reviews_csv,
}


@file_kind("reviews")
def reviews_file(*, query: Mapping[str, str], form: str) -> ExportSpec:
    """Describe a file, `jsonl` or `csv`, of the decisions that the parameters of an address ask for."""
    wanted = QueueQuery.read(query)
    named = wanted.suite.replace("-", "").isalnum()
    suite = Suite.objects.filter(slug=wanted.suite).first()
    columns = ("pk", "withdrawn_at", "stale_at", "generation")
    counts = _matching(wanted).order_by().aggregate(*map(Count, columns), *map(Max, columns))
    items = ReviewItem.objects.aggregate(Count("pk"), Max("pk"), Max("closed_at"))
    return ExportSpec(
        name=f"{wanted.suite}-reviews.{form}" if named else f"reviews.{form}",
        rows=counts["pk__count"],
        row_bytes=ROW_BYTES[form],
        write=lambda: WRITERS[form](wanted),
        fingerprint=(*counts.values(), *items.values()),
        suites=(suite.pk,) if suite else (),
    )


def _matching(query: QueueQuery) -> QuerySet[Review]:
    reviews = Review.objects.order_by("created_at", "id")
    if query.reason or query.tag or query.assignee:
        return reviews.filter(result__in=query.items().values("result"))
    if query.suite:
        reviews = reviews.filter(result__run__suite__slug=query.suite)
    return reviews.filter(result__run=query.run) if query.run else reviews


def output_digest(text: str) -> str:
    """Return the SHA-256 of an output's text, by which a review knows what it judged."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _line(review: Review) -> ReviewLine:
    result = review.result
    output, item = getattr(result, "output", None), getattr(result, "review_item", None)
    # The text of an output that was replaced is not known by now.
    digest = output_digest(output.text) if output and review.stale_at is None else ""
    return ReviewLine(
        suite=result.run.suite.slug,
        run=result.run.number,
        case=result.case.key,
        reviewer=review.reviewer_word,
        verdict=review.verdict,
        repetition=result.repetition,
        outcomes=tuple(MARKS[mark] for mark in review.outcome_marks),
        metric_labels=review.metric_labels,
        tags=tuple(review.tags),
        note=review.note,
        seconds=review.seconds,
        machine_verdict=review.machine_verdict,
        machine_score=review.machine_score,
        settled_verdict=result.reviewed_verdict,
        output_sha256=digest,
        generation=review.generation,
        sampling_rate=item.sampling_rate if item else None,
        reasons=tuple(reason.value for reason in item.why) if item else (),
        created_at=review.created_at,
        withdrawn_at=review.withdrawn_at,
        stale_at=review.stale_at,
        imported_by=review.imported_by,
        together=str(review.together or ""),
    )


# The times that a review can have.
EARLIEST, AHEAD = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
# A decision: the result, the id of a member or a name, the time, and the verdict.
Identity = tuple[int, int | str, datetime | None, str]
Place = tuple[str, int, str, int]
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class MatchedReview:
    """A decision with its execution, and the member who decided or None for other names."""

    review: ReviewLine
    result: Result
    member: User | None

    @property
    def who(self) -> int | str:
        """Return the identity of the reviewer: a member's id, else the name."""
        return self.member.pk if self.member else self.review.reviewer

    @property
    def is_standing(self) -> bool:
        """Tell whether it counts according to the file."""
        return self.review.withdrawn_at is None and self.review.stale_at is None


@dataclass(frozen=True, slots=True)
class Matching:
    """What a file would add: new decisions, the number of `known` ones, and rejected rows."""

    new: tuple[MatchedReview, ...]
    known: int
    rejected: tuple[Rejected, ...]

    @property
    def unknown_reviewers(self) -> list[str]:
        """Return the names of reviewers who are no members."""
        return sorted({entry.review.reviewer for entry in self.new if entry.member is None})


class _MismatchError(Exception):
    """A decision matches no execution: the column at fault and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        self.column, self.reason = column, reason
        super().__init__(reason)


def find_runs(reviews: Sequence[ReviewLine]) -> Mapping[tuple[str, int], int]:
    """Return the ids of the runs that decisions name, by suite and number."""
    named = {(entry.suite, entry.run) for entry in reviews}
    slugs, numbers = {slug for slug, _ in named}, {number for _, number in named}
    runs = Run.objects.filter(suite__slug__in=slugs, number__in=numbers)
    results = {
        (slug, number): pk for slug, number, pk in runs.values_list("suite__slug", "number", "pk")
    }
    return {place: pk for place, pk in results.items() if place in named}


def match_reviews(reviews: Sequence[ReviewLine], *, by: User | None) -> Matching:
    """Find the execution and the reviewer of each decision in a file that `by` imports; nothing is stored.

    A reviewer is the member of that user name, else a name from outside. Only admins and the command line, where
    `by` is None, can import new decisions of members other than themselves. A decision is here already where the same
    person gave the same verdict on the same execution at the same moment; one without a moment where such a verdict
    of theirs stands. One on another output than the execution has now fits nothing, unless the file itself says
    that it is stale. The number of queries grows with each 500 decisions.
    """
    runs = find_runs(reviews)
    slugs = set(
        Suite.objects.filter(slug__in={entry.suite for entry in reviews}).values_list(
            "slug", flat=True
        )
    )
    results = _results(reviews, runs)
    members, others = _members(reviews, by)
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
        entry = MatchedReview(review, result, members.get(review.reviewer))
        identity: Identity = (result.pk, entry.who, review.created_at, review.verdict)
        if identity in known:
            times += 1
            continue
        if review.reviewer.casefold() in others:
            rejected.append(Rejected(review.line, "reviewer", NOT_THEIRS, ()))
            continue
        known.add(identity)
        new.append(entry)
    return Matching(tuple(new), times, tuple(rejected))


def _members(
    reviews: Sequence[ReviewLine], by: User | None
) -> tuple[Mapping[str, User], frozenset[str]]:
    """Return the reviewers who are members, and the names, ignoring case, that `by` may not decide for."""
    written = {entry.reviewer for entry in reviews}
    names = sorted(written | {name.casefold() for name in written})
    rows = User.objects.annotate(lower=Lower("username"))
    members = [
        member
        for batch in _batches(names)
        for member in rows.filter(Q(username__in=batch) | Q(lower__in=batch))
    ]
    may_all = by is None or by.has_perm(CHANGE_MEMBERS)
    others = () if may_all else (member.username.casefold() for member in members if member != by)
    return {member.get_username(): member for member in members}, frozenset(others)


def _batches(every: Sequence[One]) -> Iterator[Sequence[One]]:
    return (every[start : start + CHUNK] for start in range(0, len(every), CHUNK))


def _results(
    reviews: Sequence[ReviewLine], runs: Mapping[tuple[str, int], int]
) -> dict[Place, Result]:
    results: dict[Place, Result] = {}
    for batch in _batches(sorted({entry.case for entry in reviews})):
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
            results[row.run.suite.slug, row.run.number, row.case.key, row.repetition] = row
    return results


def _known(results: Iterable[Result]) -> set[Identity]:
    known: set[Identity] = set()
    for batch in _batches([entry.pk for entry in results]):
        for review in Review.objects.filter(result__in=batch):
            reviewer = review.reviewer_id or review.reviewer_name
            known.add((review.result_id, reviewer, review.created_at, review.verdict))
            if review.withdrawn_at is None and review.stale_at is None:
                known.add((review.result_id, reviewer, None, review.verdict))
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
        raise _MismatchError(column, f"run #{review.run} has no result of {review.case}{again}")
    return result


def _check(review: ReviewLine, result: Result) -> None:
    if result.status not in ENDED:
        raise _MismatchError("case", "this result has not ended; import its review afterwards")
    expected: Any = result.case.expected_outcomes
    if review.outcomes and len(review.outcomes) != len(expected):
        problem = (
            f"{len(review.outcomes)} given, and the case has {len(expected)} expected outcomes"
        )
        raise _MismatchError("outcomes", problem)
    try:
        clean_tags(review.tags)
    except DomainError as refusal:
        raise _MismatchError("tags", str(refusal)) from refusal
    if review.stale_at is not None:
        return
    output = getattr(result, "output", None)
    text = output.text if output else ""
    another = "the review is about another output than the current one, so it does not count"
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
            raise _MismatchError(column, "it is in the future")


class ReviewsRejectedError(DomainError):
    """Rows were rejected, and the request did not leave them out."""

    code = "reviews_rejected"

    def __init__(self, rejected: Sequence[Rejected]) -> None:
        """Say how many; `rejected` holds each."""
        self.rejected = tuple(rejected)
        rows = "1 row is" if len(rejected) == 1 else f"{len(rejected)} rows are"
        super().__init__(
            f"Nothing was stored: {rows} rejected. Correct the file, or choose to leave them out."
        )


@dataclass(frozen=True, slots=True)
class ReviewsPreview:
    """What a file would add: `matching` holds new and known decisions, `rejected` all rejected rows by line."""

    read: ReadReviews
    matching: Matching
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class ImportedReviews:
    """The result of an import: decisions added and known, reviewed verdicts changed, rows rejected."""

    added: int
    known: int
    changed: int
    rejected: int


def preview_reviews(content: bytes, *, file: str, by: User | None) -> ReviewsPreview:
    """Return what a file that `by` imports would add, without storing it; raises UnreadableFileError."""
    read = read_reviews(content, file=file)
    matching = match_reviews(read.reviews, by=by)
    rejected = sorted((*read.rejected, *matching.rejected), key=lambda entry: entry.line)
    return ReviewsPreview(read, matching, tuple(rejected))


def keep_reviews(content: bytes, *, name: str, owner: User) -> ReviewUpload:
    """Keep a file until its reviews are stored; raises UnreadableFileError for other files."""
    name = PurePosixPath(name.replace("\\", "/")).name.replace("\x00", "")[:MAX_NAME_LENGTH]
    read_reviews(content, file=name)
    with transaction.atomic():
        upload = ReviewUpload.objects.create(
            owner=owner, name=name or "reviews.csv", content=content
        )
        ReviewUpload.objects.make_room(owner)
    return upload


def store_reviews(upload: ReviewUpload, *, leaves_out: bool, by: User) -> ReviewUpload:
    """Import the reviews of an upload once, and delete its file. Raises ReviewsRejectedError."""
    with transaction.atomic():
        held = ReviewUpload.objects.select_for_update(of=("self",)).get(pk=upload.pk)
        if held.stored_at is not None:
            return held
        done = import_reviews(bytes(held.content), file=held.name, by=by, leaves_out=leaves_out)
        counts = ("added", "known", "changed", "rejected")
        held.stored = {name: getattr(done, name) for name in counts}
        held.stored_at, held.content = database_now(), b""
        held.save(update_fields=["stored", "stored_at", "content"])
    return held


def import_reviews(
    content: bytes, *, file: str, by: User | None, leaves_out: bool = False
) -> ImportedReviews:
    """Take in the decisions of a file, all in one transaction, and let them count like those made here.

    Of one person's decisions on one execution the latest stands, the others are kept as withdrawn. What is here
    already is not added again. An execution that was not in the queue enters it with the reasons and the sampling
    rate of the file, without a rate as picked by hand. Raises UnreadableFileError, and ReviewsRejectedError
    where rows fit nothing here unless `leaves_out`.
    """
    read = read_reviews(content, file=file)
    with transaction.atomic():
        runs = [Run.objects.hold(pk) for pk in sorted(find_runs(read.reviews).values())]
        matching = match_reviews(read.reviews, by=by)
        rejected = (*read.rejected, *matching.rejected)
        if rejected and not leaves_out:
            raise ReviewsRejectedError(rejected)
        of_run: dict[int, list[MatchedReview]] = defaultdict(list)
        for entry in matching.new:
            of_run[entry.result.run_id].append(entry)
        changed = sum(_take(run, of_run[run.pk], by) for run in runs if run.pk in of_run)
        done = ImportedReviews(len(matching.new), matching.known, changed, len(rejected))
        if done.added:
            _audit(file, done, by)
    return done


def _take(run: Run, matched: Sequence[MatchedReview], by: User | None) -> int:
    """Add the decisions on executions of one run; return how many reviewed verdicts changed.

    The number of statements does not grow with the decisions: others who write wait for this transaction.
    """
    now = database_now()
    entries = sorted(matched, key=lambda entry: entry.review.created_at or now)
    results = {entry.result.pk: entry.result for entry in entries}
    _enter(run, entries, by)
    _add(entries, now, by)
    _, changed = store_consensus(run, results.values(), by=by)
    return changed


def _enter(run: Run, entries: Sequence[MatchedReview], by: User | None) -> None:
    """Bring executions into the queue, each by its first decision."""
    results = among({entry.result.pk for entry in entries})
    queued = set(ReviewItem.objects.filter(result__in=results).values_list("result_id", flat=True))
    reviewers, items = reviewer_count(run), []
    for entry in entries:
        if entry.result.pk in queued:
            continue
        queued.add(entry.result.pk)
        reasons = read_reasons(" ".join(entry.review.reasons)) or (ReviewReason.ASKED_FOR,)
        items.append(
            ReviewItem(
                result=entry.result,
                run=run,
                reasons=f" {' '.join(reasons)} ",
                rank=reasons[0].rank,
                sampling_rate=entry.review.sampling_rate,
                wanted=reviewers,
                added_by=by,
            )
        )
    ReviewItem.objects.bulk_create(items, batch_size=CHUNK)


def _add(entries: Sequence[MatchedReview], now: datetime, by: User | None) -> None:
    """Add decisions in the order they were made; of one person's on one execution the latest stands."""
    standing: dict[tuple[int, int | str], list[Review]] = defaultdict(list)
    results = among({entry.result.pk for entry in entries})
    for earlier in Review.objects.standing().filter(result__in=results):
        standing[earlier.result_id, earlier.reviewer_id or earlier.reviewer_name].append(earlier)
    added, replaced = [], set()
    for entry in entries:
        review = _review(entry, now, by)
        added.append(review)
        if not entry.is_standing:
            continue
        theirs = standing[entry.result.pk, entry.who]
        if later := [one.created_at for one in theirs if one.created_at > review.created_at]:
            review.withdrawn_at = min(later)
            continue
        for earlier in theirs:
            earlier.withdrawn_at = now
            replaced.add(earlier.pk)
        theirs[:] = [review]
    Review.objects.filter(pk__in=among(replaced - {None})).update(withdrawn_at=now)
    Review.objects.bulk_create(added, batch_size=CHUNK)


def _review(entry: MatchedReview, now: datetime, by: User | None) -> Review:
    review = entry.review
    return Review(
        result=entry.result,
        reviewer=entry.member,
        reviewer_name="" if entry.member else review.reviewer,
        imported_by=by.get_username() if by else COMMAND_LINE,
        verdict=review.verdict,
        note=review.note,
        tags=clean_tags(review.tags),
        outcome_marks=review.marks,
        metric_labels=dict(review.metric_labels),
        seconds=review.seconds,
        machine_verdict=review.machine_verdict or entry.result.verdict,
        machine_score=entry.result.score if review.machine_score is None else review.machine_score,
        generation=review.generation
        if review.stale_at and review.generation
        else entry.result.generation,
        created_at=review.created_at or now,
        withdrawn_at=review.withdrawn_at,
        stale_at=review.stale_at,
    )


def _audit(file: str, done: ImportedReviews, by: User | None) -> None:
    AuditEntry.objects.record(
        "import",
        by=by,
        object_type="review",
        object_name=file[:MAX_NAME_LENGTH],
        after={"added": done.added, "known": done.known, "changed": done.changed},
    )


MAX_SHOWN = 20
MAX_REJECTED = 200


@dataclass(frozen=True, slots=True)
class ImportPage:
    """The preview: how many rows, new and known decisions, the first new ones, and the rejected rows.

    `history` counts those that come in withdrawn or stale, which do not count.
    """

    rows: int
    format_notes: str
    new: int
    known: int
    history: int
    executions: int
    first: Sequence[MatchedReview]
    rejected: int
    rejected_first: Sequence[Rejected]
    unknown_reviewers: Sequence[str]
    ignored_columns: Sequence[str]


def import_page(upload: ReviewUpload) -> ImportPage:
    """Return the preview of an upload that is not stored yet."""
    preview = preview_reviews(bytes(upload.content), file=upload.name, by=upload.owner)
    new, table = preview.matching.new, preview.read.table
    return ImportPage(
        rows=len(table.rows),
        format_notes=", ".join(table.notes),
        new=len(new),
        known=preview.matching.known,
        history=sum(not entry.is_standing for entry in new),
        executions=len({entry.result.pk for entry in new}),
        first=new[:MAX_SHOWN],
        rejected=len(preview.rejected),
        rejected_first=preview.rejected[:MAX_REJECTED],
        unknown_reviewers=preview.matching.unknown_reviewers,
        ignored_columns=preview.read.ignored_columns,
    )
