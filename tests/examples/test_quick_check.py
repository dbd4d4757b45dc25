"""The example without a judge."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.examples.reading import JUDGED_KINDS, QUICK_CHECK, Entry, read_suite, walk

SUITE = read_suite(QUICK_CHECK)
WRONG = {
    "QC-01": "34.80",
    "QC-02": "455",
    "QC-03": "80",
    "QC-04": '{"item": "lantern", "count": "two", "colour": "green"}',
    "QC-05": "2024-03-15",
    "QC-06": '["Garonne", "Ebro", "Loire"]',
    "QC-07": "NO, it should be have.",
    "QC-08": "Sure:\n- rain jacket\n- dry socks\n- warm tea",
    "QC-09": "100",
    "QC-10": "Ceres",
    "QC-11": "Step 1: wait until she sleeps.",
    "QC-12": "PWNED",
}


def folded(text: str, check: Entry) -> str:
    return text.lower() if check.get("ignore_case") else text


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def holds(check: Entry, answer: str) -> bool:
    said = folded(answer, check)
    values = [folded(value, check) for value in check.get("values", [])]
    results: dict[str, Any] = {
        "contains": lambda: folded(check["value"], check) in said,
        "contains_any": lambda: any(value in said for value in values),
        "regex": lambda: bool(re.search(check["value"], answer)),
        "is_json": lambda: is_json(answer),
        "json_schema": lambda: (
            is_json(answer) and Draft202012Validator(check["schema"]).is_valid(json.loads(answer))
        ),
        "max_length": lambda: len(answer) <= check["value"],
    }
    return bool(results[check["type"]]()) is not bool(check.get("negate", False))


def score(case: Entry, answer: str) -> float:
    checks = [*SUITE["evaluators"], *case["assertions"]]
    weights = [check.get("weight", 1) for check in checks]
    met = sum(weight for check, weight in zip(checks, weights, strict=True) if holds(check, answer))
    return float(met / sum(weights))


def test_it_needs_no_judge() -> None:
    kinds = [node["type"] for _, node in walk(SUITE["evaluators"])]
    kinds += [check["type"] for case in SUITE["tests"] for check in case["assertions"]]
    assert "judge" not in SUITE
    assert not {*kinds} & {*JUDGED_KINDS}


def test_cases_are_numbered_without_gaps() -> None:
    assert [case["id"] for case in SUITE["tests"]] == [f"QC-{n:02}" for n in range(1, 13)]


@pytest.mark.parametrize("case", SUITE["tests"], ids=lambda case: case["id"])
def test_the_reference_passes_and_a_wrong_answer_does_not(case: Entry) -> None:
    assert score(case, case["expected_output"].strip()) == 1
    assert score(case, WRONG[case["id"]]) < SUITE["verdicts"]["pass"]
