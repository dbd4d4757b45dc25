"""The command `import_results`: a file of results becomes a run, or is refused by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.models.runs import Run
from runs.models.suites import Suite
from tests.support.factories import make_suite

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "agent-1.5.jsonl"
    lines = [
        {"eval_id": "C-001", "score": 0.9},
        {"eval_id": "C-002", "score": 0, "error": "timed out"},
        {"eval_id": "C-003", "status": "cancelled"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def refused(*arguments) -> str:
    before = Run.objects.count()
    with pytest.raises(CommandError) as refusal:
        call_command("import_results", *map(str, arguments))
    assert refusal.value.returncode == 3
    assert Run.objects.count() == before
    return str(refusal.value)


def test_a_file_becomes_a_run_of_the_suite_with_its_figures(file, capsys):
    make_suite(slug="support", cases=3)
    call_command("import_results", str(file), "--suite", "support", "--target", "agent 1.5")
    run = Run.objects.get()
    assert (run.target_name, run.status, run.summary["cases_pass_rate_pct"]) == (
        "agent 1.5",
        "completed",
        50.0,
    )
    assert run.leaf_scores
    output = capsys.readouterr()
    assert "support#1 against agent 1.5: http://127.0.0.1:8000/suites/support/runs/1/" in output.out
    assert "Pass rate    failed, 50.0% < 100%" in output.out
    assert "Note: agent-1.5.jsonl, line 3: 1 result was left out, never run" in output.err


def test_a_missing_suite_is_made_from_the_results(file, capsys):
    call_command("import_results", str(file))
    assert Suite.objects.get().slug == "agent-1-5"
    assert "the new suite has the default judge" in capsys.readouterr().err


def test_invalid_results_are_refused_with_their_line(file, tmp_path, monkeypatch):
    make_suite(slug="support", cases=1)
    assert "support has no case C-002" in refused(file, "--suite", "support")
    assert "line 2, case C-002: support has" in refused(file, "--suite", "support")
    assert "There is no suite 'nothing'" in refused(file, "--suite", "nothing")
    assert "cannot be read: No such file" in refused(tmp_path / "nowhere.jsonl")
    monkeypatch.setattr("runs.cli.command.MAX_FILE_BYTES", 1024 * 1024)
    assert "/dev/zero has more than 1 MB. Split it." in refused(Path("/dev/zero"))
    file.write_text('{"eval_id": "a", "score": 5}\n{')
    output = refused(file)
    assert "agent-1.5.jsonl, line 1, case a" in output
    assert "agent-1.5.jsonl, line 2: not readable as JSON" in output


def test_results_make_a_new_suite_where_the_name_in_the_file_is_taken(file, capsys):
    make_suite(slug="agent-1-5", cases=1)
    assert "or name a new suite" in refused(file)

    call_command("import_results", str(file), "--slug", "fresh")

    assert Suite.objects.get(slug="fresh").runs.get().imported_from == "agent-1.5.jsonl"
    assert "There is already a suite fresh" in refused(file, "--slug", "fresh")
    with pytest.raises(CommandError, match="write one of them"):
        call_command("import_results", str(file), "--slug", "x", "--suite", "fresh")
