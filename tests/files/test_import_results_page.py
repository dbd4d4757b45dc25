"""The page that imports results."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from evaluators.models import AuditEntry
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.running.retrying import ImportedRunError, retry_results
from tests.support.factories import make_case, make_suite

pytestmark = pytest.mark.django_db

URL = "/import/results/"


def upload(*lines, name="agent-1.5.jsonl"):
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return SimpleUploadedFile(name, content.encode())


def test_a_file_becomes_a_run_that_is_shown_at_once(editor_client: Client):
    suite = make_suite(slug="support")
    make_case(suite=suite, key="C-1")
    page = editor_client.get(f"{URL}?suite=support").text
    assert '<option value="support" selected>' in page
    asked = {"results": upload({"eval_id": "C-1", "score": 0.9}), "suite": "support"}
    response = editor_client.post(URL, asked, follow=True)
    assert response.redirect_chain == [("/suites/support/runs/1/", 302)]
    assert "1 result imported." in response.text
    assert "Imported from agent-1.5.jsonl" in response.text
    run = Run.objects.get()
    assert (run.target_name, run.created_by.username) == (
        "agent-1.5",
        AuditEntry.objects.get(object_type="run").actor_name,
    )


def test_several_targets_lead_to_the_suite(editor_client: Client):
    lines = [{"eval_id": "C-1", "score": 1, "target": name, "suite": "new"} for name in "ab"]
    response = editor_client.post(URL, {"results": upload(*lines)}, follow=True)
    assert response.redirect_chain == [("/suites/new/", 302)]
    assert "2 results imported in 2 runs." in response.text
    assert "the new suite has the default judge" in response.text


def test_every_problem_is_listed_and_nothing_is_stored(editor_client: Client):
    bad = upload({"eval_id": "C-1", "score": 7}, "{", {"score": 1})
    response = editor_client.post(URL, {"results": bad})
    assert response.status_code == 422
    assert "agent-1.5.jsonl was not read: 3 problems are listed at the top." in response.text
    assert "the score 7 is not a number from 0 to 1" in response.text
    assert not Suite.objects.exists()


def test_a_suite_without_the_case_says_so(editor_client: Client):
    make_suite(slug="support", cases=1)
    asked = {"results": upload({"eval_id": "X", "score": 1}), "suite": "support"}
    response = editor_client.post(URL, asked)
    assert response.status_code == 422
    assert "support has no case X; choose the suite these results are of" in response.text


def test_nothing_of_an_imported_run_is_offered_to_be_tried_again(editor_client: Client):
    lines = [
        {"eval_id": "C-1", "score": 0.1, "suite": "new"},
        {"eval_id": "C-2", "error": "gone", "output": "half"},
    ]
    editor_client.post(URL, {"results": upload(*lines)})
    run = Run.objects.get()
    with pytest.raises(ImportedRunError, match=r"Run #1 was imported from agent-1\.5\.jsonl"):
        retry_results(run, asked_by=None)
    retry = reverse("runs:run-retry", args=["new", 1])
    pages = [
        f"/suites/new/runs/1/{rest}" for rest in ("", "live/", "evaluators/", "C-1/1/", "C-2/1/")
    ]
    for page in pages:
        text = editor_client.get(page).text.replace(f"{retry}ask/", "")
        assert "/retry/" not in text, page
    response = editor_client.post(retry, {"which": "errored"})
    assert response.status_code == 422
    assert "was imported from agent-1.5.jsonl" in response.text


def test_a_new_suite_is_made_where_the_name_in_the_file_is_taken(editor_client: Client):
    make_suite(slug="support", cases=1)
    lines = {"eval_id": "X", "score": 1, "suite": "support"}
    asked = {"results": upload(lines), "slug": "fresh"}

    response = editor_client.post(URL, asked, follow=True)

    assert response.redirect_chain == [("/suites/fresh/runs/1/", 302)]
    both = editor_client.post(URL, {**asked, "results": upload(lines), "suite": "support"})
    assert "Choose a suite or name a new one, not both." in both.text
