"""Filters on the page of a run: its rows, what stands for them, and what a retry or a new run takes over."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    refresh_cases,
)
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """Make a run of three cases."""
    return make_scored_run(verdicts=["pass", "fail", "error"])


def page(client: Client, run: Run, text: str, path: str = "runs:run-results") -> str:
    """Return a page of a run with a filter."""
    address = reverse(path, args=(run.suite.slug, run.number))
    answer = client.get(address, {"q": text})
    assert answer.status_code == 200
    return answer.text


def test_a_filter_lists_the_cases_that_match_and_its_conditions(
    viewer_client: Client, run: Run
) -> None:
    listed = page(viewer_client, run, "score < 0.5 case = C-002")
    assert "C-002" in listed
    assert "C-001" not in listed
    assert "1 of 3 cases" in listed
    assert "?q=score+%3C+0.5" in listed
    assert "?q=case+%3D+C-002" in listed


@pytest.mark.parametrize("path", ["runs:run", "runs:run-results"])
def test_a_filter_that_cannot_be_read_lists_nothing_and_says_why(
    viewer_client: Client, run: Run, path: str
) -> None:
    shown = page(viewer_client, run, "<scoer> < 0.5", path)
    assert 'id="filter-problem"' in shown
    shown = page(viewer_client, run, "scoer < 0.5", path)
    assert "Did you mean score?" in shown
    assert "<mark>scoer</mark>" in shown
    assert 'id="case-' not in shown


def test_rerun_takes_what_the_filter_lists(editor_client: Client, run: Run) -> None:
    ask = reverse("runs:run-retry-ask", args=(run.suite.slug, run.number))
    asked = editor_client.post(ask, {"everything": "1", "q": "score < 0.5"})
    assert asked.status_code == 200
    refused = editor_client.post(ask, {"everything": "1", "q": "scoer < 0.5"})
    assert refused.status_code == 422
    assert "Did you mean score?" in refused.text


def test_a_new_run_takes_the_cases_that_the_filter_lists(editor_client: Client, run: Run) -> None:
    form = reverse("runs:run-new", args=(run.suite.slug,))
    filled = editor_client.get(form, {"again": run.number, "filtered": 1, "q": "score < 0.5"})
    assert filled.context["form"].initial["case"] == ["C-002"]
    filled = editor_client.get(form, {"again": run.number, "filtered": 1, "q": "scoer < 0.5"})
    assert filled.context["form"].initial["case"] == []


def test_suggestions_are_those_at_the_caret(viewer_client: Client, run: Run) -> None:
    address = reverse("runs:filter-suggestions", args=(run.suite.slug, run.number))
    answer = viewer_client.get(address, {"q": "verd and x", "caret": 4}).json()
    assert answer == {
        "suggestions": [
            {"text": "verdict", "help": "verdict of the case, or why it has none", "start": 0}
        ]
    }
    assert viewer_client.get(address, {"q": "x" * 5000, "caret": "-1"}).status_code == 200


def test_the_language_is_explained_with_every_field(viewer_client: Client) -> None:
    shown = viewer_client.get(reverse("runs:filter-help")).text
    for name in ("verdict", "latency", "meta.…", "reasoning"):
        assert f"<code>{name}</code>" in shown


def compare(client: Client, before: Run, after: Run, text: str, path: str = "runs:compare") -> str:
    """Return the page of a comparison, or a file of it, with a filter."""
    sides = {"baseline": f"support:{before.number}", "candidate": f"support:{after.number}"}
    answer = client.get(reverse(path), {**sides, "show": "all", "q": text}, follow=True)
    assert answer.status_code == 200
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return body.decode()


@pytest.fixture
def two_runs() -> tuple[Run, Run]:
    """Make two runs: one case gets worse, one better, one stays, and one each is only in one of them."""
    suite = make_suite(slug="support")
    before = make_scored_run(suite=suite, verdicts=["pass", "fail", "pass", "pass"])
    after = make_scored_run(suite=suite, verdicts=["fail", "pass", "pass"])
    return before, after


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("score fell", {"C-001"}),
        ("verdict rose", {"C-002"}),
        ("score < 0.5", {"C-001"}),
        ("case = C-004", {"C-004"}),
        ("C-00", {"C-001", "C-002", "C-003", "C-004"}),
    ],
)
def test_a_comparison_and_its_table_list_the_cases_that_match(
    viewer_client: Client, two_runs: tuple[Run, Run], text: str, listed: set[str]
) -> None:
    shown = compare(viewer_client, *two_runs, text)
    rows = shown[shown.index('<div id="changes"') :]
    table = compare(viewer_client, *two_runs, text, "runs:comparison-table")
    for key in ("C-001", "C-002", "C-003", "C-004"):
        assert (f"<code>{key}</code>" in rows) == (key in listed), key
        assert (f"\n{key}," in table) == (key in listed), key


def test_a_comparison_may_ask_about_evaluators_that_only_one_of_its_runs_has(
    viewer_client: Client, two_runs: tuple[Run, Run]
) -> None:
    before, after = two_runs
    for run, name in ((before, "old_check"), (after, "new_check")):
        run.snapshot["evaluators"] = tree({**CHECK, "name": name})
        run.save()
    shown = compare(viewer_client, before, after, "old_check = none or new_check < 0.5")
    assert "filter-problem" not in shown
    assert "<code>C-004</code>" in shown
    address = reverse("runs:filter-suggestions", args=("support", after.number))
    offered = viewer_client.get(
        address, {"q": "old", "baseline": f"support:{before.number}"}
    ).json()
    assert [one["text"] for one in offered["suggestions"]] == ["old_check"]


def test_a_comparison_says_why_a_filter_cannot_be_read_also_for_its_table(
    viewer_client: Client, two_runs: tuple[Run, Run]
) -> None:
    for path in ("runs:compare", "runs:comparison-table"):
        shown = compare(viewer_client, *two_runs, "scoer fell", path)
        assert "Did you mean score?" in shown
        assert "<mark>scoer</mark>" in shown


def test_a_row_shows_where_its_texts_have_the_words(viewer_client: Client) -> None:
    run = make_run()
    case = make_case(suite=run.suite, title="Refunds", input=[{"role": "user", "content": "Hello"}])
    text = "We are sorry. Your <Refund> is on its way."
    result = make_result(run=run, case=case, verdict="pass", score=0.9, output={"text": text})
    make_score(result=result, path="tone", score=0.9, reasoning="Polite refund")
    refresh_cases(run)

    def shown(text: str) -> str:
        found = re.search(r'<small class="hit">(.*?)</small>', page(viewer_client, run, text))
        return " ".join(found[1].split()) if found else ""

    whole = "We are sorry. Your &lt;<mark>Refund</mark>&gt; is on its way."
    assert shown("refund") == shown("output = refund") == f"Output: {whole}"
    assert shown("reasoning = refund") == "Reasoning: Polite <mark>refund</mark>"
    assert shown("hell") == "Input: <mark>Hello</mark>"
    assert shown("score > 0.5 -nothing") == shown("output != nothing") == ""


def test_a_row_of_a_comparison_shows_where_the_words_are_now_or_were_before(
    viewer_client: Client,
) -> None:
    suite = make_suite(slug="support")
    cases = [make_case(suite=suite, key=key, title="") for key in ("A", "B")]
    runs = []
    for texts in (("A refund before", "Refunds before"), ("A refund now", "Nothing")):
        run = make_run(suite=suite)
        for case, text in zip(cases, texts, strict=True):
            make_result(run=run, case=case, verdict="pass", score=0.9, output={"text": text})
        refresh_cases(run)
        runs.append(run)
    shown = compare(viewer_client, *runs, "refund or case = B")
    hits = [
        " ".join(hit.split())
        for hit in re.findall(r'<small class="hit">(.*?)</small>', shown, re.DOTALL)
    ]
    assert hits == [
        "Output: A <mark>refund</mark> now",
        "Output: <mark>Refunds</mark> before",
    ]
