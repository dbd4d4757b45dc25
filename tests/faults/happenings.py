"""The faults a run may meet, each at a moment that chance picks, and what is done about it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from celery import Celery

from tests.faults.installations import OVER, Installation
from tests.faults.suite import AT_ONCE, number_of
from tests.services.disk import full_disk
from tests.services.processes import Process, wait_until

Fault = Callable[[Installation, random.Random], None]

TASK = {"name": "runs.work_on_run", "kwargs": {"run_id": 1}}
DELIVERIES = 40
NOTICED_AWAY = re.compile("The database does not answer|The reaper failed")
# What a late reply costs is added to its result; its outcome is final.
OUTCOME = "array_agg((id, attempt, verdict, score, finished_at, input_tokens) ORDER BY id)"
ALL_RAN_OUT = "SELECT coalesce(max(lease_until) < now(), true) FROM runs_result"
HAS_RUN_WORKERS = (
    "SELECT count(*) > 0 OR ({over}) FROM runs_runworker WHERE worker LIKE '%/{pid}/%'"
)
IS_OPEN = "status IN ('pending', 'running')"
OPEN = f"SELECT count(*) FROM runs_result WHERE {IS_OPEN}"


def kill_a_worker(site: Installation, chance: random.Random) -> None:
    """Kill one of two workers; the other has to finish the run."""
    pick_a_moment(site, chance)
    site.kill_run_workers(pick_a_worker_with_results(site, chance).pid)


def replace_a_worker(site: Installation, chance: random.Random) -> None:
    """Kill a worker and start another, as a supervisor does."""
    kill_a_worker(site, chance)
    site.site.begin_worker()


def dismiss_a_worker(site: Installation, chance: random.Random) -> None:
    """Ask a worker to end, in the middle of its work."""
    victim = pick_a_worker(site, chance)
    pick_a_moment(site, chance)
    victim.ask_to_end()
    site.models.release()
    victim.wait()


def freeze_a_worker(site: Installation, chance: random.Random) -> None:
    """Freeze a worker until others have done its results, and then let it go on."""
    victim = pick_a_worker(site, chance)
    pick_a_moment(site, chance)
    victim.freeze()
    site.lost_leases += 1
    lost = site.claimed_by(victim.pid)
    ids = ", ".join(str(result_id) for result_id, *_ in lost) or "0"
    outcomes = f"SELECT {OUTCOME} FROM runs_result WHERE id IN ({ids})"
    site.models.release()
    # Not until they are scored: one that lost three workers, as it may on a slow machine, ends as an error.
    site.wait_for(f"SELECT count(*) = 0 FROM runs_result WHERE {IS_OPEN} AND id IN ({ids})")
    as_others_left_it = site.database.rows(outcomes)
    before = len(site.models.requests)
    victim.wake()
    site.wait_for_the_end()
    site.wait_for("SELECT count(*) = 0 FROM runs_runworker")
    assert site.database.rows(outcomes) == as_others_left_it
    numbers = {number for _, number, _ in lost}
    again = [request for request in site.models.requests[before:] if number_of(request) in numbers]
    assert len(again) <= AT_ONCE, "the woken worker asks for results it has lost"


def kill_redis(site: Installation, chance: random.Random) -> None:
    """Kill Redis and start it again with nothing in it."""
    assert site.redis is not None
    pick_a_moment(site, chance)
    site.redis.process.kill()
    pick_a_moment(site, chance)
    site.redis.process.start()


def kill_postgresql(site: Installation, chance: random.Random) -> None:
    """Kill PostgreSQL two or three times and start it again: at once, or when everybody waits for it."""
    assert site.postgresql is not None
    for _ in range(chance.randrange(2, 4)):
        pick_a_moment(site, chance)
        with all_noticing(site, when=chance.random() < 0.5):
            site.postgresql.process.kill()
        site.postgresql.process.start()


def make_read_only(site: Installation, chance: random.Random) -> None:
    """Let the database refuse to be written to until everybody has noticed, or all leases have run out."""
    assert site.postgresql is not None
    pick_a_moment(site, chance)
    with all_noticing(site):
        site.postgresql.set_read_only(site.database.name, True)
    if chance.random() < 0.5:
        site.wait_for(ALL_RAN_OUT)
    site.postgresql.set_read_only(site.database.name, False)


def deliver_again(site: Installation, chance: random.Random) -> None:
    """Put one and the same task into Redis many times, while it is worked on."""
    for _ in range(2):
        pick_a_moment(site, chance)
        deliver(site)


def deliver(site: Installation, times: int = DELIVERIES) -> None:
    """Queue the run's task, under one id, for any worker."""
    assert site.redis is not None
    with Celery(broker=site.redis.url) as sender:
        for _ in range(times):
            sender.send_task(**TASK, task_id="the-same-every-time")


def lose_power(site: Installation, chance: random.Random) -> None:
    """Kill everything at once and start everything again."""
    assert site.postgresql is not None
    assert site.redis is not None
    pick_a_moment(site, chance)
    site.kill_run_workers(*(worker.pid for worker in living_workers(site)))
    site.redis.process.kill()
    site.postgresql.process.kill()
    site.postgresql.process.start()
    site.redis.process.start()
    for _ in range(2):
        site.site.begin_worker()


def pick_a_worker(site: Installation, chance: random.Random) -> Process:
    """Return one of the workers that run."""
    return chance.choice(living_workers(site))


def pick_a_worker_with_results(site: Installation, chance: random.Random) -> Process:
    """Return a worker that has claimed results; one of two may hold all that the run executes at a time."""
    workers = living_workers(site)

    def at_work() -> list[Process]:
        return [worker for worker in workers if site.claimed_by(worker.pid)]

    wait_until(lambda: bool(at_work()), what="a worker holds results")
    return chance.choice(at_work())


def keep_two_workers(site: Installation) -> None:
    """Start workers in place of those that are gone, until both work on what is left."""
    while len(living_workers(site)) < 2:
        site.site.begin_worker()
    for worker in living_workers(site):
        site.wait_for(HAS_RUN_WORKERS.format(pid=worker.pid, over=OVER))


def living_workers(site: Installation) -> list[Process]:
    """Return the workers that run."""
    return [worker for worker in site.site.workers if worker.is_running]


@contextmanager
def all_noticing(site: Installation, *, when: bool = True) -> Iterator[None]:
    """Wait, when it is so chosen, until all workers notice that the database is away and call nobody.

    Calls in flight are answered meanwhile; new ones hang again.
    """
    workers = living_workers(site)
    before = [_times_noticed(worker) for worker in workers]
    yield
    if when:
        site.models.release()
        pairs = list(zip(workers, before, strict=True))
        wait_until(lambda: all(_times_noticed(process) > times for process, times in pairs))
        wait_until(lambda: site.models.in_flight == 0, what="no call in flight")
        site.models.hold()


def _times_noticed(worker: Process) -> int:
    return len(NOTICED_AWAY.findall(worker.log.read_text(errors="replace")))


def pick_a_moment(site: Installation, chance: random.Random) -> None:
    """Let some calls be answered, and not nearly all that are left; the others hang."""
    left = int(site.database.value(OPEN))
    site.answer_calls(chance.randrange(1, max(2, left // 4)))


def kill_the_web(site: Installation, chance: random.Random) -> None:
    """Kill the web process, which also works, twice, and start it again."""
    for _ in range(2):
        replace_the_web(site, chance)


def replace_the_web(site: Installation, chance: random.Random) -> None:
    """Kill the web process, which also works, and start it again."""
    pick_a_moment(site, chance)
    site.kill_run_workers(site.site.web.pid)
    site.site.web.wait()
    site.site.web.start()


def kill_the_worker_of_the_web(site: Installation, chance: random.Random) -> None:
    """Kill twice what serves and works, under the process that watches over it."""
    for _ in range(2):
        pick_a_moment(site, chance)
        [victim] = site.site.web_workers()
        site.kill_run_workers(victim)
        wait_until(lambda victim=victim: site.site.web_workers() not in ([], [victim]))


def fill_the_disk(site: Installation, chance: random.Random) -> None:
    """Let the disk be full until the process notices, and then be freed."""
    pick_a_moment(site, chance)
    with full_disk(site.site.web_workers()[0]):
        site.models.release()
        wait_until(lambda: NOTICED_AWAY.search(site.site.log()) is not None)
        wait_until(lambda: site.models.in_flight == 0, what="no call in flight")


def by_name(*faults: Fault) -> dict[str, Fault]:
    """Return faults by their names."""
    return {fault.__name__: fault for fault in faults}


ON_A_CLUSTER = by_name(
    *(kill_a_worker, replace_a_worker, dismiss_a_worker, freeze_a_worker, kill_redis),
    *(kill_postgresql, make_read_only, deliver_again, lose_power),
)
ON_A_SINGLE_PROCESS = by_name(kill_the_web, kill_the_worker_of_the_web, fill_the_disk)
KILLING = {
    *by_name(kill_a_worker, replace_a_worker, lose_power),
    *by_name(kill_the_web, replace_the_web, kill_the_worker_of_the_web),
}
