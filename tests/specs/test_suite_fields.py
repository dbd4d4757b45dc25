"""Every field of SuiteSpec goes by itself through file, version, draft and API."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.suites import Suite
from runs.specs.suites import LISTS, TEXTS, CaseSpec, SuiteSpec, SuiteWithCases
from runs.suites.differences import compare_specs
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import Describe, begin_draft
from runs.suites.files import suite_with_cases
from tests.evaluators.scoring.trees import leaf, root
from tests.support.factories import make_model, make_user

MINUTES = "max_minutes"
FIELDS = (*TEXTS, *LISTS, MINUTES)


def value(name: str) -> Any:
    if name == MINUTES:
        return 90
    return f"own-{name}" if name in TEXTS else [f"own-{name}", "other"]


@pytest.fixture
def content() -> SuiteWithCases:
    """Return a suite whose every text, list and number has a value of its own."""
    make_model(slug="own-judge")
    case = CaseSpec(key="A", input=({"role": "user", "content": "Hello?"},))
    values = {name: value(name) for name in FIELDS}
    tree = root(leaf("tone", config={"prompt": "Is it kind?"}))
    return SuiteWithCases(slug="own", evaluators=tree, cases=(case,), **values)


def test_texts_lists_minutes_policy_and_evaluators_are_all_there_is() -> None:
    assert {*FIELDS, "policy", "evaluators"} == SuiteSpec.model_fields.keys()


@pytest.mark.django_db
@pytest.mark.parametrize("name", SuiteSpec.model_fields)
class TestEveryField:
    def test_it_is_in_the_file(self, content: SuiteWithCases, name: str) -> None:
        again = suite_files.read_suite(suite_files.write_suite(content))
        if name in FIELDS:
            assert again.as_json()[name] == value(name)

    def test_it_is_stored_with_suite_and_version(self, content: SuiteWithCases, name: str) -> None:
        suite = import_suite(content, imported_by=None)
        stored = (suite.spec, suite.versions.get().spec, suite_with_cases(suite))
        assert [getattr(spec, name) for spec in stored] == [getattr(content, name)] * 3

    def test_it_is_edited_in_a_draft_and_told_as_a_difference(
        self, content: SuiteWithCases, name: str
    ) -> None:
        suite, ada = import_suite(content, imported_by=None), make_user()
        assert name in begin_draft(suite.spec)
        if name not in FIELDS or name == "judge":
            return
        other = {MINUTES: 120}.get(name, "Other" if name in TEXTS else ["Other"])
        draft = get_draft(suite, ada)
        before = suite.spec
        draft = change_draft(draft, draft.stamp, Describe(**{name: other}))
        save_draft(draft, draft.stamp)
        after = Suite.objects.get().spec
        assert after.as_json()[name] == other
        assert [change.name for change in compare_specs(before, after).texts] == [name]

    def test_the_api_shows_it(
        self, content: SuiteWithCases, viewer_client: Client, name: str
    ) -> None:
        import_suite(content, imported_by=None)
        for address in ("/api/suites/own", "/api/suites/own/versions/1"):
            shown = viewer_client.get(address).json()
            assert name in shown
            if name in FIELDS:
                assert shown[name] == value(name)


@pytest.mark.django_db
@pytest.mark.parametrize("name", FIELDS)
def test_a_suite_that_was_stored_without_a_field_has_its_default(
    content: SuiteWithCases, editor_client: Client, name: str
) -> None:
    # As after an upgrade that brings the field.
    suite = import_suite(content, imported_by=None)
    for row in (suite, suite.versions.get()):
        del row.content[name]
        row.save()
    shown = {"tags": [], "judge": None, MINUTES: None}.get(name, "")
    for address in ("/api/suites/own", "/api/suites/own/versions/1"):
        assert editor_client.get(address).json()[name] == shown
    for page in ("", "versions/1/", "settings/"):
        assert editor_client.get(f"/suites/own/{page}").status_code == 200
