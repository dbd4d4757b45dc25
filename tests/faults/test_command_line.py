"""A command that is killed in the middle of its run."""

from __future__ import annotations

import random

import pytest

from tests.faults.happenings import pick_a_moment
from tests.faults.installations import Installation
from tests.faults.ledger_checks import (
    assert_all_right,
    assert_costs_agree,
    lost_calls,
    repeated_calls,
)
from tests.faults.suite import AGENT, AT_ONCE, CALLS, CASES, SUITE
from tests.services.processes import Process, wait_until


@pytest.fixture
def command_line(cluster: Installation) -> Process:
    """Run the suite at a command line alongside two workers; its calls are not answered yet.

    A dead process is noticed at once; that it is silent for two leases never happens here, however slow the
    machine is.
    """
    cluster.site.env["EVALSITE_LEASE_S"] = "600"
    cluster.forget_the_run()
    for _ in range(2):
        cluster.site.begin_worker()
    command = cluster.site.begin_command("evaluate", SUITE, "--target", AGENT)
    cluster.wait_for("SELECT count(*) = 2 FROM runs_workerprocess")
    cluster.wait_for("SELECT count(*) = 1 FROM runs_runworker")
    return command


def test_a_killed_command_line_leaves_a_run_that_stops_and_can_be_resumed(
    cluster: Installation, command_line: Process, chance: random.Random
):
    pick_a_moment(cluster, chance)
    run_workers = cluster.database.rows("SELECT worker FROM runs_runworker")
    assert [name.split("/")[-2] for [name] in run_workers] == [str(command_line.pid)]
    cluster.kill_run_workers(command_line.pid)
    cluster.wait_for_the_end()

    status, reason = cluster.database.row("SELECT status, status_reason FROM runs_run")
    assert (status, reason) == ("stopped", "The command line that executed this run has ended.")
    open_results = "SELECT count(*) FROM runs_result WHERE status NOT IN ('scored', 'cancelled')"
    assert cluster.database.value(open_results) == 0
    tried_again = "SELECT count(*) FROM runs_result WHERE attempt > 1"
    assert cluster.database.value(tried_again) == 0
    assert_costs_agree(cluster)

    cluster.resume_the_run()
    cluster.wait_for_the_end()
    assert_all_right(cluster)


def test_a_killed_command_line_pays_again_for_no_answer_that_was_written(
    cluster: Installation, command_line: Process
):
    # Nothing is answered between the last record and the kill, so only calls in flight can be lost.
    cluster.answer_calls(CALLS // 2)
    wait_until(lambda: lost_calls(cluster) == 0)
    in_flight = cluster.models.in_flight
    assert 0 < in_flight <= 2 * AT_ONCE
    cluster.kill_run_workers(command_line.pid)
    cluster.wait_for_the_end()
    cluster.resume_the_run()
    cluster.wait_for_the_end()

    assert_all_right(cluster)
    assert repeated_calls(cluster) <= in_flight


def test_workers_leave_the_run_of_a_command_line_alone(
    cluster: Installation, command_line: Process
):
    cluster.models.release()
    assert command_line.wait() == 1, command_line.tail()

    assert_all_right(cluster)
    assert f"{CASES}" in command_line.tail()
