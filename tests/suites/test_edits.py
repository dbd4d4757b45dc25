"""Changes of a draft: whatever is done in whatever order, the tree can be scored or the change is refused."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.scoring.tree import validate, walk
from evaluators.scoring.types import DomainError
from runs.suites.edits import (
    Add,
    Combine,
    Configure,
    Describe,
    Duplicate,
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
from tests.suites.contents import draft, node, origins, paths, shop, tree_of, weights

IDS = st.sampled_from([f"n{number}" for number in range(1, 14)])
PLACES = st.one_of(st.none(), st.integers(-2, 9))
NAMES = st.one_of(
    st.sampled_from(["tone", "harm", "price", "safety", " spaced ", "", "a/b", "@x", "x" * 101]),
    st.text(max_size=6),
)
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 2.5, -1.0, 1e308, float("nan"), float("inf")]), st.floats()
)
RULES = st.sampled_from(
    [
        "weighted_average",
        "minimum",
        "safety_gate",
        "all_or_nothing",
        "threshold",
        "llm_judge",
        "sum",
    ]
)
KINDS = st.sampled_from(["llm_judge", "composite", "text_check", "rubric", "none"])
OPERATIONS = st.one_of(
    st.builds(Add, KINDS, IDS, PLACES, NAMES),
    st.builds(Remove, IDS),
    st.builds(Duplicate, IDS),
    st.builds(Group, IDS, NAMES),
    st.builds(Move, IDS, IDS, PLACES),
    st.builds(Shift, IDS, st.sampled_from(["up", "down", "into", "out"])),
    st.builds(Rename, IDS, NAMES),
    st.builds(SetWeight, IDS, NUMBERS),
    st.builds(Require, IDS, st.one_of(st.booleans(), NUMBERS)),
    st.builds(Negate, IDS, st.booleans()),
    st.builds(Combine, IDS, RULES),
)


@given(st.lists(OPERATIONS, max_size=25))
def test_the_tree_can_be_scored_after_every_change(operations: list[Any]) -> None:
    content = draft()
    given_ids: dict[str, str | None] = {}
    for operation in operations:
        with suppress(DomainError):
            content = change(content, operation)
        validate(tree_of(content))
        nodes = [one for _, one in nodes_with_paths(content["evaluators"])]
        ids = [one["id"] for one in nodes]
        assert len(set(ids)) == len(ids)
        for one in nodes:
            # Whatever becomes of an evaluator, it keeps its id and where it came from.
            assert given_ids.setdefault(one["id"], one["origin"]) == one["origin"]


@given(st.lists(OPERATIONS, max_size=12))
def test_what_is_given_stays_as_it_was_and_refusals_change_nothing(operations: list[Any]) -> None:
    content = draft()
    before = deepcopy(content)
    with suppress(DomainError):
        change(content, *operations)
    assert content == before


@given(st.data())
def test_a_move_and_its_way_back_leave_every_weight(data: st.DataObject) -> None:
    content = draft()
    path = data.draw(st.sampled_from(["tone", "facts/price", "safety/cards"]))
    moved = change(content, Move(node(content, path), node(content, "facts"), 0))
    name = path.rpartition("/")[2]
    assert weights(moved)[f"facts/{name}"] == weights(content)[path]
    home = path.rpartition("/")[0]
    back = change(moved, Move(node(content, path), node(content, home)))
    assert weights(back) == weights(content)
    assert sorted(paths(back)) == sorted(paths(content))


class TestPlaces:
    def test_what_is_added_stands_where_it_was_asked_for_with_its_kinds_settings(self) -> None:
        content = draft()
        found = change(
            content,
            Add("llm_judge", "n1", 0),
            Add("llm_judge", node(content, "facts")),
            Add("llm_judge", "n1"),
            Add("composite", "n1", 1, "both"),
        )
        assert paths(found)[:3] == ["llm_judge", "both", "both/llm_judge"]
        assert paths(found)[-1] == "llm_judge_2"
        assert "facts/llm_judge" in paths(found)
        assert origins(found)["llm_judge"] is None
        assert origins(found)["facts/date"] == "facts/date"
        assert tree_of(found).children[0].config["samples"] == 1

    def test_a_kind_that_cannot_do_without_a_setting_is_added_unfinished(self) -> None:
        found = change(draft(), Add("text_check", "n1"))
        assert "operator" not in tree_of(found).children[-1].config

    def test_a_copy_has_a_name_and_ids_of_its_own_and_weighs_the_same(self) -> None:
        content = draft()
        found = change(content, Duplicate(node(content, "safety")))
        assert paths(found)[:6] == [
            *("safety", "safety/harm", "safety/cards"),
            *("safety_2", "safety_2/harm", "safety_2/cards"),
        ]
        assert weights(found)["safety_2"] == 5.0
        assert weights(found)["safety_2/cards"] == 2.0
        assert tree_of(found).children[1].aggregator.required == ("harm",)
        assert origins(found)["safety_2/harm"] is None

    def test_a_group_takes_the_place_the_weight_and_the_gate(self) -> None:
        content = draft()
        found = change(content, Group(node(content, "safety/harm"), "all_harm"))
        safety = tree_of(found).children[0]
        assert [child.name for child in safety.children] == ["all_harm", "cards"]
        assert safety.aggregator.required == ("all_harm",)
        assert paths(found)[1:3] == ["safety/all_harm", "safety/all_harm/harm"]

    def test_steps_up_down_into_and_out(self) -> None:
        content = draft()
        tone = node(content, "tone")
        assert paths(change(content, Shift(tone, "up")))[0] == "tone"
        assert paths(change(content, Shift(tone, "down")))[-1] == "tone"
        inside = change(content, Shift(tone, "into"))
        assert paths(inside)[3] == "safety/tone"
        assert paths(change(inside, Shift(tone, "out"))) == paths(content)

    def test_what_an_aggregator_says_of_a_child_follows_its_name_and_ends_when_it_leaves(
        self,
    ) -> None:
        content = draft()
        renamed = change(
            content,
            Rename(node(content, "safety/harm"), "danger"),
            Rename(node(content, "safety/cards"), "payment"),
        )
        safety = tree_of(renamed).children[0]
        assert (safety.aggregator.required, dict(safety.aggregator.weights)) == (
            ("danger",),
            {"payment": 2.0},
        )
        left = change(content, Move(node(content, "safety/cards"), "n1"))
        assert dict(tree_of(left).children[0].aggregator.weights) == {}
        assert weights(left)["cards"] == 2.0


class TestSettings:
    def test_the_weight_in_force_is_the_one_that_is_set(self) -> None:
        content = draft()
        found = change(
            content, SetWeight(node(content, "safety"), 1.5), SetWeight(node(content, "tone"), 0)
        )
        tree = tree_of(found)
        assert (tree.aggregator.weights["safety"], tree.children[0].weight) == (1.5, 1.0)
        assert tree.children[1].weight == 0

    def test_two_weights_of_one_form_are_looked_at_together(self) -> None:
        content = draft()
        one, other = node(content, "facts/price"), node(content, "facts/date")
        with pytest.raises(DomainError, match="sum to 0"):
            change(content, SetWeight(one, 0), SetWeight(other, 0))
        found = change(content, SetWeight(one, 0), SetWeight(other, 0), SetWeight(one, 3))
        assert weights(found)["facts/price"] == 3

    def test_required_is_a_switch_or_a_least_score(self) -> None:
        content = draft()
        tone = node(content, "tone")
        for said, expected in ((True, (True, None)), (0.7, (False, 0.7)), (False, (False, None))):
            found = tree_of(change(content, Require(tone, said))).children[1]
            assert (found.required, found.required_below) == expected

    def test_another_rule_keeps_what_it_shares_and_drops_what_it_does_not_know(self) -> None:
        content = draft()
        safety = node(content, "safety")
        found = change(content, Combine(safety, "all_or_nothing", {"threshold": 0.9}))
        aggregator = tree_of(found).children[0].aggregator
        assert (aggregator.type, aggregator.threshold) == ("all_or_nothing", 0.9)
        assert (aggregator.required, dict(aggregator.weights)) == ((), {"cards": 2.0})
        with pytest.raises(DomainError, match="required"):
            change(found, Combine(safety, "safety_gate"))
        gated = change(found, Combine(safety, "safety_gate", {"required": ["cards"]}))
        assert tree_of(gated).children[0].aggregator.required == ("cards",)

    def test_settings_are_read_by_the_kind(self) -> None:
        content = draft()
        found = change(content, Configure(node(content, "tone"), {"prompt": "Is it kind?"}))
        assert tree_of(found).children[1].config["prompt"] == "Is it kind?"

    def test_what_is_said_of_the_whole(self) -> None:
        found = change(
            draft(),
            Describe(
                title=" The  shop ", description="What it is for\n", tags=["a", " a ", "", "b"]
            ),
            Describe(judge="strict"),
            SetPolicy({"pass_threshold": 0.9, "count_reviews": True, "scale": 100}),
        )
        assert (found["title"], found["description"]) == ("The shop", "What it is for")
        assert (found["tags"], found["judge"]) == (["a", "b"], "strict")
        assert found["policy"]["pass_threshold"] == 0.9


REFUSED: dict[str, tuple[Any, str]] = {
    "the outermost": (Remove("n1"), "outermost composite cannot be removed"),
    "the outermost moved": (Move("n1", "n2"), "cannot be moved"),
    "into itself": (Move("safety", "safety"), "“safety” cannot be moved into itself"),
    "into a leaf": (Move("tone", "facts/price"), "“price” is a LLM judge and cannot hold"),
    "the only gate": (Remove("safety/harm"), "“harm” is the only gate of “safety”"),
    "a name taken": (Rename("tone", "facts"), "“tone” cannot be called “facts”"),
    "a slash": (Rename("tone", "a/b"), "“tone”: “a/b” cannot be a name"),
    "no name": (Rename("tone", "  "), "“tone”: an evaluator needs a name"),
    "a long name": (Rename("tone", "x" * 100_000), "100000 characters; 100 is the limit"),
    "two lines": (Rename("tone", "a\nb"), "one line"),
    "a negative weight": (SetWeight("tone", -1), "“tone”: the weight -1 "),
    "no number": (SetWeight("tone", float("nan")), "“tone”: the weight nan"),
    "a weight without end": (SetWeight("tone", float("inf")), "“tone”: the weight inf"),
    "a huge weight": (SetWeight("tone", 1e9), "“tone”: the weight 1e+09 is above"),
    "a huge increase": (SetPolicy({"max_latency_increase_pct": 1e9}), "1e+09 is above 1e+06"),
    "yes as a weight": (SetWeight("tone", True), "“tone”: the weight True"),
    "too much to be required": (Require("tone", 1.1), "“tone”: required 1.1"),
    "first": (Shift("safety", "up"), "“safety” is the first already"),
    "last": (Shift("facts", "down"), "“facts” is the last already"),
    "outermost level": (Shift("tone", "out"), "outermost level already"),
    "nothing beside": (Shift("facts/price", "into"), "There is no composite next to “price”"),
    "sideways": (Shift("tone", "left"), "'left' is not a direction; choose up, down, into or out"),
    "an unknown rule": (
        Combine("safety", "median"),
        "'median' is not a way to combine scores; choose one of ",
    ),
    "another rule's option": (
        Combine("facts", "minimum", {"share": 0.5}),
        "minimum takes no share",
    ),
    "a leaf combining": (Combine("tone", "minimum"), "cannot hold evaluators"),
    "an unknown setting": (Configure("tone", {"promt": "x"}), "promt"),
    "a composite's settings": (Configure("facts", {}), "“facts” is a composite"),
    "an unknown kind": (Add("oracle", "n1"), "no evaluator kind 'oracle'"),
    "an added name taken": (Add("llm_judge", "n1", name="tone"), "There is already a “tone”"),
    "gone": (Remove("n99"), "no longer in your draft"),
    "no title": (Describe(title=" "), "Title: a suite needs one"),
    "a long title": (Describe(title="x" * 201), "Title: the text has 201"),
    "a long tag": (Describe(tags=["x" * 61]), "Tag “xxx"),
    "bands crossed": (SetPolicy({"pass_threshold": 0.5}), "borderline_threshold 0.6 is above"),
    "a text for a number": (SetPolicy({"pass_threshold": "0.9"}), "pass_threshold '0.9'"),
    "an unknown gate": (SetPolicy({"case_gate": "luck"}), "case_gate 'luck'"),
    "an unknown field": (SetPolicy({"luck": 1}), "The policy has no luck"),
    "NUL": (Describe(description="a\x00b"), "NUL"),
    "half a sign": (Describe(description="a\ud800b"), "cannot be stored"),
}


@pytest.mark.parametrize(("operation", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_naming_the_evaluator(operation: Any, said: str) -> None:
    content = draft()
    known = {"n1": "n1", "n99": "n99", **{path: node(content, path) for path in paths(content)}}
    named = {
        field: known.get(getattr(operation, field), getattr(operation, field))
        for field in ("node", "parent")
        if hasattr(operation, field)
    }
    operation = type(operation)(**{**_values(operation), **named})
    with pytest.raises(DomainError) as refused:
        change(content, operation)
    assert said in str(refused.value)


def test_the_letters_of_an_escape_are_no_nul() -> None:
    said = "Matches \\u0000 and \\\\u0000"
    assert change(draft(), Describe(description=said))["description"] == said
    with pytest.raises(DomainError, match="NUL"):
        change(draft(), Describe(description="a\\\x00b"))


def _values(operation: Any) -> dict[str, Any]:
    if isinstance(operation, Describe):
        return operation.values
    return {name: getattr(operation, name) for name in operation.__slots__}


def test_the_last_evaluator_of_a_composite_stays() -> None:
    content = change(draft(), Remove("n7"))
    with pytest.raises(
        DomainError, match=r"“date” is the only evaluator in “facts”.*remove “facts” itself"
    ):
        change(content, Remove(node(content, "facts/date")))


def test_a_composite_cannot_be_moved_into_what_it_holds() -> None:
    content = change(draft(), Group("n3", "deep"))
    with pytest.raises(DomainError, match="into itself or its own evaluators"):
        change(content, Move(node(content, "safety"), node(content, "safety/deep")))


def test_more_evaluators_than_a_suite_may_have_are_refused() -> None:
    content = draft()
    with pytest.raises(DomainError, match="at most 500"):
        change(content, *[Duplicate("n5")] * 500)
    with pytest.raises(DomainError, match=r"“g” would be 41 levels deep; 40 is the limit"):
        change(content, *[Group(node(content, "tone"), "g")] * 50)


def test_the_tree_reads_back_as_it_was() -> None:
    assert tree_of(draft()).as_json() == shop().as_json()
    assert [path for path, _ in walk(shop())] == ["", *paths(draft())]
