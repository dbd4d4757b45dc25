"""One concurrency limit per language model over all workers: slots leased in the database in blocks."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from evaluators.models import LanguageModel, SlotLease
from runs.execution.database import DatabaseThread
from runs.execution.loading import RunWork
from runs.models import RunEvent

SLOT_LEASE = timedelta(seconds=15)
LIMIT_MEMORY = timedelta(minutes=2)


class SlotKeeper:
    """Leases slots for one pair of hands and passes on what it learns about the limits."""

    def __init__(self, work: RunWork, token: str, database: DatabaseThread) -> None:
        """Hold no slot yet."""
        self._work = work
        self._token = token
        self._database = database
        self.in_use: Counter[str] = Counter()
        self._reports: list[asyncio.Task[None]] = []

    async def lease(self, slug: str, wanted: int) -> int:
        """Return how many slots of the model these hands may use until the next renewal."""
        model_id = self._work.model_ids.get(slug)
        if model_id is None:
            return wanted
        return await self._database.do(
            lease_slots, model_id, self._token, wanted, in_use=self.in_use[slug]
        )

    def report(self, slug: str, limit: int, reason: str) -> None:
        """Keep a changed limit for all workers, and tell the readers of the run why it fell."""
        model_id = self._work.model_ids.get(slug)
        if model_id is None:
            return
        work = self._database.do(report_limit, self._work.run_id, model_id, limit, reason)
        self._reports.append(asyncio.ensure_future(work))

    async def give_back(self) -> None:
        """Finish what is being reported and free the slots."""
        if self._reports:
            await asyncio.wait(self._reports)
        await self._database.do(give_slots_back, self._token)


def lease_slots(model_id: int, holder: str, wanted: int, *, in_use: int = 0) -> int:
    """Take up to `wanted` slots of those no other holder has; returns how many are held now.

    While another holder is short, nobody takes more than an even share; slots in use stay held.
    """
    now = timezone.now()
    with transaction.atomic():
        model = LanguageModel.objects.select_for_update(no_key=True).get(id=model_id)
        SlotLease.objects.filter(model=model, expires_at__lt=now).delete()
        others = list(SlotLease.objects.filter(model=model).exclude(holder=holder))
        limit = limit_in_force(model, now=now)
        free = limit - sum(lease.slots for lease in others)
        share = limit
        if any(lease.slots < lease.wanted for lease in others):
            share = max(1, limit // (len(others) + 1))
        slots = max(in_use, min(wanted, free, share), 0)
        SlotLease.objects.update_or_create(
            model=model,
            holder=holder,
            defaults={"slots": slots, "wanted": wanted, "expires_at": now + SLOT_LEASE},
        )
    return slots


def limit_in_force(model: LanguageModel, *, now: datetime) -> int:
    """Return how many calls all workers together may have in flight.

    A lowered limit is forgotten after a while: the server that set it may have long recovered, and
    the workers that would raise it again may be gone.
    """
    changed = model.limit_changed_at
    if model.limit_now is None or changed is None or changed < now - LIMIT_MEMORY:
        return model.concurrency
    return min(model.concurrency, model.limit_now)


def report_limit(run_id: int, model_id: int, limit: int, reason: str) -> None:
    """Store the limit in force and, when it fell, an event on the run."""
    now = timezone.now()
    model = LanguageModel.objects.get(id=model_id)
    before = limit_in_force(model, now=now)
    LanguageModel.objects.filter(id=model_id).update(
        limit_now=None if limit >= model.concurrency else limit,
        limit_reason=reason[:300],
        limit_changed_at=now,
    )
    if limit < before:
        text = f"{model.name}: at most {_calls(limit)} at a time, was {before} ({reason})"
        RunEvent.objects.create(run_id=run_id, kind="limit_lowered", text=text[:500])
    elif limit >= model.concurrency:
        text = f"{model.name}: back to {_calls(limit)} at a time"
        RunEvent.objects.create(run_id=run_id, kind="limit_raised", text=text[:500])


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"


def give_slots_back(holder: str) -> None:
    """Free every slot of a holder."""
    SlotLease.objects.filter(holder=holder).delete()
