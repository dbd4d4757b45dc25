"""What of a run that ended people are to look at, and how it comes into their queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import Exists, OuterRef

from evaluators.scoring.types import DomainError
from runs.execution.review_facts import finished_of
from runs.models import ReviewItem, Run
from runs.models.clock import database_now
from runs.models.results import CHUNK
from runs.models.rows import insert_rows
from runs.plan import read_plan
from runs.reviewing import Entry, Reason, entries_of, in_order

COLUMNS = (*("result_id", "reasons", "rank", "distance", "sampling_rate", "wanted", "created_at"),)


def review_entries(run: Run) -> list[Entry]:
    """Return what of a run enters the review queue by the rules frozen in it; nothing where they cannot be read.

    What people have decided already is left out. A run of another's stored scores draws no audit, and leaves
    out what waits in its source's queue: the outputs are the same.
    """
    try:
        plan = read_plan(run.snapshot)
    except (DomainError, KeyError, TypeError):
        return []
    settled = set(
        run.results.exclude(reviewed_verdict="").order_by().values_list("id", flat=True)
    ) | set(_waiting_at_source(run))
    finished = finished_of(run, plan.policy, plan.root)
    entries = entries_of(finished, plan.policy, run=run.pk, draws=run.source_run_id is None)
    return [entry for entry in entries if entry.result not in settled]


def enter(run: Run, entries: Sequence[Entry], *, wanted: int) -> None:
    """Bring entries into the queue; the caller holds the run.

    Doing it again changes nothing: what is there stays, with the reasons of now. What nobody has touched and
    no rule brings in any more leaves.
    """
    there = {item.result_id: item for item in ReviewItem.objects.filter(result__run=run)}
    now = database_now()
    rows = (
        (
            one.result,
            _words(one.reasons),
            one.reasons[0].rank,
            one.distance,
            one.sampling_rate,
            wanted,
            now,
        )
        for one in entries
        if one.result not in there
    )
    insert_rows(ReviewItem, COLUMNS, rows)
    changed = [one for one in entries if one.result in there and _renew(there[one.result], one)]
    fields = ("reasons", "rank", "distance", "sampling_rate")
    ReviewItem.objects.bulk_update([there[one.result] for one in changed], fields, batch_size=200)
    _leave(run, {one.result for one in entries})


def _words(reasons: Sequence[Reason]) -> str:
    return f" {' '.join(reason.value for reason in reasons)} "


def _renew(item: ReviewItem, entry: Entry) -> bool:
    """Give an item that waits the reasons of now; False when nothing of it changes."""
    if item.closed_at is not None:
        return False
    by_hand = (Reason.ASKED_FOR,) if Reason.ASKED_FOR in item.why else ()
    reasons = in_order((*by_hand, *entry.reasons))
    facts = (_words(reasons), reasons[0].rank, entry.distance, entry.sampling_rate)
    if facts == (item.reasons, item.rank, item.distance, item.sampling_rate):
        return False
    item.reasons, item.rank, item.distance, item.sampling_rate = facts
    return True


def _leave(run: Run, entered: set[int]) -> None:
    """Take out what waits though no rule brings it in; what a person added, opened or decided on stays."""
    waiting = ReviewItem.objects.waiting().filter(
        result__run=run, added_by=None, assigned_to=None, result__reviews=None
    )
    untouched = waiting.exclude(reserved_until__gt=database_now())
    gone = [pk for pk, result in untouched.values_list("id", "result_id") if result not in entered]
    for start in range(0, len(gone), CHUNK):
        ReviewItem.objects.filter(pk__in=gone[start : start + CHUNK]).delete()


def _waiting_at_source(run: Run) -> Iterator[int]:
    """Yield the results whose source, of which they are a copy, waits for a person."""
    if run.source_run_id is None:
        return
    same = ReviewItem.objects.waiting().filter(
        result__run=run.source_run_id,
        result__case=OuterRef("case"),
        result__repetition=OuterRef("repetition"),
    )
    yield from run.results.filter(Exists(same)).order_by().values_list("id", flat=True)
