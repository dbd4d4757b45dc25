"""The command `resume`: what is left of a run is executed here."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from runs.execution import run_worker
from runs.execution.active_runs import ActiveRuns
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from runs.running.services import start_run
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)


def resume(*arguments: object) -> int:
    """Resume and return the exit code."""
    try:
        call_command("resume", *map(str, arguments))
    except SystemExit as end:
        return int(str(end.code))
    return 0


def refusal(*arguments: object) -> str:
    """Return why nothing was resumed."""
    with pytest.raises(CommandError) as refused:
        call_command("resume", *map(str, arguments))
    assert refused.value.returncode == 3
    return str(refused.value)


def cut_off(*texts: str, finished: int = 0, **columns: Any) -> Run:
    """Make a run of recorded outputs that a command line did not end."""
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    for number, text in enumerate(texts):
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output={"output": text})
    run = start_run(
        suite=suite, target=make_target(name="agent"), started_by=None, owner_id="x/y/1/1"
    )
    Result.objects.filter(run=run, position__gte=finished).update(status="cancelled")
    columns = {"status": "stopped", "status_reason": "Stopped at the command line.", **columns}
    Run.objects.filter(pk=run.pk).update(**columns)
    return run


def test_what_is_left_is_executed_here_and_the_exit_code_is_that_of_the_gates(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = cut_off("a refund", "a refund", "nothing")
    summary = tmp_path / "summary.json"

    assert resume("refunds#1", "--summary", summary) == 1

    run.refresh_from_db()
    assert (run.status, run.done_count, run.owner) == ("completed", 3, "command_line")
    output = capsys.readouterr()
    assert "3 of 3 results to go." in output.err
    assert "(2 of 3 results passed)" in output.out
    assert "Failed: mean score" in output.out
    assert json.loads(summary.read_text())["exit_code"] == 1


def test_the_latest_run_is_resumed_too() -> None:
    cut_off("a refund")
    assert resume("refunds:latest") == 0


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("refunds#2", "refunds has no run #2"),
        ("refunds", "'refunds' names no run. Write SUITE#NUMBER"),
        ("refunds#1", "Run #1 did not end early; there is nothing to resume."),
    ],
)
def test_a_run_that_is_not_there_or_was_completed_is_refused(word: str, reason: str) -> None:
    cut_off("a refund", status="completed")
    assert reason in refusal(word)


def test_a_budget_that_is_no_amount_is_refused() -> None:
    assert "--budget is 'much', which is not an amount" in refusal("refunds#1", "--budget", "much")


def test_a_run_that_reached_its_budget_needs_a_higher_one(
    model_server: ModelServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prices = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
    model = make_model(slug="m", base_url=model_server.base_url, **prices)
    suite = make_suite(slug="dear", tree=tree(JUDGED), judge=model)
    for number in range(6):
        make_case(suite=suite, key=f"C-{number}", position=number)
    make_target(name="agent", kind="chat", model=model)
    options = ("--target", "agent", "--concurrency", "1", "--budget", "0.8")
    with pytest.raises(SystemExit, match="3"):
        call_command("evaluate", "dear", *options)
    run = Run.objects.get()
    assert run.status == "budget_reached"
    assert "Resume it: evalsite resume dear#1 --budget USD, or at http://" in (
        capsys.readouterr().err
    )

    # The next command is a process of its own.
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())
    assert "Resume it with a higher budget" in refusal("dear#1")
    assert resume("dear#1", "--budget", "9") == 0
    run.refresh_from_db()
    assert (run.status, run.budget_usd, len(model_server.chats)) == ("completed", Decimal(9), 12)


class TestOffer:
    """What `evaluate` says about a run that was interrupted."""

    def evaluate(self, capsys: pytest.CaptureFixture[str]) -> str:
        with pytest.raises(SystemExit):
            call_command("evaluate", "refunds", "--target", "agent")
        return capsys.readouterr().err

    def test_the_last_run_of_suite_and_target_can_be_resumed_instead(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut_off("a refund", "nothing", finished=1)
        said = self.evaluate(capsys)
        assert (
            "refunds#1 against agent was interrupted with 1 of 2 results to go. This is a new run. "
            "evalsite resume refunds#1 would pay only for the rest of the interrupted one."
        ) in said
        assert "was interrupted" not in self.evaluate(capsys)

    def test_a_run_of_another_version_or_target_is_not_offered(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = cut_off("a refund", "nothing")
        Suite.objects.update(version=2)
        assert "was interrupted" not in self.evaluate(capsys)
        Run.objects.exclude(pk=run.pk).delete()
        Run.objects.update(suite_version=2, target=Target.objects.create(name="other", kind="chat"))
        assert "was interrupted" not in self.evaluate(capsys)

    def test_a_run_that_was_stopped_with_nothing_left_is_not_offered(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut_off("a refund", "nothing", finished=2)
        assert "was interrupted" not in self.evaluate(capsys)

    def test_a_run_that_a_person_stopped_on_its_page_is_not_offered(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut_off("a refund", "nothing", owner="workers", owner_id="")
        assert "was interrupted" not in self.evaluate(capsys)
