"""Results at the command line: listed or written, all or those that a filter finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.models.runs import Run
from tests.support.factories import make_scored_run, make_suite

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """Make a run of three cases."""
    suite = make_suite(slug="support")
    return make_scored_run(suite=suite, verdicts=["pass", "fail", "error"], case_count=3)


def test_results_are_listed_one_a_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("results", "support:latest", "--filter", "verdict = fail, error")
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["C-002", "fail"]
    assert second.split()[:3] == ["C-003", "error", "–"]
    assert last.startswith("2 results of 3 in support ")


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_results_are_written(run: Run, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"weak{ending}"
    call_command("results", "support#1", "--filter", "score < 0.5", "--out", str(out))
    lines = out.read_text().splitlines()
    if ending == ".csv":
        assert [line.split(",")[0] for line in lines] == ["case", "C-002"]
    else:
        assert [json.loads(line)["eval_id"] for line in lines] == ["C-002"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["support#1", "--filter", "scoer < 0.5"], "Did you mean score?"),
        (["support#9"], "support has no run #9"),
        (["support#1", "--out", "weak.txt"], "End it in .csv or .jsonl."),
    ],
)
def test_what_cannot_be_listed_ends_with_the_reason(
    run: Run, arguments: list[str], reason: str
) -> None:
    with pytest.raises(CommandError, match=reason) as caught:
        call_command("results", *arguments)
    assert caught.value.returncode == 3
