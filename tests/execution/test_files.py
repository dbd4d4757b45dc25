"""Files a target left: stored with the result, kept when it is scored again, shown and handed out."""

from __future__ import annotations

import pytest
from django.urls import reverse

from runs.execution.run_worker import work_on_run
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.results import Artifact
from runs.models.suites import FileContent
from runs.running.retrying import retry_results
from runs.running.services import start_run
from tests.support.factories import make_case, make_suite, make_target

pytestmark = pytest.mark.django_db(transaction=True)

SUITE = b"""
name: reports
evaluators: [{name: refund, type: contains, value: refund}]
tests:
  - id: A
    input: Write it.
    output: {output: a refund, files: {report/page.html: <script>alert(1)</script>, same.md: x}}
  - id: B
    input: Write it.
    output: {output: "", files: {again.md: x, chart.png: {path: ./fixtures/chart.png}}}
"""
CHART = b"\x89PNG\x00"


def files_of(run, key):
    left = Artifact.objects.filter(result__run=run, result__case__key=key).select_related("content")
    return {artifact.path: bytes(artifact.content.content) for artifact in left}


@pytest.fixture
def run():
    content = suite_files.read_suite(SUITE, files={"fixtures/chart.png": CHART, "unused.md": b""})
    suite = import_suite(content, imported_by=None)
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)
    return run


def test_the_files_of_an_output_are_stored_once_with_each_result(run):
    assert files_of(run, "A") == {"report/page.html": b"<script>alert(1)</script>", "same.md": b"x"}
    assert files_of(run, "B") == {"again.md": b"x", "chart.png": CHART}
    assert FileContent.objects.filter(size=1).count() == 1


def test_files_are_kept_when_the_output_is_scored_again(run):
    before = {key: files_of(run, key) for key in ("A", "B")}
    everything = list(run.results.values_list("pk", flat=True))

    retry_results(run, asked_by=None, result_ids=everything, keep_output=True)
    work_on_run(run.pk)

    assert set(run.results.values_list("generation", "status")) == {(2, "scored")}
    assert {key: files_of(run, key) for key in ("A", "B")} == before


def test_the_page_lists_files_and_gives_them_only_as_downloads(run, viewer_client):
    place = {"slug": "reports", "number": run.number, "key": "A", "repetition": 1}
    page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    address = reverse("runs:result-file", kwargs=place | {"file": "report/page.html"})

    assert address in page
    assert "report/page.html" in page
    given = viewer_client.get(address)
    assert given.content == b"<script>alert(1)</script>"
    assert given["Content-Type"] == "application/octet-stream"
    assert given["Content-Disposition"].startswith('attachment; filename="reports-')
    assert given["X-Content-Type-Options"] == "nosniff"
    assert "Download report/page.html" in page
    gone = reverse("runs:result-file", kwargs=place | {"file": "report/gone.html"})
    assert viewer_client.get(gone).status_code == 404


def test_the_page_of_a_case_shows_tools_and_files_of_its_recorded_output(viewer_client):
    turns = [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [{"tool": "find_order"}]},
        {"role": "assistant", "content": "On Monday."},
    ]
    recorded = {"output": "On Monday.", "messages": turns, "files": {"chart.png": {"base64": ""}}}
    case = make_case(suite=make_suite(slug="recorded"), key="A", recorded_output=recorded)

    page = viewer_client.get(reverse("runs:case", args=["recorded", case.key])).content.decode()

    assert "Let me look." in page
    assert "find_order" in page
    assert "chart.png" in page
