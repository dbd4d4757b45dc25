"""Faults of a site with separate workers."""

from __future__ import annotations

import random

import pytest

from tests.faults.happenings import ON_A_CLUSTER, deliver
from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right
from tests.services.processes import wait_until


def test_a_run_that_is_over_stays_as_it_is_however_often_it_is_queued(cluster: Installation):
    assert cluster.redis is not None
    cluster.begin_workers()
    cluster.wait_for_the_end()
    assert_all_right(cluster)

    before = cluster.database.rows("SELECT * FROM runs_run")
    deliver(cluster)
    wait_until(lambda: not cluster.redis.has_work())
    assert cluster.database.rows("SELECT * FROM runs_run") == before
    assert_all_right(cluster)


@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_the_run_comes_out_right_after(name: str, cluster: Installation, chance: random.Random):
    cluster.begin_workers()
    ON_A_CLUSTER[name](cluster, chance)
    cluster.wait_for_the_end()

    assert_all_right(cluster)
