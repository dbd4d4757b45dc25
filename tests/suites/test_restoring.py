"""An old version brought back: everything it said, cases in the revisions they had."""

from __future__ import annotations

import pytest

from evaluators.models import AuditEntry, LanguageModel
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.suites import FileContent, Suite
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.suites.differences import compare_specs
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import Combine, SetPolicy, SetWeight
from runs.suites.files import UnknownVersionError, suite_with_cases
from runs.suites.services import CannotRestoreError, restore_version
from tests.files.test_imports import FILE, FILES
from tests.support.factories import change_suite, make_model, make_result, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def content() -> SuiteWithCases:
    make_model(slug="strict")
    return suite_files.read_suite(FILE.encode(), files=FILES)


def current(suite: Suite) -> list[tuple[str, int, int]]:
    rows = suite.cases.filter(is_current=True)
    return [(case.key, case.revision, case.position) for case in rows]


def test_a_version_comes_back_whole_and_results_keep_what_they_ran(content: SuiteWithCases) -> None:
    ada = make_user(name="ada")
    suite = import_suite(content, imported_by=ada)
    run = make_run(suite=suite)
    ran = make_result(run=run, case=suite.cases.get(key="B"), verdict="pass", score=0.9)
    _, second = content.cases
    new = CaseSpec(key="C", input=({"role": "user", "content": "new"},))
    other = content.replace(
        title="Other",
        cases=(new, second.replace(criteria="Short")),
        files={"tone.md": b"Is it rude?", "more.md": b"x"},
    )
    suite = import_suite(other, imported_by=None, judge="")
    assert current(suite) == [("C", 1, 0), ("B", 2, 1)]

    version = restore_version(suite, 1, by=ada, note="Ran better")
    assert (version.number, version.note, version.author) == (
        *(3, "Restored version 1: Ran better"),
        ada,
    )
    suite = Suite.objects.get(pk=suite.pk)
    assert (suite.version, suite.title) == (3, "The shop")
    assert suite.judge is not None
    assert current(suite) == [("A", 1, 0), ("B", 1, 1)]
    assert suite_with_cases(suite) == content
    assert suite.spec.evaluators == content.evaluators
    assert dict(suite.files.values_list("path", "content__size")) == {"tone.md": 11}
    ran.refresh_from_db()
    assert (ran.case.revision, ran.case.is_current) == (1, True)

    entry = AuditEntry.objects.get(action="restore")
    assert (entry.before["version"], entry.after["version"]) == (2, 3)
    assert (entry.before["title"], entry.after["title"]) == ("Other", "The shop")
    specs = [suite.versions.get(number=number).spec for number in (1, 3)]
    assert compare_specs(*specs).is_empty

    # The next edit of a case counts on from its latest revision, not from the restored one.
    again = import_suite(other, imported_by=None, judge="")
    assert current(again) == [("C", 2, 0), ("B", 3, 1)]


def test_what_is_gone_is_named_and_nothing_is_changed(content: SuiteWithCases) -> None:
    ada = make_user()
    suite = import_suite(content, imported_by=ada)
    draft = get_draft(suite, ada)
    save = change_draft(draft, draft.stamp, SetPolicy({"pass_threshold": 0.95}))
    save_draft(save, save.stamp)
    change_suite(suite, judge=None)
    LanguageModel.objects.all().delete()

    with pytest.raises(
        CannotRestoreError, match=r"'strict' \(the suite's judge\) no longer exists"
    ):
        restore_version(suite, 1, by=ada)
    make_model(slug="strict")
    suite.files.all().delete()
    FileContent.objects.all().delete()
    with pytest.raises(CannotRestoreError, match=r"files tone\.md are no longer stored"):
        restore_version(suite, 1, by=ada)
    with pytest.raises(UnknownVersionError, match="no version 9"):
        restore_version(suite, 9, by=ada)
    assert Suite.objects.get(pk=suite.pk).version == 2
    assert Suite.objects.get(pk=suite.pk).policy.pass_threshold == 0.95


def test_what_is_so_already_is_not_restored(content: SuiteWithCases) -> None:
    suite = import_suite(content, imported_by=None)
    with pytest.raises(CannotRestoreError, match="nothing to restore"):
        restore_version(suite, 1, by=None)


def test_a_draft_of_an_imported_suite_is_saved_beside_its_files(content: SuiteWithCases) -> None:
    ada = make_user()
    suite = import_suite(content, imported_by=ada)
    draft = get_draft(suite, ada)
    gate = draft.content["evaluators"]["children"][0]
    tone = gate["children"][1]
    draft = change_draft(
        draft,
        draft.stamp,
        SetWeight(tone["id"], 1),
        Combine(gate["id"], "safety_gate", {"gate_threshold": 0.8}),
    )
    version = save_draft(draft, draft.stamp)
    assert version.note == "2 evaluators changed"
    found = suite_with_cases(Suite.objects.get(pk=suite.pk))
    assert (found.files, found.metadata, found.cases) == (
        *(content.files, content.metadata),
        content.cases,
    )
    assert found.evaluators.children[0].aggregator.gate_threshold == 0.8
