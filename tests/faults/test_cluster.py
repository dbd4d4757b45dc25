from __future__ import annotations

import random

import pytest

from tests.faults.befalling import ON_A_CLUSTER
from tests.faults.books import assert_all_right
from tests.faults.installations import Installation


def test_without_a_fault_nothing_is_paid_twice(cluster: Installation):
    cluster.begin_workers()
    cluster.wait_for_the_end()

    assert_all_right(cluster)


@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_the_run_comes_out_right_after(name: str, cluster: Installation, chance: random.Random):
    cluster.begin_workers()
    ON_A_CLUSTER[name](cluster, chance)
    cluster.wait_for_the_end()

    assert_all_right(cluster)
