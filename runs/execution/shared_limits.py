"""The limits of each language model as rows that all workers share, and their events in run logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Q

from evaluators.model_calls.limit_policy import (
    COUNTS_S,
    MINUTE_S,
    NEVER,
    GrantedStarts,
    Lease,
    LimitRequest,
    LimitState,
    QuotaGrant,
    SharedLimit,
    Throttle,
)
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import UnsharedLimits
from evaluators.models import LanguageModel, SlotLease, StartGrant
from runs.execution.database import DatabaseThread
from runs.execution.loading import RunWork
from runs.models.database import database_now
from runs.models.runs import LEASE, Run, RunEvent, RunWorker

COUNTS = timedelta(seconds=COUNTS_S)
SLOT_LEASE = LEASE / 2
MIN_PAUSE_SHOWN_S = 5.0
SLOWED, FREED = "model_slowed", "model_freed"
SILENT, ANSWERS = "model_silent", "model_answers"
PAUSED, MINUTE_USED = "model_paused", "minute_used"


class SlotKeeper:
    """Shares the limits of models with all other workers, for the limiter of one worker."""

    def __init__(self, work: RunWork, token: str, database: DatabaseThread) -> None:
        """Hold no slot yet."""
        self._work = work
        self._token = token
        self._database = database
        self._unshared = UnsharedLimits(time.monotonic)
        self._waited_at: dict[str, float] = {}

    async def agree(self, spec: ModelSpec, request: LimitRequest) -> LimitState:
        """Return the limits in force; a model without a row is not shared."""
        model_id = self._work.model_ids.get(spec.slug, 0)
        state = await self._database.do(agree, model_id, self._work.run_id, self._token, request)
        return state or await self._unshared.agree(spec, request)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> QuotaGrant:
        """Return how many calls may start; the run's log notes once that it waits."""
        model_id = self._work.model_ids.get(spec.slug, 0)
        granted = await self._database.do(grant_starts, model_id, self._token, wanted, used)
        if granted is None:
            return await self._unshared.starts(spec, wanted, used)
        if not granted.calls:
            now = time.monotonic()
            is_new = now > self._waited_at.get(spec.slug, NEVER) + MINUTE_S
            self._waited_at[spec.slug] = now
            if is_new:
                await self._database.do(note_wait, self._work.run_id, model_id)
        return granted

    async def leave(self, used: Mapping[int, int]) -> None:
        """Free the slots and the starts that were not used."""
        await self._database.do(leave, self._token, used)


def agree(model_id: int, run_id: int, holder: str, request: LimitRequest) -> LimitState | None:
    """Apply a worker's report and lease it slots; return the limits, None when the model is gone."""
    with transaction.atomic():
        model = _hold(model_id)
        if model is None:
            return None
        now = database_now()
        unused = give_back(holder, request.used)
        shared = _read(model)
        shared.throttle.give_back(unused)
        shared.expire(now.timestamp())
        before = None if holder not in shared.leases else replace(shared.throttle)
        state = shared.agree(
            holder, request, now=now.timestamp(), lease_s=SLOT_LEASE.total_seconds()
        )
        _write(model, shared, holder, now)
        if change := _change(before or Throttle(), shared.throttle, now.timestamp()):
            holders = RunWorker.objects.filter(token__in=list(shared.leases))
            runs = (
                {run_id} if before is None else {run_id, *holders.values_list("run_id", flat=True)}
            )
            note(runs, change[0], model, change[1], now)
    return state


def grant_starts(
    model_id: int, holder: str, wanted: int, used: Mapping[int, int]
) -> QuotaGrant | None:
    """Grant the holder as many of the wanted starts as the minute and other holders allow.

    Returns None when the model is gone. `used` are the holder's grants that were not used up.
    """
    with transaction.atomic():
        model = _hold(model_id)
        if model is None:
            return None
        now = database_now()
        unused = give_back(holder, used)
        shared = _read(model)
        shared.throttle.give_back(unused)
        if not shared.is_metered:
            return QuotaGrant(wanted)
        if model.requests_per_minute is not None:
            forget_starts(now=now)
        granted = shared.grant_starts(holder, wanted, now=now.timestamp())
        _write_throttle(model, shared.throttle)
        if lease := shared.leases.get(holder):
            SlotLease.objects.filter(model=model, holder=holder).update(
                starts_wanted=lease.starts_wanted, starts_wanted_since=_time(lease.waits_since)
            )
        if not granted.calls or model.requests_per_minute is None:
            return granted
        row = StartGrant.objects.create(
            model=model, holder=holder, granted_at=now, calls=granted.calls
        )
    return replace(granted, grant=row.pk)


def leave(holder: str, used: Mapping[int, int]) -> None:
    """Free every slot of a holder and the starts it did not use."""
    SlotLease.objects.filter(holder=holder).delete()
    give_back(holder, used)
    forget_starts(now=database_now())


def give_back(holder: str, used: Mapping[int, int]) -> int:
    """Free the starts that the holder was granted but did not use, and return how many."""
    unused = 0
    for grant in StartGrant.objects.filter(id__in=used, holder=holder):
        unused += max(0, grant.calls - used[grant.pk])
        if used[grant.pk]:
            StartGrant.objects.filter(id=grant.pk, calls__gt=used[grant.pk]).update(
                calls=used[grant.pk]
            )
        else:
            grant.delete()
    return unused


def forget_starts(*, now: datetime) -> None:
    """Remove grants that no longer count, except those that another worker is removing."""
    old = StartGrant.objects.select_for_update(skip_locked=True)
    # Those from the future are of before the clock was set back.
    uncounted = Q(granted_at__lte=now - COUNTS) | Q(granted_at__gte=now + COUNTS)
    with transaction.atomic():
        old_ids = old.filter(uncounted).values("id")
        StartGrant.objects.filter(id__in=old_ids).delete()


def forget_slot_leases(*, now: datetime) -> None:
    """Remove expired leases of slots, except those that another worker is removing."""
    expired = SlotLease.objects.select_for_update(skip_locked=True).filter(expires_at__lte=now)
    with transaction.atomic():
        SlotLease.objects.filter(id__in=expired.values("id")).delete()


def _hold(model_id: int) -> LanguageModel | None:
    """Return a model whose row stays locked until the transaction ends; None when it is gone."""
    return LanguageModel.objects.select_for_update(no_key=True).filter(id=model_id).first()


def _read(model: LanguageModel) -> SharedLimit:
    """Return the rows of a model in the form that the rules take; the caller holds the model."""
    grants = StartGrant.objects.filter(model=model) if model.requests_per_minute else ()
    return SharedLimit(
        concurrency=model.concurrency,
        per_minute=model.requests_per_minute,
        throttle=model.throttle,
        leases={
            row.holder: Lease(
                row.slots,
                row.wanted,
                row.expires_at.timestamp(),
                row.starts_wanted,
                _seconds(row.starts_wanted_since),
            )
            for row in SlotLease.objects.filter(model=model)
        },
        grants={
            row.pk: GrantedStarts(row.holder, row.granted_at.timestamp(), row.calls)
            for row in grants
        },
    )


def _write_throttle(model: LanguageModel, throttle: Throttle) -> None:
    LanguageModel.objects.filter(id=model.pk).update(throttle_state=asdict(throttle))


def _write(model: LanguageModel, shared: SharedLimit, holder: str, now: datetime) -> None:
    """Store what the rules changed: the throttle, the holder's lease, and expired leases."""
    _write_throttle(model, shared.throttle)
    leases = SlotLease.objects.filter(model=model)
    leases.exclude(holder__in=list(shared.leases)).delete()
    lease = shared.leases[holder]
    leases.update_or_create(
        model=model,
        holder=holder,
        defaults={
            "slots": lease.slots,
            "wanted": lease.wanted,
            "starts_wanted": lease.starts_wanted,
            "expires_at": now + SLOT_LEASE,
        },
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _change(before: Throttle, after: Throttle, now: float) -> tuple[str, str] | None:
    """Return kind and text of the event about what changed for the calls of a model, None for nothing."""
    if after.is_silent and not before.is_silent:
        return SILENT, f"does not answer ({after.reason}); retried with one call at a time"
    if before.silent_since is not None and not after.is_silent:
        return ANSWERS, f"answers again, after {now - before.silent_since:.0f} s"
    if after.rate is not None and (before.rate is None or after.rate < before.rate):
        return SLOWED, f"slowed to {after.rate:.3g} calls a second ({after.reason})"
    if before.rate is not None and after.rate is None:
        return FREED, "no longer slowed"
    pause_s = (after.paused_until or now) - max(now, before.paused_until or now)
    if pause_s >= MIN_PAUSE_SHOWN_S:
        return PAUSED, f"no calls for {pause_s:.1f} s ({after.reason})"
    return None


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"


def note_wait(run_id: int, model_id: int) -> None:
    """Note in the log of a run that it waits for the model's limit of a minute."""
    model = LanguageModel.objects.filter(id=model_id).first()
    if model is None or model.requests_per_minute is None:
        return
    if model.throttle.rate is None and not model.throttle.is_silent:
        calls = _calls(model.requests_per_minute)
        text = f"the run waits for its limit of {calls} a minute, spread over the minute"
        note([run_id], MINUTE_USED, model, text, database_now())


def note(run_ids: Iterable[int], kind: str, model: LanguageModel, text: str, now: datetime) -> None:
    """Keep only the last event of each kind for each run and model."""
    # A trial holds slots like the worker of a run, under the id 0; a deleted run may still have workers.
    runs = set(Run.objects.filter(id__in=run_ids).values_list("id", flat=True))
    events = RunEvent.objects.filter(run__in=runs, kind=kind, text__startswith=f"{model.name}: ")
    run_of_event = dict(events.values_list("id", "run_id"))
    text = f"{model.name}: {text}"[:500]
    RunEvent.objects.filter(id__in=run_of_event).update(text=text, at=now)
    missing = sorted(runs - set(run_of_event.values()))
    new = [RunEvent(run_id=run_id, at=now, kind=kind, text=text) for run_id in missing]
    RunEvent.objects.bulk_create(new)
