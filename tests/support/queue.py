"""Runs whose results wait for reviewers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runs.finishing import summarise_run
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from tests.support.factories import make_scored_run, make_suite

NO_AUDIT = {"review_pass_sample": 0.0, "review_fail_sample": 0.0}


def queued_run(verdicts: Sequence[str] = ("borderline",) * 3, **policy: Any) -> Run:
    """Return a completed run whose borderline results wait in the review queue."""
    suite = make_suite(**NO_AUDIT | policy)
    run = make_scored_run(verdicts=verdicts, suite=suite, summary=None, leaf_scores=None)
    assert summarise_run(run.pk)
    run.refresh_from_db()
    return run


def item_of(run: Run, key: str = "C-001") -> ReviewItem:
    return ReviewItem.objects.select_related("result").get(result__run=run, result__case__key=key)
