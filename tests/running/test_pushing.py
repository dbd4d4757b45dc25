"""Outputs that programs push: taken in any order, scored as they come, and lost in no state of the run."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.execution import claims, large_texts, run_worker
from runs.execution.large_texts import LARGE_BYTES
from runs.execution.reaper import runs_needing_workers
from runs.execution.run_worker import work_on_run
from runs.models.database import database_now
from runs.models.removals import RemovalPart
from runs.models.results import PushedOutput
from runs.models.runs import Run
from runs.models.suites import Target
from runs.retention.queries import Selection
from runs.retention.services import begin_removal, remove_data
from runs.running.checks import AgentNotReadyError
from runs.running.pushing import (
    OutputsNotAwaitedError,
    Push,
    PushSummary,
    RefusedPush,
    UnusablePushesError,
    close_run,
    push_outputs,
)
from runs.running.retrying import RunNotActiveError, resume_run, retry_results, stop_run
from runs.running.services import start_run
from tests.support.factories import again, make_case, make_suite, make_target, make_user
from tests.support.members import make_client
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)
COUNTS = ("status", "done_count", "pass_count", "fail_count", "error_count")
GOOD, BAD = {"output": "You get a refund."}, {"output": "No."}


def open_run(cases: int = 3, **options: Any) -> Run:
    """Return a run that waits for the outputs of cases from C-0 on."""
    suite = make_suite(tree=tree(CHECK))
    for number in range(cases):
        make_case(suite=suite, key=f"C-{number}", position=number)
    return start_run(suite=suite, target=make_target(kind="pushed"), started_by=None, **options)


def push(run: Run, *outputs: tuple[str, dict[str, Any]], repetition: int = 1) -> PushSummary:
    return push_outputs(run, [Push(case, output, repetition) for case, output in outputs])


def figures(run: Run) -> tuple[Any, ...]:
    row = again(run)
    return tuple(getattr(row, name) for name in COUNTS)


def test_outputs_are_scored_as_they_come_and_the_last_one_completes_the_run() -> None:
    run = open_run(3)
    work_on_run(run.pk)
    assert figures(run) == ("running", 0, 0, 0, 0)
    assert runs_needing_workers(now=database_now()) == []

    usage = {"usage": {"input_tokens": 7}, "latency_ms": 40, "cost_usd": "0.02"}
    summary = push(run, ("C-2", {**GOOD, **usage}), ("C-0", BAD))
    assert (summary.accepted, summary.repeated, summary.awaited) == (2, 0, 1)
    assert runs_needing_workers(now=database_now()) == [run.pk]
    work_on_run(run.pk)
    assert figures(run) == ("running", 2, 1, 1, 0)

    crash = {"error": "the agent crashed"}
    summary = push(run, ("C-1", crash), ("C-1", GOOD), ("C-1", crash))
    assert (summary.accepted, summary.repeated, summary.awaited) == (1, 1, 0)
    assert summary.refused == [
        RefusedPush(
            1, "An earlier output of the batch is for the same result. Give each its repetition."
        )
    ]
    work_on_run(run.pk)

    assert figures(run) == ("completed", 3, 1, 1, 1)
    first, failed, last = run.results.select_related("output")
    assert (first.verdict, failed.error, last.output.text) == (
        "fail",
        "Target failed: the agent crashed",
        "You get a refund.",
    )
    assert (last.latency_ms, last.input_tokens, last.run_cost_usd) == (40, 7, Decimal("0.02"))
    assert again(run).run_cost_usd == Decimal("0.02")
    # The answers are in the results now, and not kept twice.
    assert set(PushedOutput.objects.values_list("output", flat=True)) == {None}


def test_pushing_again_is_safe_at_any_time_and_another_output_never_replaces_a_score() -> None:
    run = open_run(2)
    assert push(run, ("C-0", GOOD)).accepted == 1
    assert push(run, ("C-0", GOOD), ("C-0", GOOD)).repeated == 2
    # Until it is scored, the latest output counts.
    assert push(run, ("C-0", BAD)).accepted == 1
    work_on_run(run.pk)
    assert figures(run)[:4] == ("running", 1, 0, 1)

    summary = push(run, ("C-0", BAD), ("C-0", GOOD), ("C-1", GOOD))
    assert (summary.accepted, summary.repeated) == (1, 1)
    assert [(one.place, one.reason) for one in summary.refused] == [
        (1, "It has another output, which is scored already. Rerun the result first.")
    ]
    work_on_run(run.pk)
    assert figures(run) == ("completed", 2, 1, 1, 0)

    assert push(run, ("C-0", BAD), ("C-1", GOOD)).repeated == 2
    stopped = open_run(1)
    stop_run(stopped, stopped_by=None)
    with pytest.raises(RunNotActiveError, match="takes no new outputs. Resume it, then push again"):
        push(stopped, ("C-0", GOOD))


@pytest.mark.parametrize(
    ("case", "output", "repetition", "message"),
    [
        ("C-9", GOOD, 1, "has no case 'C-9'"),
        ("C-0", GOOD, 3, "has 2 repetitions of case C-0, and no repetition 3"),
        ("C-0", {"text": "hello"}, 1, "neither output nor error"),
        ("C-0", {"output": None}, 1, "neither output nor error"),
        ("C-0", {"output": [], "messages": []}, 1, "neither output nor error"),
        ("C-0", {**GOOD, "error": " "}, 2, "Its error is empty. Say what went wrong"),
        ("C-0", {"error": False}, 2, "Its error is empty. Say what went wrong"),
        ("C-0", {**GOOD, "latency_ms": -1}, 1, "latency_ms is -1, not a number of 0 or more"),
        ("C-0", {**GOOD, "trace": "plan"}, 1, "trace is str, not a list of steps"),
    ],
)
def test_one_unusable_output_refuses_the_batch_by_its_place(
    case: str, output: dict[str, Any], repetition: int, message: str
) -> None:
    run = open_run(1, repetitions=2)
    with pytest.raises(UnusablePushesError) as refusal:
        push_outputs(run, [Push("C-0", GOOD), Push(case, output, repetition)])
    assert list(refusal.value.problems) == [1]
    assert message in str(refusal.value)
    assert not PushedOutput.objects.exists()


def test_a_run_that_asks_its_target_takes_no_outputs() -> None:
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="C-0", recorded_output=GOOD)
    run = start_run(suite=suite, target=make_target(), started_by=None)
    with pytest.raises(OutputsNotAwaitedError, match="asks its target"):
        push(run, ("C-0", GOOD))
    with pytest.raises(OutputsNotAwaitedError):
        close_run(run, by=None)


def test_a_pushed_error_of_any_kind_is_a_text_that_lists_can_show() -> None:
    run = open_run(2)
    push(run, ("C-0", {"error": "x" * 1_000_000}), ("C-1", {"error": ["timeout", {"after_s": 9}]}))
    work_on_run(run.pk)
    long, odd = run.results.values_list("error", flat=True)
    assert long == f"Target failed: {'x' * 2_000}…"
    assert odd == "Target failed: ['timeout', {'after_s': 9}]"


def test_closing_a_run_makes_errors_of_what_never_came_and_scores_the_rest() -> None:
    run = open_run(3)
    push(run, ("C-0", GOOD))
    assert close_run(run, by=make_user(name="mira")) == 2
    assert figures(run) == ("queued", 2, 0, 0, 2)
    work_on_run(run.pk)

    assert figures(run) == ("completed", 3, 1, 0, 2)
    missing = run.results.get(case__key="C-1")
    assert (missing.error, missing.error_stage, missing.score) == (
        "Nothing recorded: no output was pushed",
        "target",
        None,
    )
    assert run.events.first().text == "Closed by mira for outputs; 2 outputs never came"
    with pytest.raises(RunNotActiveError):
        close_run(run, by=None)
    empty = open_run(2)
    assert close_run(empty, by=None) == 2
    assert figures(empty) == ("completed", 2, 0, 0, 2)
    late = push(empty, ("C-0", GOOD))
    assert late.refused == [RefusedPush(0, "It ended as an error. Rerun the result first.")]


def test_a_stopped_run_keeps_what_was_pushed_and_waits_for_the_rest_when_it_is_resumed() -> None:
    run = open_run(2)
    push(run, ("C-0", GOOD))
    stop_run(run, stopped_by=None)
    assert resume_run(run, resumed_by=None) == 2
    work_on_run(run.pk)
    assert figures(run)[:3] == ("running", 1, 1)
    assert push(run, ("C-1", GOOD)).awaited == 0
    work_on_run(run.pk)
    assert figures(run) == ("completed", 2, 2, 0, 0)


def test_rerun_results_wait_for_another_output_and_rescored_ones_do_not() -> None:
    run = open_run(2)
    push(run, ("C-0", BAD), ("C-1", GOOD))
    work_on_run(run.pk)
    ids = dict(run.results.values_list("case__key", "pk"))

    retry_results(run, asked_by=None, result_ids=[ids["C-1"]], keep_output=True)
    work_on_run(run.pk)
    assert figures(run)[:4] == ("completed", 2, 1, 1)

    retry_results(run, asked_by=None, result_ids=[ids["C-0"]])
    work_on_run(run.pk)
    assert figures(run)[:2] == ("running", 1)
    assert push(run, ("C-0", GOOD)).accepted == 1
    work_on_run(run.pk)
    assert figures(run) == ("completed", 2, 2, 0, 0)


def test_a_target_whose_outputs_are_pushed_cannot_judge() -> None:
    Target.objects.create(name="pipeline", kind="pushed")
    judge = {**CHECK, "name": "peer", "kind": "agent_judge", "config": {"agent": "pipeline"}}
    suite = make_suite(tree=tree(judge))
    make_case(suite=suite, recorded_output=GOOD)
    with pytest.raises(
        AgentNotReadyError, match="which has recorded or pushed outputs: it cannot answer"
    ):
        start_run(suite=suite, target=make_target(), started_by=None)


def test_the_page_says_that_the_run_waits_for_outputs_and_ends_the_waiting() -> None:
    run = open_run(3)
    push(run, ("C-0", GOOD))
    client = make_client(make_user(role="editor"))
    address = f"/suites/{run.suite.slug}/runs/{run.number}/"
    page = client.get(address)
    assert "Waiting for 2 outputs from a program" in page.text
    answer = client.post(f"{address}close/", follow=True)
    assert "The run takes no more outputs. 2 outputs never came." in answer.text
    assert figures(run)[1] == 2
    again_asked = client.post(f"{address}close/", follow=True)
    assert "Run #1 is over" not in again_asked.text
    work_on_run(run.pk)
    assert "is over already" in client.post(f"{address}close/", follow=True).text


def test_a_pushed_output_that_was_never_scored_goes_with_the_outputs_of_its_run() -> None:
    run = open_run(2)
    push(run, ("C-0", GOOD))
    stop_run(run, stopped_by=None)
    selection = Selection(RemovalPart.OUTPUTS, run.suite, [again(run)])
    removal = begin_removal(selection, by=None, in_background=False)
    assert remove_data(removal.pk)
    assert not PushedOutput.objects.exists()

    # Once resumed, the run waits for it again.
    resume_run(run, resumed_by=None)
    assert push(run, ("C-0", GOOD), ("C-1", GOOD)).accepted == 2
    work_on_run(run.pk)
    assert figures(run) == ("completed", 2, 2, 0, 0)


def test_few_large_outputs_are_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "You get a refund." + "x" * LARGE_BYTES
    for module in (claims, large_texts):
        monkeypatch.setattr(module, "MAX_HELD_BYTES", 3 * LARGE_BYTES)
    run = open_run(12, concurrency=12)
    push(run, *((f"C-{number}", {"output": long}) for number in range(11)), ("C-11", BAD))

    at_once, most = 0, 0
    execute = run_worker.execute

    async def counted(*args: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return await execute(*args)

    monkeypatch.setattr(run_worker, "execute", counted)
    work_on_run(run.pk)
    assert figures(run) == ("completed", 12, 11, 1, 0)
    assert most <= 3
    assert PushedOutput.objects.filter(output__isnull=False).count() == 0


def test_outputs_are_not_sent_as_arrays_whose_quotes_are_escaped_one_by_one() -> None:
    run = open_run(3)
    with CaptureQueriesContext(connection) as made:
        push(run, ("C-0", GOOD), ("C-1", BAD))
        push(run, ("C-0", BAD), ("C-2", {"output": 'A "quote" \\ and é'}))
    assert not [query for query in made.captured_queries if "UNNEST" in query["sql"]]
    outputs = run.results.order_by("position").values_list("pushed__output__output", flat=True)
    assert list(outputs) == [BAD["output"], BAD["output"], 'A "quote" \\ and é']
