"""From a result to its case and back: add an outcome in place, edit the case."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from runs.cases.services import remove_case
from runs.models.results import Result
from runs.models.suites import Case
from tests.cases.test_pages import sent
from tests.support.factories import make_case, make_result, make_run, make_suite

pytestmark = pytest.mark.django_db
LIST = "?from=run&verdict=fail"


@pytest.fixture
def result() -> Result:
    suite = make_suite()
    case = make_case(suite=suite, key="C-1", expected_outcomes=["Greets the customer"])
    return make_result(run=make_run(suite=suite), case=case, verdict="fail")


def at(result: Result, name: str) -> str:
    run = result.run
    return reverse(f"runs:{name}", args=(run.suite.slug, run.number, result.case.key, 1))


def outcomes(result: Result) -> list[str]:
    return Case.objects.get(suite=result.run.suite, key="C-1", is_current=True).expected_outcomes


def test_an_outcome_is_added_to_the_current_case_and_the_list_is_kept(
    editor_client: Client, result: Result
) -> None:
    assert (
        f'action="{at(result, "result-outcome")}"' in editor_client.get(at(result, "result")).text
    )
    text = "Names the date\r\nof the refund "
    response = editor_client.post(at(result, "result-outcome") + LIST, {"outcome": text})
    assert response["Location"] == at(result, "result") + LIST
    assert outcomes(result) == ["Greets the customer", "Names the date\nof the refund"]
    page = editor_client.get(response["Location"]).text
    assert "Outcome added to C-1, revision 2. Later runs check it." in page
    result.refresh_from_db()
    assert result.case.revision == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "Enter the outcome that you expect."),
        ("Greets the customer", "C-1 already has this outcome."),
    ],
)
def test_an_outcome_that_adds_nothing_changes_nothing(
    editor_client: Client, result: Result, text: str, message: str
) -> None:
    response = editor_client.post(at(result, "result-outcome"), {"outcome": text}, follow=True)
    assert message in response.text
    assert outcomes(result) == ["Greets the customer"]
    assert Case.objects.count() == 1


def test_a_removed_case_takes_no_outcome(editor_client: Client, result: Result) -> None:
    remove_case(result.run.suite, "C-1", base_revision=1, by=None)
    response = editor_client.post(at(result, "result-outcome"), {"outcome": "New"}, follow=True)
    assert "no longer has a case C-1. Restore it first." in response.text


def test_readers_are_offered_neither(viewer_client: Client, result: Result) -> None:
    page = viewer_client.get(at(result, "result")).text
    assert "Add outcome" not in page
    assert "Edit case" not in page


def test_an_edited_case_leads_back_to_the_result(editor_client: Client, result: Result) -> None:
    edit = reverse("runs:case-edit", args=(result.run.suite.slug, "C-1")) + f"?result={result.pk}"
    assert edit in editor_client.get(at(result, "result")).text
    form = editor_client.get(edit).context["form"]
    response = editor_client.post(edit, sent(form, title="Better"))
    assert response["Location"] == at(result, "result")


@pytest.mark.parametrize("text", ["x", "0", "99999999", ""])
def test_an_unknown_result_leads_to_the_case(
    editor_client: Client, result: Result, text: str
) -> None:
    edit = reverse("runs:case-edit", args=(result.run.suite.slug, "C-1")) + f"?result={text}"
    assert editor_client.get(edit).status_code == 200
