"""The limits of each language model, agreed on by all workers through the database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from evaluators.model_calls.limit_policy import (
    COUNTS_S,
    MINUTE_S,
    Alone,
    Ask,
    Granted,
    Standing,
    Starts,
    Waiting,
    changed_limit,
    share_of,
)
from evaluators.model_calls.models import ModelSpec
from evaluators.models import LanguageModel, SlotLease, StartGrant
from runs.execution.database import DatabaseThread
from runs.execution.loading import RunWork
from runs.models.clock import LEASE, database_now
from runs.models.runs import RunEvent, RunWorker

LIMIT_MEMORY = timedelta(minutes=2)
WORTH_TELLING_S = 1.0
LOWERED, RAISED = "limit_lowered", "limit_raised"
PAUSED, MINUTE_USED = "model_paused", "minute_used"


def limit_in_force(model: LanguageModel) -> int:
    """Return how many calls all workers together may have in flight."""
    return min(model.concurrency, model.limit_now or model.concurrency)


def forget_old_limit(model: LanguageModel, *, now: datetime) -> None:
    """Lift a lowered limit that nobody has worked under for a while: who would raise it is gone.

    To be called when nobody holds slots. The server that set the limit may have long recovered.
    """
    changed = model.limit_changed_at
    if model.limit_now is not None and (changed is None or changed < now - LIMIT_MEMORY):
        _change(model, limit_now=None, limit_reason="")


def change_limit(model: LanguageModel, ask: Ask, *, run_ids: Iterable[int], now: datetime) -> None:
    """Lower, raise or pause as the hands ask for who know the model's limit, and tell the runs.

    The model's row is held, so what they know is compared and changed in one step.
    """
    before = limit_in_force(model)
    after, cuts = changed_limit(before, model.limit_cuts, ask, most=model.concurrency)
    reason = reason_of(ask)
    if ask.pause_s > 0:
        _pause(model, now + timedelta(seconds=ask.pause_s))
    if cuts != model.limit_cuts:
        facts = {"limit_reason": reason, "limit_changed_at": now}
        _change(model, limit_now=after, limit_cuts=cuts, **facts)
        text = f"at most {_calls(after)} at a time, was {before} ({reason})"
        tell(run_ids, LOWERED, model, text, now=now)
    elif after > before and after == model.concurrency:
        _change(model, limit_now=None, limit_reason="")
        tell(run_ids, RAISED, model, f"back to {_calls(after)} at a time", now=now)
    elif after > before:
        _change(model, limit_now=after)
        text = f"raised to {_calls(after)} at a time after successful calls"
        tell(run_ids, RAISED, model, text, now=now)
    elif ask.pause_s >= WORTH_TELLING_S and before == 1:
        text = f"no calls for {ask.pause_s:.1f} s (429 from the server)"
        tell(run_ids, PAUSED, model, text, now=now)


def reason_of(ask: Ask) -> str:
    """Return why a limit is lowered."""
    return "429 from the server" + (f", paused for {ask.pause_s:.1f} s" if ask.pause_s else "")


def tell_lowered_before(model: LanguageModel, run_id: int, *, now: datetime) -> None:
    """Tell the readers of a run that it found the model's limit lowered."""
    limit = limit_in_force(model)
    if limit < model.concurrency:
        was = f"instead of {model.concurrency} ({model.limit_reason or '429 from the server'})"
        tell([run_id], LOWERED, model, f"at most {_calls(limit)} at a time {was}", now=now)


def tell_minute_used(run_id: int, model_id: int, *, now: datetime) -> None:
    """Tell the readers of a run that it waits for the model's minute."""
    model = LanguageModel.objects.filter(id=model_id).first()
    if model is not None and model.requests_per_minute is not None:
        calls = _calls(model.requests_per_minute)
        tell([run_id], MINUTE_USED, model, f"{calls} a minute are used up; the run waits", now=now)


def tell(
    run_ids: Iterable[int], kind: str, model: LanguageModel, text: str, *, now: datetime
) -> None:
    """Show the readers of each run one event of a kind for a model: the last, however many there were."""
    # A try holds slots like the hands of a run, and has no readers to be told.
    runs = {one for one in run_ids if one}
    told = RunEvent.objects.filter(run__in=runs, kind=kind, text__startswith=f"{model.name}: ")
    told_runs = dict(told.values_list("id", "run_id"))
    text = f"{model.name}: {text}"[:500]
    RunEvent.objects.filter(id__in=told_runs).update(text=text, at=now)
    missing = sorted(runs - set(told_runs.values()))
    new = [RunEvent(run_id=one, at=now, kind=kind, text=text) for one in missing]
    RunEvent.objects.bulk_create(new)


def runs_of(holders: Iterable[str]) -> set[int]:
    """Return the runs whose hands these are."""
    return set(RunWorker.objects.filter(token__in=list(holders)).values_list("run_id", flat=True))


def _change(model: LanguageModel, **columns: Any) -> None:
    LanguageModel.objects.filter(id=model.pk).update(**columns)
    for name, value in columns.items():
        setattr(model, name, value)


def _pause(model: LanguageModel, until: datetime) -> None:
    if model.paused_until is None or model.paused_until < until:
        _change(model, paused_until=until)


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"


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
