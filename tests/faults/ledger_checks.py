"""The ledger of a run that is over: every figure counted again from the rows and from the models."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from tests.faults.installations import Installation
from tests.faults.suite import AGENT, AT_ONCE, CALLS, CASES, JUDGE, charge, is_right, usage_of
from tests.services.processes import wait_until

RIGHT = sum(map(is_right, range(CASES)))
# What one killed process may cost: the calls it had in flight, and the replies not yet written down.
MAX_REPEATED = AT_ONCE + 50
COSTS = {"target": (AGENT, "run_cost_usd"), "evaluation": (JUDGE, "evaluation_cost_usd")}


def assert_all_right(site: Installation) -> None:
    """Assert that a run came out as if no fault had occurred, and that its ledger balances."""
    assert_run_is_complete(site)
    assert_every_result_is_right(site)
    assert_nothing_is_held(site)
    assert_paid_is_written(site)
    assert_costs_agree(site)
    assert_paid_once(site)


def assert_run_is_complete(site: Installation) -> None:
    """Assert that the run is completed and its columns say what its results do."""
    run = site.database.row(
        "SELECT status, status_reason, execution_count, done_count, pass_count, borderline_count,"
        " fail_count, error_count, score_count, score_sum, finished_at >= started_at FROM runs_run"
    )
    counts = (CASES, CASES, RIGHT, 0, CASES - RIGHT, 0, CASES, RIGHT)
    assert run == ("completed", "", *counts, True), run
    recounted = site.database.row(
        "SELECT count(*), count(DISTINCT case_id), count(*) FILTER (WHERE verdict = 'pass'),"
        " count(*) FILTER (WHERE verdict = 'fail'), sum(score) FROM runs_result"
    )
    assert recounted == (CASES, CASES, RIGHT, CASES - RIGHT, RIGHT), recounted
    cases = site.database.rows("SELECT position, state, ended, score FROM runs_runcase ORDER BY 1")
    assert cases == [
        (number, "pass" if is_right(number) else "fail", 1, float(is_right(number)))
        for number in range(CASES)
    ]


def assert_every_result_is_right(site: Installation) -> None:
    """Assert that every case has its one result with the output, scores and tokens that are its own."""
    results = site.database.rows(
        "SELECT position, status, verdict, score, error, text, result.input_tokens"
        " FROM runs_result result JOIN runs_resultoutput ON result_id = result.id ORDER BY position"
    )
    assert results == [_expected_result(number) for number in range(CASES)]
    scores = site.database.rows(
        "SELECT result.position, path, score.state, score.score, score.reasoning"
        " FROM runs_score score JOIN runs_result result ON score.result_id = result.id"
        " WHERE path <> '' ORDER BY result.position"
    )
    assert scores == [
        (number, "right", "scored", float(is_right(number)), f"I read answer {number}.")
        for number in range(CASES)
    ]
    composites = "SELECT count(*), count(DISTINCT result_id) FROM runs_score WHERE path = ''"
    assert site.database.row(composites) == (CASES, CASES)
    order = "SELECT count(*) FROM runs_result WHERE started_at > finished_at OR attempt < 1"
    assert site.database.value(order) == 0


def _expected_result(number: int) -> tuple[Any, ...]:
    verdict = "pass" if is_right(number) else "fail"
    tokens = usage_of(AGENT, number)["prompt_tokens"]
    score = float(is_right(number))
    return (number, "scored", verdict, score, "", f"Answer {number}.", tokens)


def assert_nothing_is_held(site: Installation) -> None:
    """Assert that nobody holds results, and that leases and slots are given back or forgotten soon."""
    leased = "SELECT count(*) FROM runs_result WHERE lease_token <> '' OR lease_until IS NOT NULL"
    assert site.database.value(leased) == 0
    site.wait_for("SELECT count(*) = 0 FROM runs_runworker")
    site.wait_for("SELECT count(*) = 0 FROM evaluators_slotlease")


def assert_costs_agree(site: Installation) -> None:
    """Assert that ledger, results, cases, run and summary come to name the same dollars for each cost.

    They need not in the moment a run ends: late replies are booked when they come.
    """
    for purpose in COSTS:
        wait_until(
            lambda purpose=purpose: len(set(cost(site, purpose))) == 1,
            what=lambda purpose=purpose: f"{purpose} costs agree: {cost(site, purpose)}",
        )


def cost(site: Installation, purpose: str) -> tuple[Decimal | None, ...]:
    """Return what ledger, results, cases, run and summary say was paid for a purpose."""
    _, column = COSTS[purpose]
    summary = site.database.value("SELECT CAST(summary AS text) FROM runs_run")
    # Null where the run ended before any answer was written.
    in_summary = json.loads(summary)["means"][column] or 0 if summary else None
    return (
        ledger_usd(site, purpose),
        site.database.money(f"SELECT {column} FROM runs_result"),
        site.database.money(f"SELECT {column} FROM runs_runcase"),
        site.database.money(f"SELECT {column} FROM runs_run"),
        None if in_summary is None else Decimal(in_summary),
    )


def assert_paid_is_written(site: Installation) -> None:
    """Assert that the ledger comes to hold every answer, but for those that died with a process.

    Workers that lost their leases live on and record what they paid.
    """
    most_lost = site.killed * MAX_REPEATED
    wait_until(
        lambda: 0 <= lost_calls(site) <= most_lost,
        what=lambda: f"at most {most_lost} answers lost: {lost_calls(site)} are not in the ledger",
    )
    is_lost = lost_calls(site) > 0
    for purpose in COSTS:
        spent, written = spent_usd(site, purpose), ledger_usd(site, purpose)
        assert 0 < written <= spent, (purpose, written, spent)
        assert is_lost or written == spent, (purpose, written, spent)


def assert_paid_once(site: Installation) -> None:
    """Assert that no more calls were made again than the faults of the run allow."""
    repeated, most = repeated_calls(site), most_repeated(site)
    assert 0 <= repeated <= most, f"{repeated} calls were made again, {most} may be"


def assert_kills_cut_work_off(site: Installation) -> None:
    """Assert that processes were killed, each between the claim of a result and its write."""
    assert site.cut_off
    assert all(cut_off(site)), cut_off(site)


def cut_off(site: Installation) -> list[int]:
    """Return for each kill how many results it kept from being written: they were claimed again."""
    attempts = dict(site.database.rows("SELECT id, attempt FROM runs_result"))
    return [
        sum(attempts[result_id] > attempt for result_id, attempt in claimed.items())
        for claimed in site.cut_off
    ]


def most_repeated(site: Installation) -> int:
    """Return how many calls may have been made again after what befell the run.

    On a slow machine a lease may run out before its worker comes to renew it: each result that was
    claimed again for that may cost its calls once more.
    """
    claimed_again = site.database.value("SELECT coalesce(sum(attempt - 1), 0) FROM runs_result")
    calls_a_result = CALLS // CASES
    return max((site.killed + site.lost_leases) * MAX_REPEATED, int(claimed_again) * calls_a_result)


def ledger_usd(site: Installation, purpose: str) -> Decimal:
    """Return what the ledger says was paid for a purpose."""
    return site.database.money(f"SELECT cost_usd FROM runs_modelcall WHERE purpose = '{purpose}'")


def spent_usd(site: Installation, purpose: str) -> Decimal:
    """Return what the models charge for a purpose."""
    model_id, _ = COSTS[purpose]
    return charge(site.models.answered, model_id)


def lost_calls(site: Installation) -> int:
    """Return how many answers the models gave that are not in the ledger."""
    written = "SELECT count(*) FROM runs_modelcall WHERE status = 'ok'"
    return len(site.models.answered) - int(site.database.value(written))


def repeated_calls(site: Installation) -> int:
    """Return how many answers the models gave beyond those that were needed."""
    return len(site.models.answered) - CALLS
