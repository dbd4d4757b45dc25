"""How the calls of the last hour went, model by model, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q

from evaluators.templatetags.figures import rough
from runs.models import CallStatus, ModelCall

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# Where more were made, the window is shorter: a busy hour holds more rows than a poll may count.
MOST_COUNTED = 5_000
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
    earlier = times.values_list("created_at", flat=True)[MOST_COUNTED : MOST_COUNTED + 1]
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
