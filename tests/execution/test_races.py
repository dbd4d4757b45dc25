"""Several people, several presses, busy workers: each answer is clear and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.db import transaction
from django.db.models import Sum

from evaluators.models import AuditEntry
from evaluators.scoring.tree import walk
from evaluators.scoring.types import DomainError
from runs.execution.active_runs import RunSlot
from runs.execution.run_worker import _work, work_on_run
from runs.finishing import complete_run
from runs.models.results import Attempt, ModelCall, Result, Retry
from runs.models.runs import Run
from runs.models.suites import SuiteDraft
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import SetWeight
from runs.suites.services import make_baseline
from tests.support.factories import again, make_scored_run, make_suite, make_user
from tests.support.model_server import ModelServer
from tests.support.threads import at_once, in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]
StartRun = Callable[..., Run]
CLEAR = ("already running", "already being rerun", "has already ended", "no result has an error")


def done_and_refused(answers: Sequence[object]) -> tuple[list[object], list[str]]:
    refused = [answer for answer in answers if isinstance(answer, str)]
    assert all(any(text in answer for text in CLEAR) for answer in refused), refused
    return [answer for answer in answers if not isinstance(answer, str)], refused


def counters_are_true(run: Run) -> None:
    run = again(run)
    results = run.results.all()
    assert run.done_count == results.filter(status__in=("scored", "error")).count()
    assert run.pass_count == results.filter(verdict="pass").count()
    assert run.fail_count == results.filter(verdict="fail").count()
    assert run.error_count == results.filter(status="error").count()
    assert run.score_count == results.filter(score__isnull=False).count()
    assert run.score_sum == pytest.approx(results.aggregate(sum=Sum("score"))["sum"] or 0)


def test_a_retry_pressed_four_times_at_once_is_one() -> None:
    run = make_scored_run(verdicts=["error"] * 20 + ["pass"])
    press = partial(retry_results, run, asked_by=None, seen_retry=0)
    done, refused = done_and_refused(at_once(*[press] * 4))

    assert (done, len(refused)) == ([20], 3)
    assert Retry.objects.count() == 1
    assert Attempt.objects.count() == 20
    assert set(run.results.filter(status="pending").values_list("generation", flat=True)) == {2}
    counters_are_true(run)


def test_two_people_who_choose_the_same_rows_share_them() -> None:
    run = make_scored_run(verdicts=["fail"] * 30)
    ids = list(run.results.values_list("pk", flat=True))

    def choose(chosen: list[int]) -> Callable[[], object]:
        again = partial(retry_results, run, asked_by=None, keep_output=True)
        return partial(again, result_ids=chosen, seen_retry=0)

    done, refused = done_and_refused(at_once(choose(ids[:20]), choose(ids[10:])))
    assert sum(int(str(count)) for count in done) == 30
    assert not refused
    assert Attempt.objects.count() == 30
    counters_are_true(run)


def test_a_resume_pressed_twice_while_somebody_retries() -> None:
    run = make_scored_run(verdicts=["pass", *["error"] * 10, *["cancelled"] * 10], status="stopped")
    resume = partial(resume_run, run, resumed_by=None)
    retry = partial(retry_results, run, asked_by=None, seen_retry=0)
    done, refused = done_and_refused(at_once(resume, resume, retry))

    # The first request opened the run; a retry may still join in, another resume may not.
    assert len(done) + len(refused) == 3
    assert 10 in done
    assert again(run).status == "queued"
    assert run.results.filter(status="error").count() == 0
    assert run.results.exclude(generation__in=(1, 2)).count() == 0
    counters_are_true(run)


def test_a_stop_while_the_run_finishes_has_one_winner(start_recorded: StartRun) -> None:
    for _ in range(5):
        run = start_recorded("a refund", "nothing")
        work_on_run(run.pk)
        Run.objects.filter(pk=run.pk).update(status="running", summary=None, finished_at=None)
        stop = partial(stop_run, run, stopped_by=None)
        _, refused = done_and_refused(at_once(stop, partial(complete_run, run.pk)))
        ended = again(run)
        assert ended.status == ("completed" if refused else "stopped")
        assert ended.done_count == 2
        counters_are_true(run)


def test_retries_while_workers_are_busy_lose_and_double_nothing(start_recorded: StartRun) -> None:
    run = start_recorded(*["a refund", "nothing"] * 60, concurrency=4)

    def retry_again_and_again() -> int:
        reached = 0
        for _ in range(10):
            try:
                reached += retry_results(run, asked_by=None, which="failed")
            except DomainError:
                continue
        return reached

    answers = at_once(
        *[partial(_work, RunSlot(run.pk)) for _ in range(2)], *[retry_again_and_again] * 2
    )
    while again(run).is_active:
        _work(RunSlot(run.pk))

    reached = sum(answer for answer in answers if isinstance(answer, int))
    run = again(run)
    assert (run.status, run.done_count, run.pass_count, run.fail_count) == (
        "completed",
        120,
        60,
        60,
    )
    assert Attempt.objects.count() == reached
    assert sum(generation - 1 for generation in _generations(run)) == reached
    assert run.summary is not None
    assert run.summary["passed"] == 60
    counters_are_true(run)


def _generations(run: Run) -> list[int]:
    return list(Result.objects.filter(run=run).values_list("generation", flat=True))


def test_stopping_and_resuming_under_busy_workers_records_every_call_once(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    run = start_chat(30, concurrency=4)

    def stop_and_resume() -> None:
        for _ in range(3):
            for action in (
                lambda: stop_run(run, stopped_by=None),
                lambda: resume_run(run, resumed_by=None),
            ):
                try:
                    action()
                except DomainError:
                    continue

    at_once(partial(work_on_run, run.pk), stop_and_resume)
    while again(run).is_active:
        work_on_run(run.pk)
    if again(run).status == "stopped":
        resume_run(run, resumed_by=None)
        work_on_run(run.pk)

    run = again(run)
    assert (run.status, run.done_count) == ("completed", 30)
    calls = ModelCall.objects.filter(run=run)
    assert calls.count() == len(model_server.chats)
    spent = calls.aggregate(usd=Sum("cost_usd"))["usd"]
    assert run.run_cost_usd + run.evaluation_cost_usd == spent
    assert not Attempt.objects.exists()
    counters_are_true(run)


def test_of_two_drafts_saved_at_once_one_becomes_the_version_and_the_other_stays() -> None:
    suite = make_suite()
    drafts = []
    for weight in (3.0, 4.0):
        draft = get_draft(suite, make_user())
        drafts.append(change_draft(draft, draft.stamp, SetWeight("n2", weight)))
    saves = [partial(save_draft, draft, draft.stamp) for draft in drafts]
    answers = at_once(*saves)

    refused = [answer for answer in answers if isinstance(answer, str)]
    assert len(refused) == 1
    assert "while you were editing version 1" in refused[0]
    suite.refresh_from_db()
    assert (suite.version, suite.versions.count()) == (2, 2)
    (kept,) = SuiteDraft.objects.all()
    (weight,) = {3.0, 4.0} - {dict(walk(suite.spec.evaluators))["tone"].weight}
    assert kept.content["evaluators"]["children"][0]["weight"] == weight


def test_a_draft_saved_twice_at_once_is_one_version_and_begun_twice_is_one_draft() -> None:
    suite, ada = make_suite(), make_user()
    page = get_draft(suite, ada)
    change = partial(change_draft, page, page.stamp, SetWeight("n2", 3))
    begun = at_once(change, change, change)
    assert sum(isinstance(answer, str) for answer in begun) == 2
    draft = SuiteDraft.objects.get()
    assert draft.revision == 1

    save = partial(save_draft, draft, draft.stamp)
    answers = at_once(save, save, save)
    refused = [answer for answer in answers if isinstance(answer, str)]
    assert len(refused) == 2
    assert all("been saved or discarded" in text for text in refused)
    assert suite.versions.count() == 2


def test_the_audit_tells_which_baseline_was_replaced_while_somebody_else_set_one() -> None:
    suite = make_suite()
    runs = [make_scored_run(suite=suite, verdicts=["pass"]) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            make_baseline(runs[0], by=None)
            other = in_thread(threads, partial(make_baseline, runs[1], by=None))
        assert other.result()
    changes = AuditEntry.objects.filter(object_type="suite").order_by("pk")
    assert [(entry.before["baseline"], entry.after["baseline"]) for entry in changes] == [
        (None, "#1"),
        ("#1", "#2"),
    ]
