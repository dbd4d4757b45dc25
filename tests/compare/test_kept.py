"""What is kept of a comparison is never older than the results of its runs, and spares reading them again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from evaluators.scoring.types import Verdict
from runs.compare.comparison import COMPARED, Comparison, build_comparison
from runs.compare.rules import Tolerances
from runs.execution import reaper
from runs.execution.claims import claim_results
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.reviews.services import ReviewDecision, ask_for_review, decide, undo
from runs.running.pushing import close_run
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.services import start_run
from tests.support.factories import again, make_target, make_user
from tests.support.scored_runs import finished_run

pytestmark = pytest.mark.django_db(transaction=True)


def compare(*runs: Run) -> Comparison:
    """Compare two runs as they are stored now."""
    return build_comparison(*(again(run) for run in runs), Tolerances())


def test_every_change_of_results_is_in_the_next_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reviews, retries, stops, resumptions, their work, the end of a wait for outputs and lost workers all show."""
    before = finished_run()
    suite, target = before.suite, before.target
    pushed = make_target(name="pushed", kind="pushed")
    after, open_run, abandoned = (
        start_run(suite=suite, target=chosen, started_by=None)
        for chosen in (target, pushed, target)
    )
    for run in (after, open_run, abandoned):
        stop_run(run, stopped_by=None)
    reviewer = make_user(role="reviewer")

    def review() -> None:
        item = ask_for_review(again(before).results.first(), by=None)
        decide(item, ReviewDecision(Verdict.FAIL), by=reviewer)

    def work() -> None:
        work_on_run(after.pk)

    def retry() -> None:
        reviewed = list(before.results.exclude(reviewed_verdict="").values_list("pk", flat=True))
        retry_results(again(before), asked_by=None, which="all", result_ids=reviewed)
        work_on_run(before.pk)

    def close() -> None:
        resume_run(again(open_run), resumed_by=None)
        close_run(again(open_run), by=None)

    def lose() -> None:
        resume_run(again(abandoned), resumed_by=None)
        Run.objects.filter(pk=abandoned.pk).update(status="running")
        claim_results(abandoned.pk, token="lost", most=100, now=timezone.now())
        monkeypatch.setattr(reaper, "MAX_ATTEMPTS", 1)
        reaper.reap(now=timezone.now() + timedelta(seconds=60))

    ways: list[tuple[Run, Callable[[], object]]] = [
        (after, review),
        (after, lambda: undo(before.results.first().review_item, by=reviewer)),
        (after, review),
        (after, retry),
        (after, lambda: resume_run(again(after), resumed_by=None)),
        (after, work),
        (open_run, close),
        (abandoned, lose),
    ]
    for candidate, change in ways:
        shown = compare(before, candidate).cases
        change()
        kept = compare(before, candidate).cases
        assert kept != shown
        COMPARED.values.clear()
        assert kept == compare(before, candidate).cases
    assert not any(again(run).is_active for run in (after, open_run, abandoned))


def test_the_same_results_are_read_once_and_those_of_an_active_run_always(
    django_assert_num_queries,
) -> None:
    before, after = finished_run(), finished_run()
    first = build_comparison(before, after, Tolerances())
    with django_assert_num_queries(0):
        second = build_comparison(before, after, Tolerances(max_avg_score_drop=0.5))
    assert (second.cases, second.tolerances.max_avg_score_drop) == (first.cases, 0.5)

    started = start_run(suite=before.suite, target=before.target, started_by=None)
    COMPARED.values.clear()
    compare(before, started)
    assert not COMPARED.values
