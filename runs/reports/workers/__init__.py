"""The workers page: is anybody working, on what, what waits and why, which model brakes, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from runs.models.clock import database_now
from runs.reports.workers.crews import Crew, crews_of
from runs.reports.workers.model_lines import ModelLine, Models, models_of
from runs.reports.workers.reading import read
from runs.reports.workers.state import State, state_of
from runs.reports.workers.totals import Totals, totals_of
from runs.reports.workers.troubles import Trouble, troubles_of
from runs.reports.workers.work_queue import QueuedRun, queue_of
from runs.services.broker import BrokerState, ask_broker

# A poll draws no more rows than these, however large the site is.
MOST_CREWS, MOST_RUNS, MOST_MODELS = 25, 25, 25


@dataclass(frozen=True, slots=True)
class WorkersPage:
    """What the page shows at a moment, and how much more there is than it lists."""

    state: State
    totals: Totals
    broker: BrokerState
    crews: tuple[Crew, ...]
    crews_left: int
    queue: tuple[QueuedRun, ...]
    runs_left: int
    models: Models
    lines: tuple[ModelLine, ...]
    lines_left: int
    troubles: tuple[Trouble, ...]


def workers_page() -> WorkersPage:
    """Return the page in a fixed number of queries and one question to the broker."""
    readings = read(database_now())
    crews = crews_of(readings)
    models = models_of(readings)
    broker = ask_broker()
    queue = queue_of(readings, crews, models.lines, has_broker=broker.answers)
    return WorkersPage(
        state=state_of(crews, queue, broker),
        totals=totals_of(crews, queue),
        broker=broker,
        crews=crews[:MOST_CREWS],
        crews_left=max(0, len(crews) - MOST_CREWS),
        queue=queue[:MOST_RUNS],
        runs_left=max(0, len(queue) - MOST_RUNS),
        models=models,
        lines=models.lines[:MOST_MODELS],
        lines_left=max(0, len(models.lines) - MOST_MODELS),
        troubles=troubles_of(crews, now=readings.now),
    )
