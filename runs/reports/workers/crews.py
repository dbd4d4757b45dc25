"""Each worker with the pairs of hands it has at runs, and the hands of command lines."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.conf import settings

from runs.models import Hand, RunOwner, WorkerProcess
from runs.reports.workers.reading import Held, Readings, RunLink, without_passwords

CrewKind = Literal["process", "embedded", "command_line", "unlisted"]


@dataclass(frozen=True, slots=True)
class HandRow:
    """One pair of hands; `under_way` is None until they first told."""

    run: RunLink
    since: datetime
    silent_ms: float
    is_alive: bool
    under_way: int | None
    held: int
    lease_left_ms: float | None


@dataclass(frozen=True, slots=True)
class Crew:
    """One process and its hands.

    `kind` is process or embedded for a worker, command_line for a run's own process, unlisted for
    hands whose worker took itself off the list and has not let go of them yet.
    """

    host: str
    pid: str
    kind: CrewKind
    is_alive: bool
    since: datetime | None
    silent_ms: float | None
    version: str
    sandbox: str
    last_error: str
    last_error_at: datetime | None
    hands: tuple[HandRow, ...]

    @property
    def is_worker(self) -> bool:
        """Tell whether it takes on whatever run waits."""
        return self.kind in ("process", "embedded")

    @property
    def under_way(self) -> int:
        """Return how many executions it carries out."""
        return sum(hand.under_way or 0 for hand in self.hands)

    @property
    def held(self) -> int:
        """Return how many results it holds."""
        return sum(hand.held for hand in self.hands)


def crews_of(readings: Readings) -> tuple[Crew, ...]:
    """Return those that need a look first: silent ones, then those at work, then the idle."""
    by_worker: defaultdict[str, list[HandRow]] = defaultdict(list)
    owners: dict[str, str] = {}
    held = {one.token: one for one in readings.held}
    for hand in readings.hands:
        by_worker[hand.worker].append(_row(hand, held.get(hand.token), readings))
        owners[hand.worker] = hand.run.owner
    crews = [_worker(one, by_worker.pop(one.name, ()), readings) for one in readings.workers]
    crews += [_other(name, hands, owners) for name, hands in by_worker.items()]
    return tuple(sorted(crews, key=lambda crew: (crew.is_alive, not crew.hands)))


def versions_of(crews: Iterable[Crew]) -> Mapping[str, int]:
    """Count the live workers of each version, the most frequent first."""
    counts: defaultdict[str, int] = defaultdict(int)
    for crew in crews:
        if crew.is_worker and crew.is_alive:
            counts[crew.version] += 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _row(hand: Hand, held: Held | None, readings: Readings) -> HandRow:
    has_told = hand.heartbeat_at > hand.started_at
    return HandRow(
        run=readings.links[hand.run_id],
        since=hand.started_at,
        silent_ms=readings.since_ms(hand.heartbeat_at),
        is_alive=readings.is_alive(hand.heartbeat_at),
        under_way=hand.in_flight if has_told else None,
        held=held.count if held else 0,
        lease_left_ms=readings.until_ms(held.until) if held else None,
    )


def _worker(process: WorkerProcess, hands: Iterable[HandRow], readings: Readings) -> Crew:
    return Crew(
        host=process.host,
        pid=str(process.pid),
        kind="embedded" if _is_here(process) else "process",
        is_alive=readings.is_alive(process.heartbeat_at),
        since=process.started_at,
        silent_ms=readings.since_ms(process.heartbeat_at),
        version=process.version,
        sandbox=process.sandbox,
        last_error=without_passwords(process.last_error),
        last_error_at=process.last_error_at,
        hands=tuple(hands),
    )


def _is_here(process: WorkerProcess) -> bool:
    """Tell whether the worker is a thread of the process that serves this page."""
    return bool(settings.IS_EMBEDDED) and process.pid == os.getpid()


def _other(name: str, hands: Iterable[HandRow], owners: Mapping[str, str]) -> Crew:
    host, _, pid, _ = name.rsplit("/", 3) if name.count("/") > 2 else (name, "", "", "")
    rows = tuple(hands)
    is_own = owners[name] == RunOwner.COMMAND_LINE
    return Crew(
        host=host,
        pid=pid,
        kind="command_line" if is_own else "unlisted",
        is_alive=any(row.is_alive for row in rows),
        since=min(row.since for row in rows),
        silent_ms=min(row.silent_ms for row in rows),
        version="",
        sandbox="",
        last_error="",
        last_error_at=None,
        hands=rows,
    )
