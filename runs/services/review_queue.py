"""Hand out what waits for a person, one item to one reviewer at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from evaluators.scoring.types import DomainError
from runs.models import Result, Review, ReviewItem, ReviewSkip, Run
from runs.models.clock import database_now
from runs.models.review_queue import ENDED, QueueQuery
from runs.models.reviews import RESERVED_FOR
from runs.plan import read_plan
from runs.reviewing import Reason

FREE = {"reserved_by": None, "reserved_until": None}


class NotEndedError(DomainError):
    """The result is still being made, so that there is nothing to decide on."""

    code = "result_not_ended"


class ItemTakenError(DomainError):
    """Another reviewer has the item open."""

    code = "review_item_taken"


def next_item(
    by: User, query: QueueQuery | None = None, *, besides: Collection[int] = ()
) -> ReviewItem | None:
    """Return the next item for a person, reserved for them; None when nothing is left for them.

    What they have open already comes first, so that a page opened again shows the same. Then the most doubtful of
    what nobody has open, they have not decided, and nobody else is assigned to; what they skipped comes last, the
    longest skipped first. Two who ask at once never get the same. `besides` are items to pass over.
    """
    mine = _for(by, query or QueueQuery()).exclude(pk__in=besides)
    while True:
        with transaction.atomic():
            now = database_now()
            held = mine.filter(reserved_by=by, reserved_until__gt=now).order_by(
                "reserved_until", "id"
            )
            free = Q(reserved_until=None) | Q(reserved_until__lte=now) | Q(reserved_by=by)
            found = held.first() or _first_free(mine.filter(free), by)
            if found is None:
                return None
            still = ReviewItem.objects.waiting().filter(free, pk=found.pk)
            if still.update(reserved_by=by, reserved_until=now + RESERVED_FOR):
                found.refresh_from_db()
                return found


def upcoming(
    by: User, query: QueueQuery | None = None, *, besides: Collection[int] = ()
) -> QuerySet[ReviewItem]:
    """Return what `next_item` would give a person one after the other, reserving nothing."""
    now = database_now()
    free = Q(reserved_until=None) | Q(reserved_until__lte=now) | Q(reserved_by=by)
    items = _for(by, query or QueueQuery()).filter(free).exclude(pk__in=besides)
    own = ReviewSkip.objects.filter(item=OuterRef("pk"), reviewer=by).values("skipped_at")[:1]
    ordered = items.annotate(left_at=Subquery(own))
    return ordered.order_by(F("left_at").asc(nulls_first=True), "rank", "distance", "id")


def reserve(item: ReviewItem, by: User) -> ReviewItem:
    """Keep an item for a person who opened it, or is still at it, for 15 minutes more.

    Raises ItemTakenError naming who has it open.
    """
    now = database_now()
    free = Q(reserved_until=None) | Q(reserved_until__lte=now) | Q(reserved_by=by)
    waiting = ReviewItem.objects.waiting().filter(free, pk=item.pk)
    if not waiting.update(reserved_by=by, reserved_until=now + RESERVED_FOR):
        check_free(item, by)
    item.refresh_from_db()
    return item


def check_free(item: ReviewItem, by: User) -> None:
    """Raise ItemTakenError when somebody else has the item open now."""
    now = database_now()
    other = ReviewItem.objects.reserved(now=now).exclude(reserved_by=by).filter(pk=item.pk)
    taken = other.select_related("reserved_by").first()
    if taken is not None:
        name = taken.reserved_by.get_username() if taken.reserved_by else "Another reviewer"
        raise ItemTakenError(f"{name} has this one open. Take the next one.")


def release(item: ReviewItem, by: User) -> None:
    """Give an item back that the person has open; nothing when they have not."""
    ReviewItem.objects.filter(pk=item.pk, reserved_by=by).update(**FREE)


def skip(item: ReviewItem, by: User) -> None:
    """Leave an item for later: it comes back to the person after the rest, and to others as before."""
    with transaction.atomic():
        release(item, by)
        ReviewSkip.objects.update_or_create(
            item=item, reviewer=by, defaults={"skipped_at": database_now()}
        )


def assign(item_ids: Collection[int], to: User | None) -> int:
    """Let only one person get items that wait, or everybody again; return how many."""
    return ReviewItem.objects.waiting().filter(pk__in=item_ids).update(assigned_to=to)


def ask_for_review(result: Result, *, by: User | None) -> ReviewItem:
    """Bring a result into the queue by hand and return its item; one that is there is opened again.

    Raises NotEndedError for a result that has not ended.
    """
    with transaction.atomic():
        run = Run.objects.hold(result.run_id)
        if not Result.objects.filter(pk=result.pk, status__in=ENDED).exists():
            raise NotEndedError("This execution has not ended. Review it when it has.")
        asked = f" {Reason.ASKED_FOR.value} "
        item, is_new = ReviewItem.objects.get_or_create(
            result=result,
            defaults={"reasons": asked, "rank": Reason.ASKED_FOR.rank, "added_by": by}
            | {"wanted": reviewers_of(run)},
        )
        if not is_new and Reason.ASKED_FOR not in item.why:
            item.reasons, item.rank, item.added_by = asked + item.reasons.lstrip(), 0, by
            item.save(update_fields=("reasons", "rank", "added_by"))
    return item


def forget_outputs(result_ids: Sequence[int]) -> None:
    """Mark the reviews of outputs that are about to be replaced as stale; their results wait for no one.

    The reviews are kept and shown with the earlier attempt; they do not count for the new output. The caller holds
    the run.
    """
    reviews = Review.objects.filter(result_id__in=result_ids, stale_at=None)
    reviews.update(stale_at=database_now())
    ReviewItem.objects.filter(result_id__in=result_ids).delete()
    Result.objects.filter(pk__in=result_ids).exclude(reviewed_verdict="").update(
        reviewed_verdict=""
    )


def reviewers_of(run: Run) -> int:
    """Return how many people decide each item, by the rules frozen in the run; 1 where they cannot be read."""
    try:
        return read_plan(
            Run.objects.only("snapshot").get(pk=run.pk).snapshot
        ).policy.review_reviewers
    except (DomainError, KeyError, TypeError):
        return 1


def _for(by: User, query: QueueQuery) -> QuerySet[ReviewItem]:
    """Return what waits for a decision of this person."""
    decided = Review.objects.standing().filter(result=OuterRef("result"), reviewer=by)
    items = query.items().filter(closed_at=None)
    return items.filter(Q(assigned_to=None) | Q(assigned_to=by)).exclude(Exists(decided))


def _first_free(items: QuerySet[ReviewItem], by: User) -> ReviewItem | None:
    own = ReviewSkip.objects.filter(item=OuterRef("pk"), reviewer=by)
    never = items.exclude(Exists(own)).order_by("rank", "distance", "id")
    skipped = items.annotate(left_at=Subquery(own.values("skipped_at")[:1])).exclude(left_at=None)
    for waiting in (never, skipped.order_by("left_at", "id")):
        if (found := waiting.select_for_update(skip_locked=True, of=("self",)).first()) is not None:
            return found
    return None
