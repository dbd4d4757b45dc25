"""The pages of drafted cases: the form with its price, the waiting, the preview, and what is stored."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.models import LanguageModel
from runs.models.jobs import ModelJob
from runs.models.suites import Suite
from tests.support.factories import (
    make_case,
    make_model,
    make_run,
    make_scored_run,
    make_suite,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
ROW: dict[str, Any] = {
    "title": "Gift", "input": "Can I return a gift?", "expected_output": "Yes.", "metadata": {},
    "expected_outcomes": ["Is kind", "Says yes"], "tags": ["returns"], "part": 0,
}  # fmt: skip
EVIL = "<script>alert(1)</script>"
STOP_POLLING = 286


@pytest.fixture
def suite(db: None) -> Suite:
    suite = make_suite(slug="refunds", title="Refunds")
    make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is my refund?"}])
    return suite


@pytest.fixture
def model(db: None) -> LanguageModel:
    price = {"input_price_usd_per_mtok": Decimal(10), "output_price_usd_per_mtok": Decimal(50)}
    return make_model(slug="mock", name="Mock", **price)


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(make_user(role="editor", name="ada"))
    return client


def form_url(suite: Suite, query: str = "") -> str:
    return f"{reverse('runs:case-drafting', args=[suite.slug])}{query}"


def url(job: ModelJob, name: str = "") -> str:
    return reverse(f"runs:case-proposal{name}", args=[job.pk])


def sent(**fields: Any) -> dict[str, Any]:
    return {"source": "description", "description": "A shop", "model": "mock", "count": 20,
            "form_key": "f", **fields}  # fmt: skip


def make_job(suite: Suite, *rows: dict[str, Any], **columns: Any) -> ModelJob:
    asked = {
        "from": "a description",
        "count": 2,
        "parts": [{"label": "", "text": ""}],
        "batches": [[0, 2]],
    }
    outcome = {"rows": list(rows), "batches": [], "problem": ""} if rows else None
    return ModelJob.objects.create(
        suite=suite, purpose="drafting", model_name="Mock", planned_calls=1, subject=str(timezone.now()),
        asked_by=User.objects.get(username="ada"),
        **{"request": asked, "state": "done" if rows else "waiting", "outcome": outcome, **columns},
    )  # fmt: skip


class TestForm:
    def test_it_says_the_price_before_anything_is_asked(
        self, editor: Client, suite: Suite, model: LanguageModel
    ) -> None:
        html = editor.get(form_url(suite)).content.decode()
        assert 'value="description"' in html
        estimate = editor.post(form_url(suite, "?estimate=1"), sent()).content.decode()
        assert "$0.25" in estimate
        assert "$0.5" in estimate
        assert not ModelJob.objects.exists()
        assert "cost unknown" not in estimate
        LanguageModel.objects.update(input_price_usd_per_mtok=None)
        estimate = editor.post(form_url(suite, "?estimate=1"), sent()).content.decode()
        assert "cost unknown: the model has no price" in estimate

    def test_sent_it_starts_one_drafting_capped_at_twice_the_price(
        self, editor: Client, suite: Suite, model: LanguageModel
    ) -> None:
        first = editor.post(form_url(suite), sent())
        job = ModelJob.objects.get()
        assert first.url == editor.post(form_url(suite), sent()).url == url(job)
        assert Decimal("0.5") < job.budget_usd < Decimal("0.53")
        assert "Drafted by you" in editor.get(form_url(suite)).content.decode()

    def test_documents_are_read_and_others_refused_by_name(
        self, editor: Client, suite: Suite, model: LanguageModel
    ) -> None:
        good = SimpleUploadedFile("handbook.md", b"Parcels take three days.")
        bad = SimpleUploadedFile("scan.pdf", b"%PDF-1.7")
        fields = sent(source="documents", documents=[good, bad], description="")
        refused = editor.post(form_url(suite), fields)
        assert refused.status_code == 422
        assert "scan.pdf: this is a PDF, which cannot be read" in refused.content.decode()
        good.seek(0)
        editor.post(form_url(suite), sent(source="documents", documents=[good]))
        assert ModelJob.objects.get().request["from"] == "handbook.md"

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"description": " "}, "Describe the agent and what to test"),
            ({"count": 101}, "less than or equal to 100"),
            ({"model": "gone"}, "Select a valid choice"),
            ({"source": "results"}, "Choose a run"),
        ],
    )
    def test_what_cannot_be_asked_is_refused(
        self,
        editor: Client,
        suite: Suite,
        model: LanguageModel,
        fields: dict[str, Any],
        reason: str,
    ) -> None:
        refused = editor.post(form_url(suite), sent(**fields))
        assert refused.status_code == 422
        assert reason in refused.content.decode()
        estimate = editor.post(form_url(suite, "?estimate=1"), sent(**fields)).content.decode()
        assert "This cannot be started." in estimate

    @pytest.mark.parametrize("run", ["9" * 5_000, "9" * 12, "-1", "٣", ""])
    def test_an_address_may_name_any_run(self, editor: Client, suite: Suite, run: str) -> None:
        assert editor.get(form_url(suite, f"?run={run}")).status_code == 200

    def test_without_a_model_it_says_who_can_add_one(
        self, editor: Client, admin_client: Client, suite: Suite
    ) -> None:
        html = editor.get(form_url(suite)).content.decode()
        assert "There is no language model yet." in html
        assert "Add a model" not in html
        assert "Add a model" in admin_client.get(form_url(suite)).content.decode()

    def test_an_archived_suite_says_so(
        self, editor: Client, suite: Suite, model: LanguageModel
    ) -> None:
        Suite.objects.update(archived_at=timezone.now())
        assert "The suite is archived." in editor.get(form_url(suite)).content.decode()
        assert "Restore it first" in editor.post(form_url(suite), sent()).content.decode()

    def test_ticked_results_lead_to_it(
        self, editor: Client, suite: Suite, model: LanguageModel
    ) -> None:
        run = make_scored_run(verdicts=("fail", "pass"), suite=suite)
        place = reverse("runs:run-draft-cases", args=["refunds", run.number])
        case = run.results.first().case_id
        ticked = editor.post(place, {"case": [case]})
        assert ticked.url == form_url(suite, f"?source=results&run={run.number}&case={case}")
        assert "The results of 1 ticked case are read." in editor.get(ticked.url).content.decode()
        everything = editor.post(place, {"everything": "on", "verdict": "fail"})
        assert "list=verdict%3Dfail" in everything.url
        assert "filter of the list" in editor.get(everything.url).content.decode()
        nothing = editor.post(place)
        assert nothing.url == reverse("runs:run", args=["refunds", run.number])

    def test_ways_lead_to_it(self, editor: Client, suite: Suite) -> None:
        run = make_run(suite=suite, done_count=1)
        for place in (
            reverse("runs:suite-cases", args=["refunds"]),
            reverse("runs:run", args=["refunds", run.number]),
        ):
            assert form_url(suite) in editor.get(place).content.decode()
        empty = make_suite(slug="empty")
        html = editor.get(reverse("runs:suite-cases", args=["empty"])).content.decode()
        assert form_url(empty) in html


class TestWaiting:
    def test_it_shows_how_far_it_is_and_ends(self, editor: Client, suite: Suite) -> None:
        job = make_job(suite)
        html = editor.get(url(job)).content.decode()
        assert "Waiting for a worker" in html
        assert "0 of 1 call answered by Mock" in html
        assert "No worker is running." in html
        assert f'hx-get="{url(job, "-state")}"' in html
        assert editor.get(url(job, "-state")).status_code == 200
        editor.post(url(job, "-stop"))
        state = editor.get(url(job, "-state"))
        assert (state.status_code, state["HX-Refresh"]) == (STOP_POLLING, "true")
        html = editor.get(url(job)).content.decode()
        assert "No case was drafted." in html
        assert "Stopped by " in html

    def test_an_end_by_the_budget_says_what_there_is(self, editor: Client, suite: Suite) -> None:
        job = make_job(
            suite, ROW, state="budget_reached", reason="The budget of $1 leaves no room."
        )
        html = editor.get(url(job)).content.decode()
        assert "Budget reached" in html
        assert "Ended early, with 1 case of" in html
        assert "can-i" not in html

    def test_nobody_else_sees_it(self, editor: Client, suite: Suite, admin_client: Client) -> None:
        job = make_job(suite, ROW)
        for name in ("", "-state"):
            assert admin_client.get(url(job, name)).status_code == 404
        for name in ("-store", "-stop", "-discard"):
            assert admin_client.post(url(job, name)).status_code == 404


class TestPreview:
    def test_duplicates_problems_and_hostile_texts_are_shown(
        self, editor: Client, suite: Suite
    ) -> None:
        rows = [
            ROW,
            ROW | {"title": EVIL, "input": f"{EVIL} now", "left_out": ["evaluators"]},
            ROW | {"input": "Where is my refund"},
            ROW | {"input": "where is my refund now"},
            {"unread": "the model gave no case here", "text": EVIL, "part": 0},
            ROW | {"input": ""},
        ]
        html = editor.get(url(make_job(suite, *rows))).content.decode()
        assert EVIL not in html
        assert "&lt;script&gt;" in html
        assert "The same as" in html
        assert "Nearly the same as" in html
        assert reverse("runs:case", args=["refunds", "C-1"]) in html
        assert "The model gave no case here." in html
        assert "Input is empty; write what the case asks." in html
        assert "<code>evaluators</code>" in html

    def test_edits_are_kept_and_the_ticked_cases_stored_once(
        self, editor: Client, suite: Suite
    ) -> None:
        job = make_job(suite, ROW, ROW | {"input": "Another question", "title": "Another"})
        fields = {"shown": [0, 1], "take": [1], "field": ["expected_outcomes", "tags"],
                  "key-1": "mine", "input-1": "A better question", "tags-1": "a, b",
                  "expected_outcomes-1": "One\r\n\r\nTwo"}  # fmt: skip
        assert editor.post(url(job), fields).url == url(job)
        html = editor.get(url(job)).content.decode()
        assert "A better question" in html
        seen = suite.version_stamp
        stored = editor.post(url(job, "-store"), {**fields, "seen": seen})
        assert stored.url == url(job)
        assert "1 case added: Refunds is at version 2" in editor.get(url(job)).content.decode()
        editor.post(url(job, "-store"), {**fields, "take": [0, 1], "seen": seen})
        case = suite.cases.get(key="mine")
        assert (case.input[0]["content"], case.tags, case.expected_outcomes, case.expected_output) == (
            "A better question", ["a", "b"], ["One", "Two"], "",
        )  # fmt: skip
        assert suite.cases.count() == 2
        page = editor.get(reverse("runs:case", args=["refunds", "mine"])).content.decode()
        assert "Drafted by Mock from a description on" in page

    def test_a_refusal_stores_nothing_and_keeps_what_was_typed(
        self, editor: Client, suite: Suite
    ) -> None:
        job = make_job(suite, ROW)
        fields = {"shown": [0], "take": [0], "key-0": "C-1", "title-0": "Typed"}
        refused = editor.post(url(job, "-store"), fields)
        assert refused.status_code == 422
        html = refused.content.decode()
        assert "Nothing was stored." in html
        assert "Typed" in html
        changed = editor.post(url(job, "-store"), {**fields, "key-0": "C-2", "seen": "old"})
        assert "was changed meanwhile" in changed.content.decode()
        nothing = editor.post(url(job, "-store"), {"shown": [0]})
        assert "Tick at least one case." in nothing.content.decode()
        assert suite.cases.count() == 1

    def test_drafts_can_be_deleted(self, editor: Client, suite: Suite) -> None:
        job = make_job(suite, ROW)
        assert editor.post(url(job, "-discard")).url == form_url(suite)
        assert "These drafts were deleted" in editor.get(url(job)).content.decode()

    def test_the_page_asks_the_database_as_often_for_many_rows(
        self, editor: Client, suite: Suite, django_assert_max_num_queries: Any
    ) -> None:
        rows = [ROW | {"input": f"Question {n}", "title": f"Title {n}"} for n in range(100)]
        job = make_job(suite, *rows)
        editor.get(url(job))
        with django_assert_max_num_queries(20):
            editor.get(url(job))
