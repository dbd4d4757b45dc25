"""The examples are imported without a warning and survive an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.formats import recorded_outputs, suite_files
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.specs.suites import SuiteWithCases
from tests.examples.reading import QUICK_CHECK, RETURNS_DESK, SUPPORT_AGENT, VERSIONS, read_outputs

FOLDERS = [SUPPORT_AGENT, QUICK_CHECK, RETURNS_DESK]


def imported(folder: Path) -> SuiteWithCases:
    [found] = read_suites(bundles_at([folder])).suites
    return found.content


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_suite_is_imported_without_a_warning_and_survives_export(folder: Path) -> None:
    suite = imported(folder)
    assert suite.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(suite), files=suite.files) == suite


def test_the_policy_is_the_one_the_readme_tells_of() -> None:
    policy = imported(SUPPORT_AGENT).policy
    assert (policy.pass_threshold, policy.borderline_threshold) == (0.8, 0.6)
    assert (policy.metrics_pass_threshold, policy.cases_pass_threshold) == (0.8, 0.85)


def test_checks_of_a_case_join_those_of_the_suite() -> None:
    own = [case for case in imported(SUPPORT_AGENT).cases if case.evaluators]
    assert [case.key for case in own] == ["CS-005", "CS-007", "CS-013", "CS-025"]
    assert all(case.evaluators_append for case in own)
    assert all(case.evaluators_append for case in imported(QUICK_CHECK).cases)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_outputs_are_read_as_an_upload(version: str) -> None:
    name = f"outputs-{version}.jsonl"
    lines = recorded_outputs.read_outputs((SUPPORT_AGENT / name).read_bytes(), file=name)
    assert [line.key for line in lines] == list(read_outputs(version))
