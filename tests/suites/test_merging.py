"""Two people at one suite: every value of both is told, and one draft is made of both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.scoring.types import DomainError
from runs.suites.differences import compare_versions, facts_of
from runs.suites.edits import Describe, SetJudge, SetPolicy, change, edited_parts, origins, tree_of
from runs.suites.merging import UndecidedError, merge_of, merged
from runs.suites.tree_edits import (
    Add,
    Combine,
    Configure,
    Guard,
    Move,
    Negate,
    Remove,
    Rename,
    Require,
    SetWeight,
)
from tests.suites.contents import draft, paths, weights

Operations = list[Any]
VALUES = [
    *(SetWeight("n2", 1), SetWeight("n5", 7), SetWeight("n5", 0.5), SetWeight("n4", 9)),
    *(Negate("n5", True), Require("n5", 0.4), Require("n8", False), Guard("n4", True)),
    Configure("n5", {"samples": 3}),
    Combine("n6", "minimum"),
    Combine("n6", "all_or_nothing", {"threshold": 0.9}),
    *(SetPolicy({"pass_threshold": 0.9}), SetPolicy({"pass_threshold": 0.95}), SetJudge("strict")),
    *(Describe(title="Other"), Describe(tags=["a"])),
]
PLACES = [Remove("n7"), Move("n5", "n6"), Rename("n5", "kind"), Add("llm_judge", "n6", 0, "extra")]
SIDES = st.lists(st.sampled_from([*VALUES, *PLACES]), max_size=4)


def done(operations: Operations) -> dict[str, Any]:
    content = draft()
    for operation in operations:
        try:
            content = change(content, operation)
        except DomainError:
            continue
    return content


def both(
    theirs: Operations, mine: Operations
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the base, what they saved, and my draft."""
    return edited_parts(draft()), edited_parts(done(theirs)), done(mine)


@settings(max_examples=150)
@given(SIDES, SIDES)
def test_mine_or_theirs_throughout_is_what_that_side_made_of_it(
    theirs: Operations, mine: Operations
) -> None:
    base, saved, content = both(theirs, mine)
    merge = merge_of(base, saved, content)
    for side in ("mine", "theirs"):
        choices = {one.key: side for one in merge.open}
        found = merged(base, saved, content, choices)
        facts, said = facts_of(tree_of(found)), edited_parts(found)
        is_rearranged = any(one.name == "arrangement" for one in merge.fields)
        for one in merge.fields:
            is_mine = one.who == "mine" or (one.is_open and side == "mine")
            wanted = one.mine if is_mine else one.theirs
            if one.evaluator is not None and not is_rearranged:
                assert facts[one.evaluator].get(one.name) == wanted
            elif one.evaluator is None and one.name != "arrangement":
                assert {**said, **said["policy"]}[one.name] == wanted
        ids = _ids(found["evaluators"])
        assert len(set(ids)) == len(ids)


@given(SIDES)
def test_what_only_one_side_changed_needs_no_decision(operations: Operations) -> None:
    base, saved, content = both([], operations)
    assert not merge_of(base, saved, content).open
    assert compare_versions(merged(base, saved, content, {}), content).is_empty

    base, saved, content = both(operations, [])
    assert not merge_of(base, saved, content).open
    assert compare_versions(merged(base, saved, content, {}), saved).is_empty


@given(SIDES)
def test_what_both_changed_alike_needs_no_decision(operations: Operations) -> None:
    base, saved, content = both(operations, operations)
    merge = merge_of(base, saved, content)
    assert {one.who for one in merge.fields} <= {"same"}


def _ids(node: dict[str, Any]) -> list[str]:
    return [node["id"], *(one for child in node["children"] for one in _ids(child))]


def test_changes_of_both_come_together() -> None:
    theirs = [SetWeight("n5", 7), Combine("n6", "minimum"), SetPolicy({"pass_threshold": 0.9})]
    mine = [SetWeight("n2", 1), Require("n5", 0.4), SetPolicy({"borderline_threshold": 0.5})]
    found = merged(*both(theirs, mine), {})
    assert (weights(found)["tone"], weights(found)["safety"]) == (7.0, 1.0)
    assert found["policy"]["pass_threshold"] == 0.9
    assert found["policy"]["borderline_threshold"] == 0.5
    tone, facts = found["evaluators"]["children"][1:]
    assert tone["required_below"] == 0.4
    assert facts["config"]["aggregator"]["type"] == "minimum"


def test_my_arrangement_takes_their_values_along_and_knows_where_they_stand() -> None:
    theirs = [SetWeight("n5", 7), Rename("n5", "kindness")]
    base, saved, content = both(theirs, [Move("n5", "n6"), Remove("n7")])
    with pytest.raises(UndecidedError, match="arrangement"):
        merged(base, saved, content, {})
    found = merged(base, saved, content, {"arrangement": "mine"})
    assert paths(found) == [
        "safety",
        "safety/harm",
        "safety/cards",
        "facts",
        "facts/date",
        "facts/tone",
    ]
    assert weights(found)["facts/tone"] == 7.0
    assert origins(found)["facts/tone"] == "kindness"


def test_what_is_left_out_with_an_arrangement_is_named() -> None:
    base, saved, content = both([Remove("n7")], [Add("rubric", "n6", name="extra")])
    merge = merge_of(base, saved, content)
    assert merge.only_mine == ("facts/price", "facts/extra")
    assert [one.key for one in merge.open] == ["arrangement"]
    found = merged(base, saved, content, {"arrangement": "theirs"})
    assert paths(found)[-2:] == ["facts", "facts/date"]
