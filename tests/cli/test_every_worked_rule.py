"""No rule whose worked cases can stand in a suite file is left out of the whole way."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

RULES = {
    "composite",
    "composite_tree",
    "weighted_average",
    "weighted_average_0_100",
    "required_override",
    "judge_overall_score",
    "case_passed",
    "expected_output_match",
    "script_evaluator",
    "deliberation_winner",
    "final_evaluation",
    "deterministic_dimensions",
}


def test_every_rule_is_walked_from_the_suite_file_to_the_page() -> None:
    """A walk itself fails for a worked case that it does not look up in the file and on its page."""
    assert set(walked()) == RULES


def walked() -> Iterator[str]:
    """Yield the rules that the tests beside this one are given to walk."""
    for path in sorted(Path(__file__).parent.glob("test_evaluate_*.py")):
        module = importlib.import_module(f"{__package__}.{path.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
            for mark in marks if name.startswith("test_") else ():
                if mark.name == "parametrize" and mark.args[0] == "walk":
                    yield from mark.args[1]
