"""Cases edited one by one and many at once: revisions, versions, audit, and nobody overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.cases.checks import InvalidCaseError
from runs.cases.services import (
    CaseChangedError,
    CaseKeyInUseError,
    CaseKeyTakenError,
    TooManyTagsError,
    UnknownCaseError,
    add_case,
    change_case,
    move_case,
    put_cases,
    remove_cases,
    restore_case,
    tag_cases,
    untag_cases,
)
from runs.files.importing import import_suite
from runs.models.suites import Case, Suite
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.suites.files import suite_with_cases
from runs.suites.services import EMPTY_ROOT, archive_suite, create_suite, restore_version
from tests.support.factories import make_result, make_run, make_target, make_user
from tests.support.threads import at_once

ASKED = ({"role": "user", "content": "The tent arrived torn. What now?"},)
RETURNS = CaseSpec(
    key="returns",
    title="Returns",
    input=ASKED,
    tags=("refunds",),
    expected_outcomes=("Names the 30 days", "Says who pays"),
    metadata={"plan": {"name": "pro"}},
)
SIZES = CaseSpec(key="sizes", input=ASKED)


@pytest.fixture
def ada(db: None) -> User:
    return make_user(name="ada")


@pytest.fixture
def suite(ada: User) -> Suite:
    suite = create_suite(slug="support", title="Support", by=ada)
    put_cases(suite, [RETURNS, SIZES], by=ada, note="Two to begin with")
    return suite


def current(suite: Suite) -> list[tuple[str, int]]:
    return list(suite.cases.filter(is_current=True).values_list("key", "revision"))


def versions(suite: Suite) -> list[tuple[int, str]]:
    return list(suite.versions.order_by("number").values_list("number", "note"))


def change(suite: Suite, base: int = 1, by: User | None = None, **changes: Any) -> Case:
    content = RETURNS.replace(**changes)
    return change_case(suite, "returns", content, base_revision=base, by=by)


def test_an_edit_is_a_revision_and_edits_gather_in_one_version(suite: Suite, ada: User) -> None:
    assert versions(suite) == [(1, "Created empty"), (2, "Two to begin with")]
    run = make_run(suite=suite)
    ran = make_result(run=run, case=suite.cases.get(key="returns"), verdict="pass")

    second = change(suite, by=ada, title="Send it back")
    third = change(suite, base=2, by=ada, title="Send it back", tags=("refunds", "tents"))
    add_case(suite, SIZES.replace(key="paint"), by=ada)

    assert (second.revision, third.revision, suite.version) == (2, 3, 3)
    assert versions(suite)[-1] == (3, "1 case added, 1 case changed")
    assert current(suite) == [("returns", 3), ("sizes", 1), ("paint", 1)]
    assert [case.key for case in suite_with_cases(suite).cases] == ["returns", "sizes", "paint"]
    ran.refresh_from_db()
    assert ran.case.title == "Returns"
    entries = AuditEntry.objects.filter(actor=ada, object_name="support").order_by("pk")
    assert [(one.before["case returns"], one.after["case returns"]) for one in entries[2:4]] == [
        (1, 2),
        (2, 3),
    ]


def test_what_says_nothing_new_makes_no_revision(suite: Suite, ada: User) -> None:
    entries = AuditEntry.objects.count()
    assert change(suite, by=ada).revision == 1
    # The answer to the first of two presses came too late for the second.
    assert change(suite, by=ada, title="New").revision == 2
    assert change(suite, by=ada, title="New").revision == 2
    assert add_case(suite, SIZES, by=ada).revision == 1
    put = put_cases(suite, [SIZES], by=ada)
    assert (put.added, put.changed, put.unchanged) == (0, 0, 1)
    assert AuditEntry.objects.count() == entries + 1
    assert suite.cases.count() == 3


def test_the_second_of_two_people_is_told_and_nothing_is_overwritten(
    suite: Suite, ada: User
) -> None:
    change(suite, by=ada, title="Hers")
    with pytest.raises(CaseChangedError) as refusal:
        change(suite, title="His")
    found = refusal.value
    assert found.base is not None
    assert found.theirs is not None
    assert (found.base.title, found.theirs.title, found.mine.title) == ("Returns", "Hers", "His")
    assert suite.cases.get(key="returns", is_current=True).title == "Hers"

    remove_cases(suite, ["returns"], by=ada)
    with pytest.raises(CaseChangedError) as refusal:
        change(suite, base=2, title="His")
    assert refusal.value.theirs is None


@pytest.mark.django_db(transaction=True)
def test_of_two_who_save_at_once_one_is_told(suite: Suite, ada: User) -> None:
    answers = at_once(*[lambda n=n: change(suite, by=ada, title=f"By {n}") for n in range(4)])
    assert sorted(isinstance(answer, Case) for answer in answers) == [False, False, False, True]
    assert current(suite) == [("returns", 2), ("sizes", 1)]


def test_a_key_changes_until_the_case_was_run(suite: Suite, ada: User) -> None:
    renamed = change(suite, by=ada, key="send-back")
    assert (renamed.key, renamed.revision, renamed.position) == ("send-back", 1, 0)
    assert change(suite, by=ada, key="send-back").pk == renamed.pk, "pressed twice"
    assert current(suite) == [("send-back", 1), ("sizes", 1)]
    with pytest.raises(CaseKeyTakenError, match="another key"):
        change_case(suite, "sizes", SIZES.replace(key="send-back"), base_revision=1, by=ada)
    with pytest.raises(CaseKeyTakenError):
        add_case(suite, SIZES.replace(key="send-back"), by=ada)
    make_result(run=make_run(suite=suite), case=renamed, verdict="pass")
    with pytest.raises(CaseKeyInUseError, match="has results"):
        change_case(suite, "send-back", RETURNS.replace(key="x"), base_revision=1, by=ada)
    restore_version(suite, 2, by=ada)
    assert current(suite) == [("returns", 1), ("sizes", 1)]


def test_a_removed_case_stays_with_its_runs_and_comes_back(suite: Suite, ada: User) -> None:
    case = suite.cases.get(key="returns")
    result = make_result(run=make_run(suite=suite), case=case, verdict="pass")
    assert remove_cases(suite, ["returns", "returns", "nobody"], by=ada) == 1
    assert remove_cases(suite, ["returns"], by=ada) == 0
    result.refresh_from_db()
    assert (result.case, current(suite)) == (case, [("sizes", 1)])
    back = restore_case(suite, "returns", revision=1, base_revision=None, by=ada)
    assert (back.revision, current(suite)) == (1, [("returns", 1), ("sizes", 1)])
    change(suite, by=ada, title="New")
    for _ in range(2):
        restore_case(suite, "returns", revision=1, base_revision=2, by=ada)
    assert suite.cases.get(key="returns", is_current=True).title == "Returns"
    with pytest.raises(CaseChangedError):
        restore_case(suite, "returns", revision=2, base_revision=2, by=ada)
    with pytest.raises(UnknownCaseError):
        restore_case(suite, "returns", revision=9, base_revision=1, by=ada)
    assert change(suite, by=ada, title="Newer").revision == 3, "no revision is numbered twice"


def test_tags_are_added_and_removed_where_they_differ(suite: Suite, ada: User) -> None:
    assert tag_cases(suite, ["sizes", "returns"], ["refunds", "new", "new"], by=ada) == 2
    assert suite.cases.get(key="returns", is_current=True).tags == ["refunds", "new"]
    assert tag_cases(suite, ["sizes", "returns"], ["new"], by=ada) == 0
    assert untag_cases(suite, ["sizes", "returns"], ["refunds"], by=ada) == 2
    assert current(suite) == [("returns", 3), ("sizes", 3)]


def test_a_case_has_at_most_a_hundred_tags(suite: Suite, ada: User) -> None:
    hundred = ["refunds", *(f"tag {number}" for number in range(99))]
    assert tag_cases(suite, ["returns"], hundred, by=ada) == 1
    with pytest.raises(TooManyTagsError, match="returns would have 101 tags; 100 is the limit"):
        tag_cases(suite, ["sizes", "returns"], ["one more"], by=ada)
    assert "one more" not in suite.cases.get(key="sizes", is_current=True).tags
    assert untag_cases(suite, ["returns"], hundred[:1], by=ada) == 1


@pytest.mark.each_database
def test_many_cases_are_changed_in_as_many_queries_as_a_few(ada: User) -> None:
    def queries(count: int) -> list[int]:
        cases = [SIZES.replace(key=f"C-{n}") for n in range(count)]
        keys = [case.key for case in cases]
        changed = [case.replace(title="New") for case in cases]
        whole = SuiteWithCases(slug=f"of-{count}", evaluators=EMPTY_ROOT, cases=tuple(cases))
        suite = import_suite(whole, imported_by=ada)
        turned = whole.replace(cases=tuple(reversed(cases)))
        needed = []
        for change in (
            lambda: tag_cases(suite, keys, ["new"], by=ada),
            lambda: put_cases(suite, changed, by=ada, note="With titles"),
            lambda: move_case(suite, keys[-1], 1, by=ada),
            lambda: import_suite(turned, imported_by=ada),
            lambda: import_suite(whole, imported_by=ada),
            lambda: restore_version(suite, 2, by=ada),
            lambda: remove_cases(suite, keys[1:], by=ada),
        ):
            with CaptureQueriesContext(connection) as captured:
                change()
            needed.append(len(captured))
            suite.refresh_from_db()
        assert current(suite) == [("C-0", 2)], "tagged, changed, replaced by the file, restored"
        return needed

    assert queries(3) == queries(1_200)


def test_a_case_moves_to_another_place(suite: Suite, ada: User) -> None:
    assert move_case(suite, "sizes", 1, by=ada) == 1
    assert move_case(suite, "sizes", 99, by=ada) == 2
    assert move_case(suite, "sizes", 1, by=ada) == 1
    assert current(suite) == [("sizes", 1), ("returns", 1)]
    assert [case.key for case in suite_with_cases(suite).cases] == ["sizes", "returns"]


def judged_by(model: str = "", weight: float = 1.0) -> EvaluatorSpec:
    config = {"model": model} if model else {}
    judge = EvaluatorSpec(name="tone", kind="llm_judge", config=config, weight=weight)
    return EvaluatorSpec(name="suite", kind=COMPOSITE, children=(judge,))


def asking(agent: str) -> EvaluatorSpec:
    judge = EvaluatorSpec(name="tone", kind="agent_judge", config={"agent": agent})
    return EvaluatorSpec(name="suite", kind=COMPOSITE, children=(judge,))


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"key": "  "}, "key", "no other case"),
        ({"key": "k" * 100_000}, "key", "200 is the limit"),
        ({"key": "a\0b"}, "key", "NUL"),
        ({"title": "t" * 301}, "title", "300 is the limit"),
        ({"criteria": "half \ud800"}, "criteria", "surrogate"),
        ({"metadata": {"deep": [{"a\0": 1}]}}, "metadata", "NUL"),
        ({"tags": ("",)}, "tags", "1 to 200"),
        ({"input": ()}, "input", "one message"),
        ({"input": ({"role": "king", "content": ""},)}, "input", "“king” is not a role"),
        ({"expected_outcomes": ("Good", " ")}, "expected_outcomes", "empty"),
        ({"evaluators": judged_by("gone")}, "evaluators", "no language model 'gone'"),
        ({"evaluators": asking("replay")}, "evaluators", "has recorded or pushed outputs"),
        ({"evaluators": judged_by(weight=-1.0)}, "evaluators", "weight"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_field_and_nothing_is_saved(
    suite: Suite, changes: dict[str, Any], field: str, said: str
) -> None:
    make_target(name="replay", kind="recorded")
    wrong = RETURNS.replace(**changes)
    with pytest.raises(InvalidCaseError) as refusal:
        put_cases(suite, [SIZES.replace(key="fine"), wrong], by=None)
    assert said in refusal.value.problems[wrong.key][field][0]
    assert len(str(refusal.value)) < 2_000
    assert current(suite) == [("returns", 1), ("sizes", 1)]


def test_a_key_that_stands_twice_is_refused(suite: Suite) -> None:
    with pytest.raises(InvalidCaseError, match="Two cases have this key"):
        put_cases(suite, [SIZES, SIZES], by=None)


def test_a_long_case_is_stored_as_it_is(suite: Suite) -> None:
    long = RETURNS.replace(
        key="<script>/?#%é",
        input=({"role": "user", "content": "é" * 100_000, "name": "kept"},),
        expected_outcomes=tuple(f"<b>{n}</b>" for n in range(1_000)),
        recorded_output={"output": "x"},
    )
    add_case(suite, long, by=None)
    assert suite.cases.get(key=long.key).spec == long


ACTIONS: list[Callable[[Suite], object]] = [
    lambda suite: add_case(suite, SIZES.replace(key="new"), by=None),
    lambda suite: change(suite, title="New"),
    lambda suite: put_cases(suite, [SIZES.replace(title="New")], by=None),
    lambda suite: remove_cases(suite, ["sizes"], by=None),
    lambda suite: tag_cases(suite, ["sizes"], ["new"], by=None),
    lambda suite: move_case(suite, "sizes", 1, by=None),
    lambda suite: restore_case(suite, "sizes", revision=1, base_revision=1, by=None),
]


def test_an_archived_suite_keeps_its_cases(suite: Suite, ada: User) -> None:
    archive_suite(suite, by=ada)
    for action in ACTIONS:
        with pytest.raises(DomainError, match="is archived"):
            action(suite)
    assert current(suite) == [("returns", 1), ("sizes", 1)]
