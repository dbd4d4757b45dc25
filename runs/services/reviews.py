"""Decide, change and undo what people say of a result, and let it count (SCORING §4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import DomainError, Verdict
from runs.models import Result, Review, ReviewItem, Run
from runs.models.clock import database_now
from runs.models.review_queue import ENDED
from runs.models.reviews import MOST_MARKS, RESERVED_FOR
from runs.reviewing import LABELS, Settled, settle
from runs.services.queueing import SUMMARISE_RUN, queue
from runs.services.review_queue import FREE, NotEndedError, check_free, reviewers_of

ACTION = "override"
LONGEST_NOTE = 10_000
LONGEST_NAME = 200
LONGEST_TAG = 60
MOST_TAGS = 20
MOST_SECONDS = 24 * 3600
MARKS = "10-"


class ReviewRefusedError(DomainError):
    """What was said of the result cannot be kept."""

    code = "review_refused"


class ReviewChangedError(DomainError):
    """The output that was judged is not the result's any more."""

    code = "review_changed"


class AlreadyDecidedError(DomainError):
    """Others have decided meanwhile, and nobody asked for one more opinion."""

    code = "already_decided"


@dataclass(frozen=True, slots=True)
class Decided:
    """What a person says of one output.

    `outcome_marks` is one character per expected outcome in order: 1 met, 0 missed, - not marked, "" for none.
    `metric_labels` are whole numbers of 0 to 5 by the metric's key. `generation` is that of the output that was
    shown, 0 for whichever there is. `seconds` is how long the person looked at it.
    """

    verdict: Verdict
    note: str = ""
    tags: Sequence[str] = ()
    outcome_marks: str = ""
    metric_labels: Mapping[str, int] = field(default_factory=dict)
    seconds: int | None = None
    generation: int = 0


def decide(
    item: ReviewItem, decided: Decided, *, by: User, is_second_opinion: bool = False
) -> Settled:
    """Keep what a person decided on an item, and return what all decisions on it come to.

    A decision of theirs that stands already is replaced, and kept as withdrawn. When it settles the item, the item
    leaves the queue and `reviewed_verdict` of the result is set; until then that is empty. The machine's verdict
    never changes. A `is_second_opinion` is of a person who knows that others have decided: where it differs the
    item waits again, for one reviewer more.

    Raises AlreadyDecidedError where others did meanwhile, ItemTakenError while another reviewer has it open, NotEndedError for a result that is tried again,
    ReviewChangedError where its output was replaced meanwhile, and ReviewRefusedError for marks, labels or tags
    that cannot be.
    """
    tags = clean_tags(decided.tags)
    with transaction.atomic():
        run, held, result = _hold(item)
        check_free(held, by)
        _check(result, decided)
        now = database_now()
        standing = Review.objects.standing().filter(result=result, reviewer=by)
        if not standing.update(withdrawn_at=now) and held.closed_at and not is_second_opinion:
            raise AlreadyDecidedError(
                "This one was decided while you had it open. Nothing was kept of your decision; take the next one."
            )
        Review.objects.create(
            result=result,
            reviewer=by,
            verdict=decided.verdict.value,
            note=decided.note.strip()[:LONGEST_NOTE],
            tags=tags,
            outcome_marks=decided.outcome_marks,
            metric_labels=dict(decided.metric_labels),
            seconds=None if decided.seconds is None else min(max(decided.seconds, 0), MOST_SECONDS),
            machine_verdict=result.verdict,
            machine_score=result.score,
            generation=result.generation,
            created_at=now,
        )
        held.skips.filter(reviewer=by).delete()
        return _settle(run, held, result, by=by)


def undo(item: ReviewItem, *, by: User) -> Settled | None:
    """Withdraw a person's decision on an item and give the item back to them; None when none of theirs stands.

    What was withdrawn is kept. The item waits again where the other decisions do not settle it.
    """
    with transaction.atomic():
        run, held, result = _hold(item)
        now = database_now()
        standing = Review.objects.standing().filter(result=result, reviewer=by)
        if not standing.update(withdrawn_at=now):
            return None
        settled = _settle(run, held, result, by=by)
        if settled.is_open:
            # Nobody else gets it in between, unless somebody has it open already.
            free = ReviewItem.objects.filter(pk=held.pk).exclude(reserved_until__gt=now)
            free.update(reserved_by=by, reserved_until=now + RESERVED_FOR)
    return settled


def last_decided(by: User) -> ReviewItem | None:
    """Return the item a person decided last, which undo would take back; None without any."""
    reviews = Review.objects.standing().filter(reviewer=by, result__review_item__isnull=False)
    last = reviews.select_related("result__review_item").order_by("-created_at", "-id").first()
    return last.result.review_item if last else None


def _hold(item: ReviewItem) -> tuple[Run, ReviewItem, Result]:
    """Return run, item and result as they are now; the run's row stays locked, so that one decides at a time."""
    run = Run.objects.hold(Result.objects.values_list("run_id", flat=True).get(pk=item.result_id))
    held = ReviewItem.objects.select_related("result").filter(pk=item.pk).first()
    if held is None:
        raise ReviewChangedError(
            "This execution was tried again, and what you saw is replaced. Nothing was kept of this review."
        )
    return run, held, held.result


def _check(result: Result, decided: Decided) -> None:
    if result.status not in ENDED:
        raise NotEndedError("This execution is being tried again. Review it when it has ended.")
    if decided.generation and decided.generation != result.generation:
        raise ReviewChangedError(
            "This execution was tried again since you opened it. Look at its new output and decide again."
        )
    if set(decided.outcome_marks) - set(MARKS) or len(decided.outcome_marks) > MOST_MARKS:
        raise ReviewRefusedError("A mark of an outcome is met, missed or none.")
    for metric, label in decided.metric_labels.items():
        if str(label) not in LABELS:
            raise ReviewRefusedError(f"{metric}: {label!r} is not a whole number from 0 to 5.")


def clean_tags(tags: Sequence[str]) -> list[str]:
    """Return causes of failure as they are kept, each once; raises ReviewRefusedError for too many or too long."""
    found = list(dict.fromkeys(tag for tag in (" ".join(tag.split()) for tag in tags) if tag))
    if len(found) > MOST_TAGS:
        raise ReviewRefusedError(f"{len(found)} causes are named, and {MOST_TAGS} is the most.")
    for tag in found:
        if len(tag) > LONGEST_TAG:
            raise ReviewRefusedError(
                f"“{tag[:20]}…” has {len(tag)} characters, and {LONGEST_TAG} is the most for a cause."
            )
    return found


def _settle(run: Run, item: ReviewItem, result: Result, *, by: User) -> Settled:
    """Let the decisions that stand come to what they come to, in the item, the result and the run."""
    decisions = Review.objects.standing().filter(result=result).order_by("id")
    verdicts = [Verdict(verdict) for verdict in decisions.values_list("verdict", flat=True)]
    settled = settle(verdicts, reviewers_of(run))
    if settled.is_open:
        closed_at = None
    else:
        closed_at = item.closed_at or database_now()
    free = FREE if item.reserved_by_id in (None, by.pk) else {}
    ReviewItem.objects.filter(pk=item.pk).update(wanted=settled.wanted, closed_at=closed_at, **free)
    verdict = "" if settled.verdict is None else settled.verdict.value
    if verdict != result.reviewed_verdict:
        _override(run, result, verdict, by=by)
    return settled


def _override(run: Run, result: Result, verdict: str, *, by: User) -> None:
    """Set the reviewed verdict, write it into the audit, and have figures made anew that count it."""
    before = result.reviewed_verdict
    Result.objects.filter(pk=result.pk).update(reviewed_verdict=verdict)
    result.reviewed_verdict = verdict
    AuditEntry.objects.create(
        actor=by,
        actor_name=by.get_username(),
        action=ACTION,
        object_type="result",
        object_id=str(result.pk),
        object_name=f"{run.suite.slug} #{run.number} {result.case.key}"[:LONGEST_NAME],
        before={"verdict": result.verdict, "reviewed_verdict": before},
        after={"verdict": result.verdict, "reviewed_verdict": verdict},
    )
    if not run.is_active and counts_reviews(run):
        Run.objects.filter(pk=run.pk).update(summary=None)
        transaction.on_commit(partial(queue, SUMMARISE_RUN, run.pk))


def counts_reviews(run: Run) -> bool:
    """Tell whether the run's own rules let reviewed verdicts count in its figures (SCORING §4.6)."""
    snapshot = Run.objects.only("snapshot").get(pk=run.pk).snapshot
    policy: Policy = Policy.from_json(snapshot.get("policy") or {})
    return policy.count_reviews
