"""The starts of each minute, granted in the database to all who call a model, and given back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction

from evaluators.judging.minutes import COUNTS_S, Granted, Waiting, share_of
from evaluators.judging.sharing import Starts
from evaluators.models import LanguageModel, SlotLease, StartGrant
from runs.models.clock import database_now

COUNTS = timedelta(seconds=COUNTS_S)


def hold_model(model_id: int) -> LanguageModel | None:
    """Return a model whose row stays locked until the transaction ends; None when it is gone."""
    return LanguageModel.objects.select_for_update(no_key=True).filter(id=model_id).first()


def grant_starts(model_id: int, holder: str, wanted: int, used: Mapping[int, int]) -> Starts | None:
    """Grant the holder as many of the wanted starts as the minute and the others leave.

    Returns None when the model is gone. `used` are the holder's grants that were not used up.
    """
    with transaction.atomic():
        model = hold_model(model_id)
        if model is None:
            return None
        now = database_now()
        give_starts_back(holder, used)
        if model.requests_per_minute is None:
            return Starts(wanted)
        forget_starts(now=now)
        mine, others = _waiting(model, holder, now=now)
        calls, wait_s = share_of(
            holder,
            wanted,
            per_minute=model.requests_per_minute,
            granted=_granted(model, now=now),
            others=others,
            since=mine.since if mine is not None else now.timestamp(),
        )
        _note_waiting(model, holder, wanted - calls, is_first=bool(calls) or mine is None, now=now)
        if not calls:
            return Starts(0, wait_s)
        grant = StartGrant.objects.create(model=model, holder=holder, granted_at=now, calls=calls)
    return Starts(calls, grant=grant.pk)


def _granted(model: LanguageModel, *, now: datetime) -> list[Granted]:
    counted = StartGrant.objects.filter(model=model, granted_at__gt=now - COUNTS)
    rows = counted.values_list("holder", "granted_at", "calls")
    return [Granted(name, (now - at).total_seconds(), calls) for name, at, calls in rows]


def _waiting(
    model: LanguageModel, holder: str, *, now: datetime
) -> tuple[Waiting | None, list[Waiting]]:
    """Return how long the holder has waited for starts, None when it has not, and who else waits."""
    leases = SlotLease.objects.filter(model=model, expires_at__gt=now, starts_wanted__gt=0)
    found = [
        Waiting(lease.holder, lease.starts_wanted, lease.starts_wanted_since.timestamp())
        for lease in leases
        if lease.starts_wanted_since is not None
    ]
    mine = next((one for one in found if one.holder == holder), None)
    return mine, [one for one in found if one.holder != holder]


def _note_waiting(
    model: LanguageModel, holder: str, calls: int, *, is_first: bool, now: datetime
) -> None:
    """Note for the others that the holder waits; who was granted something queues again behind them."""
    since = {"starts_wanted_since": now} if is_first else {}
    lease = SlotLease.objects.filter(model=model, holder=holder)
    lease.update(starts_wanted=max(0, calls), **since)


def give_starts_back(holder: str, used: Mapping[int, int]) -> None:
    """Let others have what the holder's grants hold beyond the calls it started."""
    for grant_id, calls in used.items():
        grant = StartGrant.objects.filter(id=grant_id, holder=holder)
        if calls:
            grant.filter(calls__gt=calls).update(calls=calls)
        else:
            grant.delete()


def forget_starts(*, now: datetime) -> None:
    """Remove the grants that count in no minute any more, but those that another is removing."""
    old = StartGrant.objects.select_for_update(skip_locked=True).filter(
        granted_at__lte=now - COUNTS
    )
    with transaction.atomic():
        StartGrant.objects.filter(id__in=old.values("id")).delete()
