from __future__ import annotations

import random

from tests.faults.books import assert_all_right
from tests.faults.installations import Installation
from tests.faults.suite import CALLS


def test_nothing_befalls_the_run(cluster: Installation):
    cluster.begin_workers()
    cluster.wait_for_the_end()

    assert_all_right(cluster)


def test_a_worker_is_killed(cluster: Installation, chance: random.Random):
    workers = cluster.begin_workers()
    cluster.wait_for_calls(chance.randrange(CALLS // 2))
    cluster.kill_hands(chance.choice(workers))
    cluster.wait_for_the_end()

    assert_all_right(cluster)
