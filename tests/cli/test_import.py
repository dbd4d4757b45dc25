"""`import` stores everything or nothing, and prints a line about each part."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from django.core.management import CommandError, call_command, load_command_class

from evaluators.models import AuditEntry
from runs.models.suites import RecordedOutput, Suite, SuiteVersion, Target
from tests.support.factories import make_model, make_target

pytestmark = pytest.mark.django_db

ONE = "name: one\ntests:\n  - {id: A, input: hi}\nevaluators: [{type: contains, value: x}]\n"
TWO = "evaluators: [{type: llm_judge, prompt: ./tone.md}]\njudge: strict\n"
LINES = '{"id": "A", "input": "hi"}\n{"id": "B", "input": "ho"}\n'


@pytest.fixture
def evals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_model(slug="strict")
    for name, text in {
        "evals/one.yaml": ONE, "evals/deep/two.jsonl": LINES, "evals/deep/two.yaml": TWO,
        "evals/deep/tone.md": "Kind?", "evals/.git/HEAD": "", "evals/targets.yaml": "targets: []",
        "answers.jsonl": '{"id": "A", "output": "x"}\n',
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as refusal:
        call_command("import", *arguments)
    assert refusal.value.returncode == 3
    return str(refusal.value)


def test_all_suites_of_a_folder_are_imported_and_skipped_files_named(evals, capsys):
    call_command("import", "evals")

    message = capsys.readouterr()
    assert message.out.splitlines() == [
        "two: new, at version 1. Imported with 2 cases. From evals/deep/two.jsonl",
        "one: new, at version 1. Imported with 1 case. From evals/one.yaml",
    ]
    assert message.err.splitlines() == [
        "Note: evals/targets.yaml: is not a suite file, because it lists no cases under tests, and was "
        "left out",
        "Note: evals: hidden files and caches are not read: .git/",
    ]
    assert Suite.objects.get(slug="two").judge.slug == "strict"
    assert [file.path for file in Suite.objects.get(slug="two").files.all()] == ["tone.md"]


def test_a_second_import_reports_changed_and_unchanged_suites(evals, capsys):
    call_command("import", "evals")
    (evals / "evals/one.yaml").write_text(ONE.replace("hi", "hello"))
    capsys.readouterr()

    call_command("import", "evals")

    assert capsys.readouterr().out.splitlines() == [
        "two: unchanged, still at version 1. From evals/deep/two.jsonl",
        "one: version 2, was 1. 1 case changed. From evals/one.yaml",
    ]


def test_a_suite_under_another_name_with_another_judge_and_a_note(evals, capsys):
    make_model(slug="cheap")
    options = ("--slug", "mine", "--judge", "cheap", "--note", "for the release")

    call_command("import", "evals/one.yaml", *options)

    suite = Suite.objects.get()
    assert (suite.slug, suite.judge.slug) == ("mine", "cheap")
    assert suite.versions.get().note == "for the release"
    assert (
        "mine: new, at version 1. for the release. From evals/one.yaml" in capsys.readouterr().out
    )


def test_a_file_refers_to_its_folder_and_a_zip_to_its_content(evals):
    call_command("import", "evals/deep/two.jsonl")
    with ZipFile("two.zip", "w") as packed:
        for path in sorted((evals / "evals/deep").iterdir()):
            packed.write(path, f"deep/{path.name}")

    call_command("import", "two.zip")

    assert SuiteVersion.objects.count() == 1


def test_recorded_outputs_become_a_target(evals, capsys):
    call_command("import", "evals/one.yaml", "--outputs", "answers.jsonl", "--target", "agent 1")
    call_command("import", "--outputs", "answers.jsonl")

    assert sorted(Target.objects.values_list("name", flat=True)) == ["agent 1", "answers"]
    assert "Target agent 1: 1 recorded output, from answers.jsonl" in capsys.readouterr().out


def test_every_problem_is_printed_and_nothing_is_stored(evals):
    (evals / "evals/one.yaml").write_text(
        ONE.replace("contains", "contians") + "verdicts: {pass: 7}"
    )
    (evals / "evals/three.yaml").write_text("tests: [")

    message = refused("evals", "--outputs", "answers.jsonl").splitlines()

    assert len(message) == 3
    assert message[0].startswith("evals/one.yaml, line 4, evaluators[0].type: evaluator contians:")
    assert message[2].startswith("evals/three.yaml, line 2: not readable as YAML")
    assert not Suite.objects.exists()
    assert not Target.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no file or folder of this name"),
        (["evals", "--slug", "x"], "'x' can name one suite, but there are 2"),
        (
            ["evals/one.yaml", "--slug", "No Way"],
            "'No Way' cannot be part of an address; use lower-case",
        ),
        (
            ["evals/one.yaml", "--judge", "gone"],
            "There is no language model 'gone'. There is: stri",
        ),
        (
            ["answers.jsonl"],
            "answers.jsonl: the file contains recorded outputs, not cases; give it as",
        ),
        (["--outputs", "evals/deep/two.jsonl"], "two.jsonl: the file contains cases, not recorded"),
        (["--outputs", "nowhere.jsonl"], "--outputs nowhere.jsonl cannot be read: No such file"),
        (["evals/one.yaml", "--outputs", "answers.jsonl", "--target", "chat"], "answers by itself"),
    ],
)
def test_a_refused_import_stores_nothing(evals, arguments, message):
    make_target(name="chat", kind="chat")
    assert message in refused(*arguments)
    assert not Suite.objects.exists()
    assert not RecordedOutput.objects.exists()
    assert not AuditEntry.objects.filter(action="import").exists()


def test_missing_judges_of_all_suites_are_reported_together(evals):
    (evals / "evals/one.yaml").write_text(ONE + "judge: gone\n")
    (evals / "evals/deep/two.yaml").write_text(TWO.replace("strict", "lost"))
    message = refused("evals").splitlines()
    assert [line.split(":")[0] for line in message] == [
        "evals/deep/two.yaml, line 2, judge",
        "evals/one.yaml, line 5, judge",
    ]


def test_cases_without_a_scoring_rule_are_noted(evals, capsys):
    judged = "{id: B, input: hi, evaluators: [{name: h, type: hybrid_judge}]}"
    tree = "evaluators: [{name: x, type: contains, value: hi}]\n"
    (evals / "own.yaml").write_text(
        f"profile: hybrid\n{tree}judge: strict\ntests: [{{id: A, input: hi}}, {judged}]\n"
    )

    call_command("import", "own.yaml")

    [note] = capsys.readouterr().err.splitlines()
    assert note.startswith("Note: own.yaml, case A, final_score: 1 of 2 cases have no hybrid judge")


def test_an_unknown_judging_agent_is_noted_once(evals, capsys):
    make_target(name="at hand", kind="http")
    judges = [("a", "far"), ("b", "at hand"), ("c", "far")]
    listed = ", ".join(f"{{name: {n}, type: agent_judge, agent: {agent}}}" for n, agent in judges)
    (evals / "asking.yaml").write_text(f"tests: [{{id: A, input: hi}}]\nevaluators: [{listed}]\n")

    call_command("import", "asking.yaml")

    [note] = capsys.readouterr().err.splitlines()
    assert note.startswith("Note: asking.yaml, evaluator a: agent: no target is called 'far' yet;")
    assert Suite.objects.filter(slug="asking").exists()


@pytest.mark.parametrize("arguments", [[], ["x.yaml", "--target", "agent"]])
def test_an_empty_command_line_is_wrong_usage(arguments):
    with pytest.raises(CommandError) as refusal:
        call_command("import", *arguments)
    assert refusal.value.returncode == 2


def test_the_help_describes_all_options(capsys):
    with pytest.raises(SystemExit):
        call_command("import", "--help")
    message = capsys.readouterr().out
    for part in ("--outputs FILE", "exit codes:", "evalsite import evals/", "hidden files"):
        assert part in message


def test_a_profile_applies_only_to_files_without_one(evals, capsys):
    (evals / "cases.jsonl").write_text(LINES)
    (evals / "own.yaml").write_text("name: own\nprofile: tasks\ntests: [{id: A, input: hi}]\n")

    call_command("import", "cases.jsonl", "own.yaml", "--profile", "metrics", "--judge", "strict")

    kinds = {suite.slug: suite.spec.evaluators.children[0].kind for suite in Suite.objects.all()}
    assert kinds == {"cases": "metrics_judge", "own": "expected_output"}
    assert Suite.objects.get(slug="cases").policy.case_gate == "expected_outcomes"
    assert capsys.readouterr().err.splitlines() == [
        "Note: own.yaml, line 2, profile: the file starts from tasks, which overrides the chosen "
        "metrics; remove the line to start from metrics"
    ]


def test_an_unknown_profile_is_refused_with_the_known_ones(evals):
    assert "verdicts, metrics, tasks, hybrid" in refused("evals", "--profile", "metric")
    with pytest.raises(CommandError, match="name them") as misused:
        call_command("import", "--outputs", "answers.jsonl", "--profile", "metrics")
    assert misused.value.returncode == 2
    assert not Suite.objects.exists()


OTHER = "name: one\ntests:\n  - {id: Z, input: hi}\n"


def test_a_suite_that_shares_no_case_is_no_new_version_unless_its_name_is_written(evals, capsys):
    call_command("import", "evals/one.yaml")
    (evals / "other.yaml").write_text(OTHER)

    message = refused("other.yaml")

    assert "there is already a suite 'one', and it shares no case with this file" in message
    assert "--slug" in message
    assert list(Suite.objects.values_list("slug", "version")) == [("one", 1)]
    call_command("import", "other.yaml", "--slug", "another")
    call_command("import", "other.yaml", "--slug", "one")
    versions = dict(Suite.objects.values_list("slug", "version"))
    assert versions == {"one": 2, "another": 1}


def test_what_a_refusal_quotes_of_a_file_commands_no_terminal(
    evals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (evals / "red.yaml").write_text(
        'name: red\ntests: [{id: A, input: hi}]\nevaluators: [{type: "\\u001b[31mred"}]\n'
    )
    with pytest.raises(SystemExit):
        load_command_class("runs", "import").run_from_argv(["evalsite", "import", "red.yaml"])
    printed = capsys.readouterr().err
    assert "\N{REPLACEMENT CHARACTER}[31mred" in printed
    assert "\x1b" not in printed
