"""The filter of a suite's cases: what it finds, what it refuses, and what it suggests."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.suites import Suite
from tests.support.factories import make_case, make_result, make_run, make_suite, refresh_cases

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


@pytest.fixture
def suite() -> Suite:
    """Make a suite of three cases, of which the first passed, the second failed and the third has not run."""
    suite = make_suite(slug="support")
    say = {"role": "user", "content": "Where is my <Parcel>?"}
    first = make_case(suite=suite, key="A-1", title="Late parcel", tags=["billing"], input=[say])
    second = make_case(
        suite=suite,
        key="A-2",
        title="Refund",
        metadata={"channel": "chat"},
        input=[{"role": "user", "content": "Hello"}],
        tags=[],
        expected_output="Sorry for the delay",
    )
    run = make_run(suite=suite)
    make_result(run=run, case=first, verdict="pass", score=0.9)
    make_result(run=run, case=second, verdict="fail", score=0.1)
    refresh_cases(run)
    make_case(
        suite=suite,
        key="A-3",
        tags=[],
        title="New",
        input=[{"role": "user", "content": "Hi"}],
        expected_outcomes=["Offers a refund"],
    )
    make_case(suite=suite, key="A-4", title="Late parcel", is_current=False)
    return suite


def rows(client: Client, text: str) -> list[str]:
    """Return the keys of the rows."""
    answer = client.get(reverse("runs:case-rows", args=["support"]), {"q": text})
    return [row.key for row in answer.context["table"].rows]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("parcel", ["A-1"]),
        ("A-2", ["A-2"]),
        ("case = A-2, A-3", ["A-2", "A-3"]),
        ("title = refund", ["A-2"]),
        ("input = parcel", ["A-1"]),
        ("expected = delay", ["A-2"]),
        ("expected = refund", ["A-3"]),
        ("refund", ["A-2"]),
        ("tag = billing", ["A-1"]),
        ("tag = none", ["A-2", "A-3"]),
        ("meta.channel = chat", ["A-2"]),
        ("meta.channel != chat", ["A-1", "A-3"]),
        ("verdict = fail", ["A-2"]),
        ("verdict = none", ["A-3"]),
        ("-verdict = pass -refund", ["A-3"]),
    ],
)
def test_which_cases_match(
    viewer_client: Client, suite: Suite, text: str, found: list[str]
) -> None:
    assert rows(viewer_client, text) == found


def test_rows_mark_the_words_and_conditions_can_be_removed(
    viewer_client: Client, suite: Suite
) -> None:
    page = viewer_client.get(
        reverse("runs:suite-cases", args=["support"]), {"q": "parc tag = billing"}
    )
    assert "Where is my &lt;<mark>Parcel</mark>&gt;?" in page.text
    assert 'href="/suites/support/cases/?q=tag+%3D+billing"' in page.text
    expected = viewer_client.get(page.request["PATH_INFO"], {"q": "expected = refund"})
    assert "Expected:" in expected.text


@pytest.mark.parametrize("text", ["score < 0.5", "tone < 0.5", "output = refund"])
def test_what_only_results_have_is_refused_with_what_can_be_asked(
    editor_client: Client, suite: Suite, text: str
) -> None:
    shown = editor_client.get(reverse("runs:suite-cases", args=["support"]), {"q": text}).text
    name = text.split()[0]
    assert f"“{name}” cannot be used here." in shown
    assert "verdict, tag, case, title, input, expected or meta.…" in shown
    assert f"<mark>{name}</mark>" in shown
    bulk = {"everything": "1", "q": text, "action": "delete"}
    answer = editor_client.post(reverse("runs:case-bulk", args=["support"]), bulk, follow=True)
    assert "No case matches the filter" in answer.text, "such a filter lists nothing to delete"


def test_suggestions_are_the_fields_of_cases(viewer_client: Client, suite: Suite) -> None:
    address = reverse("runs:case-suggestions", args=["support"])

    def offered(text: str) -> list[str]:
        answer = viewer_client.get(address, {"q": text}).json()
        return [one["text"] for one in answer["suggestions"]]

    assert offered("") == ["verdict", "tag", "case", "title", "input", "expected"]
    assert offered("tag = b") == ["billing"]
    assert offered("verdict = no") == ["none"]
