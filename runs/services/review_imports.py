"""Take in people's decisions from a file: all that fit, in one transaction, each once however often it comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError, Verdict
from runs.formats.csv_cases import Rejected
from runs.formats.reviews import ReadReviews, read_reviews
from runs.models import Result, Review, ReviewItem, ReviewUpload, Run
from runs.models.clock import database_now
from runs.reviewing import Reason, named, settle
from runs.services.queueing import SUMMARISE_RUN, queue
from runs.services.review_matching import Matched, Matching, match_reviews, runs_named
from runs.services.review_queue import reviewers_of
from runs.services.reviews import ACTION, LONGEST_NAME, clean_tags, counts_reviews

NOBODY = "command line"


class ReviewsRejectedError(DomainError):
    """Rows were rejected, and nobody said that they are to be left out."""

    code = "reviews_rejected"

    def __init__(self, rejected: Sequence[Rejected]) -> None:
        """Say how many; `rejected` holds each."""
        self.rejected = tuple(rejected)
        rows = "1 row is" if len(rejected) == 1 else f"{len(rejected)} rows are"
        super().__init__(
            f"Nothing was stored: {rows} rejected. Mend the file, or say that they are left out."
        )


@dataclass(frozen=True, slots=True)
class ReviewsPreview:
    """What a file would add: `matching` tells what is new and known, `rejected` every row left out, by line."""

    read: ReadReviews
    matching: Matching
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class ImportedReviews:
    """What came of a file: decisions added and known before, executions whose reviewed verdict changed, rows left out."""

    added: int
    known: int
    changed: int
    rejected: int


def preview_reviews(content: bytes, *, file: str) -> ReviewsPreview:
    """Return what a file would add, nothing stored; raises UnreadableFileError for what is no such file."""
    read = read_reviews(content, file=file)
    matching = match_reviews(read.reviews)
    rejected = sorted((*read.rejected, *matching.rejected), key=lambda one: one.line)
    return ReviewsPreview(read, matching, tuple(rejected))


def keep_reviews(content: bytes, *, name: str, owner: User) -> ReviewUpload:
    """Keep a file until it is stored; raises UnreadableFileError for what holds no reviews."""
    name = PurePosixPath(name.replace("\\", "/")).name.replace("\x00", "")[:LONGEST_NAME]
    read_reviews(content, file=name)
    with transaction.atomic():
        upload = ReviewUpload.objects.create(
            owner=owner, name=name or "reviews.csv", content=content
        )
        ReviewUpload.objects.make_room(owner)
    return upload


def store_reviews(upload: ReviewUpload, *, leaves_out: bool, by: User) -> ReviewUpload:
    """Take in what an upload holds, once only; the file is forgotten then. Raises ReviewsRejectedError."""
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
        runs = [Run.objects.hold(pk) for pk in sorted(runs_named(read.reviews).values())]
        matching = match_reviews(read.reviews)
        rejected = (*read.rejected, *matching.rejected)
        if rejected and not leaves_out:
            raise ReviewsRejectedError(rejected)
        of_run: dict[int, list[Matched]] = defaultdict(list)
        for one in matching.new:
            of_run[one.result.run_id].append(one)
        changed = sum(_take(run, of_run[run.pk], by) for run in runs if run.pk in of_run)
        done = ImportedReviews(len(matching.new), matching.known, changed, len(rejected))
        if done.added:
            _audit(file, done, by)
    return done


def _take(run: Run, matched: Sequence[Matched], by: User | None) -> int:
    """Add the decisions on executions of one run; return how many reviewed verdicts changed."""
    now, reviewers = database_now(), reviewers_of(run)
    for one in sorted(matched, key=lambda one: one.review.created_at or now):
        _enter(one, reviewers, by)
        _add(one, now)
    return _settle(run, {one.result.pk: one.result for one in matched}.values(), reviewers, by)


def _enter(one: Matched, reviewers: int, by: User | None) -> None:
    reasons = named(" ".join(one.review.reasons)) or (Reason.ASKED_FOR,)
    ReviewItem.objects.get_or_create(
        result=one.result,
        defaults={
            "reasons": f" {' '.join(reasons)} ",
            "rank": reasons[0].rank,
            "sampling_rate": one.review.sampling_rate,
            "wanted": reviewers,
            "added_by": by,
        },
    )


def _add(one: Matched, now: datetime) -> None:
    review = one.review
    created = review.created_at or now
    withdrawn = review.withdrawn_at
    if one.is_standing:
        whose = {"reviewer": one.member} if one.member else {"reviewer": None}
        name = "" if one.member else review.reviewer
        standing = Review.objects.standing().filter(result=one.result, reviewer_name=name, **whose)
        if later := standing.filter(created_at__gt=created).order_by("created_at").first():
            withdrawn = later.created_at
        else:
            standing.update(withdrawn_at=now)
    Review.objects.create(
        result=one.result,
        reviewer=one.member,
        reviewer_name="" if one.member else review.reviewer,
        verdict=review.verdict,
        note=review.note,
        tags=clean_tags(review.tags),
        outcome_marks=review.marks,
        metric_labels=dict(review.metric_labels),
        seconds=review.seconds,
        machine_verdict=review.machine_verdict or one.result.verdict,
        machine_score=one.result.score if review.machine_score is None else review.machine_score,
        generation=review.generation
        if review.stale_at and review.generation
        else one.result.generation,
        created_at=created,
        withdrawn_at=withdrawn,
        stale_at=review.stale_at,
    )


def _settle(run: Run, results: Iterable[Result], reviewers: int, by: User | None) -> int:
    """Let all decisions on these executions come to what they come to; return how many verdicts changed."""
    now, entries = database_now(), []
    for result in results:
        standing = Review.objects.standing().filter(result=result).order_by("id")
        verdicts = [Verdict(verdict) for verdict in standing.values_list("verdict", flat=True)]
        settled = settle(verdicts, reviewers)
        items = ReviewItem.objects.filter(result=result)
        if settled.is_open:
            items.update(wanted=settled.wanted, closed_at=None)
        else:
            items.update(wanted=settled.wanted)
            items.filter(closed_at=None).update(
                closed_at=now, reserved_by=None, reserved_until=None
            )
        verdict = settled.verdict.value if settled.verdict else ""
        if verdict != result.reviewed_verdict:
            Result.objects.filter(pk=result.pk).update(reviewed_verdict=verdict)
            entries.append(_override(run, result, verdict, by))
    AuditEntry.objects.bulk_create(entries)
    if entries and not run.is_active and counts_reviews(run):
        Run.objects.filter(pk=run.pk).update(summary=None)
        transaction.on_commit(partial(queue, SUMMARISE_RUN, run.pk))
    return len(entries)


def _override(run: Run, result: Result, verdict: str, by: User | None) -> AuditEntry:
    return AuditEntry(
        actor=by,
        actor_name=by.get_username() if by else NOBODY,
        action=ACTION,
        object_type="result",
        object_id=str(result.pk),
        object_name=f"{run.suite.slug} #{run.number} {result.case.key}"[:LONGEST_NAME],
        before={"verdict": result.verdict, "reviewed_verdict": result.reviewed_verdict},
        after={"verdict": result.verdict, "reviewed_verdict": verdict},
    )


def _audit(file: str, done: ImportedReviews, by: User | None) -> None:
    AuditEntry.objects.create(
        actor=by,
        actor_name=by.get_username() if by else NOBODY,
        action="import",
        object_type="review",
        object_id="",
        object_name=file[:LONGEST_NAME],
        after={"added": done.added, "known": done.known, "changed": done.changed},
    )
