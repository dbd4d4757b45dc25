"""Deleting runs, campaigns and suites: what goes, what keeps them, and workers that die meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client, TestCase
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from runs import finishing, requests
from runs.execution import reaper
from runs.execution.claims import register_run_worker
from runs.execution.reaper import reap
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.database import database_now
from runs.models.jobs import ModelJob
from runs.models.removals import MAX_TRIES, Removal, RemovalPart
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import LEASE, Campaign, Run, RunQuerySet
from runs.models.saved_views import SavedView
from runs.models.sharing import ShareLink
from runs.models.suites import Case, FileContent, RecordedOutput, Suite, SuiteFile
from runs.models.temporary import EvaluatorTrial
from runs.retention import services
from runs.retention.queries import Selection, select_runs
from runs.retention.services import DataHeldError, begin_removal, remove_data
from runs.reviews.services import ask_for_review
from runs.running.services import start_run
from tests.support.factories import (
    make_call,
    make_campaign,
    make_case,
    make_model,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    make_target,
)
from tests.support.members import make_client, make_member
from tests.support.threads import in_thread

pytestmark = pytest.mark.django_db


def begin(*runs: Run, by: User | None = None, **choices: Any) -> Removal:
    suite = runs[0].suite
    selection = Selection(choices.pop("part", RemovalPart.RUN), suite, runs, **choices)
    return begin_removal(selection, by=by, in_background=False)


def begin_suite(suite: Suite) -> Removal:
    selection = Selection(RemovalPart.RUN, suite, select_runs(suite), is_whole_suite=True)
    return begin_removal(selection, by=None, in_background=False)


def full_run(**columns: Any) -> Run:
    """Return a run with a result that has everything a result can have."""
    run = make_scored_run(verdicts=["pass"] * 3, **columns)
    result = run.results.first()
    make_score(result=result, path="tone", score=0.9)
    make_call(result=result)
    Review.objects.create(result=result, verdict="pass")
    return run


def counts() -> dict[str, int]:
    """Return the number of rows of every table that belongs to results."""
    related = [relation.related_model for relation in Result._meta.related_objects]
    return {model.__name__: model._base_manager.count() for model in (Result, *related)}


def test_a_deleted_run_is_gone_at_once_and_its_rows_when_a_worker_is_done(
    editor_client: Client,
) -> None:
    kept = make_scored_run(verdicts=["pass"])
    before = counts()
    run = full_run(suite=kept.suite)

    removal = begin(run)
    assert list(kept.suite.runs.all()) == [kept]
    assert editor_client.get(f"/suites/{run.suite.slug}/runs/{run.number}/").status_code == 404
    assert not Review.objects.exists()

    assert remove_data(removal.pk)
    assert counts() == before
    assert list(Run.including_deleted.all()) == [kept]
    assert not Removal.objects.exists()


@pytest.mark.parametrize("is_whole_suite", [False, True])
def test_what_was_tried_on_a_result_goes_with_it(is_whole_suite: bool) -> None:
    run = make_scored_run(verdicts=["pass"])
    result, spec = run.results.get(), run.suite.spec
    EvaluatorTrial.objects.create(
        asked_by=make_member("editor"), suite=run.suite, node="n2", case=result.case, result=result,
        tree=spec.evaluators.as_json(), policy=spec.policy.as_json(), once=uuid4(),
    )  # fmt: skip
    removal = begin_suite(run.suite) if is_whole_suite else begin(run)
    remove_data(removal.pk)
    assert not Removal.objects.exists()
    assert not EvaluatorTrial.objects.exists()


def test_no_result_of_a_deleted_run_can_be_read_before_its_rows_are_gone(
    editor_client: Client,
) -> None:
    run = full_run()
    result = run.results.select_related("case").first()
    assert result is not None
    addresses = (
        f"/api/results/{result.pk}",
        f"/suites/{run.suite.slug}/cases/new/?result={result.pk}",
    )
    assert [editor_client.get(address).status_code for address in addresses] == [200, 200]
    begin(run)
    assert [editor_client.get(address).status_code for address in addresses] == [404, 404]
    page = f"/suites/{run.suite.slug}/runs/1/cases/{result.case.key}/1/case/"
    assert editor_client.post(page).status_code == 404


def test_a_run_started_while_its_suite_is_being_deleted_holds_the_suite() -> None:
    run = make_scored_run(verdicts=["pass"])
    selection = Selection(RemovalPart.RUN, run.suite, select_runs(run.suite), is_whole_suite=True)
    make_run(suite=run.suite, status="running")
    with pytest.raises(DataHeldError, match="Run #2 has not ended"):
        begin_removal(selection, by=None)


def test_the_number_of_a_deleted_run_is_not_given_again() -> None:
    first = make_run()
    last = make_run(suite=first.suite)
    remove_data(begin(last).pk)
    first.suite.refresh_from_db()
    assert first.suite.next_run_number() == 3


def hold_as_baseline(run: Run) -> None:
    Suite.objects.filter(pk=run.suite_id).update(baseline_run=run)


def hold_by_a_link(run: Run) -> None:
    ShareLink.objects.create(
        token_hash="a", kind="run", title="For the board", sources={"runs": [run.pk]}, frozen={}
    )


def hold_by_reviews(run: Run) -> None:
    ask_for_review(run.results.first(), by=User.objects.create_user("rita"))


def hold_by_a_copy(run: Run) -> None:
    make_run(suite=run.suite, source_run=run)


def hold_as_active(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(status="running")


def hold_by_a_worker(run: Run) -> None:
    register_run_worker(run.pk, "token", under_way=1, now=database_now())


HOLDS = [
    (hold_as_baseline, "Run #1 is the baseline of", "/runs/1/"),
    (hold_by_a_link, "The share link “For the board” shows run #1", "/shares/"),
    (hold_by_reviews, "1 result of run #1 waits for reviewers", "/review/?run="),
    (hold_by_a_copy, "Run #2 was rescored from run #1", "/runs/2/"),
    (hold_as_active, "Run #1 has not ended", "/runs/1/"),
    (hold_by_a_worker, "A worker is still finishing the last calls of run #1", "/runs/1/"),
]


@pytest.mark.parametrize(("hold", "reason", "link"), HOLDS)
def test_what_holds_a_run_is_named_with_a_link_and_nothing_is_deleted(
    hold: Any, reason: str, link: str, editor_client: Client
) -> None:
    run = make_scored_run(verdicts=["pass"])
    hold(run)
    address = f"/suites/{run.suite.slug}/runs/1/delete/"

    page = editor_client.get(address).content.decode()
    assert reason in page
    assert link in page
    response = editor_client.post(address, {"part": "run"})
    assert response.status_code == 422
    assert reason in response.content.decode()
    assert Run.objects.filter(pk=run.pk).exists()
    assert not Removal.objects.exists()


def test_waiting_results_leave_the_review_queue_where_a_person_says_so(
    editor_client: Client,
) -> None:
    run = make_scored_run(verdicts=["pass"])
    hold_by_reviews(run)
    address = f"/suites/{run.suite.slug}/runs/1/delete/"
    response = editor_client.post(address, {"part": "outputs", "releases_reviews": "on"})
    assert response.status_code == 302
    assert not ReviewItem.objects.exists()


def test_expired_and_revoked_links_hold_nothing() -> None:
    run, now = make_scored_run(verdicts=["pass"]), database_now()
    for number, state in enumerate(({"revoked_at": now}, {"expires_at": now - timedelta(days=1)})):
        ShareLink.objects.create(
            token_hash=str(number), kind="run", sources={"runs": [run.pk]}, frozen={}, **state
        )
    begin(run)


def test_the_page_names_what_will_go_and_the_audit_what_went(
    editor_client: Client, editor: User
) -> None:
    run = full_run()
    address = f"/suites/{run.suite.slug}/runs/1/delete/"
    page = editor_client.get(address).content.decode()
    assert "<dt>Results</dt><dd>3</dd>" in page
    assert "<dt>Calls of models and agents</dt><dd>1</dd>" in page
    assert "<dt>Reviews</dt><dd>1</dd>" in page

    response = editor_client.post(address, {"part": "run"})
    assert response.status_code == 302
    entry = AuditEntry.objects.get(action="delete")
    assert (entry.actor, entry.object_name) == (editor, f"{run.suite.slug} #1")
    assert entry.before is not None
    assert entry.before["results"] == 3
    assert entry.before["bytes"] > 100
    page = editor_client.get("/audit/").content.decode()
    assert "deleted" in page


def test_the_dashboard_says_that_what_was_spent_leaves_out_deleted_runs(
    editor_client: Client,
) -> None:
    run = full_run()
    # Without any run the page shows the first steps, not the dashboard.
    make_scored_run(verdicts=["pass"], suite=run.suite)
    assert "without deleted runs" not in editor_client.get("/").content.decode()
    begin(run)
    assert "without deleted runs" in editor_client.get("/").content.decode()


def test_a_campaign_is_deleted_with_its_runs() -> None:
    campaign = make_campaign()
    run = make_scored_run(verdicts=["pass"], suite=campaign.suite, campaign=campaign)
    other = make_scored_run(verdicts=["pass"], suite=campaign.suite)
    removal = begin(run, campaign=campaign)
    assert not Campaign.objects.exists()
    remove_data(removal.pk)
    assert list(Run.including_deleted.all()) == [other]


def test_a_suite_goes_with_its_runs_cases_and_baseline_and_its_name_is_free_at_once() -> None:
    run = full_run()
    suite = run.suite
    hold_as_baseline(run)
    SavedView.objects.create(suite=suite, owner=make_member("viewer"), page="results", name="Mine")
    job = ModelJob.objects.create(
        suite=suite, purpose="alignment", request={}, state="running", token="worker"
    )
    removal = begin_suite(suite)
    assert not Suite.objects.exists()
    assert not SavedView.objects.exists()
    assert not job.keep(), "its worker learns that it may ask no more"
    make_suite(slug=suite.slug)

    remove_data(removal.pk)
    assert Suite.including_deleted.count() == 1
    assert not Case.objects.exists()
    assert not Run.including_deleted.exists()


def test_a_suite_that_was_run_is_deleted_only_by_its_name(editor_client: Client) -> None:
    suite = make_scored_run(verdicts=["pass"]).suite
    address = f"/suites/{suite.slug}/delete/"
    response = editor_client.post(address, {"confirm": "something else"})
    assert response.status_code == 422
    assert f"Type {suite.slug} to delete it." in response.content.decode()
    assert editor_client.post(address, {"confirm": suite.slug}).status_code == 302
    assert editor_client.get(f"/suites/{suite.slug}/").status_code == 404


def test_files_go_unless_something_else_has_them() -> None:
    suite = make_suite()
    run = make_run(suite=suite)
    files = {"own.txt": b"own", "shared.txt": b"shared", "suite.txt": b"of the suite"}
    make_result(run=run, case=make_case(suite=suite), verdict="pass", output={"files": files})
    other = make_run(suite=suite)
    shared = {"files": {"same.txt": b"shared"}}
    make_result(run=other, case=make_case(suite=suite), verdict="pass", output=shared)
    [sha] = FileContent.objects.store([b"of the suite"])
    SuiteFile.objects.create(suite=suite, path="p.md", content_id=sha)

    remove_data(begin(run).pk)
    left = {bytes(content) for content in FileContent.objects.values_list("content", flat=True)}
    assert left == {b"shared", b"of the suite"}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BATCH", 2)


SHARED = """\
name: %s
evaluators: [{name: x, type: llm_judge, prompt: ./prompt.md}]
tests: [{id: a, input: hi, output: ho}]
"""


def import_shared(slug: str) -> Suite:
    """Import a suite with a file that every other one of these has, too."""
    content = suite_files.read_suite((SHARED % slug).encode(), files={"prompt.md": b"Is it kind?"})
    return import_suite(content, imported_by=None)


def files_of(suite: Suite) -> dict[str, bytes]:
    rows = suite.files.values_list("path", "content__content")
    return {path: bytes(content) for path, content in rows}


@pytest.mark.django_db(transaction=True)
def test_a_file_that_is_being_imported_stays_when_another_suite_with_it_is_deleted() -> None:
    removal = begin_suite(import_shared("first"))
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            second = import_shared("second")
            removing = in_thread(threads, partial(remove_data, removal.pk))
        assert removing.result()
    assert files_of(second) == {"prompt.md": b"Is it kind?"}


@pytest.mark.django_db(transaction=True)
def test_a_file_is_imported_anew_while_it_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = begin_suite(import_shared("first"))
    importing: list[Future[Any]] = []
    found = services._frozen_files
    with ThreadPoolExecutor() as threads:

        def import_then() -> Iterator[str]:
            kept = list(found())
            importing.append(in_thread(threads, partial(import_shared, "second")))
            return iter(kept)

        monkeypatch.setattr(services, "_frozen_files", import_then)
        assert remove_data(removal.pk)
        second = importing[0].result()
    assert files_of(second) == {"prompt.md": b"Is it kind?"}


@pytest.mark.usefixtures("small_batches")
def test_a_removal_goes_on_where_a_worker_died(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_scored_run(verdicts=["pass"] * 5)
    removal = begin(run)
    monkeypatch.setattr(services, "process_name", lambda: "host/elsewhere/1/1")
    assert services._claim(removal.pk, "host/elsewhere/1/1")
    assert services._remove_some(removal.pk, "host/elsewhere/1/1")
    removal.refresh_from_db()
    assert (removal.done_count, removal.result_count) == (2, 5)

    monkeypatch.setattr(services, "process_name", lambda: "host/here/2/2")
    assert not remove_data(removal.pk), "the first worker still seems to be alive"
    silent = database_now() - LEASE - timedelta(seconds=1)
    Removal.objects.update(heartbeat_at=silent)
    assert remove_data(removal.pk)
    assert not services._remove_some(removal.pk, "host/elsewhere/1/1")
    assert not Result.objects.exists()


def test_the_reaper_queues_removals_that_no_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[int] = []
    monkeypatch.setattr(reaper, "queue_removal", lambda pk, **options: queued.append(pk))
    removal = begin(make_scored_run(verdicts=["pass"]))
    reap(now=database_now())
    assert queued == [removal.pk]
    Removal.objects.update(worker="host/x/1/1", heartbeat_at=database_now())
    reap(now=database_now())
    assert queued == [removal.pk]


def test_an_error_is_kept_and_the_removal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = begin(make_scored_run(verdicts=["pass"]))

    def fail(*anything: Any) -> None:
        raise ValueError("a surprise")

    with monkeypatch.context() as patched:
        patched.setattr(services, "_remove_some", fail)
        with pytest.raises(ValueError, match="a surprise"):
            remove_data(removal.pk)
    removal.refresh_from_db()
    assert removal.error == "ValueError: a surprise"
    assert remove_data(removal.pk)


def surprise(*anything: Any) -> None:
    raise ValueError("a surprise")


def try_removal(removal: Removal) -> None:
    with pytest.raises(ValueError, match="a surprise"):
        remove_data(removal.pk)


def test_a_removal_that_always_raises_fails_with_its_reason_until_an_admin_tries_it_again(
    monkeypatch: pytest.MonkeyPatch, admin_client: Client, editor_client: Client
) -> None:
    queued: list[int] = []
    monkeypatch.setattr(reaper, "queue_removal", lambda pk, **options: queued.append(pk))
    monkeypatch.setattr(services, "queue_removal", queued.append)
    removal = begin(make_scored_run(verdicts=["pass"]))
    with monkeypatch.context() as patched:
        patched.setitem(services.REMOVERS, RemovalPart.RUN, surprise)
        for _ in range(MAX_TRIES):
            try_removal(removal)
        assert not remove_data(removal.pk), "no worker takes it any more"
    reap(now=database_now())
    assert queued == []

    page = admin_client.get("/retention/").content.decode()
    assert "Failed</span>" in page
    assert "<small>ValueError: a surprise</small>" in page
    assert 'hx-trigger="every 2s"' not in page
    retry = f"/retention/removals/{removal.pk}/retry/"
    assert retry in page
    assert retry not in editor_client.get("/retention/").content.decode()

    with TestCase.captureOnCommitCallbacks(execute=True):
        answer = admin_client.post(retry, follow=True).content.decode()
    assert "is being removed again" in answer
    assert queued == [removal.pk]
    assert AuditEntry.objects.filter(action="retry", object_name=removal.name).exists()
    assert remove_data(removal.pk)
    assert "has not failed" in admin_client.post(retry, follow=True).content.decode()


def test_a_removal_whose_workers_die_of_it_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[int] = []
    monkeypatch.setattr(reaper, "queue_removal", lambda pk, **options: queued.append(pk))
    removal = begin(make_scored_run(verdicts=["pass"]))
    for number in range(MAX_TRIES):
        reap(now=database_now())
        assert len(queued) == number + 1
        assert services._claim(removal.pk, f"host/elsewhere/{number}/1")
        Removal.objects.update(heartbeat_at=database_now() - LEASE - timedelta(seconds=1))
    reap(now=database_now())
    assert len(queued) == MAX_TRIES
    removal.refresh_from_db()
    assert removal.failed_at is not None
    assert removal.error == f"{MAX_TRIES} workers ended while they removed it"


@pytest.mark.usefixtures("small_batches")
def test_a_removal_that_gets_on_between_its_errors_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removal = begin(make_scored_run(verdicts=["pass"] * (2 * MAX_TRIES + 2)))
    for _ in range(MAX_TRIES + 1):
        with monkeypatch.context() as patched:
            patched.setitem(services.REMOVERS, RemovalPart.RUN, surprise)
            try_removal(removal)
        assert services._claim(removal.pk, "host/elsewhere/1/1")
        assert services._remove_some(removal.pk, "host/elsewhere/1/1")
        Removal.objects.update(heartbeat_at=None)
    assert remove_data(removal.pk)


@pytest.mark.parametrize("results", [3, 30])
def test_a_batch_takes_as_many_queries_whatever_its_size(results: int) -> None:
    removal = begin(make_scored_run(verdicts=["pass"] * results))
    services._claim(removal.pk, "worker")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert services._remove_some(removal.pk, "worker")
    assert len(queries) <= 30


def test_recorded_outputs_are_named_and_deleted(editor_client: Client) -> None:
    target = make_target(name="replay")
    RecordedOutput.objects.create(target=target, case_key="C-1", output={"output": "hi"})
    address = f"/targets/{target.pk}/outputs/delete/"
    assert address in editor_client.get(f"/targets/{target.pk}/").content.decode()
    run = make_run(target=target, status="running")
    assert f"Run #1 of {run.suite.title}" in editor_client.get(address).content.decode()
    assert editor_client.post(address).status_code == 422

    Run.objects.filter(pk=run.pk).update(status="completed")
    assert "1 output, " in editor_client.get(address).content.decode()
    assert editor_client.post(address).status_code == 302
    assert not RecordedOutput.objects.exists()
    entry = AuditEntry.objects.get(object_type="recorded_outputs")
    assert entry.before is not None
    assert (entry.object_name, entry.before["outputs"]) == ("replay", 1)


@pytest.mark.django_db(transaction=True)
def test_recorded_outputs_stay_for_a_run_that_is_being_started() -> None:
    suite, target = make_suite(cases=1, judge=make_model()), make_target(name="replay")
    RecordedOutput.objects.create(target=target, case_key="C-001", output={"output": "hi"})
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            start_run(suite=suite, target=target, started_by=None)
            deleting = in_thread(
                threads, partial(services.delete_recorded_outputs, target, by=None)
            )
        with pytest.raises(DataHeldError, match="has not ended"):
            deleting.result()
    assert RecordedOutput.objects.exists()


def test_a_run_may_be_deleted_while_its_figures_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, compute = make_scored_run(verdicts=["pass"]), finishing.RunOutcome.compute
    Run.objects.filter(pk=run.pk).update(summary=None)

    def compute_then_delete(*arguments: Any, **options: Any) -> Any:
        outcome = compute(*arguments, **options)
        begin(run)
        return outcome

    monkeypatch.setattr(finishing.RunOutcome, "compute", compute_then_delete)
    assert not finishing.summarise_run(run.pk)


def test_a_held_run_is_refused_by_the_service_too() -> None:
    run = make_run(status="running")
    with pytest.raises(DataHeldError, match="has not ended"):
        begin(run)


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("stop", {}),
        ("retry", {"which": "failed"}),
        ("selected/review", {"everything": "1", "sure": "1"}),
    ],
)
def test_a_run_that_is_deleted_during_a_request_is_not_found(
    action: str, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_scored_run(verdicts=["fail"])
    if action == "stop":
        Run.objects.filter(pk=run.pk).update(status="running")
    address = f"/suites/{run.suite.slug}/runs/{run.number}"
    client, read = make_client(make_member("editor")), requests.get_object_or_404

    def delete_after_reading(*args: Any, **place: Any) -> Any:
        found = read(*args, **place)
        Run.objects.filter(pk=run.pk).update(is_deleted=True)
        return found

    monkeypatch.setattr(requests, "get_object_or_404", delete_after_reading)
    answer = client.post(f"{address}/{action}/", fields)
    assert answer.status_code == 404


def test_a_fault_on_a_run_that_is_still_there_is_no_missing_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_scored_run(verdicts=["fail"])

    def find_nothing(_rows: RunQuerySet, _run_id: int) -> Run:
        raise Run.DoesNotExist

    monkeypatch.setattr(RunQuerySet, "hold", find_nothing)
    with pytest.raises(Run.DoesNotExist):
        make_client(make_member("editor")).post(
            f"/suites/{run.suite.slug}/runs/{run.number}/retry/", {"which": "failed"}
        )


@pytest.mark.django_db(transaction=True)
def test_what_belongs_to_a_suite_is_stored_while_its_run_is_being_deleted() -> None:
    """The deletion holds the suite and waits for the run; who holds the run must not wait for the suite."""
    run = make_run()
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            Run.objects.hold(run.pk)
            deleting = in_thread(threads, partial(begin, run))
            SavedView.objects.create(suite=run.suite, name="mine", owner=make_member("viewer"))
        assert deleting.result()
    assert SavedView.objects.filter(suite=run.suite).exists()
