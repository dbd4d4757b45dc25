"""What is evaluated: suites at paths, recorded outputs, models, tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from runs.models.runs import Run
from runs.models.suites import Suite, Target
from tests.cli.command_lines import evaluate
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]

SUITE = """
name: refunds
evaluators:
  - name: mentions_refund
    type: contains
    value: refund
tests:
  - id: C-1
    input: Where is my money?
    tags: [smoke]
    output: Your refund is on its way.
  - id: C-2
    input: And the tent?
"""


def refused(*arguments) -> str:
    with pytest.raises(CommandError) as refusal:
        evaluate(*arguments)
    assert refusal.value.returncode == 3
    assert not Run.objects.exists()
    return str(refusal.value)


@pytest.fixture
def suite_file(tmp_path):
    path = tmp_path / "refunds.yaml"
    path.write_text(SUITE)
    return path


def outputs(folder, name="agent-1.5.jsonl", **texts):
    path = folder / name
    lines = [
        json.dumps({"id": key.replace("_", "-"), "output": text}) for key, text in texts.items()
    ]
    path.write_text("\n".join(lines))
    return path


def test_a_suite_at_a_path_is_imported_and_its_recorded_outputs_evaluated(suite_file, capsys):
    assert evaluate(suite_file, "--target", "recorded", "--tag", "smoke") == 0

    run = Run.objects.get()
    assert (run.suite.slug, run.target_name, run.execution_count) == (
        "refunds",
        "recorded in the cases",
        1,
    )
    assert "refunds: new, at version 1. Imported with 2 cases." in capsys.readouterr().err


def test_a_run_can_be_limited_to_named_cases(suite_file, capsys):
    assert evaluate(suite_file, "--target", "recorded", "--case", "C-1") == 0

    assert [result.case.key for result in Run.objects.get().results.all()] == ["C-1"]
    assert "no recorded output" not in capsys.readouterr().err


def test_only_a_changed_file_becomes_a_new_version(suite_file, capsys):
    evaluate(suite_file, "--target", "recorded", "--tag", "smoke")
    evaluate(suite_file, "--target", "recorded", "--tag", "smoke")
    assert "refunds: unchanged, still at version 1." in capsys.readouterr().err
    suite_file.write_text(SUITE.replace("And the tent", "And the stove"))
    evaluate(suite_file, "--target", "recorded", "--tag", "smoke")
    assert "refunds: version 2, was 1. 1 case changed." in capsys.readouterr().err
    assert list(Run.objects.order_by("number").values_list("suite_version", flat=True)) == [1, 1, 2]


def test_unknown_content_of_a_file_is_reported(suite_file, capsys):
    suite_file.write_text(SUITE + "owner: ada\n")
    evaluate(suite_file, "--target", "recorded", "--tag", "smoke")
    output = capsys.readouterr().err
    assert "refunds.yaml, line 14, owner: is not used by Evalsite" in output


def test_an_unreadable_file_is_refused_with_all_its_problems(suite_file):
    suite_file.write_text(
        SUITE.replace("type: contains", "type: psychic").replace("id: C-2", "x: 1")
    )
    output = refused(suite_file, "--target", "recorded")
    assert "refunds.yaml, line 5" in output
    assert "There is no evaluator type 'psychic'" in output
    assert "the case has no id" in output
    assert not Suite.objects.exists()


def test_a_short_name_takes_precedence_over_a_folder(suite_file, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refunds").mkdir()
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    make_case(suite=suite, recorded_output={"output": "a refund"})
    assert evaluate("refunds", "--target", "recorded") == 0
    assert Run.objects.get().suite == suite


def test_a_missing_path_is_refused(tmp_path):
    assert "nowhere.yaml" in refused(tmp_path / "nowhere.yaml", "--target", "recorded")


def test_a_folder_with_several_suites_is_refused(tmp_path):
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "a.yaml").write_text(SUITE)
    assert evaluate(folder, "--target", "recorded", "--tag", "smoke") == 0
    Run.objects.all().delete()
    (folder / "b.yaml").write_text(SUITE.replace("name: refunds", "name: tents"))
    output = refused(folder, "--target", "recorded")
    assert "contains 2 suites, and a run needs one. Name its file: " in output
    assert "evals/a.yaml" in output
    assert not Suite.objects.filter(slug="tents").exists()


def test_outputs_become_a_target_named_after_their_file(suite_file, tmp_path, capsys):
    file = outputs(tmp_path, C_1="a refund", C_2="a refund", C_9="hello")
    assert evaluate(suite_file, "--target", "recorded", "--outputs", file) == 0
    assert Target.objects.get().name == "agent-1.5"
    assert Run.objects.get().target_name == "agent-1.5"
    assert "1 output belongs to no case of refunds: C-9." in capsys.readouterr().err


def test_nobody_waits_while_a_command_reads_a_slow_file(suite_file, tmp_path, monkeypatch):
    open_file, waited = Path.open, {}

    def read(path, *arguments, **options):
        waited[path.name] = connection.in_atomic_block
        return open_file(path, *arguments, **options)

    (tmp_path / "table.csv").write_text("input\nWhere is the tent?\n")
    monkeypatch.setattr(Path, "open", read)
    evaluate(suite_file, "--outputs", outputs(tmp_path, "a.jsonl", C_1="A refund."))
    call_command("import", "--outputs", outputs(tmp_path, "b.jsonl", C_1="A refund."))
    call_command("import", tmp_path / "table.csv", "--suite", "refunds")
    names = ("a.jsonl", "b.jsonl", "table.csv", suite_file.name)
    assert {name: waited[name] for name in names} == dict.fromkeys(names, False)


def test_outputs_are_stored_for_the_named_target(suite_file, tmp_path, capsys):
    file = outputs(tmp_path, C_1="a refund")
    assert evaluate(suite_file, "--target", "agent 1.5", "--outputs", file) == 3
    assert Target.objects.get().name == "agent 1.5"
    assert "1 case has no recorded output: C-2." in capsys.readouterr().err


def test_the_same_outputs_are_stored_once(suite_file, tmp_path):
    file = outputs(tmp_path, C_1="a refund", C_2="a refund")
    for _ in range(2):
        assert evaluate(suite_file, "--outputs", file) == 0
    target = Target.objects.get()
    ids = list(target.recorded_outputs.values_list("id", flat=True))
    assert evaluate(suite_file, "--outputs", file) == 0
    assert list(target.recorded_outputs.values_list("id", flat=True)) == ids


def test_a_model_alone_is_evaluated_directly(model_server: ModelServer):
    make_model(slug="agent-model", base_url=model_server.base_url)
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    make_case(suite=suite)
    evaluate("refunds", "--model", "agent-model")
    run = Run.objects.get()
    assert (run.target_name, run.target.kind, run.done_count) == ("agent-model", "chat", 1)
    assert [chat.body["model"] for chat in model_server.chats] == ["agent-model"]


def test_a_chat_target_can_be_evaluated_with_another_model(model_server: ModelServer):
    usual = make_model(slug="usual", base_url=model_server.base_url)
    make_model(slug="other", base_url=model_server.base_url)
    make_case(suite=make_suite(slug="refunds", tree=tree(CHECK)))
    config = {"system_prompt": "Be brief."}
    make_target(name="desk", kind="chat", model=usual, config=config)

    evaluate("refunds", "--target", "desk", "--model", "other")

    assert Run.objects.get().target_name == "desk with other"
    [chat] = model_server.chats
    assert (chat.body["model"], chat.body["messages"][0]["content"]) == ("other", "Be brief.")
    evaluate("refunds", "--target", "desk", "--model", "usual")
    assert Run.objects.get(number=2).target_name == "desk"


def test_the_judge_option_replaces_an_unknown_judge_of_the_file(
    tmp_path, model_server: ModelServer
):
    make_model(slug="mine", base_url=model_server.base_url)
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\njudge: theirs\ntests:\n  - {id: a, input: x, criteria: good, output: y}\n"
    )
    assert "no language model has the short name 'theirs'" in refused(path, "--target", "recorded")
    assert evaluate(path, "--target", "recorded", "--judge", "mine") in (0, 1)
    assert Run.objects.get().judge_name == "mine"


MISUNDERSTOOD = [
    (("refunds",), "Name a target (--target NAME), a language model"),
    (("refunds", "--target", "recorded", "--model", "m"), "needs no language model"),
    (("refunds", "--outputs", "o.jsonl", "--model", "m"), "contradict each other"),
]


@pytest.mark.parametrize(("arguments", "message"), MISUNDERSTOOD)
def test_options_must_name_one_thing_to_evaluate(arguments, message):
    with pytest.raises(CommandError) as refusal:
        evaluate(*arguments)
    assert message in str(refusal.value)
    assert refusal.value.returncode == 2


def test_remedies_name_options():
    make_case(suite=make_suite(slug="judged", tree=tree(JUDGED)), recorded_output={"output": "x"})
    assert refused("judged", "--target", "recorded").endswith(
        "none is chosen. Name a language model: --judge SLUG."
    )
    make_target(name="empty")
    make_case(suite=make_suite(slug="one", tree=tree(CHECK)), key="C-1", recorded_output=None)
    output = refused("one", "--target", "empty")
    assert "no recorded output for the case C-1. Name a file of outputs" in output
    assert output.endswith("--outputs FILE.")


REFUSED = [
    (("refunds", "--target", "agent", "--model", "m"), "--model works with chat targets only."),
    (("refunds", "--model", "nobody"), "There is no language model 'nobody'. There is: m."),
    (("refunds", "--model", "m"), "There is already another target named m."),
    (
        ("refunds", "--outputs", "/nowhere.jsonl"),
        "--outputs /nowhere.jsonl cannot be read: No such",
    ),
    (("refunds", "--target", "agent", "--tag", "x"), "no case with the tag 'x'; there are smoke."),
    (("refunds", "--target", "agent", "--case", "x"), "has no case x."),
    (("refunds", "--target", "agent", "--samples", "3"), "no evaluator of the suite uses a judge"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_contradicting_options_are_refused(arguments, message):
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    make_case(suite=suite, recorded_output={"output": "x"}, tags=["smoke"])
    make_model(slug="m")
    make_target(name="agent")
    make_target(name="m")
    assert message in refused(*arguments)


def test_a_refusal_stores_nothing(suite_file, tmp_path):
    file = outputs(tmp_path, C_1="a refund")
    refused(suite_file, "--target", "nobody")
    refused(suite_file, "--outputs", file, "--tag", "none")
    refused(suite_file, "--outputs", file, "--repetitions", "0")
    assert not Suite.objects.exists()
    assert not Target.objects.exists()


def test_an_unknown_tag_of_a_suite_without_tags_is_refused():
    make_case(suite=make_suite(slug="judged", tree=tree(JUDGED)), recorded_output={"output": "x"})
    make_target(name="agent")
    output = refused("judged", "--target", "agent", "--tag", "x")
    assert output == "judged has no case with the tag 'x'; none of its cases has any."
