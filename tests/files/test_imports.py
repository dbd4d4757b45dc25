"""Imports: a suite becomes rows, again and again, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from runs.files.importing import TargetKindDiffersError, import_recorded_outputs, import_suite
from runs.formats import suite_files
from runs.models.suites import FileContent, Suite, Target
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.suites.references import UnknownJudgeError
from tests.support.factories import make_model, make_user

pytestmark = pytest.mark.django_db

FILE = """
name: shop
title: The shop
judge: strict
policy: {case_gate: expected_outcomes}
verdicts: {pass: 0.9, borderline: 0.7}
version: 3
evaluators:
  - name: gate
    type: composite
    aggregator: {type: safety_gate, required: [safe]}
    evaluators:
      - {name: safe, type: contains, value: sorry, negate: true}
      - {name: tone, type: llm_judge, prompt: ./tone.md, weight: 2}
tests:
  - {id: A, input: hi, expected_outcomes: [Greets]}
  - {id: B, input: bye, assertions: [{name: short, type: max_length, value: 9}]}
"""
FILES = {"tone.md": b"Is it kind?"}


@pytest.fixture
def content() -> SuiteWithCases:
    make_model(slug="strict")
    return suite_files.read_suite(FILE.encode(), files=FILES)


def current(suite: Suite) -> list[tuple[str, int, int]]:
    rows = suite.cases.filter(is_current=True)
    return [(case.key, case.revision, case.position) for case in rows]


def test_a_suite_is_stored_whole(content: SuiteWithCases) -> None:
    user = make_user()

    suite = import_suite(content, imported_by=user)

    assert (suite.slug, suite.title, suite.version) == ("shop", "The shop", 1)
    assert suite.judge is not None
    assert suite.judge.slug == "strict"
    assert suite.policy == content.policy
    assert suite.spec.evaluators == content.evaluators
    assert current(suite) == [("A", 1, 0), ("B", 1, 1)]
    case = suite.cases.get(key="B")
    assert (case.evaluators["children"][0]["name"], case.evaluators_append) == ("short", True)
    assert [(f.path, bytes(f.content.content)) for f in suite.files.all()] == [
        ("tone.md", FILES["tone.md"])
    ]
    version = suite.versions.get()
    assert (version.number, version.note, version.author) == (1, "Imported with 2 cases", user)
    assert version.content["evaluators"] == content.evaluators.as_json()
    assert version.content["metadata"] == {"version": 3}
    assert list(version.content["files"]) == ["tone.md"]
    entry = AuditEntry.objects.get(object_type="suite")
    assert (entry.action, entry.actor, entry.object_name) == ("import", user, "shop")


def test_the_same_file_again_changes_nothing(content: SuiteWithCases) -> None:
    first = import_suite(content, imported_by=None)

    again = import_suite(content, imported_by=None)

    assert (again.pk, again.version, again.versions.count()) == (first.pk, 1, 1)
    assert again.cases.count() == 2
    assert AuditEntry.objects.filter(object_type="suite").count() == 1


def test_changed_cases_get_a_new_revision_and_lost_ones_are_not_current(
    content: SuiteWithCases,
) -> None:
    import_suite(content, imported_by=None)
    first, second = content.cases
    new = CaseSpec(key="C", input=({"role": "user", "content": "new"},))

    suite = import_suite(
        content.replace(cases=(new, second.replace(criteria="Short"))), imported_by=None
    )

    assert current(suite) == [("C", 1, 0), ("B", 2, 1)]
    assert suite.cases.get(key=first.key).is_current is False
    assert suite.cases.get(key="B", revision=1).criteria == ""
    assert suite.version == 2
    assert suite.versions.get(number=2).note == "1 case added, 1 case changed, 1 case removed"


def test_a_case_that_comes_back_gets_the_next_revision(content: SuiteWithCases) -> None:
    import_suite(content, imported_by=None)
    import_suite(content.replace(cases=content.cases[:1]), imported_by=None)

    suite = import_suite(content, imported_by=None)

    assert current(suite) == [("A", 1, 0), ("B", 2, 1)]
    assert suite.version == 3


def test_cases_in_another_order_keep_their_revisions(content: SuiteWithCases) -> None:
    import_suite(content, imported_by=None)

    suite = import_suite(content.replace(cases=content.cases[::-1]), imported_by=None)

    assert current(suite) == [("B", 1, 0), ("A", 1, 1)]
    assert suite.versions.get(number=2).note == "cases reordered"


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("weight: 2", "weight: 3", "evaluators changed"),
        ("pass: 0.9", "pass: 0.8", "policy changed"),
        ("judge: strict", "judge: cheap", "judge: strict → cheap"),
        ("The shop", "Our shop", "title changed"),
    ],
)
def test_the_note_of_a_version_says_what_changed(
    content: SuiteWithCases, old: str, new: str, note: str
) -> None:
    make_model(slug="cheap")
    import_suite(content, imported_by=None)
    changed = suite_files.read_suite(FILE.replace(old, new).encode(), files=FILES)

    suite = import_suite(changed, imported_by=None)

    assert suite.versions.get(number=2).note == note
    assert suite.spec.evaluators == changed.evaluators


def test_a_changed_prompt_file_makes_a_new_version_and_keeps_the_old_bytes(
    content: SuiteWithCases,
) -> None:
    import_suite(content, imported_by=None)

    suite = import_suite(content.replace(files={"tone.md": b"Is it warm?"}), imported_by=None)

    assert suite.versions.get(number=2).note == "files changed"
    assert FileContent.objects.count() == 2
    before, after = (suite.versions.get(number=n).content["files"]["tone.md"] for n in (1, 2))
    assert bytes(FileContent.objects.get(pk=before).content) == FILES["tone.md"]
    assert suite.files.get().content_id == after


def test_a_file_that_names_no_judge_leaves_the_suite_its_own(content: SuiteWithCases) -> None:
    silent = content.replace(judge="")
    import_suite(silent, imported_by=None, judge="strict")

    kept = import_suite(silent, imported_by=None)
    assert (kept.judge and kept.judge.slug, kept.version) == ("strict", 1)
    bare = import_suite(silent, imported_by=None, judge="")
    assert (bare.judge, bare.version) == (None, 2)
    assert bare.versions.get(number=2).note == "judge: strict → none"


def test_a_slug_and_a_judge_can_be_chosen_at_the_import(content: SuiteWithCases) -> None:
    make_model(slug="cheap")

    suite = import_suite(content, imported_by=None, slug="shop-2", judge="cheap")

    assert suite.slug == "shop-2"
    assert suite.judge is not None
    assert suite.judge.slug == "cheap"
    assert import_suite(content, imported_by=None, slug="shop-3", judge="").judge is None


def test_language_models_that_are_not_set_up_are_told_with_file_and_line() -> None:
    text = """\
name: s
judge: gone
evaluators:
  - {name: a, type: llm_judge, prompt: Good?, model: lost}
  - name: b
    type: llm_judge
    prompt: Good?
    model: lost
tests:
  - id: C-1
    input: Hi
    evaluators:
      - type: llm_judge
        prompt: Good?
        model: gone
"""
    content = suite_files.read_suite(text.encode(), file="evals/s.yaml")
    with pytest.raises(UnknownJudgeError) as refused:
        import_suite(content, imported_by=None)
    places = [(one.file, one.line, one.case, one.key) for one in refused.value.problems]
    assert places == [
        ("evals/s.yaml", 2, "", "judge"),
        ("evals/s.yaml", 4, "", "evaluator a: model"),
        ("evals/s.yaml", 8, "", "evaluator b: model"),
        ("evals/s.yaml", 15, "C-1", "evaluator llm_judge: model"),
    ]
    with pytest.raises(UnknownJudgeError) as chosen:
        import_suite(content, imported_by=None, judge="nobody")
    assert (chosen.value.problems[0].line, chosen.value.problems[0].key) == (0, "judge")


def test_every_model_of_a_panel_that_is_not_set_up_is_told_with_file_and_line() -> None:
    text = """\
name: s
evaluators:
  - name: panel
    type: deliberation
    models:
      - gone
      - strict
      - lost
      - gone
  - {name: vote, type: panel, judges: [lost, strict]}
  - {name: same, type: semantic, model: lost}
  - name: all
    type: composite
    aggregator: {type: llm_judge, prompt: Good?, model: gone}
    evaluators: [{name: a, type: contains, value: Hi}]
tests:
  - {id: C-1, input: Hi}
"""
    make_model(slug="strict")
    content = suite_files.read_suite(text.encode(), file="evals/s.yaml")
    with pytest.raises(UnknownJudgeError) as refused:
        import_suite(content, imported_by=None)
    assert [(one.file, one.line, one.key) for one in refused.value.problems] == [
        ("evals/s.yaml", 6, "evaluator panel: models"),
        ("evals/s.yaml", 8, "evaluator panel: models"),
        ("evals/s.yaml", 10, "evaluator vote: models"),
        ("evals/s.yaml", 11, "evaluator same: model"),
        ("evals/s.yaml", 14, "evaluator all: aggregator.model"),
    ]


def test_a_model_of_a_case_in_json_lines_is_told_with_its_line() -> None:
    judged = {"type": "llm_judge", "prompt": "Good?", "model": "gone"}
    cases = [{"id": "C-1", "input": "Hi"}, {"id": "C-2", "input": "Hi", "evaluators": [judged]}]
    content = suite_files.read_case_lines(
        "\n".join(map(json.dumps, cases)).encode(), file="s.jsonl"
    )
    with pytest.raises(UnknownJudgeError, match=r"s\.jsonl, line 2, case C-2, evaluator llm_judge"):
        import_suite(content, imported_by=None)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "judge: strict",
            "judge: gone",
            "judge: no language model has the short name 'gone'; there are strict",
        ),
        ("weight: 2", "weight: 2, model: gone", "evaluator gate/tone: model: no language model"),
    ],
)
def test_a_judge_that_is_not_set_up_refuses_the_suite_and_leaves_nothing(
    content: SuiteWithCases, old: str, new: str, said: str
) -> None:
    unknown = suite_files.read_suite(FILE.replace(old, new).encode(), files=FILES)

    with pytest.raises(UnknownJudgeError, match=said):
        import_suite(unknown, imported_by=None)

    assert not Suite.objects.exists()


def test_an_import_that_breaks_leaves_the_suite_as_it_was(
    content: SuiteWithCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_suite(content, imported_by=None)

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("runs.suites.services.AuditEntry.objects.create", broken)
    with pytest.raises(OSError, match="disk full"):
        import_suite(content.replace(title="Other", cases=content.cases[:1]), imported_by=None)

    suite = Suite.objects.get()
    assert (suite.title, suite.version, len(current(suite))) == ("The shop", 1, 2)


def test_many_cases_take_no_more_queries_than_few(
    content: SuiteWithCases,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[Any]],
) -> None:
    cases = tuple(content.cases[0].replace(key=f"C-{n}") for n in range(900))

    with django_assert_max_num_queries(40):
        import_suite(content.replace(cases=cases), imported_by=None)


def test_recorded_outputs_are_not_sent_as_arrays_whose_quotes_are_escaped_one_by_one() -> None:
    lines = [json.dumps({"id": key, "output": 'A "quote" \\ and é'}) for key in ("A", "B")]
    with CaptureQueriesContext(connection) as made:
        target = import_recorded_outputs(target_name="v1", lines=lines, imported_by=None).target
    assert not [query for query in made.captured_queries if "UNNEST" in query["sql"]]
    texts = target.recorded_outputs.values_list("output__output", flat=True)
    assert list(texts) == ['A "quote" \\ and é'] * 2


def test_recorded_outputs_make_a_target(content: SuiteWithCases) -> None:
    user = make_user()
    lines = ['{"id": "A", "output": "Hi", "latency_ms": 3}', '{"id": "B", "output": "Bye"}']

    target = import_recorded_outputs(target_name="agent v1", lines=lines, imported_by=user).target

    assert (target.name, target.kind) == ("agent v1", "recorded")
    stored = {o.case_key: o.output for o in target.recorded_outputs.all()}
    assert stored == {"A": {"output": "Hi", "latency_ms": 3}, "B": {"output": "Bye"}}
    assert AuditEntry.objects.get(object_type="target").after == {"outputs": 2}


def test_outputs_recorded_again_replace_the_former_ones() -> None:
    import_recorded_outputs(target_name="v1", lines=b'{"id": "A", "output": "x"}', imported_by=None)

    target = import_recorded_outputs(
        target_name="v1", lines=b'{"id": "B", "output": "y"}', imported_by=None
    ).target

    assert list(target.recorded_outputs.values_list("case_key", flat=True)) == ["B"]
    assert Target.objects.count() == 1


def test_keys_that_nothing_reads_are_told_and_spellings_are_understood() -> None:
    lines = [
        '{"eval_id": "A", "answer": "Hi", "duration_ms": 3, "tokenUsage": {"input": 1}, "latncy": 4}',
        '{"id": "B", "output": "Bye", "latncy": 1, "note": "x"}',
    ]
    imported = import_recorded_outputs(
        target_name="v1", lines=lines, imported_by=None, file="o.jsonl"
    )
    stored = imported.target.recorded_outputs.get(case_key="A").output
    assert (stored["output"], stored["latency_ms"], stored["usage"]) == (
        "Hi",
        3,
        {"input_tokens": 1},
    )
    kept = "is not used by Evalsite and is kept with the output"
    assert [str(note) for note in imported.notes] == [
        f"o.jsonl, line 1, case A, latncy: {kept} (2 lines have it)",
        f"o.jsonl, line 2, case B, note: {kept}",
    ]
    with pytest.raises(UnreadableFileError, match="duration_ms says the same as latency_ms"):
        import_recorded_outputs(
            target_name="v1",
            lines=['{"id": "A", "output": "x", "latency_ms": 1, "duration_ms": 2}'],
            imported_by=None,
        )


def test_a_bad_line_leaves_the_target_as_it_was() -> None:
    import_recorded_outputs(target_name="v1", lines=b'{"id": "A", "output": "x"}', imported_by=None)

    with pytest.raises(UnreadableFileError, match=r"v1\.jsonl, line 2"):
        import_recorded_outputs(
            target_name="v1",
            lines=b'{"id": "B", "output": "y"}\n{',
            imported_by=None,
            file="v1.jsonl",
        )

    assert Target.objects.get().recorded_outputs.get().case_key == "A"


def test_a_target_that_answers_by_itself_takes_no_recorded_outputs() -> None:
    Target.objects.create(name="agent", kind="chat")

    with pytest.raises(TargetKindDiffersError, match="of kind chat"):
        import_recorded_outputs(
            target_name="agent", lines=b'{"id": "A", "output": "x"}', imported_by=None
        )

    assert Target.objects.get().kind == "chat"
