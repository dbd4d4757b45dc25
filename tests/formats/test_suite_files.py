"""The suites among files that were given together; nothing is passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from runs.formats.bundles import Bundle, bundles_at, read_uploads
from runs.formats.finding import FoundSuites, read_suites
from runs.formats.suite_files import pack_suite
from runs.specs.problems import UnreadableFileError
from tests.formats.test_bundles import written

SUITE = b"tests:\n  - {id: A, input: hi}\n"
JUDGED = b"evaluators: [{type: llm_judge, prompt: ./tone.md}]\n" + SUITE
SHARED = JUDGED.replace(b"./tone.md", b"../shared/tone.md")
LINES = b'{"id": "A", "input": "hi"}\n'
OUTPUTS = b'{"id": "A", "output": "hi"}\n'


def bundle(files: Mapping[str, bytes], place: str = "") -> Bundle:
    return Bundle(files, tuple(sorted(files)), place)


def suites(files: Mapping[str, bytes]) -> FoundSuites:
    return read_suites([bundle(files)])


def problems(files: Mapping[str, bytes]) -> list[str]:
    with pytest.raises(UnreadableFileError) as refusal:
        suites(files)
    return [str(problem) for problem in refusal.value.problems]


def test_every_suite_of_a_folder_is_found() -> None:
    files = {
        "one.yaml": SUITE, "deep/er/two.yml": SUITE, "three.jsonl": LINES,
        "three.yaml": b"name: third\n", "prompts/x.md": b"",
    }  # fmt: skip

    found = suites(files)

    assert [(suite.path, suite.content.slug) for suite in found.suites] == [
        ("deep/er/two.yml", "two"),
        ("one.yaml", "one"),
        ("three.jsonl", "third"),
    ]
    assert [str(note) for note in found.notes] == [
        "1 file that no suite names was left out: prompts/x.md"
    ]


def test_what_is_no_suite_is_named_and_left_out() -> None:
    files = {
        "suite.yaml": SUITE, "targets.yaml": b"targets: [{name: a}]\n",
        "deploy.yaml": b"a: !Ref b\n", "many.yaml": b"a: 1\n---\na: 2\n",
        "outputs.jsonl": OUTPUTS, "judge.jsonl": b'{"reply": 1}\n',
        "results.jsonl": b'{"test_id": "A", "score": 1, "hits": []}\n',
    }  # fmt: skip

    found = suites(files)

    assert [suite.path for suite in found.suites] == ["suite.yaml"]
    assert {note.file: note.message for note in found.notes} == {
        "targets.yaml": "is not a suite file, because it lists no cases under tests, and was left out",
        "deploy.yaml": "is not a suite file and was left out: the tag '!Ref' is not known; write a "
        "plain value",
        "many.yaml": "is not a suite file and was left out: not readable as YAML: found another "
        "document; write one document, without ---",
        "outputs.jsonl": "contains recorded outputs, no cases, and was left out; give it as recorded "
        "outputs, with the name of the target that gave them",
        "judge.jsonl": "contains no cases and was left out; a case has an id and an "
        "input, a recorded output an id and an output",
        "results.jsonl": "contains results of a run, no cases, and was left out; import it as the "
        "results of a run, in the browser or with evalsite import_results",
    }


def test_the_same_suite_is_read_from_every_container(tmp_path: Path) -> None:
    files = {"evals/a/suite.yaml": JUDGED, "evals/a/tone.md": b"Kind?"}
    written(tmp_path, files)
    alone = {"suite.yaml": JUDGED, "tone.md": b"Kind?"}

    contents = [
        suites(files).suites[0].content,
        suites(alone).suites[0].content,
        read_suites(bundles_at([tmp_path])).suites[0].content,
        read_suites(bundles_at([tmp_path / "evals/a"])).suites[0].content,
        read_suites(bundles_at([tmp_path / "evals/a/suite.yaml"])).suites[0].content,
    ]

    assert all(content == contents[0] for content in contents)
    assert contents[0].files == {"tone.md": b"Kind?"}


def test_suites_may_share_the_files_of_a_folder_beside_theirs() -> None:
    files = {"evals/a/suite.yaml": SHARED, "evals/shared/tone.md": b"Kind?"}
    deeper = {f"all/{path}": content for path, content in files.items()}

    found = suites(files).suites[0].content

    assert found.files == {"shared/tone.md": b"Kind?"}
    assert found.evaluators.children[0].config["prompt"] == "./shared/tone.md"
    assert suites(deeper).suites[0].content == found


SCRIPTED = b"evaluators: [{type: code_judge, script: [python, ./scripts/exact.py]}]\n" + SUITE


def uploaded(files: Mapping[str, bytes]) -> FoundSuites:
    return read_suites(read_uploads([(path, BytesIO(part)) for path, part in files.items()]))


def test_files_without_their_folders_are_found_by_their_names() -> None:
    files = {"s.yaml": SCRIPTED, "exact.py": b"1", "words.py": b"2"}

    found = uploaded(files)

    assert found.suites[0].content.files == {"scripts/exact.py": b"1"}
    assert [str(note) for note in found.notes] == [
        "1 file that no suite names was left out: words.py; where a script needs them, choose the "
        "folder or a zip, which keep them beside it"
    ]
    cases = {"s.yaml": b"tests: ./in/cases.jsonl\n", "cases.jsonl": LINES}
    assert [one.path for one in uploaded(cases).suites] == ["s.yaml"]
    assert uploaded(cases).notes == ()


def test_one_file_does_not_stand_for_two() -> None:
    texts = b"tests: [{id: A, input_files: [./a/x.txt, ./b/x.txt], input: Compare.}]\n"
    with pytest.raises(UnreadableFileError, match="'./b/x.txt' is not among.* without their folde"):
        uploaded({"s.yaml": texts, "x.txt": b"one"})
    with pytest.raises(UnreadableFileError, match="'./b/x.txt' is not among.*; add it to the upl"):
        uploaded({"e/s.yaml": texts, "e/a/x.txt": b"one", "e/x.txt": b"two"})


def test_a_missing_file_is_said_with_what_mends_it_where_it_was_given(tmp_path: Path) -> None:
    written(tmp_path, {"e/s.yaml": SCRIPTED})
    with pytest.raises(UnreadableFileError, match="no file './scripts/exact.py' from .* correct"):
        read_suites(bundles_at([tmp_path]))
    buffer = BytesIO()
    with ZipFile(buffer, "w") as zipped:
        zipped.writestr("s.yaml", SCRIPTED)
    buffer.seek(0)
    with pytest.raises(UnreadableFileError, match="'./scripts/exact.py' is not in the zip; add it"):
        read_suites(read_uploads([("e.zip", buffer)]))


@pytest.mark.parametrize(
    "text",
    [
        SCRIPTED,
        b"tests: ./scripts/cases.jsonl\n",
        b"tests: [{id: A, input: hi, input_files: [scripts/exact.py]}]\n",
    ],
    ids=["script", "cases", "input"],
)
def test_a_file_in_a_folder_above_is_proposed_but_not_taken(text: bytes) -> None:
    # AgentV would search the folders up to that of the repository.
    name = "cases.jsonl" if b"cases" in text else "exact.py"
    files = {"evals/deep/s.yaml": text, f"scripts/{name}": LINES}
    (problem,) = problems(files)
    assert problem.startswith("evals/deep/s.yaml")
    proposal = f"../../scripts/{name}"
    assert f"in a folder above, which is not searched; write '{proposal}'" in problem


def test_the_proposed_path_leads_to_the_file_above() -> None:
    text = SCRIPTED.replace(b"./scripts", b"../../scripts")
    (found,) = suites({"evals/deep/s.yaml": text, "scripts/exact.py": b""}).suites
    assert list(found.content.files) == ["scripts/exact.py"]


def test_files_beside_the_folder_are_found_from_cases_in_a_file_of_their_own() -> None:
    turn = {"role": "user", "content": [{"type": "file", "value": "../docs/a.md"}]}
    cases = json.dumps({"id": "A", "input": [turn]}).encode()
    files = {"evals/s.yaml": b"tests: ./cases.jsonl\n", "evals/cases.jsonl": cases}
    (found,) = suites({**files, "docs/a.md": b"Read this."}).suites
    assert "Read this." in str(found.content.cases[0].input)
    (problem,) = problems(files)
    assert "the file '../docs/a.md' is not among the files given" in problem
    deeper = {f"suites/{name}": content for name, content in files.items()}
    (problem,) = problems({**deeper, "docs/a.md": b"Read this."})
    assert "in a folder above, which is not searched; write '../../docs/a.md'" in problem


def test_what_lies_outside_is_said_to_need_the_folder_above() -> None:
    beside = SCRIPTED.replace(b"./scripts", b"../scripts")
    for text in (beside, b"tests: ../cases.jsonl\n"):
        (said,) = problems({"s.yaml": text})
        assert "is outside the folder of the suite; give the folder that contains both" in said


def test_lines_that_a_suite_names_as_its_cases_are_no_suite_of_their_own() -> None:
    files = {"suite.yaml": b"tests: ./in/cases.jsonl\n", "in/cases.jsonl": LINES}
    found = suites(files)
    assert [(one.path, len(one.content.cases)) for one in found.suites] == [("suite.yaml", 1)]
    assert found.notes == ()
    files["in/cases.jsonl"] += b"{\n"
    assert [problem.partition(": ")[0] for problem in problems(files)] == ["in/cases.jsonl, line 2"]


def test_a_file_that_a_suite_names_is_no_suite_of_its_own() -> None:
    asked = b"tests: [{id: A, input: Mend this file., input_files: [./in/sample.yaml]}]\n"
    files = {"suite.yaml": asked, "in/sample.yaml": SUITE, "in/broken.yaml": b"tests: ["}
    assert [problem.partition(",")[0] for problem in problems(files)] == ["in/broken.yaml"]
    files["suite.yaml"] = asked.replace(b"]}", b", ./in/broken.yaml]}")
    found = suites(files)
    assert [suite.path for suite in found.suites] == ["suite.yaml"]
    assert found.notes == ()


def test_suites_that_share_a_script_above_them_stay_suites() -> None:
    scripted = b"evaluators: [{type: script, command: [python, ../judge.py]}]\n" + SUITE
    files = {"a/one.yaml": scripted, "b/two.yaml": scripted, "judge.py": b"print(1)"}
    assert [suite.path for suite in suites(files).suites] == ["a/one.yaml", "b/two.yaml"]


def test_a_suite_that_was_written_out_whole_is_the_only_one_of_its_zip() -> None:
    scripted = b"evaluators: [{type: script, command: [python, ./judge.py]}]\n" + SUITE
    files = {"one.yaml": scripted, "b/two.yaml": SUITE, "judge.py": b"print(1)"}
    first = suites(files).suites[1].content
    assert list(first.files) == ["b/two.yaml", "judge.py"]

    again = read_suites(read_uploads([("x.zip", BytesIO(b"".join(pack_suite(first, "x").parts)))]))

    assert [suite.content for suite in again.suites] == [first]
    assert again.notes == ()


def test_problems_and_warnings_name_the_file_as_people_see_it() -> None:
    bad = SUITE + b"evaluators: [{type: guess}]\n"
    broken = [
        bundle({"a/one.yaml": bad, "a/two.yaml": b"tests: [\n", "b.yaml": SUITE}, "evals/"),
        bundle({"c.jsonl": b'{"id": 1}\n{"id": 2, "input": ""}\n', "c.yaml": b"x: 1"}, "c.zip/"),
    ]
    with pytest.raises(UnreadableFileError) as refusal:
        read_suites(broken)
    places = [(problem.file, problem.line) for problem in refusal.value.problems]
    assert places == [
        ("evals/a/one.yaml", 3),
        ("evals/a/two.yaml", 2),
        ("c.zip/c.jsonl", 1),
        ("c.zip/c.jsonl", 2),
    ]
    odd = read_suites([bundle({"a/b/one.yaml": SUITE + b"owner: me\n", "x.yaml": SUITE}, "evals/")])
    assert [(w.file, w.line, w.key) for w in odd.warnings] == [("evals/a/b/one.yaml", 3, "owner")]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"x.md": b""}, ["there is no suite among these files"]),
        ({"a.yaml": b"x: 1"}, ["a.yaml, line 1: the suite has no cases; list them under tests"]),
        ({"a.yaml": b"x: !y 1"}, ["a.yaml, line 1: the tag '!y' is not known"]),
        (
            {"a.yaml": b"x: 1", "b.jsonl": OUTPUTS},
            [
                "there is no suite",
                "b.jsonl: contains recorded outputs",
                "a.yaml: is not a suite file",
            ],
        ),
        (
            {"b.jsonl": OUTPUTS},
            ["b.jsonl: the file contains recorded outputs, not cases; give it as"],
        ),
        (
            {"a/x.yaml": SUITE, "b/x.yaml": SUITE},
            ["b/x.yaml, name: the suite 'x' is in a/x.yaml too; give one of them another name"],
        ),
        (
            {"a.yaml": JUDGED},
            ["a.yaml, line 1, evaluators[0].prompt: evaluator llm_judge: the file"],
        ),
        (
            {"c.jsonl": LINES, "c.yaml": SUITE},
            ["c.yaml, line 1, tests: the cases are in the JSON Lines next to this file"],
        ),
    ],
)
def test_what_cannot_be_imported_says_why(files: dict[str, bytes], said: list[str]) -> None:
    found = problems(files)
    assert len(found) == len(said)
    for part, problem in zip(said, found, strict=True):
        assert problem.startswith(part)


def test_one_bad_suite_keeps_all_of_them_out() -> None:
    assert len(problems({"a.yaml": SUITE, "b.yaml": b"evaluators: []\n"})) == 1


def test_the_warnings_of_a_suite_come_before_what_was_left_out() -> None:
    files = {"a.yaml": SUITE + b"owner: me\n", "x.md": b""}
    first, second = suites(files).warnings
    assert (first.key, second.file) == ("owner", "")
    assert replace(first, line=0).file == "a.yaml"


def test_a_file_of_cases_that_a_suite_names_is_no_suite_of_its_own() -> None:
    head = b"name: shop\ntests: cases/all.yaml\n"

    found = suites({"a/shop.yaml": head, "a/cases/all.yaml": b"- {id: A, input: hi}\n"})

    assert [suite.path for suite in found.suites] == ["a/shop.yaml"]
    assert [case.key for case in found.suites[0].content.cases] == ["A"]
    assert found.notes == ()


def test_weights_of_dimensions_are_refused_beside_the_judges_overall_score() -> None:
    judge = b"{name: whole, type: hybrid_judge, dimension_weights: {task: 2}}"
    policy = b"name: one\npolicy: {final_score: judge_overall}\n"
    suite = b"%sevaluators: [%s]\ntests: [{id: A, input: hi}]\n" % (policy, judge)
    [problem] = problems({"one.yaml": suite})
    assert "evaluator “whole” makes its score of weighted dimensions" in problem
    assert problem.startswith("one.yaml, line 3")
    own = b"%stests:\n- {id: A, input: hi}\n- {id: B, input: hi, evaluators: [%s]}\n" % (
        policy,
        judge,
    )
    [problem] = problems({"one.yaml": own})
    assert problem.startswith("one.yaml, line 5")
    allowed = suite.replace(b"judge_overall", b"aggregate")
    assert suites({"one.yaml": allowed}).suites
