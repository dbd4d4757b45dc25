"""Suites, runs, results, targets and models listed and shown, and what the command line changes without a page."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command

from evaluators.model_calls.models import decrypt
from evaluators.models import AuditEntry
from runs.management.commands.show import Command as ShowCommand
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from tests.support.factories import make_model, make_scored_run, make_suite

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def run() -> Run:
    """Make a run of three cases, and a model."""
    make_model(slug="juno", model_id="juno-2")
    suite = make_suite(slug="support", title="Support agent")
    return make_scored_run(suite=suite, verdicts=["pass", "fail", "error"], case_count=3)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["suites"], [["Suite", "Version"], ["support", "v1"]]),
        (["runs"], [["Run", "Status"], ["support#1", "completed"]]),
        (["runs", "--suite", "support"], [["Run", "Status"], ["support#1", "completed"]]),
        (["models"], [["Model", "Model"], ["juno", "juno-2"]]),
        (
            ["results", "--run", "support:latest", "--filter", "verdict = fail, error"],
            [["Case", "Repetition"], ["C-002", "1"], ["C-003", "1"]],
        ),
    ],
)
def test_each_kind_is_a_table(
    arguments: list[str], lines: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("list", *arguments)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == lines


def test_a_list_can_be_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("list", "results", "--run", "support:1", "--limit", "2")
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "--limit" in shown.err
    Target.objects.update(archived_at="2026-01-01T00:00:00Z")
    call_command("list", "targets")
    assert capsys.readouterr().err == "There are no targets.\n"


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["suite", "support"], "title", "Support agent"),
        (["run", "support:latest"], "name", "support:1"),
        (["result", "support#1", "C-002"], "verdict", "fail"),
        (["model", "juno"], "model_id", "juno-2"),
    ],
)
def test_what_is_shown_is_the_document_of_the_api(
    arguments: list[str], field: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("show", *arguments)
    shown = yaml.safe_load(capsys.readouterr().out)
    call_command("show", *arguments, "--json")
    assert shown[field] == json.loads(capsys.readouterr().out)[field] == value
    if arguments[0] != "result":
        call_command("list", f"{arguments[0]}s", "--json")
        assert json.loads(capsys.readouterr().out)[field] == value


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "suite", "suport"], "Did you mean support?"),
        (["show", "run", "support#7"], "support has no run #7"),
        (["show", "result", "support#1"], "Name the run and the case"),
        (["show", "result", "support#1", "C-02"], "Did you mean C-002?"),
        (["show", "result", "support#1", "C-002", "9"], "no repetition 9"),
        (["show", "model", "jun"], "Did you mean juno?"),
        (["list", "results"], "Name the run whose results you want"),
        (["list", "runs", "--suite", "suport"], "Did you mean support?"),
        (["baseline", "show", "support"], "support has no baseline"),
        (["baseline", "set", "support#9"], "support has no run #9"),
        (["target", "add", "bot"], "--kind says what"),
        (["target", "add", "bot", "--kind", "http", "--set", "methd=x"], "Did you mean method?"),
        (["target", "add", "bot", "--kind", "http", "--set", "url=ftp://x"], "url: "),
        (["target", "add", "bot", "--kind", "pushed", "--header", "A: b"], "has no headers"),
    ],
)
def test_what_cannot_be_done_ends_with_the_reason(arguments: list[str], reason: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command(*arguments)
    assert reason in str(caught.value)


def test_the_baseline_is_set_shown_and_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("baseline", "set", "support:latest")
    call_command("baseline", "show", "support")
    call_command("baseline", "drop", "support")
    said = ["The baseline of support is #1.", "support#1", "support has no baseline any more."]
    assert capsys.readouterr().out.splitlines() == said
    assert Suite.objects.get().baseline_run is None
    assert {entry.actor_name for entry in AuditEntry.objects.filter(object_type="suite")} == {
        "command line"
    }


def test_a_target_is_added_and_changed_and_keeps_what_is_not_named() -> None:
    add = ("target", "add", "bot")
    call_command(
        *add, "--kind", "http", "--set", "url=https://agent.example/ask", "--set", "timeout_s=5"
    )
    call_command(*add, "--secret-header", "X-Key: s3cret-of-ours", "--header", "X-Team: support")
    call_command(*add, "--description", "Ours", "--header", "X-Team: sales")
    target = Target.objects.get(name="bot")
    assert (target.description, target.config["url"]) == ("Ours", "https://agent.example/ask")
    assert target.config["timeout_s"] == 5
    assert target.config["headers"] == [
        {"name": "X-Key", "secret": True},
        {"name": "X-Team", "value": "sales"},
    ]
    assert [decrypt(value) for value in target.encrypted_secrets.values()] == ["s3cret-of-ours"]
    call_command("target", "add", "gpt", "--kind", "chat", "--model", "juno")
    assert Target.objects.filter(name="gpt", model__slug="juno").exists()


def test_files_are_checked_and_nothing_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    text = "name: refunds\nprofile: tasks\ntests:\n- id: a\n  input: Hi\n  expected_output: Ho\n"
    good.write_text(text)
    call_command("validate", str(good))
    assert "refunds: 1 case, nothing is wrong" in capsys.readouterr().out
    bad.write_text(text.replace("input: Hi", "inputt: Hi"))
    with pytest.raises(CommandError, match="bad.yaml") as caught:
        call_command("validate", str(bad))
    assert caught.value.returncode == 3
    assert not Suite.objects.filter(slug="refunds").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("completion", shell)
    script = capsys.readouterr().out
    assert "--max-pass-rate-drop" in script
    assert "--traceback" not in script
    if shell == "bash":
        asked = f"{script}\nCOMP_WORDS=(evalsite list mo) COMP_CWORD=2; _evalsite; echo $COMPREPLY"
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        assert done.stdout == "models\n"


def test_a_message_at_the_shell_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ShowCommand().run_from_argv(["evalsite", "show", "run", "support#7"])
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("support has no run #7.")
