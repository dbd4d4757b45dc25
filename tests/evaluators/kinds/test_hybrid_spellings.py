"""A hybrid judge as suite files write it."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import read_config
from evaluators.scoring.hybrid import DIMENSIONS
from runs.formats import suite_files
from tests.evaluators.kinds.hybrid import KIND, PRESENT, suite_with


def config_of(lines: str) -> Any:
    content = suite_with(lines)
    (node,) = content.evaluators.children
    assert node.kind == KIND
    return read_config(KIND, node.config)


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("{check_id: c, dimensions: [Task], declarative: {kind: final_response_present}}", PRESENT),
        ("final_response_present", PRESENT),
        ("{contains: refund, dimensions: task}", {"type": "contains", "value": "refund"}),
        ("{kind: icontains, value: a}", {"type": "contains", "value": "a", "ignore_case": True}),
        ("{type: contains_any, value: [a, b]}", {"type": "contains_any", "values": ["a", "b"]}),
        ("{type: tool_calls, tool_name: t, count: 2}", {"type": "tool_call_count", "tool": "t", "min": 2, "max": 2}),
        ("{type: tool_call_count, minCalls: 1}", {"type": "tool_call_count", "min": 1}),
        ("{file_exists: out.md}", {"type": "file_exists", "path": "out.md"}),
        ("{file_contains: {path: out.md, text: a}}", {"type": "file_contains", "path": "out.md", "value": "a"}),
        ("{tool_call_count: {minCalls: 1}}", {"type": "tool_call_count", "min": 1}),
        ("{json_schema: {type: object}, id: 3}", {"type": "json_schema", "json_schema": {"type": "object"}}),
        ("{status_is: success}", {"type": "status_is", "status": "success"}),
        ("{kind: path_exists, artifact: a}", {"type": "file_exists", "path": "a"}),
    ],
)  # fmt: skip
def test_files_write_checks_in_several_ways(line: str, check: dict[str, Any]) -> None:
    (found,) = config_of(f"    deterministic_checks:\n      - {line}\n").checks

    assert found.comparison == read_config(KIND, {"checks": [check]}).checks[0].comparison


def test_files_write_dimensions_and_expectations_in_several_ways() -> None:
    found = config_of(
        "    iterations: 3\n"
        "    expectations: {hard: [Is 4.], soft_expectations: [Is brief.]}\n"
        "    dimension_policies: {task: weighted, spark: {policy: weighted, judge_weight: 0.2}}\n"
        "    dimension_weights: {task: 2}\n"
    )

    by_key = {one.key: one for one in found.dimensions}
    assert tuple(by_key) == DIMENSIONS
    assert (by_key["task"].policy, by_key["task"].weight) == ("weighted", 2)
    assert by_key["spark"].judge_weight == 0.2
    assert (found.samples, found.score_from) == (3, "dimension_weights")
    assert (found.hard_expectations, found.soft_expectations) == (("Is 4.",), ("Is brief.",))
    own = config_of("    dimensions: {Tone of voice: weighted, safety: {description: No harm.}}\n")
    assert [(one.key, one.policy) for one in own.dimensions] == [
        ("tone_of_voice", "weighted"),
        ("safety", "judge_only"),
    ]


def test_a_hybrid_judge_is_the_same_after_export_and_import() -> None:
    content = suite_with(
        "    checks:\n"
        "      - {contains: a, dimensions: [task], negate: true, name: no a}\n"
        "      - {type: tool_call_count, max: 0}\n"
        "      - {type: max_length, max_length: 9, dimensions: [brevity]}\n"
        "    dimensions: [task, {key: brevity, policy: weighted, description: Short.}]\n"
        "    hard_expectations: [Is 4.]\n"
        "    samples: 2\n"
    )

    written = suite_files.write_suite(content)

    assert suite_files.read_suite(written).evaluators == content.evaluators
    assert b"dimensions:" not in suite_files.write_suite(suite_with("    samples: 3\n"))
