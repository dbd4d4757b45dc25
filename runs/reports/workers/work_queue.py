"""The runs that wait or are carried out, oldest first, and what each of them waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.conf import settings

from evaluators.templatetags.figures import counted, rough
from runs.models import Hand, Run, RunOwner
from runs.models.clock import LEASE
from runs.reports.workers.crews import Crew
from runs.reports.workers.model_lines import ModelLine, SlotHolder
from runs.reports.workers.reading import Held, Readings, RunLink

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """One active run: results waiting, held and finished.

    `gone` of those held are held by hands that are no more, the last of them for `gone_left_ms`.
    `hands` live pairs are at it of the `useful` it could occupy; `why` says what it waits for, ""
    when nothing holds it up.
    """

    run: RunLink
    target: str
    status: str
    is_own: bool
    since: datetime
    waiting: int
    held: int
    gone: int
    gone_left_ms: float
    done: int
    executions: int
    hands: int
    useful: int
    why: str
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class _Floor:
    """What every run is measured by: live workers, whether one is free, and what belongs to which run."""

    readings: Readings
    workers: int
    has_free: bool
    has_broker: bool
    hands: Mapping[int, Sequence[Hand]]
    held: Mapping[int, Sequence[Held]]
    slots: Mapping[str, Sequence[tuple[ModelLine, SlotHolder]]]


def queue_of(
    readings: Readings, crews: Sequence[Crew], models: Sequence[ModelLine], *, has_broker: bool
) -> tuple[QueuedRun, ...]:
    """Return the active runs, the one that was queued first first."""
    alive = [crew for crew in crews if crew.is_worker and crew.is_alive]
    threads = int(settings.CELERY_WORKER_CONCURRENCY)
    has_free = any(len(crew.hands) < threads for crew in alive)
    slots = [(one.token, (line, one)) for line in models for one in line.holders]
    floor = _Floor(
        readings,
        len(alive),
        has_free,
        has_broker,
        hands=_grouped((hand.run_id, hand) for hand in readings.hands),
        held=_grouped((held.run_id, held) for held in readings.held),
        slots=_grouped(slots),
    )
    return tuple(_queued(run, floor) for run in readings.runs)


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> Mapping[Key, Sequence[Value]]:
    groups: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _queued(run: Run, floor: _Floor) -> QueuedRun:
    hands = floor.hands.get(run.pk, ())
    alive = [hand for hand in hands if floor.readings.is_alive(hand.heartbeat_at)]
    tokens = {hand.token for hand in hands}
    leases = floor.held.get(run.pk, ())
    gone = [lease for lease in leases if lease.token not in tokens]
    held = sum(lease.count for lease in leases)
    waiting = floor.readings.waiting.get(run.pk, 0)
    left = waiting + held
    is_own = run.owner == RunOwner.COMMAND_LINE
    why, is_stuck = _own(run, floor) if is_own else _why(run, alive, left, floor)
    return QueuedRun(
        run=floor.readings.links[run.pk],
        target=run.target_name,
        status=run.status,
        is_own=is_own,
        since=getattr(run, "queued_at", run.created_at),
        waiting=waiting,
        held=held,
        gone=sum(lease.count for lease in gone),
        gone_left_ms=max((floor.readings.until_ms(lease.until) for lease in gone), default=0.0),
        done=run.done_count,
        executions=run.execution_count,
        hands=len(alive),
        useful=1 if is_own else _useful(run, left, floor),
        why=why,
        is_stuck=is_stuck,
    )


def _useful(run: Run, left: int, floor: _Floor) -> int:
    """Return how many pairs of hands the run could occupy of those the workers may lend."""
    return max(1, min(floor.workers, -(-left // max(1, run.concurrency))))


def _own(run: Run, floor: _Floor) -> tuple[str, bool]:
    readings = floor.readings
    if run.heartbeat_at is None or readings.is_alive(run.heartbeat_at):
        return "carried out by a command line", False
    silence = rough(readings.since_ms(run.heartbeat_at))
    ends = rough(2 * LEASE.total_seconds() * 1000)
    return f"its command line is silent for {silence}; after {ends} the run is cancelled", True


def _why(run: Run, hands: Sequence[Hand], left: int, floor: _Floor) -> tuple[str, bool]:
    """Say what holds a run of the workers up, and whether nothing moves meanwhile."""
    if not floor.workers:
        return "waits for a worker", True
    if not left:
        return "is being finished", False
    if not hands:
        return _untaken(floor)
    if slow := _slowed(hands, floor):
        return slow, False
    missing = _useful(run, left, floor) - len(hands)
    if missing > 0:
        return f"could use {counted(missing, 'more worker,more workers')}", False
    return "", False


def _untaken(floor: _Floor) -> tuple[str, bool]:
    if not floor.has_broker:
        return "waits for the broker", True
    if not floor.has_free:
        return "waits until a worker is done with another run", False
    return "no worker is at it yet; one takes it on within seconds", False


def _slowed(hands: Sequence[Hand], floor: _Floor) -> str:
    """Name the model that these hands wait for, with what it gives them."""
    own = [pair for hand in hands for pair in floor.slots.get(hand.token, ())]
    for model, holder in own:
        if model.paused_ms is not None:
            return f"{model.name} is paused for {rough(model.paused_ms)}"
        if holder.starts_wanted and model.per_minute:
            return f"{model.name} takes {counted(model.per_minute, 'call')} a minute"
    for model, holder in own:
        if holder.slots < holder.wanted:
            mine = [one for line, one in own if line is model]
            slots, wanted = sum(one.slots for one in mine), sum(one.wanted for one in mine)
            return f"{model.name} gives {slots} of {counted(wanted, 'call')} at a time"
    return ""
