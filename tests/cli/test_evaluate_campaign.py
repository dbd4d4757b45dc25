"""Several targets at the command line are a campaign: carried out one by one, ranked at the end."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from evaluators.sandbox.processes import process_name
from runs.cli import watching
from runs.cli.campaigns import execute_all, worst_code
from runs.cli.terminal import ProgressLine
from runs.files.importing import import_recorded_outputs
from runs.models.runs import Campaign, Run
from runs.models.suites import Suite, Target
from runs.running.services import start_campaign
from tests.cli.command_lines import evaluate
from tests.support.factories import make_case, make_suite, make_target
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)


def recorded(tmp_path: Path) -> list[str]:
    """Make a suite of two cases and two targets: one answers both well, the other one of them."""
    suite = make_suite(slug="refunds", title="Refunds", tree=tree(CHECK))
    for key in ("C-0", "C-1"):
        make_case(suite=suite, key=key)
    for name, second in (("agent 1", "no idea"), ("agent 2", "your refund")):
        lines = [{"id": "C-0", "output": "a refund"}, {"id": "C-1", "output": second}]
        import_recorded_outputs(
            target_name=name,
            lines="\n".join(map(json.dumps, lines)).encode(),
            imported_by=None,
            file="outputs.jsonl",
        )
    return ["refunds", "--target", "agent 1", "--target", "agent 2"]


def test_the_runs_are_ranked_and_the_worst_exit_code_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("all.json", "all.jsonl", "cases.jsonl", "all.xml")
    summary, out, cases, junit = (tmp_path / name for name in names)
    files = ("--summary", str(summary), "--out", str(out), "--cases", str(cases))
    assert evaluate(*recorded(tmp_path), *files, "--junit", str(junit)) == 1

    campaign = Campaign.objects.get()
    first, second = campaign.runs.order_by("pk")
    assert (first.status, second.status) == ("completed", "completed")
    assert (first.pass_count, second.pass_count) == (1, 2)

    output = capsys.readouterr()
    site = "http://127.0.0.1:8000"
    page = reverse("runs:run", args=["refunds", 1])
    assert f"1 of 2: Refunds #1 against agent 1: {site}{page}" in output.err
    assert "agent 1: Failed: mean score" in output.err
    assert "2 of 2: Refunds #2 against agent 2: " in output.err
    rows = [line.split("  ") for line in output.out.splitlines()]
    places = [row[0] for row in rows if row[0] in "12" and row[0]]
    assert places == ["1", "2"]
    assert [row[-1].strip() for row in rows if row[0] == "Rank"] == ["Total cost"]
    assert "agent 2 leads with 100.0% (2 of 2 results)" in output.out
    assert "agent 2: Passed: both gates met." in output.out
    page = reverse("runs:campaign", args=[campaign.pk])
    assert f"Leaderboard: {site}{page}" in output.out

    written = json.loads(summary.read_text())
    assert written["exit_code"] == 1
    rows = [(run["target"], run["rank"], run["exit_code"]) for run in written["campaign"]]
    assert rows == [("agent 1", 2, 1), ("agent 2", 1, 0)]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["target"] for line in lines] == ["agent 1", "agent 1", "agent 2", "agent 2"]
    lines = [json.loads(line) for line in cases.read_text().splitlines()]
    assert [(line["run"], line["target"], line["case"]) for line in lines] == [
        *(("refunds#1", "agent 1", "C-0"), ("refunds#1", "agent 1", "C-1")),
        *(("refunds#2", "agent 2", "C-0"), ("refunds#2", "agent 2", "C-1")),
    ]
    suites = ET.fromstring(junit.read_text())
    assert (suites.get("tests"), suites.get("failures")) == ("4", "1")
    assert [one.get("name") for one in suites] == ["refunds #1", "refunds #2"]


def test_a_stop_ends_the_waiting_runs(tmp_path: Path) -> None:
    recorded(tmp_path)
    wanted = threading.Event()

    class Stopping(ProgressLine):
        def say(self, sentence: str) -> None:
            super().say(sentence)
            wanted.set()

    runs = start_campaign(
        suite=Suite.objects.get(),
        targets=list(Target.objects.order_by("name")),
        started_by=None,
        owner_id=process_name(),
    )
    concluded = execute_all(runs, Stopping(io.StringIO()), wanted)
    assert worst_code(concluded) == 3
    stopped = Run.objects.get(number=2)
    assert (stopped.status, stopped.status_reason) == ("stopped", "Stopped at the command line.")
    assert concluded[1].conclusion.sentence == "Not evaluated: Stopped at the command line."


def test_waiting_runs_have_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path)
    monkeypatch.setattr(watching, "HEARTBEAT_EVERY_S", 0.01)
    runs = start_campaign(
        suite=Suite.objects.get(),
        targets=list(Target.objects.order_by("name")),
        started_by=None,
        owner_id=process_name(),
    )
    # Nobody carries the first out, so that there is time for a heartbeat.
    monkeypatch.setattr(
        watching, "work_on_run", lambda run, owner_id: time_for_a_heartbeat.wait(10)
    )
    time_for_a_heartbeat = threading.Event()
    began = Run.objects.get(number=2).heartbeat_at
    with watching.LocalWorker(runs[0], waiting=[runs[1].pk]) as run_workers:
        while Run.objects.get(number=2).heartbeat_at == began:
            assert not run_workers.wait(0.01)
        Run.objects.update(status="stopped")
        time_for_a_heartbeat.set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "agent 1", "--target", "agent 1"], "is repeated"),
        (["--target", "a", "--target", "b", "--outputs", "x.jsonl"], "belong to one target"),
        (["--target", "agent 1", "--target", "recorded", "--model", "gpt"], "needs no language"),
    ],
)
def test_contradicting_targets_are_wrong_usage(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        call_command("evaluate", "refunds", *arguments)
    assert refused.value.returncode == 2


def test_one_refused_target_starts_no_run(tmp_path: Path) -> None:
    arguments = recorded(tmp_path)
    make_target(name="no model", kind="chat")
    with pytest.raises(CommandError):
        call_command("evaluate", *arguments, "--target", "no model")
    assert not Run.objects.exists()
    assert not Campaign.objects.exists()
