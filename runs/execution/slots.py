"""The limits of each language model, agreed on by all pairs of hands through the database.

Whoever changes anything of a model's limits holds the model's row first, then slots, then starts,
then events of runs: always in this order, so that nobody waits for another in a circle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from evaluators.judging.minutes import MINUTE_S
from evaluators.judging.sharing import Alone, Ask, Standing, Starts
from evaluators.judging.specs import ModelSpec
from evaluators.models import LanguageModel, SlotLease
from runs.execution.database import DatabaseThread
from runs.execution.limiting import (
    change_limit,
    forget_old_limit,
    limit_in_force,
    runs_of,
    tell_lowered_before,
    tell_minute_used,
)
from runs.execution.loading import RunWork
from runs.execution.starts import forget_starts, give_starts_back, grant_starts, hold_model
from runs.models.clock import LEASE, database_now

SLOT_LEASE = LEASE / 2
# Slots that do not go evenly into the hands go round by slices of time.
TURN_S = LEASE.total_seconds() / 6


class SlotKeeper:
    """Agrees with all other pairs of hands for one of them: the sharing of its limiter."""

    def __init__(self, work: RunWork, token: str, database: DatabaseThread) -> None:
        """Hold no slot yet."""
        self._work = work
        self._token = token
        self._database = database
        self._alone = Alone(time.monotonic)
        self._waited_at: dict[str, float] = {}

    async def agree(self, spec: ModelSpec, ask: Ask) -> Standing:
        """Return what holds; a model that is gone is nobody else's."""
        model_id = self._work.model_ids.get(spec.slug, 0)
        found = await self._database.do(agree, model_id, self._work.run_id, self._token, ask)
        return found or await self._alone.agree(spec, ask)

    async def starts(self, spec: ModelSpec, wanted: int, used: Mapping[int, int]) -> Starts:
        """Return how many calls may start; the run tells its readers when it has to wait."""
        model_id = self._work.model_ids.get(spec.slug, 0)
        found = await self._database.do(grant_starts, model_id, self._token, wanted, used)
        if found is None:
            return await self._alone.starts(spec, wanted, used)
        if not found.calls:
            await self._tell_wait(spec.slug, model_id)
        return found

    async def leave(self, used: Mapping[int, int]) -> None:
        """Free the slots and the starts that were not used."""
        await self._database.do(leave, self._token, used)

    async def _tell_wait(self, slug: str, model_id: int) -> None:
        """Tell of waiting once in a stretch of it."""
        now = time.monotonic()
        is_new = now > self._waited_at.get(slug, float("-inf")) + MINUTE_S
        self._waited_at[slug] = now
        if is_new:
            await self._database.do(tell_wait, self._work.run_id, model_id)


def agree(model_id: int, run_id: int, holder: str, ask: Ask) -> Standing | None:
    """Take what the hands tell and lease them slots; return what holds, None when the model is gone."""
    with transaction.atomic():
        model = hold_model(model_id)
        if model is None:
            return None
        now = database_now()
        give_starts_back(holder, ask.used)
        leases = _live_leases(model, now=now)
        if not leases:
            forget_old_limit(model, now=now)
        _take_news(model, leases, run_id, holder, ask, now=now)
        limit = limit_in_force(model)
        slots = _slots(leases, holder, ask, limit=limit, now=now)
        _write_lease(model, leases, holder, ask, slots=slots, now=now)
    pause = (model.paused_until - now).total_seconds() if model.paused_until else 0.0
    return Standing(
        slots=slots,
        limit=limit,
        most=model.concurrency,
        cuts=model.limit_cuts,
        per_minute=model.requests_per_minute,
        pause_s=max(0.0, pause),
        valid_s=SLOT_LEASE.total_seconds(),
    )


def tell_wait(run_id: int, model_id: int) -> None:
    """Tell the readers of a run that it waits for a model's minute."""
    tell_minute_used(run_id, model_id, now=database_now())


def leave(holder: str, used: Mapping[int, int]) -> None:
    """Free every slot of a holder and the starts it did not use."""
    SlotLease.objects.filter(holder=holder).delete()
    give_starts_back(holder, used)
    forget_starts(now=database_now())


def forget_leases(*, now: datetime) -> None:
    """Remove the leases that have run out, but those that another is removing."""
    expired = SlotLease.objects.select_for_update(skip_locked=True).filter(expires_at__lte=now)
    with transaction.atomic():
        SlotLease.objects.filter(id__in=expired.values("id")).delete()


def _live_leases(model: LanguageModel, *, now: datetime) -> list[SlotLease]:
    """Return the leases of a model that hold, and remove those of the dead."""
    leases = list(SlotLease.objects.filter(model=model))
    dead = [lease.pk for lease in leases if lease.expires_at <= now]
    if dead:
        SlotLease.objects.filter(id__in=dead).delete()
    return [lease for lease in leases if lease.pk not in dead]


def _take_news(
    model: LanguageModel,
    leases: Sequence[SlotLease],
    run_id: int,
    holder: str,
    ask: Ask,
    *,
    now: datetime,
) -> None:
    """Change the limit as asked, and tell every run whose hands hold slots of the model."""
    holders = {lease.holder for lease in leases}
    if holder not in holders:
        tell_lowered_before(model, run_id, now=now)
    if ask.is_refused or ask.has_earned or ask.pause_s > 0:
        run_ids = {run_id, *runs_of(holders)}
        change_limit(model, ask, run_ids=run_ids, now=now)


def _slots(leases: Sequence[SlotLease], holder: str, ask: Ask, *, limit: int, now: datetime) -> int:
    """Return how many slots the holder may use: up to what is wanted and no other holds.

    While another is short of slots nobody has more than an even share.
    """
    others = [lease for lease in leases if lease.holder != holder]
    free = limit - sum(lease.slots for lease in others)
    most = limit
    if any(lease.slots < lease.wanted for lease in others):
        sharers = sorted({holder, *(lease.holder for lease in others if lease.wanted)})
        turn = int(now.timestamp() / TURN_S)
        is_in_turn = (sharers.index(holder) + turn) % len(sharers) < limit % len(sharers)
        most = limit // len(sharers) + is_in_turn
    return max(0, min(ask.wanted, free, most))


def _write_lease(
    model: LanguageModel,
    leases: Sequence[SlotLease],
    holder: str,
    ask: Ask,
    *,
    slots: int,
    now: datetime,
) -> None:
    """Write down what the holder has; calls in flight hold their slots until they end."""
    columns: dict[str, Any] = {
        "slots": max(slots, ask.in_flight),
        "wanted": ask.wanted,
        "expires_at": now + SLOT_LEASE,
    }
    mine = [lease for lease in leases if lease.holder == holder]
    if not mine:
        SlotLease.objects.create(model=model, holder=holder, **columns)
        return
    if ask.wanted <= ask.in_flight:
        columns["starts_wanted"] = 0
    SlotLease.objects.filter(id=mine[0].pk).update(**columns)
