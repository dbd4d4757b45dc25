"""LangSmith, Langfuse, Phoenix and Braintrust: datasets become cases, experiments results with each of their scores."""

from __future__ import annotations

import csv
import io
import json

import pytest

from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.specs.problems import UnreadableFileError
from tests.formats.tools.support import found, given

ASKED = {"messages": [{"role": "user", "content": "Refund?"}]}
LONG = {"question": "Refund?", "language": "en"}


def table(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in row.items()
            }
        )
    return text.getvalue()  # fmt: skip


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


LANGSMITH = [
    {"inputs": {"question": "Refund?"}, "outputs": {"answer": "30 days"}, "metadata": {"dataset_split": ["a"], "tags": ["b", 1]}},
    {"inputs": LONG, "outputs": {"answer": "no", "why": "x"}, "id": "u-2"},
]  # fmt: skip
LANGFUSE = [
    {"id": "i-1", "status": "ACTIVE", "input": ASKED, "expectedOutput": "30 days", "metadata": {"tags": ["a", "b"]}, "datasetName": "Shop"},
    {"id": "i-2", "status": "ARCHIVED", "input": "x", "expectedOutput": None, "metadata": None, "datasetName": "Shop"},
    {"id": "i-3", "status": "ACTIVE", "input": LONG, "expectedOutput": {"answer": "no", "why": "x"}, "metadata": {}, "datasetName": "Shop"},
]  # fmt: skip
PHOENIX = [
    {"id": "e-1", "node_id": "n", "input.messages": ASKED["messages"], "output.answer": "30 days", "metadata.n": "2"},
    {"id": "e-2", "node_id": "n", "input.question": "Refund?", "input.language": "en", "output.answer": "no", "output.why": "x"},
]  # fmt: skip
BRAINTRUST = [
    {"id": "b-1", "input": ASKED, "expected": "30 days", "metadata": {"n": 1}, "tags": ["a", "b"]},
    {
        "id": "b-2",
        "input": LONG,
        "expected": {"answer": "no", "why": "x"},
        "metadata": None,
        "tags": None,
    },
]
PHOENIX_TABLE = [
    {**dict.fromkeys({key for row in PHOENIX for key in row}, ""), **row} for row in PHOENIX
]
DATASETS = {
    "langsmith.jsonl": (lines(LANGSMITH), ["1", "u-2"], ("a", "b")),
    "langsmith.json": (json.dumps(LANGSMITH), ["1", "u-2"], ("a", "b")),
    "langfuse.json": (json.dumps({"data": LANGFUSE}), ["i-1", "i-3"], ("a", "b")),
    "langfuse.csv": (table(LANGFUSE), ["i-1", "i-3"], ("a", "b")),
    "phoenix.csv": (table(PHOENIX_TABLE), ["e-1", "e-2"], ()),
    "braintrust.jsonl": (lines(BRAINTRUST), ["b-1", "b-2"], ("a", "b")),
    "braintrust.csv": (table(BRAINTRUST), ["b-1", "b-2"], ("a", "b")),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_is_cases_with_what_is_asked_and_expected(name):
    text, keys, tags = DATASETS[name]
    [suite], notes = found({name: text})
    one, two = suite.cases
    assert [case.key for case in suite.cases] == keys
    assert one.input == ({"role": "user", "content": "Refund?"},)
    assert (one.expected_output, one.tags) == ("30 days", tags)
    # What is no single text stays as JSON.
    assert (json.loads(two.input[0]["content"]), json.loads(two.expected_output)) == (
        LONG,
        {"answer": "no", "why": "x"},
    )
    assert "it contains no evaluators" in notes[0]
    assert any("case i-2: the item is archived" in note for note in notes) == name.startswith(
        "langfuse"
    )
    assert suite.slug == ("shop" if name.startswith("langfuse") else name.partition(".")[0])


def test_other_exports_of_phoenix():
    examples = [
        {
            "id": "e-1",
            "input": ASKED,
            "output": {"messages": [{"role": "assistant", "content": "ok"}]},
            "metadata": {"n": 1},
        }
    ]
    [suite], _ = found({"p.json": json.dumps({"data": {"examples": examples}})})
    assert (suite.cases[0].expected_output, suite.cases[0].metadata) == ("ok", {"n": 1})
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ok"}]
    [chat], _ = found({"ft.jsonl": lines([{"messages": turns}, {"messages": turns[:1]}])})
    assert [(len(case.input), case.expected_output) for case in chat.cases] == [(1, "ok"), (1, "")]


def bt(key, **more):
    metrics = {
        "start": 10.0,
        "end": 12.5,
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "estimated_cost": 3e-05,
    }
    base = {
        "id": key,
        "input": {"q": "Refund?"},
        "output": "Yes.",
        "expected": "30 days",
        "error": None,
        "tags": ["a"],
    }
    return {**base, "scores": {"Fact": 1.0, "Near": 0.5}, "metadata": {"n": 1}, "metrics": metrics, "is_root": True, **more}  # fmt: skip


def ph(key, **more):
    base = {
        "example_id": key,
        "repetition_number": 1,
        "input": ASKED,
        "reference_output": {"answer": "30 days"},
    }
    base |= {
        "output": {"answer": "Yes."},
        "metadata": {"n": 1},
        "error": None,
        "latency_ms": 2500.0,
    }
    return {**base, "prompt_token_count": 50, "completion_token_count": 9, **more}


def annotations(*values):
    return [{"name": name, "annotator_kind": kind, "label": "ok", "score": value, "error": error} for name, kind, value, error in values]  # fmt: skip


DOWN = {"output": None, "error": "no answer"}
BT = [
    bt("a"),
    bt("inner", is_root=False),
    bt("b", scores={"Fact": None}),
    bt("c", scores={}, **DOWN),
]
PH = [
    ph("a", annotations=annotations(("Fact", "LLM", 1.0, None), ("Near", "CODE", 0.5, None))),
    ph("b", annotations=annotations(("Fact", "LLM", None, "no output"))),
    ph("c", annotations=[], **DOWN),
]
FLAT = [
    {key: value for key, value in row.items() if key != "annotations"}
    | {
        f"annotation_{one}_{part}": next(
            (a[part] for a in row["annotations"] if a["name"] == one), None
        )
        for one in ("Fact", "Near")
        for part in ("score", "label", "error", "annotator_kind")
    }
    for row in PH
]


def ls(key, scores, answer="Yes.", error=None):
    return {
        "row_id": key,
        "inputs": {"q": "Refund?"},
        "expected_outputs": {"a": "30 days"},
        "actual_outputs": None if answer is None else {"answer": answer},
        "evaluation_scores": scores,
        "start_time": "2026-05-03T12:00:12Z",
        "end_time": "2026-05-03T12:00:14.500Z",
        "error": error,
    }


LS = {
    "experiment_name": "bot-1",
    "dataset_name": "shop",
    "summary_experiment_scores": [{"key": "mean", "score": 0.4}],
    "results": [
        ls("a", [{"key": "Fact", "score": 1.0, "comment": "same"}, {"key": "Near", "score": 0.5}]),
        ls("b", [{"key": "Fact", "value": "polite"}]),
        ls("c", [], answer=None, error="no answer"),
    ],
}


def plain(rows):
    return [{key: "" if value is None else value for key, value in row.items()} for row in rows]


EXPERIMENTS = {
    "bt.json": json.dumps(BT),
    "bt.jsonl": lines(BT),
    "bt.csv": table(plain([row for row in BT if row["is_root"]])),
    "ph.json": json.dumps(PH),
    "ph.csv": table(plain(FLAT)),
    "ls.json": json.dumps(LS),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_results_with_the_mean_of_its_scores(name):
    read = read_results(EXPERIMENTS[name].encode(), file=name)
    results = {entry.result.eval_id: entry.result for entry in read.results}
    good, unscored, errored = results["a"], results["b"], results["c"]
    assert (good.score, good.output, good.verdict, good.usage.latency_ms) == (
        0.75,
        "Yes.",
        "",
        2500,
    )
    assert [(one.name, one.score, one.weight) for one in good.evaluators] == [
        ("Fact", 1.0, 1),
        ("Near", 0.5, 1),
    ]
    # An error is no score, and neither is a label.
    assert (unscored.status, unscored.score, unscored.error_stage) == ("error", None, "evaluator")
    assert [(one.status, one.weight) for one in unscored.evaluators] == [("unscored", 0)]
    assert (errored.error, errored.output, errored.error_stage) == ("no answer", None, "target")
    entry = read.results[0]
    assert (entry.input[0]["content"], entry.expected_output) == ("Refund?", "30 days")
    if not name.startswith("ls"):
        assert (good.usage.input_tokens, good.usage.output_tokens) == (50, 9)
    assert "the mean of its scores" in str(read.notes[1])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"datasetRunItems": [], "name": "n"}, "a dataset run of Langfuse: it names traces"),
        ({"data": [{"traceId": "t", "name": "n", "value": 1, "dataType": "NUMERIC"}]}, "scores of Langfuse"),
        ({"data": [{"dataset_example_id": "e", "experiment_id": "x"}]}, "it contains no scores; download the experiment"),
        ({"data": LANGFUSE}, "a dataset of Langfuse: it contains cases; import it as a suite"),
        ([{**BRAINTRUST[0], "inputs": 1, "outputs": 2}], "may be a dataset of LangSmith or a dataset of Braintrust"),
    ],
)  # fmt: skip
def test_what_holds_no_results_is_refused_by_name(content, reason):
    with pytest.raises(UnreadableFileError) as refusal:
        read_results(json.dumps(content).encode(), file="x.json")
    assert reason in str(refusal.value)


def test_an_experiment_given_as_cases_is_refused_and_so_is_a_foreign_table():
    with pytest.raises(UnreadableFileError, match="an experiment of Braintrust, no cases"):
        read_suites([given({"bt.csv": EXPERIMENTS["bt.csv"]})])
    with pytest.raises(UnreadableFileError, match="the table is of no tool"):
        read_results(b"a,b\n1,2\n", file="x.csv")


def test_a_cell_that_no_database_stores_is_refused_with_its_line():
    nul = table(PHOENIX_TABLE).replace("e-2", "e-\0")

    with pytest.raises(UnreadableFileError, match="line 3: cell .* contains the character NUL"):
        read_suites([given({"phoenix.csv": nul})])
