"""The broker or the web process goes away and comes back."""

from __future__ import annotations

import random

from celery import Celery

from tests.faults.happenings import deliver, pick_a_moment
from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right
from tests.services.processes import wait_until
from tests.services.site import is_healthy


def test_a_run_that_is_started_while_redis_is_away_begins_when_it_is_back(cluster: Installation):
    assert cluster.redis is not None
    cluster.forget_the_run()
    cluster.site.begin_worker()
    cluster.wait_for("SELECT count(*) = 1 FROM runs_workerprocess")
    cluster.redis.process.kill()
    cluster.start_a_run()
    cluster.redis.process.start()
    cluster.wait_for_the_end()

    assert_all_right(cluster)


def test_a_worker_whose_threads_are_all_busy_outlives_redis(cluster: Installation):
    assert cluster.redis is not None
    # It asks Redis for more than it has a thread for, as one does with five threads and five long tasks.
    worker = cluster.site.begin_worker("--concurrency", "1", "--prefetch-multiplier", "3")
    wait_until(lambda: cluster.models.in_flight > 0, what="the run is at work")
    deliver(cluster, times=1)
    with Celery(broker=cluster.redis.url) as other:
        wait_until(lambda: bool(other.control.ping(timeout=1)), what="the task is taken or left")
    cluster.redis.process.kill()
    wait_until(lambda: "connecting to" in worker.tail(), what=worker.tail)
    cluster.redis.process.start()
    cluster.wait_for_the_end()
    assert_all_right(cluster)

    cluster.start_a_run()
    cluster.wait_for("SELECT count(*) = 2 FROM runs_run WHERE status = 'completed'")


def test_the_web_process_of_a_cluster_is_killed(cluster: Installation, chance: random.Random):
    cluster.site.web.begin()
    cluster.begin_workers()
    wait_until(lambda: is_healthy(cluster.site.url))
    pick_a_moment(cluster, chance)
    cluster.site.web.kill()
    cluster.wait_for_the_end()

    assert_all_right(cluster)
    cluster.site.web.start()
    assert is_healthy(cluster.site.url)
