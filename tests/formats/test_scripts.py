"""Scripts in suite files: the files they take along, what is refused by name, and the way back out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from evaluators.kinds import read_config
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.scoring.tree import EvaluatorSpec
from runs.formats import suite_files
from runs.formats.suite_evaluators import make_root
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import CaseSpec, SuiteWithCases

FILES = {
    "judges/pii.py": b"import words",
    "judges/words.py": b"",
    "judges/.env": b"KEY=1",
    "prompts/tone.md": b"Is it kind?",
}


def suite_with(evaluator: str, top: str = "") -> bytes:
    body = "\n".join(f"    {line}" for line in evaluator.strip().splitlines())
    return f"name: s\n{top}evaluators:\n  -\n{body}\ntests:\n  - {{id: a, input: hi}}\n".encode()


def read(evaluator: str, top: str = "") -> Any:
    return suite_files.read_suite(suite_with(evaluator, top), files=FILES)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (
            'type: code_judge\nscript: ["python", "./judges/pii.py"]',
            {"command": ["python", "./judges/pii.py"], "protocol": "stdin"},
        ),
        ("type: code-grader\ncommand: python ./judges/pii.py", {"protocol": "stdin"}),
        ("type: script\nscript: ./judges/pii.py", {"command": ["./judges/pii.py"]}),
        ("type: script\nrun: |\n  #!/bin/bash\n  python judges/pii.py\n", {"protocol": "env"}),
        ("type: codeJudge\nprotocol: env\ncommand: [./judges/pii.py]", {"protocol": "env"}),
        (
            "type: script\ncommand: [./pii.py]\ncwd: judges\ntimeout: 5\nnetwork: true",
            {"cwd": "judges", "timeout_s": 5.0, "network": True},
        ),
    ],
)
def test_scripts_bring_the_files_of_their_folder(written: str, stored: dict[str, Any]) -> None:
    content = read(f"name: pii\n{written}")

    node = content.evaluators.children[0]
    assert node.kind == "script"
    assert stored.items() <= node.config.items()
    assert set(content.files) == {"judges/pii.py", "judges/words.py"}


def test_an_aggregator_names_its_script_too() -> None:
    gate = "name: gate\ntype: composite\naggregator: {type: code_grader, path: ./judges/pii.py}\n"
    content = read(f"{gate}evaluators: [{{type: contains, value: x}}]")
    top = read("type: contains\nvalue: x", "aggregator: {type: code_judge, script: 'true; true'}\n")

    found = content.evaluators.children[0].aggregator
    assert found is not None
    assert found.type == "code_judge"
    options = content.evaluators.children[0].as_json()["config"]["aggregator"]
    assert options["command"] == ["./judges/pii.py"]
    assert set(content.files) == {"judges/pii.py", "judges/words.py"}
    assert top.evaluators.as_json()["config"]["aggregator"]["script"] == "true; true"


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ("type: script\ncommand: [python, ./judges/gone.py]", "'./judges/gone.py' is not among"),
        ("type: script\ncommand: [python, gone.py]", "'gone.py' is not among"),
        ("type: script\ncommand: [../../up.py]", "'../../up.py' is outside"),
        ("type: code_judge", "needs a command or a script"),
        ("type: script\nscript: a\ncommand: b", "again"),
        ("type: script\nscript: a; b\ncommand: [b]", "both set"),
        ("type: script\ncommand: [sleep, 5]", "put it in quotes"),
        ("type: script\ncommand: 'true'\ntimeout: fast", "timeout_s"),
        (
            "type: composite\naggregator: {type: code_judge}\nevaluators: [{type: contains, value: x}]",
            "code_judge needs a command or a script",
        ),
        (
            "type: composite\naggregator: {type: code_judge, path: ./no.py}\n"
            "evaluators: [{type: contains, value: x}]",
            "'./no.py' is not among",
        ),
        (
            "type: composite\naggregator: {type: minimum, script: x}\n"
            "evaluators: [{type: contains, value: x}]",
            "minimum takes no",
        ),
    ],
)
def test_what_cannot_run_is_refused_by_name(evaluator: str, said: str) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        read(f"name: pii\n{evaluator}")

    [problem] = refused.value.problems
    assert said in problem.message
    assert problem.line >= 3


@pytest.mark.parametrize(
    "evaluator",
    [
        "type: code_judge\nscript: [python, ./judges/pii.py]\nconfig: {strict: true}",
        "type: script\nscript: |\n  #!/bin/bash\n  echo '{}'\n",
        "type: script\nprotocol: stdin\nscript: |\n  a\n  b",
        "type: script\ncommand: [./pii.py, two words]\ncwd: judges\ntimeout_s: 2.5\nnetwork: true",
        "type: composite\naggregator: {type: code_judge, path: ./judges/pii.py, timeout: 3}\n"
        "evaluators: [{type: contains, value: x}]",
    ],
)
def test_what_is_exported_reads_back_the_same(evaluator: str) -> None:
    content = read(f"name: pii\n{evaluator}")

    again = suite_files.read_suite(suite_files.write_suite(content), files=content.files)

    assert again == content


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
NAMES_A_FILE = ("./", "../", "file:")
WORDS = TEXT.filter(lambda word: "." not in word and not word.startswith(NAMES_A_FILE))
SHELL = TEXT.map(lambda text: f"#!/bin/sh\n{text}")
PROGRAMS = st.fixed_dictionaries({"command": st.lists(WORDS, min_size=1, max_size=4)}) | (
    st.fixed_dictionaries({"script": SHELL | TEXT.filter(str.strip)})
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "timeout_s": st.integers(1, 3600).map(float),
        "network": st.booleans(),
        "config": st.dictionaries(TEXT.filter(str.strip), TEXT | st.integers(0, 9), max_size=2),
    },
)


@given(program=PROGRAMS, options=OPTIONS, protocol=st.sampled_from(["env", "stdin"]))
def test_every_script_is_exported_and_read_back_the_same(
    program: dict[str, Any], options: dict[str, Any], protocol: str
) -> None:
    try:
        config = read_config("script", {**program, **options, "protocol": protocol})
    except InvalidConfigError:
        reject()
    leaf = EvaluatorSpec(name="s", kind="script", config=config.model_dump(mode="json"))
    rule = read_config("composite", {"aggregator": {"type": "code_judge", **program, **options}})
    options = rule.model_dump(mode="json", exclude_defaults=True)["aggregator"]
    gate = EvaluatorSpec(
        name="g", kind="composite", config={"aggregator": options}, children=(leaf,)
    )
    case = CaseSpec(key="a", input=({"role": "user", "content": "hi"},))
    content = SuiteWithCases(slug="s", title="s", evaluators=make_root((gate,)), cases=(case,))

    assert suite_files.read_suite(suite_files.write_suite(content)) == content
