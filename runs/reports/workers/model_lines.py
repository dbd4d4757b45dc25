"""Each language model in use: the limit in force, who has leased its slots, and how calls went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum
from django.urls import reverse

from evaluators.judging.minutes import COUNTS_S
from evaluators.models import LanguageModel, SlotLease, StartGrant
from runs.reports.workers.ledger_counts import CallCounts, Window, calls_of_last_hour
from runs.reports.workers.reading import Readings, RunLink, without_passwords

MODEL_COLUMNS = (
    *("slug", "name", "is_scripted", "concurrency", "requests_per_minute"),
    *("limit_now", "limit_reason", "limit_changed_at", "paused_until"),
)
NO_CALLS = CallCounts(0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The slots one pair of hands has leased; `run` is None where the hands are gone."""

    run: RunLink | None
    token: str
    slots: int
    wanted: int
    starts_wanted: int


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model; `limit` of `most` calls may be in flight, none starts for `paused_ms`."""

    name: str
    url: str
    is_scripted: bool
    limit: int
    most: int
    reason: str
    changed_at: datetime | None
    paused_ms: float | None
    per_minute: int | None
    started: int
    holders: tuple[SlotHolder, ...]
    calls: CallCounts

    @property
    def slots(self) -> int:
        """Return how many slots are leased."""
        return sum(holder.slots for holder in self.holders)

    @property
    def is_lowered(self) -> bool:
        """Tell whether fewer calls are allowed than the model is set to."""
        return self.limit < self.most

    @property
    def waits_for_minute(self) -> bool:
        """Tell whether calls wait for the limit of a minute."""
        return any(holder.starts_wanted for holder in self.holders)

    @property
    def brakes(self) -> bool:
        """Tell whether hands work slower for it than its settings allow, or wait for its minute.

        A limit under which nobody works holds nobody up: it is lifted before the next call.
        """
        lowered = self.is_lowered and bool(self.holders)
        return lowered or self.paused_ms is not None or self.waits_for_minute

    @property
    def is_in_use(self) -> bool:
        """Tell whether anything is to be said of it."""
        return self.brakes or bool(self.holders) or bool(self.calls.calls)


@dataclass(frozen=True, slots=True)
class Models:
    """The models in use, those that brake first, and how many more there are."""

    lines: tuple[ModelLine, ...]
    idle: int
    window: Window

    @property
    def braking(self) -> tuple[ModelLine, ...]:
        """Return those that slow runs down."""
        return tuple(line for line in self.lines if line.brakes)

    @property
    def calls(self) -> int:
        """Return how many calls were counted."""
        return sum(line.calls.calls for line in self.lines)

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return sum(line.calls.failed for line in self.lines)


def models_of(readings: Readings) -> Models:
    """Return the models as they are now, in five queries."""
    holders = _holders(readings)
    started = _started(readings.now)
    window = calls_of_last_hour(now=readings.now)
    lines = [
        _line(model, holders.get(model.pk, ()), started.get(model.pk), window, readings)
        for model in LanguageModel.objects.only(*MODEL_COLUMNS)
    ]
    used = [line for line in lines if line.is_in_use]
    used.sort(key=lambda line: not line.brakes)
    return Models(tuple(used), len(lines) - len(used), window)


def _holders(readings: Readings) -> Mapping[int, Sequence[SlotHolder]]:
    links = {hand.token: readings.links[hand.run_id] for hand in readings.hands}
    found: defaultdict[int, list[SlotHolder]] = defaultdict(list)
    leases = SlotLease.objects.filter(expires_at__gte=readings.now)
    for lease in leases.order_by("-slots", "holder"):
        found[lease.model_id].append(_holder(lease, links.get(lease.holder)))
    return found


def _holder(lease: SlotLease, run: RunLink | None) -> SlotHolder:
    return SlotHolder(run, lease.holder, lease.slots, lease.wanted, lease.starts_wanted)


def _started(now: datetime) -> Mapping[int, int]:
    """Return how many starts count against the minute, of the models that limit it."""
    counting = StartGrant.objects.filter(granted_at__gt=now - timedelta(seconds=COUNTS_S))
    grants = counting.order_by()
    return dict(grants.values_list("model_id").annotate(total=Sum("calls")))


def _line(
    model: LanguageModel,
    holders: Sequence[SlotHolder],
    started: int | None,
    window: Window,
    readings: Readings,
) -> ModelLine:
    counts = window.by_model.get(model.pk, NO_CALLS)
    paused = model.paused_until
    limit = min(model.concurrency, model.limit_now or model.concurrency)
    return ModelLine(
        name=model.name,
        url=reverse("evaluators:language-model", args=(model.slug,)),
        is_scripted=model.is_scripted,
        limit=limit,
        most=model.concurrency,
        reason=without_passwords(model.limit_reason),
        changed_at=model.limit_changed_at,
        paused_ms=readings.until_ms(paused) if paused and paused > readings.now else None,
        per_minute=model.requests_per_minute,
        started=counts.last_minute if started is None else started,
        holders=tuple(holders),
        calls=counts,
    )
