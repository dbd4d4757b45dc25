"""Profiles: the numbers of SCORING §10, and what a suite file of three lines gets from them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from evaluators.scoring.metrics import DEFAULT_METRICS
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import Aggregator, walk
from runs.formats import suite_files
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.specs.problems import UnreadableFileError
from runs.specs.profiles import UnknownProfileError, all_profiles, get_profile
from runs.specs.suites import SuiteWithCases
from tests.examples.test_seeds import content_of

NAMES = ("verdicts", "metrics", "tasks", "hybrid")
CASE = "tests: [{id: A, input: Hello}]"


def suite(*lines: str) -> SuiteWithCases:
    return suite_files.read_suite("\n".join((*lines, CASE)).encode(), file="start.yaml")


def test_there_is_one_for_each_system() -> None:
    assert tuple(profile.name for profile in all_profiles()) == NAMES


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("verdicts", {"pass_threshold": 0.8, "borderline_threshold": 0.6, "case_gate": "score"}),
        (
            "metrics",
            {
                "case_gate": "expected_outcomes",
                "fallback_threshold": 0.75,
                "metrics_pass_threshold": 0.8,
                "cases_pass_threshold": 1.0,
            },
        ),
        ("tasks", {"scale": 100, "final_score": "aggregate"}),
        ("hybrid", {"scale": 10, "final_score": "judge_overall"}),
    ],
)
def test_policies_are_those_of_the_specification(name: str, figures: dict[str, Any]) -> None:
    policy = get_profile(name).policy.as_json()

    assert {key: policy[key] for key in figures} == figures


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_three_lines_gets_policy_and_evaluators(name: str) -> None:
    profile, content = get_profile(name), suite("name: start", f"profile: {name}")

    assert (content.policy, content.evaluators) == (profile.policy, profile.root)
    assert content.evaluators.aggregator == Aggregator(type="weighted_average")
    assert content.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(content), file="start.yaml") == content
    lines, beside = suite_files.write_case_lines(content)
    assert (
        suite_files.read_case_lines(lines, file="start.jsonl", files={"start.yaml": beside})
        == content
    )


@pytest.mark.parametrize(("name", "example"), [("metrics", "eight-metrics"), ("tasks", "combined")])
def test_the_examples_of_a_system_have_the_policy_of_its_profile(name: str, example: str) -> None:
    assert content_of(example).policy == get_profile(name).policy


def test_the_evaluators_are_those_of_the_system() -> None:
    found = {
        profile.name: [(node.kind, node.weight) for path, node in walk(profile.root) if path]
        for profile in all_profiles()
    }

    assert found == {
        "verdicts": [("llm_judge", 1.0)],
        "metrics": [("metrics_judge", 1.0)],
        "tasks": [("expected_output", 3.0), ("llm_judge", 1.0)],
        "hybrid": [("hybrid_judge", 1.0)],
    }
    [judge] = get_profile("metrics").evaluators
    weights = {one["key"]: one["weight"] for one in judge.config["metrics"]}
    assert weights == {metric.key: metric.weight for metric in DEFAULT_METRICS}
    assert content_of("eight-metrics").evaluators == get_profile("metrics").root
    assert content_of("hybrid").policy == get_profile("hybrid").policy


def test_what_the_file_says_goes_before_the_profile() -> None:
    content = suite(
        *("profile: metrics", "policy: {case_gate: score, pass_threshold: 50}"),
        *("verdicts: {pass: 0.9}", "evaluators: [{name: said, type: contains, value: Hello}]"),
    )

    assert content.policy == PolicySpec(
        case_gate="score", fallback_threshold=0.5, pass_threshold=0.9, scale=100
    )
    assert [node.name for node in content.evaluators.children] == ["said"]
    assert suite_files.read_suite(suite_files.write_suite(content), file="start.yaml") == content


def test_evaluators_of_a_case_join_those_of_the_profile() -> None:
    case = "tests: [{id: A, input: Hello, assertions: [{type: contains, value: Hello}]}]"
    content = suite_files.read_suite(
        f"name: start\nprofile: metrics\n{case}".encode(), file="start.yaml"
    )

    assert content.cases[0].evaluators_append
    assert suite_files.read_suite(suite_files.write_suite(content), file="start.yaml") == content


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnreadableFileError, match="verdicts, metrics, tasks, hybrid") as refused:
        suite("name: start", "profile: metric")

    [problem] = refused.value.problems
    assert (problem.line, problem.key) == (2, "profile")


def test_a_chosen_profile_gives_what_the_file_does_not_write() -> None:
    chosen = get_profile("metrics")
    written = b"name: start\npolicy: {case_gate: score}\n" + CASE.encode()
    content = suite_files.read_suite(written, file="start.yaml", profile=chosen)

    assert (content.policy, content.evaluators) == (
        PolicySpec(case_gate="score", scale=100),
        chosen.root,
    )
    assert content.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_cases_alone_becomes_a_suite_of_the_chosen_profile(name: str) -> None:
    profile = get_profile(name)
    found = read_suites(
        read_uploads([("cases.jsonl", BytesIO(b'{"id": "A", "input": "Hello"}'))]), profile=name
    )

    [suite] = found.suites
    assert (suite.content.policy, suite.content.evaluators) == (profile.policy, profile.root)
    assert (suite.content.slug, found.warnings) == ("cases", ())


@pytest.mark.parametrize(("chosen", "warned"), [("metrics", True), ("tasks", False), ("", False)])
def test_a_profile_that_the_file_names_goes_before_the_chosen_one(
    chosen: str, warned: bool
) -> None:
    files = [("a.yaml", BytesIO(f"name: a\nprofile: tasks\n{CASE}".encode()))]
    files += [("b.yaml", BytesIO(f"name: b\n{CASE}".encode()))]
    found = read_suites(read_uploads(files), profile=chosen)

    own, other = (suite.content for suite in found.suites)
    assert own.policy == get_profile("tasks").policy
    assert other.policy == (get_profile(chosen).policy if chosen else PolicySpec())
    warning = (
        "a.yaml, line 2, profile: the file starts from tasks, which overrides the chosen metrics"
    )
    assert [str(one).partition(";")[0] for one in found.warnings] == ([warning] if warned else [])


def test_an_unknown_choice_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownProfileError, match="verdicts, metrics, tasks, hybrid"):
        read_suites(read_uploads([("a.yaml", BytesIO(CASE.encode()))]), profile="metric")
