"""Files that would make very many cases or results, or very long ones, are refused before they do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest

from runs.formats import lines, results_reading, shared_texts, suite_files
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.formats.reading import MAX_PROBLEMS
from runs.formats.results_reading import read_results
from runs.formats.suite_files import read_case_lines, read_suite
from runs.formats.tools import openai_evals, promptfoo
from runs.formats.yaml import YamlDocument, read_document
from runs.specs.problems import UnreadableFileError

LONG = "x" * 400
CONTAINS = {"type": "contains", "value": "x"}
TOO_MUCH = "the cases include more than"
OURS, PROMPTFOO = "a.eval.yaml", "promptfooconfig.yaml"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_texts, "MAX_SHARED", 20_000)
    monkeypatch.setattr(promptfoo, "MAX_CASES", 20)
    monkeypatch.setattr(promptfoo, "MAX_PROMPTS", 20)


def packed(files: Mapping[str, Any]) -> BytesIO:
    stream = BytesIO()
    with ZipFile(stream, "w") as zipped:
        for name, value in files.items():
            zipped.writestr(name, value if isinstance(value, str) else json.dumps(value))
    stream.seek(0)
    return stream


def config(**more: Any) -> dict[str, Any]:
    tests = [{"vars": {"q": "one"}, "assert": [CONTAINS]}]
    return {"prompts": ["{{q}}"], "providers": ["a"], "tests": tests, **more}


def asserting(*assertions: Any, **variables: Any) -> dict[str, Any]:
    return {"tests": [{"vars": {"q": "one", **variables}, "assert": list(assertions)}]}


def suite(**more: Any) -> dict[str, Any]:
    return {"name": "x", "prompts": ["{{ q }}"], "assert": [CONTAINS], **more}


ITSELF = {"type": "assert-set", "assert": [{"$ref": "#/a"}, {"$ref": "#/a"}]}
CASES = [{"id": f"c{n}", "vars": {"q": "one"}} for n in range(100)]
MANY = {f"k{n}": 1 for n in range(40)}
TESTS = [{"vars": {"q": n}} for n in range(15)]
CASE_OF_SCENARIO = {"id": "c", "input": "q", "metadata": {"of": [1] * 20}}
REGISTRY, DATA = "r/evals/e.yaml", "r/data/d.jsonl"
EVAL = {"class": "evals.elsuite.basic.match:Match", "args": {"samples_jsonl": "d.jsonl"}}
EVALS = {
    name: part for n in range(20) for name, part in ((f"e{n}", {"id": f"v{n}"}), (f"v{n}", EVAL))
}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        # Values without a text take memory too.
        ({PROMPTFOO: config(defaultTest={"vars": MANY}, tests=TESTS)}, TOO_MUCH),
        ({PROMPTFOO: config(defaultTest={"metadata": MANY}, tests=TESTS)}, TOO_MUCH),
        (
            {PROMPTFOO: config(scenarios=[{"config": [MANY], "tests": TESTS}], tests=None)},
            TOO_MUCH,
        ),
        (
            {PROMPTFOO: config(**asserting(a=[f"file://*{n}" for n in range(500)]))},
            TOO_MUCH,
        ),
        ({OURS: suite(default_test={"vars": MANY}, tests=CASES)}, TOO_MUCH),
        (
            {
                OURS: suite(
                    tests=[
                        {
                            "id": "c",
                            "metadata": {"of": [1] * 20},
                            "vars": {"q": [str(n) for n in range(10)]},
                        }
                    ]
                )
            },
            TOO_MUCH,
        ),
        (
            {
                OURS: suite(
                    scenarios=[{"config": [{"vars": {"q": "1"}}] * 10, "tests": [CASE_OF_SCENARIO]}]
                )
            },
            TOO_MUCH,
        ),
        (
            {
                OURS: {
                    "name": "x",
                    "evaluators": [CONTAINS],
                    "input": [{"role": "user", "content": ""}] * 10,
                    "tests": [{"id": f"c{n}", "input": "q"} for n in range(100)],
                }
            },
            TOO_MUCH,
        ),
        ({REGISTRY: EVALS, DATA: '{"input": "q"}\n' * 20}, TOO_MUCH),
        ({REGISTRY: EVALS, DATA: '{"input": "q"}\n' + "\n" * 2_000}, TOO_MUCH),
        ({PROMPTFOO: config(**asserting(q=LONG), prompts=["{{q}}" * 100])}, TOO_MUCH),
        (
            {
                PROMPTFOO: config(
                    prompts=["{{q}}" + "y" * 2000], tests=[{"vars": {"q": [*range(15)]}}]
                )
            },
            TOO_MUCH,
        ),
        (
            {
                PROMPTFOO: config(
                    **asserting({"type": "contains-any", "value": ["{{q}}"] * 100}, q=LONG)
                )
            },
            TOO_MUCH,
        ),
        (
            {
                PROMPTFOO: config(
                    **asserting(*[{"type": "equals", "value": "file://v.txt"}] * 100)
                ),
                "v.txt": LONG,
            },
            TOO_MUCH,
        ),
        # The same values again and again make one case, and are as many.
        ({PROMPTFOO: config(**asserting(a=["1"] * 9, b=["1"] * 9))}, "make more than 20 cases"),
        (
            {PROMPTFOO: config(prompts=["file://p.txt"]), "p.txt": "a\n---\n" * 21},
            "are more than 20",
        ),
        (
            {PROMPTFOO: config(tests=["file://t.csv"] * 3), "t.csv": "q\n" + "one\n" * 9},
            "has more than 20 tests",
        ),
        (
            {PROMPTFOO: config(assertionTemplates={"a": ITSELF}, **asserting({"$ref": "#/a"}))},
            "a template cannot hold itself",
        ),
        (
            {OURS: suite(prompts=["{{ q }}" * 100], tests=[{"id": "c", "vars": {"q": LONG}}])},
            TOO_MUCH,
        ),
        ({OURS: suite(prompts=["{{ q }}" + LONG], tests=CASES)}, TOO_MUCH),
        ({OURS: suite(default_test={"vars": {"more": LONG}}, tests=CASES)}, TOO_MUCH),
        (
            {
                OURS: suite(
                    scenarios=[
                        {"config": [{"assert": [{**CONTAINS, "value": LONG}]}], "tests": CASES}
                    ]
                )
            },
            TOO_MUCH,
        ),
        (
            {
                OURS: suite(scenarios=["file://s.yaml"] * 2),
                "s.yaml": {"config": [{}], "tests": CASES[:1]},
            },
            "names s.yaml again; name each file once",
        ),
        (
            {OURS: suite(tests=["file://c.yaml", "./c.yaml"]), "c.yaml": CASES[:1]},
            "names c.yaml again; name each file once",
        ),
    ],
)
def test_files_that_unfold_are_refused(files: dict[str, Any], message: str) -> None:
    with pytest.raises(UnreadableFileError, match=message):
        read_suites(read_uploads([("suite.zip", packed(files))]))


def test_the_specs_of_a_registry_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_and_note(text: str, file: str = "") -> YamlDocument:
        read.append(file)
        return read_document(text, file)

    monkeypatch.setattr(openai_evals, "read_document", read_and_note)
    graded = {
        "class": "evals.elsuite.modelgraded.classify:ModelBasedClassify",
        "args": {"samples_jsonl": "d.jsonl", "modelgraded_spec": "fact"},
    }
    spec = {"fact": {"prompt": "Is it so?", "choice_scores": {"Yes": 1}}}
    files = {
        REGISTRY: {"a": {"id": "a.v"}, "a.v": graded, "b": {"id": "b.v"}, "b.v": graded},
        DATA: '{"input": "q", "ideal": "a"}',
        "r/modelgraded/m.yaml": spec,
    }
    found = read_suites(read_uploads([("suite.zip", packed(files))]))
    assert [each.content.cases[0].evaluators is not None for each in found.suites] == [True, True]
    assert len(read) == 1


def test_only_so_many_problems_of_prompts_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_texts, "MAX_SHARED", 10_000_000)
    tests = [{"id": f"c{n}", "vars": {"q": "one"}} for n in range(MAX_PROBLEMS + 1)]
    content = json.dumps({"name": "x", "prompts": ["{{ other }}"], "tests": tests})
    with pytest.raises(UnreadableFileError) as refusal:
        read_suite(content.encode())
    assert len(refusal.value.problems) == MAX_PROBLEMS


@pytest.mark.parametrize("name", ["cases.yaml", "cases.jsonl"])
def test_a_suite_of_very_many_cases_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lines, suite_files):
        monkeypatch.setattr(module, "MAX_CASES", 3)
    cases = [{"id": str(n), "input": "q"} for n in range(4)]
    content = json.dumps({"tests": cases, "evaluators": [CONTAINS]})
    if name.endswith("jsonl"):
        content = "\n".join(map(json.dumps, cases))
    with pytest.raises(UnreadableFileError, match="more than 3 cases"):
        read_suites(read_uploads([(name, BytesIO(content.encode()))]))


@pytest.mark.parametrize("cases", ["c.yaml", "c.jsonl"])
def test_files_that_name_the_same_file_again_and_again_are_refused(
    cases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{n}.yaml": {"name": str(n), "tests": f"./{cases}"} for n in range(8)}
    one = {"id": "a", "input": "q" * 500}
    files[cases] = json.dumps([one] if cases.endswith("yaml") else one)
    uploads = [("suite.zip", packed(files))]
    assert len(read_suites(read_uploads(uploads)).suites) == 8
    for limit, most, message in (
        ("MAX_READ", 4_000, "reads more than 0 MB, each file as often as it is named"),
        ("MAX_CASES", 7, "more than 7 cases together"),
    ):
        with monkeypatch.context() as limited:
            limited.setattr(shared_texts, limit, most)
            with pytest.raises(UnreadableFileError, match=message):
                read_suites(read_uploads([("suite.zip", packed(files))]))


def test_lines_with_very_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(
        b'{"id": "%d", "input": "q", "metadata": {"a": 1.5}}\n' % n for n in range(9)
    )
    assert len(read_case_lines(content).cases) == 9
    for limit in ("MAX_VALUES", "MAX_FILE_VALUES"):
        with monkeypatch.context() as limited:
            limited.setattr(lines, limit, 5)
            with pytest.raises(UnreadableFileError, match="more than .* split it"):
                read_case_lines(content)


def test_an_attachment_of_inspect_is_counted_wherever_it_is_named() -> None:
    sample = {
        **{"id": 1, "epoch": 1, "input": "q", "target": "a", "scores": {"match": {"value": "C"}}},
        "attachments": {"long": LONG},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "attachment://long"}] * 100}
        ],
    }
    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "model": "m"},
        "samples": [sample],
    }
    with pytest.raises(UnreadableFileError, match=TOO_MUCH):
        read_results(json.dumps(log).encode(), file="log.json")


@pytest.mark.parametrize(
    ("module", "limit", "message"),
    [
        (lines, "MAX_TEXT_BYTES", "takes more than 1 MB in memory; write each result on a line"),
        (results_reading, "MAX_RESULT_BYTES", "case a: the result takes more than 1 MB in memory"),
    ],
)
def test_a_document_of_letters_that_take_four_bytes_is_measured_in_memory(
    module: ModuleType, limit: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"eval_id": "a", "output": "😀" + "x" * 300_000}
    content = json.dumps([result, result], ensure_ascii=False, indent=1).encode()
    monkeypatch.setattr(module, limit, 1024**2)
    with pytest.raises(UnreadableFileError, match=message):
        read_results(content)


@pytest.mark.parametrize("name", ["results.jsonl", "log.eval"])
def test_results_that_fill_the_memory_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_reading, "MAX_HELD_BYTES", 1024**2)
    head = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}
    # Two bytes of a file are 64 in memory.
    sample = {"id": "a", "epoch": 1, "score": 1, "scores": {"match": {"value": "C"}}}
    sample["messages"] = [{}] * 6_000
    files = {f"samples/{n}_epoch_1.json": sample for n in "abcdef"}
    content = packed({"header.json": head, **files}).getvalue()
    if name == "results.jsonl":
        content = "\n".join(json.dumps(line) for line in files.values()).encode()
    with pytest.raises(UnreadableFileError, match="more than .* 1 MB in memory; split it"):
        read_results(content, file=name)


def test_a_file_of_very_many_results_is_refused_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results_reading, "MAX_RESULTS", 3)
    lines = [b'{"id": "%d", "score": 1}' % number for number in range(5)]
    assert len(read_results(b"\n".join(lines[:3])).results) == 3
    with pytest.raises(UnreadableFileError, match="line 4.*more than 3 results .* split it"):
        read_results(b"\n".join(lines))
