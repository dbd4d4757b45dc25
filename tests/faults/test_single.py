"""Faults of a site in one process."""

from __future__ import annotations

import random

import pytest

from tests.faults.happenings import ON_A_SINGLE_PROCESS
from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right


@pytest.mark.parametrize("name", ON_A_SINGLE_PROCESS)
def test_the_run_comes_out_right_after(name: str, single: Installation, chance: random.Random):
    single.begin_web()
    ON_A_SINGLE_PROCESS[name](single, chance)
    single.wait_for_the_end()

    assert_all_right(single)
    lost = "SELECT count(*) FROM runs_runevent WHERE kind = 'worker_lost'"
    assert single.database.value(lost) <= single.killed
