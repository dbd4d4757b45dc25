"""A run that is stopped and resumed pays for nothing twice."""

from __future__ import annotations

import random

from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right, assert_costs_agree, assert_paid_is_written
from tests.faults.suite import CASES, SUITE
from tests.services.visitor import Visitor

PAGE = f"/suites/{SUITE}/runs/1/"
RESULTS = "SELECT id, verdict, score, attempt, finished_at FROM runs_result WHERE status = '{}'"


def test_a_run_stopped_in_the_browser_records_what_is_paid_and_goes_on_without_paying_it_again(
    cluster: Installation, chance: random.Random
):
    cluster.site.web.begin()
    visitor = Visitor(cluster.site.url)
    visitor.log_in(cluster.site.login_link())
    cluster.begin_workers()
    # Two calls make a result: as many as there are cases have scored some of them, and cannot have scored all.
    cluster.answer_calls(chance.randrange(CASES // 2, CASES))
    cluster.wait_for("SELECT count(*) > 0 FROM runs_result WHERE status = 'scored'")
    visitor.send(f"{PAGE}stop/", page=PAGE)
    cluster.models.release()

    scored = sorted(cluster.database.rows(RESULTS.format("scored")))
    cancelled = sorted(cluster.database.rows(RESULTS.format("cancelled")))
    assert scored
    assert cancelled
    assert len(scored) + len(cancelled) == CASES
    cluster.wait_for("SELECT count(*) = 0 FROM runs_runworker")
    assert sorted(cluster.database.rows(RESULTS.format("scored"))) == scored
    assert sorted(cluster.database.rows(RESULTS.format("cancelled"))) == cancelled
    assert_costs_agree(cluster)
    assert_paid_is_written(cluster)

    visitor.send(f"{PAGE}resume/", page=PAGE)
    cluster.wait_for_the_end()
    assert_all_right(cluster)
