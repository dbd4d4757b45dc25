"""What differs between two versions, told by what became of each evaluator, case, file and threshold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.policy import PolicySpec
from runs.specs.suites import SuiteSpec, VersionSpec
from runs.suites.differences import VersionDifference, compare_specs
from runs.suites.edits import Describe, SetPolicy, change
from runs.suites.tree_edits import (
    Add,
    Combine,
    Configure,
    Group,
    Guard,
    Move,
    Negate,
    Remove,
    Rename,
    Require,
    SetWeight,
    Shift,
)
from tests.evaluators.scoring.trees import leaf, root
from tests.suites.contents import draft, shop, version

OPERATIONS: list[tuple[Any, list[tuple[str, str, str, dict[str, tuple[Any, Any]]]]]] = [
    (SetWeight("n2", 1), [("changed", "safety", "safety", {"weight": (5.0, 1.0)})]),
    (Negate("n5", True), [("changed", "tone", "tone", {"negate": (False, True)})]),
    (Require("n5", 0.7), [("changed", "tone", "tone", {"required": (False, 0.7)})]),
    (
        Configure("n5", {"samples": 3}),
        [("changed", "tone", "tone", {"config.samples": (1, 3)})],
    ),
    (
        Combine("n6", "all_or_nothing", {"threshold": 0.9}),
        [
            (
                *("changed", "facts", "facts"),
                {
                    "aggregator.type": ("weighted_average", "all_or_nothing"),
                    "aggregator.threshold": (None, 0.9),
                },
            )
        ],
    ),
    (Guard("n4", True), [("changed", "safety/cards", "safety/cards", {"gate": (False, True)})]),
    (Rename("n5", "kindness"), [("renamed", "kindness", "tone", {})]),
    (Move("n5", "n6"), [("moved", "facts/tone", "tone", {})]),
    (Shift("n6", "up"), [("moved", "tone", "tone", {})]),
    (Remove("n7"), [("removed", "facts/price", "facts/price", {})]),
    (
        Group("n5", "style"),
        [
            ("added", "style", "", {}),
            ("moved", "style/tone", "tone", {"weight": (2.0, 1.0)}),
        ],
    ),
    (Add("rubric", "n1", 0), [("added", "rubric", "", {})]),
]


def compare(before: dict[str, Any], after: dict[str, Any]) -> VersionDifference:
    """Return what differs between two versions or drafts as they are stored."""
    sides = [VersionSpec if "cases" in content else SuiteSpec for content in (before, after)]
    return compare_specs(sides[0].model_validate(before), sides[1].model_validate(after))


def usual(tree: Any) -> dict[str, Any]:
    """Return a draft whose judges have the settings that saved ones have."""
    content = draft(tree)
    return change(content, Configure("n5", {}))


@pytest.mark.parametrize(("operation", "expected"), OPERATIONS)
def test_what_became_of_each_evaluator(operation: Any, expected: Any) -> None:
    before = usual(shop())
    found = compare(before, change(before, operation)).evaluators
    told = [
        (one.what, one.path, one.old_path, {c.name: (c.old, c.new) for c in one.changes})
        for one in found
    ]
    if isinstance(operation, Shift):
        # One of two that changed places was moved; either tells it.
        assert [one[0] for one in told] == ["moved"]
    else:
        assert told == expected


@given(st.lists(st.sampled_from([operation for operation, _ in OPERATIONS]), max_size=4))
def test_nothing_differs_from_itself_and_what_differs_differs_both_ways(
    operations: list[Any],
) -> None:
    before = usual(shop())
    after = before
    for operation in operations:
        try:
            after = change(after, operation)
        except Exception:  # noqa: BLE001 - whatever is refused is tested with the operations
            continue
    assert compare(after, after).is_empty
    there, back = compare(before, after), compare(after, before)
    assert there.is_empty == back.is_empty
    opposite = {"added": "removed", "removed": "added"}
    names = {(one.what, one.path) for one in there.evaluators if one.what in opposite}
    assert {
        (opposite[one.what], one.path) for one in back.evaluators if one.what in opposite
    } == names


def test_policy_judge_and_texts_are_told_with_old_and_new() -> None:
    before = draft()
    after = change(
        before,
        SetPolicy({"pass_threshold": 0.9, "case_gate": "expected_outcomes"}),
        Describe(description="New"),
    )
    found = compare(before, {**after, "judge": "strict"})
    assert {(c.name, c.old, c.new) for c in found.policy} == {
        ("pass_threshold", 0.8, 0.9),
        ("case_gate", "score", "expected_outcomes"),
    }
    assert {(c.name, c.old, c.new) for c in found.texts} == {
        ("description", "", "New"),
        ("judge", "", "strict"),
    }
    assert (found.scoring, found.is_empty) == (True, False)
    assert found.counts == {"policy values changed": 2, "texts changed": 2}


def test_cases_and_files() -> None:
    before = version(
        root(leaf("a")),
        cases=[
            {"key": "gone", "revision": 1, "hash": "1"},
            {"key": "same", "revision": 1, "hash": "2"},
            {"key": "again", "revision": 1, "hash": "3"},
            {"key": "new text", "revision": 2, "hash": "4"},
        ],
        files={"a.md": "1", "b.md": "2"},
    )
    after = version(
        root(leaf("a")),
        cases=[
            {"key": "new text", "revision": 3, "hash": "5"},
            {"key": "same", "revision": 1, "hash": "2"},
            {"key": "again", "revision": 4, "hash": "3"},
            {"key": "new", "revision": 1, "hash": "6"},
        ],
        files={"b.md": "3", "c.md": "4"},
    )
    found = compare(before, after)
    assert [(c.what, c.key, c.old_revision, c.new_revision) for c in found.cases] == [
        ("changed", "new text", 2, 3),
        ("added", "new", None, 1),
        ("removed", "gone", 1, None),
    ]
    assert [(f.what, f.path) for f in found.files] == [
        ("removed", "a.md"),
        ("changed", "b.md"),
        ("added", "c.md"),
    ]
    assert found.is_reordered
    assert found.scoring is False
    assert found.counts["cases changed"] == 1


def test_versions_of_an_earlier_form_are_read() -> None:
    old = {
        "title": "Shop",
        "policy": {"pass_threshold": 0.8},
        "evaluators": {
            "name": "root",
            "kind": "composite",
            "children": [{"name": "a", "kind": "rubric"}],
        },
        "cases": [{"key": "A", "revision": 1}],
    }
    new = {
        **version(root(leaf("a", kind="rubric"))),
        "policy": PolicySpec().as_json(),
        "cases": [{"key": "A", "revision": 1, "hash": "x"}],
    }
    assert compare(old, new).is_empty
