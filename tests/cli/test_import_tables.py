"""`import --suite`: the rows of a table are cases of a suite, and rejected rows keep it from storing."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.cases.queries import case_file
from runs.cases.services import put_cases
from runs.models.suites import Suite, SuiteVersion
from runs.specs.suites import CaseSpec
from tests.support.factories import make_suite
from tests.support.trees import CHECK
from tests.support.trees import tree as make_tree

pytestmark = pytest.mark.django_db
TABLE = "nr;wording;Soll\n1;When?;Soon\n2;;Never\n3;How?;\n"


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_suite(slug="refunds")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.csv").write_text(TABLE)
    return tmp_path


def refused(code: int, *arguments: str) -> str:
    with pytest.raises(CommandError) as refusal:
        call_command("import", *arguments)
    assert refusal.value.returncode == code
    return str(refusal.value)


MAPPED = ("cases.csv", "--suite", "refunds", "--map", "input=wording", "--map", "expected=Soll")


def test_all_rejected_rows_are_printed_and_nothing_is_stored(cases: Path) -> None:
    assert refused(3, *MAPPED) == "cases.csv, line 3, wording: is empty; write what the case asks"
    assert SuiteVersion.objects.count() == 1


def test_accepted_rows_are_stored_if_rejected_ones_are_left_out(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("import", *MAPPED, "--leave-out-rejected")
    message = capsys.readouterr()
    assert message.err.startswith("Note: cases.csv, line 3, wording: is empty")
    assert message.out.splitlines() == [
        "refunds: version 2. 2 added, 0 changed, 0 unchanged, 1 rejected. From cases.csv",
        "Read as key=nr, input=wording, expected_output=Soll",
    ]
    assert SuiteVersion.objects.get(number=2).note == "2 cases from cases.csv"
    call_command("import", *MAPPED, "--leave-out-rejected", "--existing", "skip")
    assert capsys.readouterr().out.startswith(
        "refunds: version 2. 0 added, 0 changed, 0 unchanged, 2 skipped, 1 rejected."
    )


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ("cases.csv",), "cases.csv is a table of cases; name the suite that gets them"),
        (2, ("cases.csv", "--map", "input=wording"), "--map is for tables"),
        (2, ("--suite", "refunds"), "--suite gets the cases of one table"),
        (2, (*MAPPED, "--profile", "metrics"), "Leave --profile out and write --suite refunds"),
        (2, ("cases.csv",), "or create one with --profile NAME"),
        (3, ("cases.csv", "--suite", "none"), "Use --profile NAME to create it"),
        (3, ("cases.csv", "--profile", "none"), "verdicts, metrics"),
        (
            2,
            ("cases.csv", "--suite", "No Slug", "--profile", "tasks"),
            "'No Slug' is not a short name",
        ),
        (2, (*MAPPED, "--map", "soul=nr"), "'soul' is not one of ignored, key, title, input"),
        (3, (*MAPPED, "--map", "key=id"), "there is no column 'id'; there are nr, wording, Soll"),
        (3, (*MAPPED, "--map", "input=nr"), "2 columns are the input; choose one with --map"),
        (3, ("cases.csv", "--suite", "none"), "none"),
        (3, ("gone.csv", "--suite", "refunds"), "gone.csv cannot be read: No such file"),
    ],
)
def test_wrong_options_for_tables_are_refused(
    cases: Path, code: int, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(code, *arguments)


@pytest.mark.parametrize(
    ("arguments", "slug", "title"),
    [((), "first-questions", "First questions"), (("--suite", "desk"), "desk", "Desk")],
)
def test_a_table_creates_a_suite(
    cases: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    slug: str,
    title: str,
) -> None:
    (cases / "First questions.csv").write_text("question,answer\nWhen?,Soon\nHow?,So\n")
    call_command("import", "First questions.csv", "--profile", "verdicts", *arguments)
    assert capsys.readouterr().out.startswith(f"{slug}: version 1. 2 added, 0 changed")
    suite = Suite.objects.get(slug=slug)
    assert (suite.title, suite.versions.count(), suite.cases.count()) == (title, 1, 2)
    assert suite.spec.evaluators.children


def test_a_guessed_input_is_told(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cases / "two.csv").write_text("foo,bar\nWhat is the capital of Norway?,Oslo\n")
    call_command("import", "two.csv", "--suite", "refunds")
    assert "No column is named like an input, so foo was taken" in capsys.readouterr().out
    (cases / "three.csv").write_text("question,bar\nWhat is the capital of Norway?,Oslo\n")
    call_command("import", "three.csv", "--suite", "refunds")
    assert "No column is named" not in capsys.readouterr().out


ODD = (
    *("plain", "=1+1", "-5", "'-5", "@x", "a, b", "a;b", "- x", "1. one", "tail ", '["a"]', "yes"),
    *("two\nlines", "\ttab", "user: hello"),
)


def test_a_table_of_cases_is_read_back_as_the_same_cases(tmp_path, capsys):
    suite = make_suite(slug="odd")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "-5"}]
    bodies = [
        {
            "key": f"C-{number}",
            "title": text.strip(),
            "input": turns if number % 2 else [{"role": "user", "content": text}],
            "expected_output": text if number != 10 else "",
            "expected_outcomes": (text.strip(), "two") if number % 3 else (text.strip(),),
            "criteria": text,
            "tags": (text.strip(),),
            "metadata": {"n": number, "text": text},
            "recorded_output": {"output": text},
            "evaluators": make_tree(CHECK) if number == 1 else None,
        }
        for number, text in enumerate(ODD)
    ]
    put_cases(suite, [CaseSpec.model_validate(body) for body in bodies], by=None)
    whole = case_file(slug="odd", keys=[body["key"] for body in bodies], form="csv")
    path = tmp_path / "odd.csv"
    path.write_bytes(b"".join(whole.write()))

    call_command("import", str(path), "--suite", "odd")

    assert f"0 added, 0 changed, {len(ODD)} unchanged" in capsys.readouterr().out
