"""Each language model in use: the limit in force, who has leased its slots, and how its calls of the last hour went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, Sum
from django.urls import reverse

from evaluators.model_calls.limit_policy import COUNTS_S
from evaluators.models import LanguageModel, SlotLease, StartGrant
from evaluators.templatetags.figures import rough
from runs.models.results import CallStatus, ModelCall
from runs.workers.queries import Readings, RunReference, without_passwords

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# Where more were made, the window is shorter: a busy hour holds more rows than a poll may count.
MAX_COUNTED = 5_000
LABELS = {str(value): str(label) for value, label in CallStatus.choices}


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls of one model: all of the window, those of the last minute, and the failed by kind."""

    calls: int
    last_minute: int
    failed: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted: since when, and what for each model by its id."""

    since: datetime
    until: datetime
    by_model: Mapping[int, CallCounts]

    @property
    def in_words(self) -> str:
        """Say how long the window is."""
        length = self.until - self.since
        span = "hour" if length >= HOUR else rough(length.total_seconds() * 1000)
        return f"in the last {span}"


def calls_of_last_hour(*, now: datetime) -> Window:
    """Return the counts in two queries; calls answered from the ledger itself are no calls."""
    since = _start(now - HOUR)
    calls = ModelCall.objects.filter(created_at__gte=since, is_cached=False, model__isnull=False)
    rows = calls.order_by().values_list("model_id", "status")
    last_minute = Count("id", filter=Q(created_at__gte=now - MINUTE))
    counted = rows.annotate(total=Count("id"), late=last_minute)
    by_model: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for model_id, status, total, late in counted:
        by_model[int(model_id or 0)].append((status, total, late))
    return Window(since, now, {pk: _counts(own) for pk, own in by_model.items()})


def _start(hour_ago: datetime) -> datetime:
    times = ModelCall.objects.filter(created_at__gte=hour_ago).order_by("-created_at")
    earlier = times.values_list("created_at", flat=True)[MAX_COUNTED : MAX_COUNTED + 1]
    return next(iter(earlier), hour_ago)


def _counts(rows: list[tuple[str, int, int]]) -> CallCounts:
    failed = [(status, total) for status, total, _ in rows if status != CallStatus.OK]
    failed.sort(key=lambda pair: -pair[1])
    return CallCounts(
        calls=sum(total for _, total, _ in rows),
        last_minute=sum(late for _, _, late in rows),
        failed=sum(total for _, total in failed),
        kinds=tuple((LABELS.get(status, status).lower(), total) for status, total in failed),
    )


MODEL_COLUMNS = (
    *("slug", "name", "is_scripted", "concurrency", "requests_per_minute"),
    *("limit_now", "limit_reason", "limit_changed_at", "paused_until"),
)
NO_CALLS = CallCounts(0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The slots one run worker has leased; `run` is None where it is gone."""

    run: RunReference | None
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
    def slows_runs(self) -> bool:
        """Tell whether workers are slower because of it than its settings allow, or wait for its minute.

        A lowered limit without a holder slows nobody: it is lifted before the next call.
        """
        lowered = self.is_lowered and bool(self.holders)
        return lowered or self.paused_ms is not None or self.waits_for_minute

    @property
    def is_in_use(self) -> bool:
        """Tell whether anything is to be said of it."""
        return self.slows_runs or bool(self.holders) or bool(self.calls.calls)


@dataclass(frozen=True, slots=True)
class Models:
    """The models in use, those that slow runs first, and how many more there are."""

    lines: tuple[ModelLine, ...]
    idle: int
    window: Window

    @property
    def slowing(self) -> tuple[ModelLine, ...]:
        """Return those that slow runs down."""
        return tuple(line for line in self.lines if line.slows_runs)

    @property
    def calls(self) -> int:
        """Return how many calls were counted."""
        return sum(line.calls.calls for line in self.lines)

    @property
    def failed(self) -> int:
        """Return how many of them failed."""
        return sum(line.calls.failed for line in self.lines)


def read_models(readings: Readings) -> Models:
    """Return the models as they are now, in five queries."""
    holders = _holders(readings)
    started = _started(readings.now)
    window = calls_of_last_hour(now=readings.now)
    lines = [
        _line(model, holders.get(model.pk, ()), started.get(model.pk), window, readings)
        for model in LanguageModel.objects.only(*MODEL_COLUMNS)
    ]
    used = [line for line in lines if line.is_in_use]
    used.sort(key=lambda line: not line.slows_runs)
    return Models(tuple(used), len(lines) - len(used), window)


def _holders(readings: Readings) -> Mapping[int, Sequence[SlotHolder]]:
    links = {
        run_worker.token: readings.links[run_worker.run_id] for run_worker in readings.run_workers
    }
    found: defaultdict[int, list[SlotHolder]] = defaultdict(list)
    leases = SlotLease.objects.filter(expires_at__gte=readings.now)
    for lease in leases.order_by("-slots", "holder"):
        found[lease.model_id].append(_holder(lease, links.get(lease.holder)))
    return found


def _holder(lease: SlotLease, run: RunReference | None) -> SlotHolder:
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
