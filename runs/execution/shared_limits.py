"""The limits of each language model as rows that all workers share, and their events in run logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

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
)
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import UnsharedLimits
from evaluators.models import LanguageModel, SlotLease, StartGrant
from runs.execution.database import DatabaseThread
from runs.execution.loading import RunWork
from runs.models.database import database_now
from runs.models.runs import LEASE, RunEvent, RunWorker

COUNTS = timedelta(seconds=COUNTS_S)
SLOT_LEASE = LEASE / 2
MIN_PAUSE_SHOWN_S = 1.0
LOWERED, RAISED = "limit_lowered", "limit_raised"
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
        give_back(holder, request.used)
        shared = _read(model)
        shared.expire(now.timestamp())
        if holder not in shared.leases and shared.limit < shared.max_limit:
            because = (
                f"instead of {model.concurrency} ({model.limit_reason or '429 from the server'})"
            )
            note(
                [run_id], LOWERED, model, f"at most {_calls(shared.limit)} at a time {because}", now
            )
        before = replace(shared)
        state = shared.agree(
            holder, request, now=now.timestamp(), lease_s=SLOT_LEASE.total_seconds()
        )
        _write(model, shared, holder, request, now)
        if change := _change(before, shared, request):
            holders = RunWorker.objects.filter(token__in=list(shared.leases))
            runs = {run_id, *holders.values_list("run_id", flat=True)}
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
        give_back(holder, used)
        if model.requests_per_minute is None:
            return QuotaGrant(wanted)
        forget_starts(now=now)
        shared = _read(model)
        granted = shared.grant_starts(holder, wanted, now=now.timestamp())
        if lease := shared.leases.get(holder):
            SlotLease.objects.filter(model=model, holder=holder).update(
                starts_wanted=lease.starts_wanted, starts_wanted_since=_time(lease.waits_since)
            )
        if not granted.calls:
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


def give_back(holder: str, used: Mapping[int, int]) -> None:
    """Free the starts that the holder was granted but did not use."""
    for grant_id, calls in used.items():
        grant = StartGrant.objects.filter(id=grant_id, holder=holder)
        if calls:
            grant.filter(calls__gt=calls).update(calls=calls)
        else:
            grant.delete()


def forget_starts(*, now: datetime) -> None:
    """Remove grants that no longer count, except those that another worker is removing."""
    old = StartGrant.objects.select_for_update(skip_locked=True)
    with transaction.atomic():
        old_ids = old.filter(granted_at__lte=now - COUNTS).values("id")
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
        max_limit=model.concurrency,
        limit=limit_in_force(model),
        per_minute=model.requests_per_minute,
        cuts=model.limit_cuts,
        lowered_at=_seconds(model.limit_changed_at) or NEVER,
        paused_until=_seconds(model.paused_until) or NEVER,
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


def _write(
    model: LanguageModel, shared: SharedLimit, holder: str, request: LimitRequest, now: datetime
) -> None:
    """Store what the rules changed: limit, pause, the holder's lease, and expired leases."""
    columns: dict[str, Any] = {}
    if shared.cuts != model.limit_cuts:
        columns = {"limit_cuts": shared.cuts, "limit_changed_at": now}
        columns["limit_reason"] = _reason(request)
    if shared.limit != limit_in_force(model):
        columns["limit_now"] = shared.limit
    if shared.limit >= model.concurrency and model.limit_now is not None:
        columns |= {"limit_now": None, "limit_reason": ""}
    if shared.paused_until != (_seconds(model.paused_until) or NEVER):
        columns["paused_until"] = _time(shared.paused_until)
    if columns:
        LanguageModel.objects.filter(id=model.pk).update(**columns)
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


def limit_in_force(model: LanguageModel) -> int:
    """Return how many calls all workers together may have in flight."""
    return min(model.concurrency, model.limit_now or model.concurrency)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _change(
    before: SharedLimit, after: SharedLimit, request: LimitRequest
) -> tuple[str, str] | None:
    """Return kind and text of the event about a changed limit, None when nothing changed."""
    if after.cuts != before.cuts:
        was = f"was {before.limit} ({_reason(request)})"
        return LOWERED, f"at most {_calls(after.limit)} at a time, {was}"
    if after.limit > before.limit and after.limit == after.max_limit:
        return RAISED, f"back to {_calls(after.limit)} at a time"
    if after.limit > before.limit:
        return RAISED, f"raised to {_calls(after.limit)} at a time after successful calls"
    if request.pause_s >= MIN_PAUSE_SHOWN_S and before.limit == 1:
        return PAUSED, f"no calls for {request.pause_s:.1f} s (429 from the server)"
    return None


def _reason(request: LimitRequest) -> str:
    paused = f", paused for {request.pause_s:.1f} s" if request.pause_s else ""
    return f"429 from the server{paused}"


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"


def note_wait(run_id: int, model_id: int) -> None:
    """Note in the log of a run that it waits for the model's limit of a minute."""
    model = LanguageModel.objects.filter(id=model_id).first()
    if model is not None and model.requests_per_minute is not None:
        calls = _calls(model.requests_per_minute)
        text = f"{calls} a minute are used up; the run waits"
        note([run_id], MINUTE_USED, model, text, database_now())


def note(run_ids: Iterable[int], kind: str, model: LanguageModel, text: str, now: datetime) -> None:
    """Keep only the last event of each kind for each run and model."""
    # A trial holds slots like the worker of a run, under the id 0.
    runs = {run_id for run_id in run_ids if run_id}
    events = RunEvent.objects.filter(run__in=runs, kind=kind, text__startswith=f"{model.name}: ")
    run_of_event = dict(events.values_list("id", "run_id"))
    text = f"{model.name}: {text}"[:500]
    RunEvent.objects.filter(id__in=run_of_event).update(text=text, at=now)
    missing = sorted(runs - set(run_of_event.values()))
    new = [RunEvent(run_id=run_id, at=now, kind=kind, text=text) for run_id in missing]
    RunEvent.objects.bulk_create(new)
