"""What differs between two versions, told by what became of each evaluator, case, file and threshold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import walk
from evaluators.scoring.types import DomainError
from runs.specs.suites import SuiteSpec, VersionSpec
from runs.suites.differences import (
    DifferingValue,
    UndecidedError,
    VersionDifference,
    compare_specs,
    differing_values,
    evaluator_facts,
    merge_draft,
)
from runs.suites.edits import (
    Add,
    Combine,
    Configure,
    Describe,
    Group,
    Move,
    Negate,
    Remove,
    Rename,
    Require,
    SetPolicy,
    SetWeight,
    Shift,
    change,
    nodes_with_paths,
)
from tests.evaluators.scoring.trees import leaf, root
from tests.suites.contents import draft, origins, paths, shop, version, weights

BOTH_GATES = Combine("n2", "safety_gate", {"required": ["harm", "cards"]})
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
    (BOTH_GATES, [("changed", "safety/cards", "safety/cards", {"gate": (False, True)})]),
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
    differences = [
        (one.what, one.path, one.old_path, {c.name: (c.old, c.new) for c in one.changes})
        for one in found
    ]
    if isinstance(operation, Shift):
        # One of two that changed places was moved; either tells it.
        assert [one[0] for one in differences] == ["moved"]
    else:
        assert differences == expected


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


Operations = list[Any]
VALUES = [
    *(SetWeight("n2", 1), SetWeight("n5", 7), SetWeight("n5", 0.5), SetWeight("n4", 9)),
    *(Negate("n5", True), Require("n5", 0.4), Require("n8", False), BOTH_GATES),
    Configure("n5", {"samples": 3}),
    Combine("n6", "minimum"),
    Combine("n6", "all_or_nothing", {"threshold": 0.9}),
    *(
        SetPolicy({"pass_threshold": 0.9}),
        SetPolicy({"pass_threshold": 0.95}),
        Describe(judge="strict"),
    ),
    *(Describe(title="Other"), Describe(tags=["a"])),
]
PLACES = [Remove("n7"), Move("n5", "n6"), Rename("n5", "kind"), Add("llm_judge", "n6", 0, "extra")]
SIDES = st.lists(st.sampled_from([*VALUES, *PLACES]), max_size=4)


def edited(operations: Operations) -> dict[str, Any]:
    content = draft()
    for operation in operations:
        try:
            content = change(content, operation)
        except DomainError:
            continue
    return content


def both(theirs: Operations, mine: Operations) -> tuple[SuiteSpec, SuiteSpec, dict[str, Any]]:
    """Return the base, what they saved, and my draft."""
    base, saved = (SuiteSpec.model_validate(edited(one)) for one in ([], theirs))
    return base, saved, edited(mine)


def values_of(
    base: SuiteSpec, saved: SuiteSpec, content: dict[str, Any]
) -> dict[str, DifferingValue]:
    values = differing_values(base, saved, SuiteSpec.model_validate(content))
    return {value.key: value for value in values}


@given(SIDES, SIDES)
def test_mine_or_theirs_throughout_is_what_that_side_made_of_it(
    theirs: Operations, mine: Operations
) -> None:
    base, saved, content = both(theirs, mine)
    values = values_of(base, saved, content)
    for side in ("mine", "theirs"):
        merged = merge_draft(base, saved, content, dict.fromkeys(values, side))
        spec = SuiteSpec.model_validate(merged)
        taken = {
            key: side if value.is_open else str(value.who)
            for key, value in values.items()
            if value.who is not None
        }
        facts = evaluator_facts(spec.evaluators)
        for key, value in values.items():
            wanted = value.mine if taken.get(key) == "mine" else value.theirs
            if key == "arrangement":
                assert [f"{p} ({n.kind})" for p, n in walk(spec.evaluators) if p] == wanted
            elif value.evaluator is None:
                assert {**spec.as_json(), **spec.as_json()["policy"]}[value.name] == wanted
            elif value.who is not None:
                assert {n: facts[value.evaluator][n] for n in wanted} == wanted
        ids = [node["id"] for _, node in nodes_with_paths(merged["evaluators"])]
        assert len(set(ids)) == len(ids)


@given(SIDES)
def test_what_only_one_side_changed_needs_no_decision(operations: Operations) -> None:
    for sides in (([], operations), (operations, [])):
        base, saved, content = both(*sides)
        assert not any(value.is_open for value in values_of(base, saved, content).values())
        merged = SuiteSpec.model_validate(merge_draft(base, saved, content, {}))
        assert merged == SuiteSpec.model_validate(content if sides[1] else saved.as_json())


@given(SIDES)
def test_what_both_changed_alike_does_not_differ(operations: Operations) -> None:
    assert not values_of(*both(operations, operations))


@given(SIDES, SIDES)
def test_nothing_is_lost_that_the_page_does_not_show(theirs: Operations, mine: Operations) -> None:
    """What a side changed is kept, or a value shows it beside what was taken in its place."""
    base, saved, content = both(theirs, mine)
    values = values_of(base, saved, content)
    merged = merge_draft(base, saved, content, dict.fromkeys(values, "theirs"))
    kept, wanted = (
        evaluator_facts(SuiteSpec.model_validate(one).evaluators) for one in (merged, content)
    )
    before = evaluator_facts(base.evaluators)
    for path, facts in wanted.items():
        if facts != before.get(path) and kept.get(path) != facts:
            assert f"evaluators.{path}" in values


def test_changes_of_both_come_together() -> None:
    theirs = [Combine("n6", "minimum"), SetPolicy({"pass_threshold": 0.9})]
    mine = [SetWeight("n2", 1), Require("n5", 0.4), SetPolicy({"borderline_threshold": 0.5})]
    merged = merge_draft(*both(theirs, mine), {})
    assert weights(merged)["safety"] == 1.0
    assert merged["policy"]["pass_threshold"] == 0.9
    assert merged["policy"]["borderline_threshold"] == 0.5
    tone, facts = merged["evaluators"]["children"][1:]
    assert tone["required_below"] == 0.4
    assert facts["config"]["aggregator"]["type"] == "minimum"


def test_an_evaluator_that_both_changed_is_taken_whole() -> None:
    base, saved, content = both([SetWeight("n5", 7)], [Require("n5", 0.4)])
    value = values_of(base, saved, content)["evaluators.tone"]
    assert (value.theirs, value.mine) == (
        {"weight": 7.0, "required": False},
        {"weight": 2.0, "required": 0.4},
    )
    with pytest.raises(UndecidedError, match="tone"):
        merge_draft(base, saved, content, {})
    merged = merge_draft(base, saved, content, {"evaluators.tone": "mine"})
    assert weights(merged)["tone"] == 2.0


def test_an_evaluator_one_moved_and_the_other_changed_is_asked_for_and_shown() -> None:
    theirs = [SetWeight("n5", 7), Rename("n5", "kindness")]
    base, saved, content = both(theirs, [Move("n5", "n6"), Remove("n7")])
    values = values_of(base, saved, content)
    assert values["arrangement"].is_open
    assert values["evaluators.kindness"].theirs["weight"] == 7.0
    assert values["evaluators.facts/tone"].mine["weight"] == 2.0
    merged = merge_draft(base, saved, content, {"arrangement": "mine"})
    assert paths(merged)[-2:] == ["facts/date", "facts/tone"]
    assert origins(merged)["facts/date"] == "facts/date"


def test_what_is_left_out_with_an_arrangement_is_shown() -> None:
    base, saved, content = both([Remove("n7")], [Add("rubric", "n6", name="extra")])
    values = values_of(base, saved, content)
    alone = [value.evaluator for value in values.values() if value.who is None]
    assert alone == ["facts/price", "facts/extra"]
    assert [key for key, value in values.items() if value.is_open] == ["arrangement"]
    merged = merge_draft(base, saved, content, {"arrangement": "theirs"})
    assert paths(merged)[-2:] == ["facts", "facts/date"]
