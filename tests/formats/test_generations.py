"""One whole suite in each generation of spelling: the trees, the cases, the files and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluators.kinds._base import Step
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.formats import suite_files
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.target_kinds._outputs import output_from_json

FOLDER = Path(__file__).parent / "generations"
FILES = {p.relative_to(FOLDER).as_posix(): p.read_bytes() for p in FOLDER.rglob("*.*")}
GENERATIONS = ("first", "second", "third")


def suite(name: str) -> SuiteWithCases:
    return suite_files.read_suite(FILES[f"{name}.yaml"], file=f"{name}.yaml", files=FILES)


def case(name: str, key: str) -> CaseSpec:
    return next(case for case in suite(name).cases if case.key == key)


def kinds(root: EvaluatorSpec | None) -> dict[str, str]:
    assert root is not None
    rules = {
        path: node.aggregator.type if node.aggregator else node.kind for path, node in walk(root)
    }
    return {path: rule for path, rule in rules.items() if path}


def criteria(root: EvaluatorSpec | None, name: str) -> list[tuple[str, str, bool]]:
    assert root is not None
    node = next(node for _, node in walk(root) if node.name == name)
    return [(c["id"], c["expected_outcome"], c["required"]) for c in node.config["rubrics"]]


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_suite_of_each_generation_is_written_and_read_back_the_same(name: str) -> None:
    content = suite(name)

    assert content.slug == f"desk-{name}"
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content


@pytest.mark.parametrize("name", GENERATIONS)
@pytest.mark.parametrize("ends", [b"\r\n", b"\n"])
@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_line_ends_and_a_byte_order_mark_change_nothing(
    name: str, ends: bytes, mark: bytes
) -> None:
    text = mark + FILES[f"{name}.yaml"].replace(b"\n", ends)

    assert suite_files.read_suite(text, file=f"{name}.yaml", files=FILES) == suite(name)


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        (
            "first",
            {
                "release_gate": "safety_gate",
                "release_gate/safety": "minimum",
                "release_gate/safety/no_harm": "llm_judge",
                "release_gate/safety/no_numbers": "script",
                "release_gate/quality": "llm_judge",
                "facts": "rubric",
            },
        ),
        (
            "second",
            {
                "gate": "threshold",
                "gate/json": "text_check",
                "gate/inner": "weighted_average",
                "gate/inner/judge": "llm_judge",
                "gate/inner/words": "text_check",
                "script": "script",
                "quality": "rubric",
            },
        ),
        (
            "third",
            {
                "rubric": "rubric",
                "llm_rubric": "llm_judge",
                "checks": "weighted_average",
                "checks/icontains_all": "text_check",
                "checks/code_grader": "script",
                "graded": "rubric",
                "env": "script",
            },
        ),
    ],
)
def test_the_tree_of_each_generation(name: str, tree: dict[str, str]) -> None:
    assert kinds(suite(name).evaluators) == tree


def test_weights_gates_and_requirements_of_each_generation() -> None:
    gate, facts = suite("first").evaluators.children
    assert (gate.weight, facts.weight) == (2.0, 1.0)
    assert gate.aggregator is not None
    assert gate.aggregator.required == ("safety",)
    assert criteria(suite("first").evaluators, "facts") == [
        ("day", "Names the day of delivery", True),
        ("tone", "Speaks kindly", False),
    ]
    second = suite("second")
    assert (second.policy.pass_threshold, second.policy.borderline_threshold) == (0.9, 0.5)
    gate = second.evaluators.children[0]
    assert gate.required_below == 0.6
    assert gate.aggregator is not None
    assert gate.aggregator.share == 0.6
    assert gate.children[0].negate
    inner = gate.children[1]
    assert inner.aggregator is not None
    assert inner.aggregator.weights == {"judge": 2, "words": 1}
    assert inner.children[1].required
    graded = second.evaluators.children[2]
    assert graded.config["mode"] == "graded"
    assert graded.config["rubrics"][0]["expected_outcome"].splitlines() == [
        "Is right",
        "0: Wrong",
        "5: Half right",
        "10: Right",
    ]
    third = dict(walk(suite("third").evaluators))
    assert [node.weight for node in third["checks"].children] == [0.4, 0.6]
    assert third["checks/icontains_all"].config["ignore_case"] is True
    assert criteria(suite("third").evaluators, "rubric") == [
        ("c1", "The answer is kind", False),
        ("c2", "Names the day of delivery", False),
    ]


def test_scripts_have_the_protocol_of_their_type() -> None:
    found = {
        f"{name} {path}": node.config["protocol"]
        for name in GENERATIONS
        for path, node in walk(suite(name).evaluators)
        if node.kind == "script"
    }
    assert found == {
        "first release_gate/safety/no_numbers": "stdin",
        "second script": "stdin",
        "third checks/code_grader": "stdin",
        "third env": "env",
    }


@pytest.mark.parametrize(
    ("name", "key", "turns"),
    [
        (
            "first",
            "parcel",
            [
                ("system", "You are the help desk.\n"),
                ("user", 'Where is it?\n{"order": 7}'),
            ],
        ),
        ("second", "parcel", [("system", "You are the help desk."), ("user", "Where is it?")]),
        ("second", "refund", [("user", "I want money.")]),
        (
            "third",
            "refund",
            [
                (
                    "user",
                    '<file path="fixtures/policy.txt">\nRefunds take five days.\n</file>\n'
                    "I want money.",
                )
            ],
        ),
        ("third", "alone", [("user", '{"question": "Where is it?", "order": 7}')]),
    ],
)
def test_what_a_case_asks(name: str, key: str, turns: list[tuple[str, str]]) -> None:
    assert [(turn["role"], turn["content"]) for turn in case(name, key).input] == turns


def test_what_a_case_expects() -> None:
    assert case("first", "parcel").expected_output == "It comes on Monday."
    assert case("second", "parcel").expected_output == '{"day": "Monday"}'
    assert case("third", "parcel").expected_output == "It comes on Monday."
    assert {case(name, "parcel").criteria.strip() for name in GENERATIONS} == {
        "Says when the parcel comes."
    }


@pytest.mark.parametrize(
    ("name", "key", "tree", "append"),
    [
        ("first", "parcel", {"rubric": "rubric"}, True),
        ("first", "refund", {"own": "script"}, False),
        ("second", "parcel", {"rubric": "rubric"}, True),
        ("second", "refund", {"regex": "text_check"}, False),
        ("third", "parcel", {"rubric_2": "rubric", "contains": "text_check"}, True),
        ("third", "alone", {"llm_grader": "llm_judge"}, False),
    ],
)
def test_the_evaluators_of_a_case(name: str, key: str, tree: dict[str, str], append: bool) -> None:
    found = case(name, key)

    assert kinds(found.evaluators) == tree
    assert found.evaluators_append is append


def test_what_was_recorded() -> None:
    second = output_from_json(case("second", "parcel").recorded_output or {})
    assert second.text == "It comes on Monday."
    assert [turn.role for turn in second.messages] == ["user", "assistant", "assistant"]
    assert second.trace == (Step("tool", "find_order", {"order": 7}, {"day": "Monday"}),)
    assert (second.usage.input_tokens, second.usage.latency_ms) == (812, 1200)
    recorded: Any = case("third", "parcel").recorded_output
    third = output_from_json(recorded, beside=suite("third").files)
    assert third.files == {
        "answer.md": b"It comes on Monday.",
        "chart.png": b"\x89PNG\r\n\x1a\n",
        "policy.txt": FILES["fixtures/policy.txt"],
    }
    assert str(third.usage.cost_usd) == "0.002"


def test_the_files_a_suite_names_are_kept_with_it() -> None:
    assert {name: list(suite(name).files) for name in GENERATIONS} == {
        "first": ["judges/numbers.py", "prompts/desk.md", "prompts/harm.md"],
        "second": ["judges/numbers.py", "prompts/harm.md"],
        "third": ["fixtures/policy.txt", "judges/numbers.py", "prompts/harm.md"],
    }


def test_what_nothing_uses_is_named_with_its_place_and_kept() -> None:
    first = suite("first")

    assert [(w.line, w.case, w.key.rpartition("]")[2].lstrip(".")) for w in first.warnings] == [
        (3, "", "version"),
        (10, "", "execution.target"),
        (11, "", "execution.timeout_seconds"),
        (23, "", "target"),
        (51, "parcel", "description"),
        (54, "parcel", "conversation_id"),
        (55, "parcel", "note"),
        (70, "parcel", "tool_calls"),
        (89, "refund", "execution.target"),
    ]
    assert first.metadata == {
        "author": "desk team",
        "tags": ["support"],
        "version": "1.0",
        "execution": {"target": "default", "timeout_seconds": 300},
        "evaluators": {"release_gate/safety/no_harm": {"target": "judge_model"}},
    }
    kept = case("first", "parcel").metadata
    assert kept["note"] == "The customer lives abroad."
    assert kept["expected_messages"][0]["tool_calls"][0]["id"] == "c1"
    assert case("first", "refund").metadata == {"execution": {"target": "other_agent"}}
    assert suite("second").warnings == suite("third").warnings == ()
