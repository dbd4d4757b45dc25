"""A draft of one person: begun, changed, saved as a version, discarded; with others at the same suite."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from evaluators.models import AuditEntry
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.models.suites import Suite, SuiteDraft, SuiteVersion
from runs.suites.differences import UndecidedError
from runs.suites.drafts import (
    DraftChangedError,
    DraftConflictError,
    InvalidDraftError,
    NothingToSaveError,
    change_draft,
    discard_draft,
    draft_for,
    find_conflict,
    get_draft,
    is_stored,
    rebase_draft,
    save_draft,
    tree_warnings,
)
from runs.suites.edits import Add, Describe, Remove, Rename, SetPolicy, SetWeight
from runs.suites.services import GATHERS_FOR, record_version
from tests.evaluators.scoring.trees import composite, leaf, root
from tests.suites.contents import version
from tests.support.factories import (
    again,
    change_suite,
    make_case,
    make_model,
    make_run,
    make_suite,
    make_user,
)

pytestmark = pytest.mark.django_db


SUMS = {"type": "script", "command": ["python3", "sums.py"]}


def change(suite: Suite, author: User, *operations: Any) -> SuiteDraft:
    draft = get_draft(suite, author)
    return change_draft(draft, draft.stamp, *operations)


def save(draft: SuiteDraft, note: str = "") -> SuiteVersion:
    return save_draft(draft, draft.stamp, note=note)


def node_id(draft: SuiteDraft, name: str) -> str:
    found = [one["id"] for one in draft.content["evaluators"]["children"] if one["name"] == name]
    return found[0]


def weight(suite: Suite, author: User, name: str, value: float) -> SuiteDraft:
    draft = get_draft(suite, author)
    return change(suite, author, SetWeight(node_id(draft, name), value))


def weights(suite: Suite) -> dict[str, float]:
    root = again(suite).spec.evaluators
    return {child.name: root.child_weight(child) for child in root.children}


class TestOneDraft:
    def test_it_is_stored_with_its_first_change_and_becomes_the_next_version(self) -> None:
        suite, ada = make_suite(cases=2), make_user()
        untouched = get_draft(suite, ada)
        assert not is_stored(untouched)
        assert SuiteDraft.objects.count() == 0

        draft = weight(suite, ada, "tone", 5)
        draft = change(suite, ada, SetPolicy({"pass_threshold": 0.9}), Describe(tags=["shop"]))
        assert SuiteDraft.objects.get().revision == 2
        assert (again(suite).version, weights(suite)["tone"]) == (1, 2.0)

        version = save(draft, note="Tone counts\nmore")
        suite = again(suite)
        assert (version.number, version.note, version.author) == (2, "Tone counts more", ada)
        assert (suite.version, suite.policy.pass_threshold, suite.tags) == (2, 0.9, ["shop"])
        assert weights(suite) == {"tone": 5.0, "refund": 1.0}
        assert version.content["policy"]["pass_threshold"] == 0.9
        assert [case["key"] for case in version.content["cases"]] == ["C-001", "C-002"]
        assert "id" not in version.content["evaluators"]
        assert not SuiteDraft.objects.exists()

        entry = AuditEntry.objects.get(action="save")
        assert entry.before == {
            "version": 1,
            "tags": [],
            "pass_threshold": 0.8,
            "evaluator tone: weight": 2.0,
        }
        assert entry.after["evaluator tone: weight"] == 5.0

    def test_saving_what_is_there_already_makes_no_version(self) -> None:
        suite, ada = make_suite(), make_user()
        weight(suite, ada, "tone", 5)
        draft = weight(suite, ada, "tone", 2)

        with pytest.raises(NothingToSaveError, match="the same as version 1"):
            save(draft)
        assert (again(suite).version, SuiteDraft.objects.count()) == (1, 1)

        discard_draft(draft, draft.stamp)
        assert not SuiteDraft.objects.exists()

    def test_forms_of_an_earlier_state_are_refused(self) -> None:
        suite, ada = make_suite(), make_user()
        first_tab = get_draft(suite, ada)
        draft = weight(suite, ada, "tone", 5)

        for stale in (first_tab, draft):
            with pytest.raises(DraftChangedError, match="another tab"):
                change_draft(stale, first_tab.stamp, Describe(judge=""))
        with pytest.raises(DraftChangedError, match="another tab"):
            save_draft(draft, f"{draft.pk}-0")
        save(draft)
        for action in (save_draft, change_draft, discard_draft):
            with pytest.raises(DraftChangedError, match="saved or discarded"):
                action(draft, draft.stamp)
        assert again(suite).version == 2

    def test_a_page_of_an_untouched_draft_becomes_one_of_the_version_it_was_opened_at(self) -> None:
        suite, ada, bob = make_suite(), make_user(), make_user()
        page = get_draft(suite, ada)
        save(weight(suite, bob, "tone", 3))
        save(weight(again(suite), bob, "tone", 4))

        now = again(suite)
        assert draft_for(now, ada, "new-0123456789ab").base_version == 3
        with pytest.raises(DraftChangedError, match="Your draft or the suite has changed"):
            change_draft(get_draft(now, ada), page.stamp, SetWeight("n2", 9))
        with pytest.raises(DraftChangedError, match="Your draft or the suite has changed"):
            change_draft(
                draft_for(now, ada, page.stamp), page.stamp, SetWeight(node_id(page, "tone"), 4)
            )
        assert not SuiteDraft.objects.exists()
        draft = change_draft(
            draft_for(now, ada, page.stamp), page.stamp, SetPolicy({"pass_threshold": 0.9})
        )
        assert (draft.base_version, SuiteDraft.objects.get().base_version) == (1, 1)
        with pytest.raises(DraftConflictError, match="saved version 3"):
            save(draft)
        assert weights(suite)["tone"] == 4

    def test_everything_that_is_wrong_is_said_and_nothing_is_half_saved(self) -> None:
        suite, ada = make_suite(), make_user()
        make_model(slug="strict")
        draft = change(
            suite,
            ada,
            Add("text_check", "n1"),
            Add("llm_judge", "n1", name="harm", config={"prompt": "./harm.md"}),
            Add("script", "n1", name="sums", config={"command": ["python3", "sums.py"]}),
            Add("hybrid_judge", "n1", name="whole", config={"checks": [SUMS]}),
            Add("deliberation", "n1", name="panel", config={"models": ["gone", "strict"]}),
            Describe(judge="nobody"),
            SetPolicy({"pass_threshold": 0.95}),
        )

        with pytest.raises(InvalidDraftError) as refused:
            save(draft)
        said = {(one.path, one.field): one.message for one in refused.value.problems}
        assert set(said) == {
            ("", "judge"),
            ("text_check", "operator"),
            ("harm", "prompt"),
            ("sums", "script"),
            ("whole", "checks"),
            ("panel", "models"),
        }
        assert "'gone'" in said["panel", "models"]
        assert "nobody" in said["", "judge"]
        assert "Evaluator harm, prompt: " in str(refused.value)
        assert all(one.node for one in refused.value.problems if one.path)
        suite = again(suite)
        assert (suite.version, suite.policy.pass_threshold) == (1, 0.8)
        assert SuiteDraft.objects.get().content == draft.content

    def test_weights_of_dimensions_are_not_saved_beside_the_judges_overall_score(self) -> None:
        weighed = {"score_from": "dimension_weights"}
        suite, ada = make_suite(), make_user()
        draft = change(suite, ada, Add("hybrid_judge", "n1", name="whole", config=weighed))
        save(draft)
        draft = change(again(suite), ada, SetPolicy({"final_score": "judge_overall"}))
        with pytest.raises(
            InvalidDraftError, match="final_score: evaluator “whole” makes its"
        ) as no:
            save(draft)
        assert "Set score_from: judge_overall there, or final_score: aggregate" in str(no.value)
        assert again(suite).policy.final_score == "aggregate"

    def test_evaluators_that_cases_add_are_checked_beside_the_draft(self) -> None:
        suite, ada = make_suite(), make_user()
        root = suite.spec.evaluators.as_json()
        own = {**root, "children": [{**root["children"][1], "name": "short"}]}
        make_case(suite=suite, key="C-9", evaluators=own, evaluators_append=True)

        draft = change(suite, ada, Rename("n3", "short"))
        with pytest.raises(InvalidDraftError, match=r"case C-9.*short"):
            save(draft)


class TestTwoPeople:
    def test_the_second_save_is_refused_with_both_and_overwrites_nothing(self) -> None:
        suite, ada, bob = make_suite(), make_user(name="ada"), make_user(name="bob")
        make_model(slug="strict")
        mine = change(
            suite,
            bob,
            SetWeight("n2", 4),
            SetPolicy({"pass_threshold": 0.7}),
            Describe(judge="strict"),
        )
        save(change(suite, ada, SetWeight("n2", 3), SetWeight("n3", 2)), note="Ada's weights")

        with pytest.raises(DraftConflictError, match="ada saved version 2") as refused:
            save(mine)
        conflict = refused.value.conflict
        assert [(one.number, one.note, str(one.author)) for one in conflict.theirs] == [
            (2, "Ada's weights", "ada")
        ]
        values = {one.key: (one.who, one.base, one.theirs, one.mine) for one in conflict.values}
        assert values == {
            "judge": ("mine", "", "", "strict"),
            "policy.pass_threshold": ("mine", 0.8, 0.8, 0.7),
            "evaluators.tone": ("both", {"weight": 2.0}, {"weight": 3.0}, {"weight": 4.0}),
            "evaluators.refund": ("theirs", {"weight": 1.0}, {"weight": 2.0}, {"weight": 1.0}),
        }
        assert weights(suite) == {"tone": 3.0, "refund": 2.0}
        assert SuiteDraft.objects.get().content == mine.content

    @pytest.mark.parametrize(("side", "tone"), [("mine", 4.0), ("theirs", 3.0)])
    def test_a_draft_is_brought_up_value_by_value_and_then_saved(
        self, side: str, tone: float
    ) -> None:
        suite, ada, bob = make_suite(), make_user(), make_user()
        mine = change(suite, bob, SetWeight("n2", 4), SetPolicy({"pass_threshold": 0.7}))
        save(change(suite, ada, SetWeight("n2", 3), SetWeight("n3", 2)))

        with pytest.raises(UndecidedError, match="tone"):
            rebase_draft(mine, mine.stamp, version=2, choices={})
        choices = {"evaluators.tone": side}
        draft = rebase_draft(mine, mine.stamp, version=2, choices=choices)
        assert draft.base_version == 2
        assert again(suite).version == 2

        assert save(draft).number == 3
        assert weights(suite) == {"tone": tone, "refund": 2.0}
        assert again(suite).policy.pass_threshold == 0.7

    def test_choices_made_against_an_earlier_version_are_not_taken(self) -> None:
        suite, ada, bob = make_suite(), make_user(), make_user()
        mine = weight(suite, bob, "tone", 4)
        save(weight(suite, ada, "tone", 3))
        save(weight(again(suite), ada, "tone", 6))

        choices = {"evaluators.tone": "mine"}
        with pytest.raises(DraftChangedError, match="Version 3 was saved"):
            rebase_draft(mine, mine.stamp, version=2, choices=choices)
        assert SuiteDraft.objects.get().content == mine.content

    def test_edits_of_cases_are_no_conflict(self) -> None:
        suite, ada, bob = make_suite(), make_user(), make_user()
        mine = weight(suite, bob, "tone", 4)
        make_case(suite=suite, key="C-9")
        assert record_version(suite, author=ada, gathers=True).number == 2

        version = save(mine)
        assert version.number == 3
        assert [case["key"] for case in version.content["cases"]] == ["C-9"]

    def test_what_one_removed_and_the_other_changed_is_asked(self) -> None:
        suite, ada, bob = make_suite(), make_user(), make_user()
        mine = weight(suite, bob, "tone", 4)
        save(change(suite, ada, Remove("n2"), Add("rubric", "n1", config=RUBRIC)))

        conflict = find_conflict(get_draft(again(suite), bob))
        assert conflict is not None
        assert [one.key for one in conflict.open] == ["arrangement"]
        alone = {
            one.evaluator: (one.theirs, one.mine) for one in conflict.values if one.who is None
        }
        assert [path for path, (theirs, _) in alone.items() if theirs is None] == ["tone"]
        assert [path for path, (_, mine) in alone.items() if mine is None] == ["rubric"]
        kept = rebase_draft(mine, mine.stamp, version=2, choices={"arrangement": "mine"})
        save(kept)
        assert weights(suite) == {"tone": 4.0, "refund": 1.0}


RUBRIC = {"rubrics": [{"id": "kind", "expected_outcome": "Is kind"}]}


class TestRecordedVersions:
    def test_edits_of_cases_gather_in_one_version(self) -> None:
        suite, ada, bob = make_suite(cases=1), make_user(), make_user()

        def edit(key: str, author: User = ada) -> SuiteVersion:
            make_case(suite=suite, key=key)
            return record_version(suite, author=author, gathers=True)

        record_version(suite, author=None)
        assert edit("A").number == 3
        version = edit("B")
        assert (version.number, version.note) == (3, "2 cases added")
        assert [case["key"] for case in version.content["cases"]] == ["C-001", "A", "B"]

        assert edit("C", bob).number == 4
        assert edit("D").number == 5
        suite.refresh_from_db()
        make_run(suite=suite)
        assert edit("E").number == 6
        SuiteVersion.objects.filter(number=6).update(created_at=timezone.now() - GATHERS_FOR)
        assert edit("F").number == 7

    def test_nothing_new_is_no_version_and_other_changes_do_not_join(self) -> None:
        suite, ada = make_suite(cases=1), make_user()
        first = record_version(suite, author=ada, gathers=True)
        assert record_version(suite, author=ada, gathers=True) == first

        change_suite(suite, description="Other")
        other = record_version(suite, author=ada, gathers=True, note="Described")
        assert (other.number, other.note, other.gathers) == (3, "Described", False)


OVERALL = PolicySpec(final_score="judge_overall").as_json()
OUTCOMES = PolicySpec(case_gate="expected_outcomes").as_json()


def judged(**settings: Any) -> EvaluatorSpec:
    return EvaluatorSpec(
        name="all",
        kind="composite",
        config={"aggregator": settings},
        children=(leaf("a", 0), leaf("b", 0)),
    )


TREES: dict[str, tuple[EvaluatorSpec, dict[str, Any], list[tuple[str, str]]]] = {
    "nothing odd": (root(leaf("a", 2), leaf("b")), {}, []),
    "under minimum": (root(leaf("a", 2), leaf("b"), rule="minimum"), {}, [("no_effect", "a")]),
    "under maximum": (root(leaf("a", 2), leaf("b"), rule="maximum"), {}, [("no_effect", "a")]),
    "passes counted": (root(leaf("a", 2), leaf("b"), rule="threshold"), {}, [("no_effect", "a")]),
    "a gate alone": (
        root(leaf("a", 2), leaf("b"), rule="safety_gate", required=("a",), remainder="remaining"),
        {},
        [("no_effect", "a")],
    ),
    "a gate that counts": (
        root(leaf("a", 2), leaf("b"), rule="safety_gate", required=("a",)),
        {},
        [],
    ),
    "alone": (root(leaf("a", 2), leaf("b", 0)), {}, [("no_effect", "a"), ("never_decides", "b")]),
    "never decides": (root(leaf("a"), leaf("b", 0)), {}, [("never_decides", "b")]),
    "required at weight 0": (root(leaf("a"), leaf("b", 0, required=True)), {}, []),
    "a gate at weight 0": (
        root(leaf("a"), leaf("b", 0), rule="safety_gate", required=("b",)),
        {},
        [],
    ),
    "a branch of weight 0": (
        root(leaf("a"), composite("b", leaf("c"), leaf("d"), weight=0)),
        {},
        [("never_decides", "b")],
    ),
    "required inside it": (
        root(leaf("a"), composite("b", leaf("c", required=True), leaf("d"), weight=0)),
        {},
        [("never_decides", "b/d")],
    ),
    "a judge of zeros": (
        judged(type="llm_judge"),
        {},
        [("zero_sum", ""), *[("never_decides", n) for n in "ab"]],
    ),
    "zeros not yet refused": (
        root(leaf("a", 0), leaf("b", 0)),
        {},
        [("zero_sum", ""), *[("never_decides", n) for n in "ab"]],
    ),
    "the judge's own score": (
        root(
            leaf("a", 3),
            leaf("h", kind="hybrid_judge", config={"checks": []}),
            leaf("r", required=True),
        ),
        {"policy": OVERALL},
        [("no_effect", ""), ("never_decides", "a")],
    ),
    "outcomes decide": (
        root(leaf("a"), leaf("m", 0, kind="metrics_judge")),
        {"policy": OUTCOMES},
        [],
    ),
    "not filled in": (
        root(leaf("a"), leaf("b", kind="text_check")),
        {},
        [("unfinished", "b")],
    ),
}


@pytest.mark.parametrize(("tree", "parts", "expected"), TREES.values(), ids=TREES)
def test_what_is_pointed_out(
    tree: EvaluatorSpec, parts: dict[str, Any], expected: list[Any]
) -> None:
    found = tree_warnings(version(tree, **parts))
    assert [(one.code, one.path) for one in found] == expected
    assert all(one.text.endswith(".") for one in found)
    assert all(f"“{one.path}" in one.text for one in found if one.path)


def test_the_words_name_weight_and_reason() -> None:
    (said,) = tree_warnings(version(root(leaf("a", 2.5), leaf("b"), rule="minimum")))
    assert said.text == "The weight 2.5 of “a” changes nothing: the lowest score counts."
    (said,) = tree_warnings(version(root(leaf("a"), leaf("b", 0))))
    assert said.text == (
        "“b” can never change a verdict: its weight is 0, and it is neither required nor a gate. "
        "It is only recorded."
    )


def test_a_judge_that_is_the_targets_own_model_is_pointed_out() -> None:
    own = leaf("own", config={"model": "juno-2"})
    check = leaf("check", kind="text_check", config={"operator": "contains", "value": "x"})
    content = version(root(own, leaf("other"), check), judge="strict")
    targets = {"juno-2": ("agent", "agent v2"), "strict": ("clerk",)}
    assert [(one.path, one.text) for one in tree_warnings(content, target_models=targets)] == [
        ("own", "“own” asks juno-2, which is the model of agent and agent v2: it judges itself."),
        ("other", "“other” asks strict, which is the model of clerk: it judges itself."),
    ]


def test_what_is_to_be_filled_in_is_named_with_its_field() -> None:
    (said,) = tree_warnings(version(root(leaf("a", kind="text_check"), leaf("b"))))
    assert (said.path, said.field) == ("a", "operator")
    assert "operator" in said.text


LITERAL = {
    "contains": ({"operator": "contains", "value": "It is {{expected_output}}."}, "contains"),
    "spaced": ({"operator": "starts_with", "value": "{{ input }}"}, "contains"),
    "one of several": (
        {"operator": "contains_any", "values": ["a", "{{ metadata.id }}"]},
        "contains",
    ),
    "equals": ({"operator": "equals", "value": "{{expected_output}}"}, "exact"),
    "regex": ({"operator": "regex", "value": "^{{expected_output}}$"}, "regex"),
}


@pytest.mark.parametrize(("config", "match"), LITERAL.values(), ids=LITERAL)
def test_a_variable_that_a_text_check_takes_by_the_letter_is_pointed_out(
    config: dict[str, Any], match: str
) -> None:
    found = tree_warnings(version(root(leaf("a", kind="text_check", config=config))))
    (said,) = (one for one in found if one.code == "literal")
    assert said.path == "a"
    assert said.field == ("values" if "values" in config else "value")
    assert f"type expected_output with match: {match}" in said.text


@pytest.mark.parametrize("text", ["{{}}", "{ expected_output }", "{{ 2 + 2 }}", "a{2}"])
def test_other_braces_in_a_text_check_are_what_is_looked_for(text: str) -> None:
    config = {"operator": "contains", "value": text}
    assert tree_warnings(version(root(leaf("a", kind="text_check", config=config)))) == []


def test_a_check_of_a_hybrid_judge_takes_no_variables_either() -> None:
    checks = [{"name": "has_it", "type": "contains", "value": "{{expected_output}}"}]
    found = tree_warnings(version(root(leaf("h", kind="hybrid_judge", config={"checks": checks}))))
    assert [one.field for one in found if one.code == "literal"] == ["checks"]
