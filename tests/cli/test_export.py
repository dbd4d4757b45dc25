"""`export`: what is written imports again without a change."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from django.core.management import CommandError, call_command

from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.suites import Suite
from tests.support.factories import make_suite

pytestmark = pytest.mark.django_db

FILE = """
name: shop
description: Two cases
tests:
  - {id: A, input: hi, owner: me}
  - {id: B, input: bye, assertions: [{name: short, type: max_length, value: 9}]}
"""
JUDGED = "evaluators: [{type: llm_judge, prompt: ./prompts/tone.md}]\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stored(text: str = FILE) -> Suite:
    files = {"prompts/tone.md": b"Kind?"} if JUDGED in text else {}
    return import_suite(suite_files.read_suite(text.encode(), files=files), imported_by=None)


def imported_again(path: str) -> Suite:
    call_command("import", path)
    suite = Suite.objects.get()
    assert suite.version == 1
    return suite


def here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as refusal:
        call_command("export", *arguments)
    assert refusal.value.returncode == 3
    return str(refusal.value)


def test_a_suite_becomes_one_file_in_the_current_folder(capsys):
    stored()
    call_command("export", "shop")
    assert here() == ["shop.yaml"]
    assert "shop, version 1, is written to shop.yaml" in capsys.readouterr().err
    imported_again("shop.yaml")


def test_a_suite_with_files_becomes_a_zip(capsysbinary):
    stored(FILE + JUDGED)
    call_command("export", "shop")
    with ZipFile("shop.zip") as packed:
        assert packed.namelist() == ["shop.yaml", "prompts/tone.md"]
    imported_again("shop.zip")
    capsysbinary.readouterr()
    call_command("export", "shop", "--out", "-")
    with ZipFile(BytesIO(capsysbinary.readouterr().out)) as packed:
        assert packed.read("prompts/tone.md") == b"Kind?"


def test_a_folder_contains_the_suite_with_its_files():
    stored(FILE + JUDGED)
    call_command("export", "shop", "--out", "evals/shop/")
    assert Path("evals/shop/shop.yaml").exists()
    assert Path("evals/shop/prompts/tone.md").read_bytes() == b"Kind?"
    imported_again("evals")


def test_case_lines_come_with_a_yaml_file():
    suite = stored()
    call_command("export", "shop", "--out", "cases.jsonl")
    head = Path("cases.yaml").read_bytes()
    read = suite_files.read_case_lines(Path("cases.jsonl").read_bytes(), files={"suite.yaml": head})
    assert [case.key for case in read.cases] == ["A", "B"]
    assert imported_again("cases.jsonl") == suite


def test_a_suite_can_be_exported_to_standard_output(capsysbinary):
    stored()
    call_command("export", "shop", "--out", "-")
    written = capsysbinary.readouterr()
    assert suite_files.read_suite(written.out).slug == "shop"
    assert written.err == b""
    assert here() == []


def test_an_earlier_version_can_be_exported(capsys):
    stored()
    stored(FILE.replace("bye", "see you").replace("owner: me", "owner: you"))
    call_command("export", "shop", "--version", "1", "--out", "old.zip")
    with ZipFile("old.zip") as packed:
        assert suite_files.read_suite(packed.read("shop.yaml")) == suite_files.read_suite(
            FILE.encode()
        )
    assert "shop, version 1, is written" in capsys.readouterr().err
    assert "shop has no version 7; there are 1, 2." in refused("shop", "--version", "7")


def test_a_failed_export_leaves_no_files():
    stored(FILE + JUDGED)
    assert "There is no suite 'nope'. There is: shop." in refused("nope")
    assert refused("no\udcffpe") == "'no\\udcffpe' is not text in UTF-8. Write it in UTF-8."
    assert "refers to 1 file, which cannot be part of x.yaml. Name a zip or a" in refused(
        "shop", "--out", "x.yaml"
    )
    Path("taken").write_text("")
    assert "cannot be written" in refused("shop", "--out", "taken/x.zip")
    output = refused("shop", "--out", "no/x.zip")
    assert output == "no/x.zip cannot be written: No such file or directory."
    output = refused("shop", "--out", "taken/in/")
    assert output == "taken/in/ cannot be written: Not a directory."
    Path("in").mkdir()
    Path("in/prompts").write_text("")
    output = refused("shop", "--out", "in/")
    assert output == "in/ cannot be written: File exists, at in/prompts."
    Path("in/prompts").unlink()
    Path("in/shop.yaml").unlink()
    Path("in").rmdir()
    assert here() == ["taken"]
    make_suite(slug="bare").versions.all().delete()
    assert "bare has no stored version" in refused("bare")


@pytest.mark.parametrize("out", ["x.foo", "evals", "x.yaml.gz"])
def test_an_unknown_ending_is_refused_with_the_known_ones(out: str) -> None:
    stored()
    output = refused("shop", "--out", out)
    assert output.startswith(f"The ending of {out} names no format.")
    assert "End it in .yaml, .yml, .jsonl, .ndjson or .zip, or in / for a folder." in output
    assert here() == []


def test_the_help_describes_all_options(capsys):
    with pytest.raises(SystemExit):
        call_command("export", "--help")
    output = capsys.readouterr().out
    for part in ("--version N", "exit codes:", "evalsite export support-agent", "suite.jsonl"):
        assert part in output


def test_a_suite_becomes_a_configuration_of_promptfoo(capsys):
    stored()
    call_command("export", "shop", "--format", "promptfoo")
    assert here() == ["promptfooconfig.yaml"]
    assert "prompts:\n- label: input\n" in Path("promptfooconfig.yaml").read_text()
    notes = capsys.readouterr().err
    assert "case B: the evaluator short (text_check) was left out: max_length is not known" in notes
    assert "is written to promptfooconfig.yaml" in notes
    call_command("import", "promptfooconfig.yaml", "--slug", "again")
    assert Suite.objects.get(slug="again").cases.filter(is_current=True).count() == 2
