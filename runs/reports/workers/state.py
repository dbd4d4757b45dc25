"""The state of the workers in one sentence, and what an operator should do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from evaluators.templatetags.figures import counted
from runs.reports.workers.crews import Crew, versions_of
from runs.reports.workers.work_queue import QueuedRun
from runs.services.broker import BrokerState

WORKER_COMMAND = "celery -A evalsite worker"
SITE_COMMAND = "scripts/up"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs a person; `command` starts what is missing."""

    tone: str
    title: str
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """`sentence` says how things stand; "" where the first of the notices says it."""

    sentence: str
    notices: tuple[Notice, ...]


def state_of(crews: Sequence[Crew], queue: Sequence[QueuedRun], broker: BrokerState) -> State:
    """Return the state; a worker that is missing comes before a broker that is away."""
    alive = [crew for crew in crews if crew.is_worker and crew.is_alive]
    notices = [] if alive else [_no_worker(crews, queue)]
    if not broker.answers:
        notices.append(_no_broker(has_workers=bool(alive)))
    if len(versions := versions_of(crews)) > 1:
        notices.append(_versions(versions))
    return State(_sentence(alive, queue) if alive else "", tuple(notices))


def _sentence(alive: Sequence[Crew], queue: Sequence[QueuedRun]) -> str:
    at_work = sum(bool(crew.hands) for crew in alive)
    taken = [run for run in queue if run.hands and not run.is_own]
    own = [run for run in queue if run.is_own]
    left = [run for run in queue if not run.hands and not run.is_own]
    waiting = sum(run.waiting for run in queue)
    if not queue:
        return f"{_are(alive)} ready; nothing waits."
    if taken and at_work:
        who = _of(at_work, len(alive), "worker")
        doing = f"{who} {_verb(at_work, 'carries', 'carry')} out {counted(len(taken), 'run')}"
    elif left:
        doing = f"{_are(alive)} alive, none is at work yet; {counted(len(left), 'run')} {_verb(len(left), 'waits', 'wait')}"
    elif own:
        doing = f"{counted(len(own), 'command line')} {_verb(len(own), 'carries', 'carry')} out {_verb(len(own), 'its own run', 'their own runs')}; {_are(alive)} idle"
    else:
        doing = f"{_are(alive)} ready; one that is ending lets go of {counted(len(taken), 'run')}"
    waits = f"{counted(waiting, 'result')} {_verb(waiting, 'waits', 'wait')}"
    return f"{doing}; {waits if waiting else 'nothing else waits'}."


def _no_worker(crews: Sequence[Crew], queue: Sequence[QueuedRun]) -> Notice:
    left = [run for run in queue if not run.is_own]
    results = sum(run.waiting + run.held for run in left)
    silent = [crew for crew in crews if crew.is_worker]
    if left:
        verb = _verb(len(left), "stands", "stand")
        waits = f"{counted(len(left), 'run')} with {counted(results, 'open result')} {verb} still until one starts."
    else:
        waits = "Runs started now wait until one starts."
    seen = f" {_are(silent)} silent." if silent else ""
    title = "No worker is alive."
    if settings.IS_EMBEDDED:
        how = "The site's worker lives in its web process and shows itself within seconds; if it stays away, the log says why. Restart the site:"
        return Notice("bad", title, f"{waits}{seen} {how}", SITE_COMMAND)
    return Notice("bad", title, f"{waits}{seen} Start one, on any machine:", WORKER_COMMAND)


def _no_broker(*, has_workers: bool) -> Notice:
    goes_on = "Hands at work go on. " if has_workers else ""
    return Notice(
        "bad",
        "The broker does not answer.",
        f"{goes_on}What is started, resumed or retried meanwhile waits, and is taken on within seconds "
        "once Redis is back. Its address stands in CELERY_BROKER_URL.",
    )


def _versions(versions: Mapping[str, int]) -> Notice:
    listed = ", ".join(f"{version} ({counted(n, 'worker')})" for version, n in versions.items())
    text = f"{listed}. Restart those that were left out of the last upgrade."
    return Notice("warn", "The workers run different versions.", text)


def _are(crews: Sequence[Crew]) -> str:
    return f"{counted(len(crews), 'worker')} {_verb(len(crews), 'is', 'are')}"


def _of(some: int, total: int, noun: str) -> str:
    return counted(total, noun) if some == total else f"{some} of {counted(total, noun)}"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
