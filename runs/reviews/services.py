"""The review queue: reserve items for reviewers; make, change and undo decisions (SCORING §4.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Concat, LTrim

from evaluators.models import COMMAND_LINE, AuditEntry
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError, Verdict
from runs.engine.plan import read_plan
from runs.engine.review_rules import LABELS, Consensus, ReviewReason, combine_decisions
from runs.finishing import renew_figures
from runs.models.database import among, database_now, insert_rows
from runs.models.results import Result, ResultOutput, ResultStatus
from runs.models.reviews import (
    ENDED,
    MAX_MARKS,
    RESERVED_FOR,
    QueueQuery,
    Review,
    ReviewItem,
    ReviewSkip,
)
from runs.models.runs import Run
from runs.models.suites import Suite, SuiteDraft
from runs.suites.drafts import CHANGED, DraftChangedError, change_draft, get_draft
from runs.suites.edits import SetPolicy
from runs.suites.services import SuiteArchivedError

FREE = {"reserved_by": None, "reserved_until": None}


class NoOutputError(DomainError):
    """The output of the result was removed, so nobody can judge it."""

    code = "output_removed"


class NotEndedError(DomainError):
    """The result has not ended, so there is nothing to decide on."""

    code = "result_not_ended"


class ItemTakenError(DomainError):
    """Another reviewer has the item open."""

    code = "review_item_taken"


def next_item(
    by: User, query: QueueQuery | None = None, *, excluding: Collection[int] = ()
) -> ReviewItem | None:
    """Return the next item for a person, reserved for them; None when nothing is left for them.

    An item that they have open comes first, so a page opened again shows the same. Then come free items that they
    have not decided and that are not assigned to others, the most doubtful first. Skipped items come last, the
    longest skipped first. Two requests at once never get the same item. `excluding` are items to leave out.
    """
    mine = _for(by, query or QueueQuery()).exclude(pk__in=excluding)
    while True:
        with transaction.atomic():
            now = database_now()
            held = mine.filter(reserved_by=by, reserved_until__gt=now).order_by(
                "reserved_until", "id"
            )
            free = Q(reserved_until=None) | Q(reserved_until__lte=now) | Q(reserved_by=by)
            item = held.first() or _first_free(mine.filter(free), by)
            if item is None:
                return None
            still = ReviewItem.objects.waiting().filter(free, pk=item.pk)
            if still.update(reserved_by=by, reserved_until=now + RESERVED_FOR):
                item.refresh_from_db()
                return item


def upcoming_items(
    by: User, query: QueueQuery | None = None, *, excluding: Collection[int] = ()
) -> QuerySet[ReviewItem]:
    """Return the items that `next_item` would give a person, in no order."""
    now = database_now()
    free = Q(reserved_until=None) | Q(reserved_until__lte=now) | Q(reserved_by=by)
    return _for(by, query or QueueQuery()).filter(free).exclude(pk__in=excluding)


def first_items(items: QuerySet[ReviewItem], by: User, most: int) -> Sequence[int]:
    """Return the ids of the first items in the turn of a person."""
    first: list[int] = []
    for waiting in _in_turn(items, by):
        first += waiting.values_list("pk", flat=True)[: most - len(first)]
    return first


MAX_IDENTICAL = 50


def identical_items(
    item: ReviewItem, by: User, query: QueueQuery | None = None
) -> Sequence[ReviewItem]:
    """Return other items that a person could decide like this one: the same case with the same output.

    That is the same text after the same steps, without files. At most 50, those of the item's run first.
    """
    output = ResultOutput.objects.filter(result=item.result_id, removed_at=None).first()
    if output is None or not output.text or item.result.artifacts.exists():
        return []
    same = upcoming_items(by, query, excluding=[item.pk]).filter(
        result__case=item.result.case_id,
        result__status=ResultStatus.SCORED,
        result__artifacts=None,
        result__output__removed_at=None,
        result__output__text=output.text,
    )
    others = same.select_related("result__output", "run")
    others = others.defer("run__snapshot", "run__summary", "run__leaf_scores")
    shown = _shown_part(output)
    found = [other for other in others[:MAX_IDENTICAL] if _shown_part(other.result.output) == shown]
    return sorted(
        found,
        key=lambda other: (other.run_id != item.run_id, other.run_id, other.result.repetition),
    )


def _shown_part(output: ResultOutput) -> Any:
    """Return what a reviewer sees of an output, without times and tokens."""
    parts = ("type", "name", "input", "output", "error")
    steps = [[step.get(part) for part in parts] for step in output.trace or ()]
    return output.text, output.messages, steps


def reserve(item: ReviewItem, by: User) -> ReviewItem:
    """Reserve an item for a person who opened it or still has it open, for 15 minutes.

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
        raise ItemTakenError(f"{name} has this result open. Review another one.")


def release(item: ReviewItem, by: User) -> None:
    """Release an item that the person has open."""
    ReviewItem.objects.filter(pk=item.pk, reserved_by=by).update(**FREE)


def skip(item: ReviewItem, by: User) -> None:
    """Leave an item for later: the person gets it again after the rest, others as before; nothing if it is gone."""
    with transaction.atomic():
        if not ReviewItem.objects.select_for_update(no_key=True).filter(pk=item.pk):
            return
        release(item, by)
        ReviewSkip.objects.update_or_create(
            item=item, reviewer=by, defaults={"skipped_at": database_now()}
        )


def assign(item_ids: Collection[int], to: User | None, *, by: User) -> int:
    """Assign waiting items to one person, or to everybody again; return how many."""
    with transaction.atomic():
        items = ReviewItem.objects.waiting().filter(pk__in=item_ids)
        by_run = items.order_by().values_list("run_id", "run__suite__slug", "run__number")
        entries = [
            AuditEntry(
                actor=by,
                actor_name=by.get_username(),
                action="assign_reviews",
                object_type="run",
                object_id=str(run_id),
                object_name=f"{slug} #{number}",
                after={"results": count, "assigned_to": to.get_username() if to else "everyone"},
            )
            for run_id, slug, number, count in by_run.annotate(Count("pk"))
        ]
        AuditEntry.objects.record_many(entries)
        return items.update(assigned_to=to)


def ask_for_review(result: Result, *, by: User | None) -> ReviewItem:
    """Add a result to the queue by hand and return its item.

    Raises NotEndedError for a result that has not ended, NoOutputError for one whose output was removed.
    """
    with transaction.atomic():
        run = Run.objects.hold(result.run_id)
        if not Result.objects.filter(pk=result.pk, status__in=ENDED).exists():
            raise NotEndedError("This result has not ended. Review it afterwards.")
        output = ResultOutput.objects.filter(result=result).first()
        if output is not None and output.removed_at is not None:
            raise NoOutputError(f"{output.removal_message} It can no longer be reviewed.")
        reason = f" {ReviewReason.ASKED_FOR.value} "
        item, is_new = ReviewItem.objects.get_or_create(
            result=result,
            defaults={
                "run": run,
                "reasons": reason,
                "rank": ReviewReason.ASKED_FOR.rank,
                "added_by": by,
            }
            | {"wanted": reviewer_count(run)},
        )
        if not is_new and ReviewReason.ASKED_FOR in item.why:
            return item
        if not is_new:
            item.reasons, item.rank, item.added_by = reason + item.reasons.lstrip(), 0, by
            item.save(update_fields=("reasons", "rank", "added_by"))
        _record_request(run, by, {"results": 1})
    return item


@dataclass(frozen=True, slots=True)
class AskedReviews:
    """How many results a request for reviews added, and how many were in the queue, open or decided, before."""

    added: int
    there: int


def ask_for_reviews(
    run: Run, results: QuerySet[Result], *, by: User, assigned_to: User | None = None
) -> AskedReviews:
    """Add results of a run to the queue by hand, all or none, and assign those that wait to a person.

    Leaves out results that have not ended or whose output was removed.
    """
    with transaction.atomic():
        run = Run.objects.hold(run.pk)
        asked = reviewable(results).order_by("position", "repetition")
        there = ReviewItem.objects.filter(result__in=asked.order_by().values("pk"))
        known = set(there.values_list("result_id", flat=True))
        reason = f" {ReviewReason.ASKED_FOR.value} "
        there.exclude(reasons__contains=reason).update(
            reasons=Concat(Value(reason), LTrim("reasons")),
            rank=ReviewReason.ASKED_FOR.rank,
            added_by=by,
        )
        facts = {
            "run_id": run.pk,
            "reasons": reason,
            "rank": ReviewReason.ASKED_FOR.rank,
            "distance": 1.0,
            "wanted": reviewer_count(run),
            "added_by_id": by.pk,
            "created_at": database_now(),
        }
        new = [pk for pk in asked.values_list("pk", flat=True) if pk not in known]
        insert_rows(ReviewItem, ("result_id", *facts), ((pk, *facts.values()) for pk in new))
        if assigned_to is not None:
            items = ReviewItem.objects.filter(result__in=asked.order_by().values("pk"))
            items.waiting().update(assigned_to=assigned_to)
        name = assigned_to.get_username() if assigned_to else ""
        asked_for = {"results": len(new) + len(known)}
        _record_request(run, by, asked_for | ({"assigned_to": name} if name else {}))
    return AskedReviews(len(new), len(known))


def _record_request(run: Run, by: User | None, after: Mapping[str, Any]) -> None:
    AuditEntry.objects.record(
        "ask_reviews",
        by=by,
        object_type="run",
        object_id=run.pk,
        object_name=f"{run.suite.slug} #{run.number}",
        after=after,
    )


def reviewable(results: QuerySet[Result]) -> QuerySet[Result]:
    """Return the results that people can decide on: they have ended, and their output is still stored."""
    return results.filter(status__in=ENDED).exclude(output__removed_at__isnull=False)


def reviewer_count(run: Run) -> int:
    """Return how many reviewers decide each item, by the policy of the run; 1 where it cannot be read."""
    try:
        return read_plan(
            Run.objects.only("snapshot").get(pk=run.pk).snapshot
        ).policy.review_reviewers
    except (DomainError, KeyError, TypeError):
        return 1


def _for(by: User, query: QueueQuery) -> QuerySet[ReviewItem]:
    """Return the items that wait for a decision of this person."""
    decided = Review.objects.standing().filter(result=OuterRef("result"), reviewer=by)
    items = query.items().filter(closed_at=None)
    return items.filter(Q(assigned_to=None) | Q(assigned_to=by)).exclude(Exists(decided))


def _first_free(items: QuerySet[ReviewItem], by: User) -> ReviewItem | None:
    for waiting in _in_turn(items, by):
        if (item := waiting.select_for_update(skip_locked=True, of=("self",)).first()) is not None:
            return item
    return None


def _in_turn(
    items: QuerySet[ReviewItem], by: User
) -> tuple[QuerySet[ReviewItem], QuerySet[ReviewItem]]:
    """Return the items that a person never skipped, the most doubtful first, and the skipped ones.

    The first is the order of an index, so that nothing is sorted for the next few of many.
    """
    own = ReviewSkip.objects.filter(item=OuterRef("pk"), reviewer=by)
    never = items.exclude(Exists(own)).order_by("rank", "distance", "id")
    skipped = items.annotate(left_at=Subquery(own.values("skipped_at")[:1])).exclude(left_at=None)
    return never, skipped.order_by("left_at", "id")


ACTION = "override"
MAX_NOTE_LENGTH = 10_000
MAX_NAME_LENGTH = 200
MAX_TAG_LENGTH = 60
MAX_TAGS = 20
MAX_SECONDS = 24 * 3600
MARKS = "10-"


class ReviewRefusedError(DomainError):
    """The decision is invalid."""

    code = "review_refused"


class ReviewChangedError(DomainError):
    """The result has another output now than the one that was judged."""

    code = "review_changed"


class AlreadyDecidedError(DomainError):
    """Others have decided meanwhile, and no second opinion was asked for."""

    code = "already_decided"


@dataclass(frozen=True, slots=True)
class ReviewDecision:
    """The decision of a person on one output.

    `outcome_marks` is one character per expected outcome in order: 1 met, 0 missed, - not marked, "" for none.
    `metric_labels` are whole numbers of 0 to 5 by the metric's key. `generation` is that of the output that was
    shown, 0 for the present one. `seconds` is how long the person looked at it.
    """

    verdict: Verdict
    note: str = ""
    tags: Sequence[str] = ()
    outcome_marks: str = ""
    metric_labels: Mapping[str, int] = field(default_factory=dict)
    seconds: int | None = None
    generation: int = 0


def decide(
    item: ReviewItem,
    decided: ReviewDecision,
    *,
    by: User,
    is_second_opinion: bool = False,
    together: UUID | None = None,
) -> Consensus:
    """Store the decision of a person on an item, and return the consensus of all decisions on it.

    It replaces their earlier decision, which is kept as withdrawn. With a consensus the item leaves the queue and
    `reviewed_verdict` of the result is set. The verdict of the machine never changes. With `is_second_opinion` the
    person knows that others have decided: where they disagree, the item waits for one more reviewer. Decisions made
    at once on identical outputs get the same `together`.

    Raises AlreadyDecidedError where others did meanwhile, ItemTakenError while another reviewer has it open,
    NotEndedError for a result that is tried again, ReviewChangedError where its output was replaced meanwhile, and
    ReviewRefusedError for marks, labels or tags that cannot be.
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
                "This result was reviewed while you had it open, so your decision was not stored."
            )
        Review.objects.create(
            result=result,
            reviewer=by,
            verdict=decided.verdict.value,
            note=decided.note.strip()[:MAX_NOTE_LENGTH],
            tags=tags,
            outcome_marks=decided.outcome_marks,
            metric_labels=dict(decided.metric_labels),
            seconds=None if decided.seconds is None else min(max(decided.seconds, 0), MAX_SECONDS),
            machine_verdict=result.verdict,
            machine_score=result.score,
            generation=result.generation,
            created_at=now,
            together=together,
        )
        held.skips.filter(reviewer=by).delete()
        consensus, _ = store_consensus(run, [result], by=by)
        release(held, by)
        return consensus


def decide_together(
    item: ReviewItem, others: Sequence[ReviewItem], decided: ReviewDecision, *, by: User
) -> None:
    """Store a decision on an item, and the same on others whose output is identical, as decisions of their own.

    Others that were decided, taken or rerun meanwhile are left out. Raises what `decide` raises for the item.
    """
    together = uuid4() if others else None
    decide(item, decided, by=by, together=together)
    for other in others:
        # The person looked at one output, and its metrics are those of its run.
        labels = decided.metric_labels if other.run_id == item.run_id else {}
        same = replace(
            decided, seconds=None, generation=other.result.generation, metric_labels=labels
        )
        with suppress(AlreadyDecidedError, ItemTakenError, NotEndedError, ReviewChangedError):
            decide(other, same, by=by, together=together)


def undo(item: ReviewItem, *, by: User) -> Consensus | None:
    """Withdraw the decision of a person on an item and reserve it for them; None when they have none.

    The withdrawn decision is kept. The item waits again unless the other decisions make a consensus.
    """
    with transaction.atomic():
        run, held, result = _hold(item)
        now = database_now()
        standing = Review.objects.standing().filter(result=result, reviewer=by)
        if not standing.update(withdrawn_at=now):
            return None
        consensus, _ = store_consensus(run, [result], by=by)
        release(held, by)
        if consensus.is_open:
            # Nobody else can take it in between, unless somebody has it open already.
            free = ReviewItem.objects.filter(pk=held.pk).exclude(reserved_until__gt=now)
            free.update(reserved_by=by, reserved_until=now + RESERVED_FOR)
    return consensus


def last_decided_items(by: User) -> Sequence[ReviewItem]:
    """Return the item that a person decided last, with those decided together with it in their order."""
    reviews = Review.objects.standing().filter(reviewer=by, result__review_item__isnull=False)
    last = reviews.order_by("-created_at", "-id").first()
    if last is None:
        return []
    group = reviews.filter(together=last.together) if last.together else reviews.filter(pk=last.pk)
    items = group.select_related("result__review_item").order_by("created_at", "id")
    return [review.result.review_item for review in items]


def _hold(item: ReviewItem) -> tuple[Run, ReviewItem, Result]:
    """Lock the run, so that decisions follow one another, and return run, item and result."""
    run = Run.objects.hold(Result.objects.values_list("run_id", flat=True).get(pk=item.result_id))
    held = ReviewItem.objects.select_related("result").filter(pk=item.pk).first()
    if held is None:
        raise ReviewChangedError(
            "This result was rerun and its output replaced, so your review was not stored."
        )
    return run, held, held.result


def _check(result: Result, decided: ReviewDecision) -> None:
    if result.status not in ENDED:
        raise NotEndedError("This result is being rerun. Review it afterwards.")
    if decided.generation and decided.generation != result.generation:
        raise ReviewChangedError(
            "This result was rerun since you opened it. Look at its new output and decide again."
        )
    if set(decided.outcome_marks) - set(MARKS) or len(decided.outcome_marks) > MAX_MARKS:
        raise ReviewRefusedError("A mark of an outcome is met, missed or none.")
    for metric, label in decided.metric_labels.items():
        if str(label) not in LABELS:
            raise ReviewRefusedError(f"{metric}: {label!r} is not a whole number from 0 to 5.")


def clean_tags(tags: Sequence[str]) -> list[str]:
    """Return causes of failure as they are stored; raises ReviewRefusedError for too many or too long ones."""
    causes = list(dict.fromkeys(tag for tag in (" ".join(tag.split()) for tag in tags) if tag))
    if len(causes) > MAX_TAGS:
        raise ReviewRefusedError(f"{len(causes)} causes are too many: the limit is {MAX_TAGS}.")
    for tag in causes:
        if len(tag) > MAX_TAG_LENGTH:
            raise ReviewRefusedError(
                f"“{tag[:20]}…” has {len(tag)} characters, and {MAX_TAG_LENGTH} is the limit for a cause."
            )
    return causes


def store_consensus(
    run: Run, results: Iterable[Result], *, by: User | None
) -> tuple[Consensus, int]:
    """Combine the standing decisions on results of a locked run, and write what follows from them.

    That is the item in the queue, the reviewed verdict with an audit entry, and the figures of the run where
    it counts reviews. Returns the consensus on the last result, and how many reviewed verdicts changed.
    """
    reviewers, now = reviewer_count(run), database_now()
    by_id = {result.pk: result for result in results}
    verdicts: dict[int, list[Verdict]] = {pk: [] for pk in by_id}
    standing = Review.objects.standing().filter(result__in=among(by_id)).order_by("id")
    for pk, decided in standing.values_list("result_id", "verdict"):
        verdicts[pk].append(Verdict(decided))
    entries, cases = [], set()
    consensus = combine_decisions([], reviewers)
    wanted, changed = (
        defaultdict[tuple[int, bool], list[int]](list),
        defaultdict[str, list[int]](list),
    )
    for pk, result in by_id.items():
        consensus = combine_decisions(verdicts[pk], reviewers)
        wanted[consensus.wanted, consensus.is_open].append(pk)
        verdict = "" if consensus.verdict is None else consensus.verdict.value
        if verdict != result.reviewed_verdict:
            changed[verdict].append(pk)
            entries.append(_override_entry(run, result, verdict, by))
            cases.add(result.case_id)
    for (number, is_open), ids in wanted.items():
        items = ReviewItem.objects.filter(result__in=among(ids))
        if is_open:
            items.update(wanted=number, closed_at=None)
        else:
            items.update(wanted=number)
            items.filter(closed_at=None).update(closed_at=now, **FREE)
    for verdict, ids in changed.items():
        Result.objects.filter(pk__in=among(ids)).update(reviewed_verdict=verdict)
    run.cases.refresh(run.pk, cases)
    AuditEntry.objects.record_many(entries)
    if entries and not run.is_active and counts_reviews(run):
        renew_figures(run.pk)
    return consensus, len(entries)


def _override_entry(run: Run, result: Result, verdict: str, by: User | None) -> AuditEntry:
    return AuditEntry(
        actor=by,
        actor_name=by.get_username() if by else COMMAND_LINE,
        action=ACTION,
        object_type="result",
        object_id=str(result.pk),
        object_name=f"{run.suite.slug} #{run.number} {result.case.key}"[:MAX_NAME_LENGTH],
        before={"verdict": result.verdict, "reviewed_verdict": result.reviewed_verdict},
        after={"verdict": result.verdict, "reviewed_verdict": verdict},
    )


def counts_reviews(run: Run) -> bool:
    """Tell whether the policy of the run counts reviews in its figures (SCORING §4.6)."""
    snapshot = Run.objects.only("snapshot").get(pk=run.pk).snapshot
    policy: PolicySpec = PolicySpec.model_validate(snapshot.get("policy") or {})
    return policy.count_reviews


BANDS = ("pass_threshold", "borderline_threshold")


def apply_bands(suite: Suite, sent: Mapping[str, str], *, by: User) -> SuiteDraft:
    """Set the two thresholds, 0 to 1, in the person's draft; the rest of it stays.

    Each comes with the one that it replaces, as the page showed it (`from_pass_threshold`). Raises DraftChangedError
    where the draft, or the suite if there is none, has another by now, ScoreOutOfRangeError for invalid ones, and
    SuiteArchivedError.
    """
    if suite.archived_at:
        raise SuiteArchivedError(
            f"{suite.title} is archived and cannot be changed. Restore it first."
        )
    bands = {name: _share(name, sent.get(name, "")) for name in BANDS}
    draft = get_draft(suite, by)
    for name in BANDS:
        if getattr(draft.policy, name) != _share(name, sent.get(f"from_{name}", "")):
            raise DraftChangedError(CHANGED)
    return change_draft(draft, draft.stamp, SetPolicy(bands))


def _share(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ScoreOutOfRangeError(f"{name} {text[:20]!r} is not a number") from error
