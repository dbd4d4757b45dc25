"""What commands print about a run: progress, tables, costs."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest

from runs.cli.terminal import ProgressLine, print_line, printable
from runs.cli.watching import progress_line
from runs.models.runs import Run
from runs.results.report import summary_table, worst_cases
from tests.support.factories import make_scored_run

pytestmark = pytest.mark.django_db

VERDICTS = ("pass", "pass", "borderline", "fail", "error", "pending")


class Stream(io.StringIO):
    encoding = "utf-8"

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def show(progress: ProgressLine, run: Run) -> None:
    progress.show(progress_line(run), done=run.done_count, total=run.execution_count)


class GoneStream(Stream):
    def write(self, text: str) -> int:
        raise OSError("the terminal is gone")


def test_the_progress_line_has_verdicts_and_both_costs():
    run = make_scored_run(verdicts=VERDICTS, status="running")
    assert progress_line(run) == (
        "5 of 6, 2 pass, 1 borderline, 1 fail, 1 error, $0.060 target, $0.020 judge"
    )


def test_an_active_run_without_costs_is_not_called_free():
    run = make_scored_run(verdicts=VERDICTS, status="running")
    run.run_cost_usd = run.evaluation_cost_usd = Decimal(0)
    assert "$" not in progress_line(run)


def test_a_terminal_gets_one_changing_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    stream = Stream(is_terminal=True)
    progress = ProgressLine(stream)
    run = make_scored_run(verdicts=VERDICTS, status="running")
    show(progress, run)
    show(progress, run)
    progress.say("Stopping.")
    assert stream.getvalue().count("\n") == 2
    lines = stream.getvalue().split("\r")[1:]
    assert lines[0].startswith("[########..] 5 of 6, 2 pass, 1 borderline, 1 fail, 1 error,")
    assert len(lines[0]) == 59
    assert lines[1].endswith("\nStopping.\n")


def test_a_log_gets_a_line_every_few_seconds_if_something_changed():
    now = [0.0]
    stream = Stream(is_terminal=False)
    progress = ProgressLine(stream, clock=lambda: now[0])
    run = make_scored_run(verdicts=VERDICTS, status="running")
    for seconds, done in ((0.0, 1), (1.0, 2), (4.9, 3), (5.0, 4), (11.0, 4), (17.0, 6)):
        now[0], run.done_count = seconds, done
        show(progress, run)
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == [
        "1 of 6",
        "4 of 6",
        "6 of 6",
    ]


def test_a_closed_terminal_does_not_end_the_run():
    progress = ProgressLine(GoneStream(is_terminal=True))
    show(progress, make_scored_run(verdicts=("pass",), status="running"))
    progress.say("Stopping.")


def test_the_summary_table_of_a_stopped_run():
    run = make_scored_run(
        verdicts=VERDICTS, status="stopped", status_reason="Stopped at the command line."
    )
    table = dict(line.split("  ", 1) for line in summary_table(run).splitlines())
    assert {name.strip(): text.strip() for name, text in table.items()} == {
        "Status": "Cancelled after 8 min 47 s. Stopped at the command line.",
        "Mean score": "open, so far 73.7% of 80% (4 of 6 results scored)",
        "Pass rate": "open, so far 40.0% of 100% (2 of 5 results passed)",
        "Results": "5 of 6 done: 2 pass, 1 borderline, 1 fail",
        "Errors": "1 of 6",
        "Target cost": "$0.060",
        "Judge cost": "$0.020",
        "Total cost": "$0.080",
    }


def test_a_gate_without_any_score_is_not_judged():
    output = summary_table(make_scored_run(verdicts=("error", "error")))
    assert "Mean score   not evaluated, needs 80% (0 of 2 results scored)" in output


def test_an_unknown_price_is_not_shown_as_zero():
    run = make_scored_run(verdicts=("pass",))
    run.results.update(run_cost_usd=None)
    table = summary_table(run)
    assert "Target cost  not known" in table
    assert "Total cost   at least $0.004" in table
    assert "(1 of 1 result scored)" in table


def test_characters_a_terminal_cannot_write_are_replaced():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable(stream, "86% ≥ 80%, né") == "86% >= 80%, n?"
    assert printable(Stream(is_terminal=False), "86% ≥ 80%") == "86% ≥ 80%"


def test_names_cannot_command_a_terminal() -> None:
    stream = io.StringIO()
    print_line(stream, "agent \x1b[2J\x9b31m\x07")
    assert stream.getvalue() == "agent \ufffd[2J\ufffd31m\ufffd\n"


@pytest.mark.parametrize("character", ["\r", "\u202e", "\u2067", "\u200f", "\u2028"])
def test_names_cannot_rewrite_or_turn_the_line_they_are_in(character: str) -> None:
    stream = io.StringIO()
    print_line(stream, f"Failed: {character}dessaP")
    progress = ProgressLine(stream)
    progress.say(f"Note: {character}x")
    assert stream.getvalue() == "Failed: \ufffddessaP\nNote: \ufffdx\n"
    terminal = Stream(is_terminal=True)
    ProgressLine(terminal).show(f"1 of 2 {character}x", done=1, total=2)
    assert terminal.getvalue().startswith("\r[#####.....] 1 of 2 \ufffdx ")


def test_bad_cases_are_named_and_the_rest_is_counted():
    run = make_scored_run(verdicts=("error", "pass", *["fail"] * 22, "borderline"))
    lines = worst_cases(run).splitlines()
    assert lines[:2] == [
        "Cases that failed or errored",
        "  C-003  failed 0.40  0.4 against the bands.",
    ]
    assert (len(lines), lines[-1]) == (22, "  and 3 more")
    few = worst_cases(make_scored_run(verdicts=("error", "pass", "fail")))
    assert [line.split("  ")[1:3] for line in few.splitlines()[1:]] == [
        ["C-003", "failed 0.40"],
        ["C-001", "errored"],
    ]
    assert worst_cases(make_scored_run(verdicts=("pass", "borderline"))) == ""


def test_each_bad_case_has_its_reason():
    run = make_scored_run(verdicts=("error", "pass", "fail"))
    run.results.filter(verdict="fail").update(decided_by="gate: safety 0.40 < 0.60")
    run.results.filter(status="error").update(
        error="order could not be scored:\nno trace " + "x" * 300
    )

    _, failed, errored = worst_cases(run).splitlines()

    assert failed == "  C-003  failed 0.40  gate: safety 0.40 < 0.60."
    assert errored.startswith(
        "  C-001  errored      the target gave no output: order could not be scored: no trace xxx"
    )
    assert errored.endswith("x…")
    assert len(errored) < 300
