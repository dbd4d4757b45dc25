"""What evaluators measured of a run: under names that people know, and the same from packed scores as from rows."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.scoring.numbers import mean
from runs.compare.evidence import EVALUATOR, MeasuredFigure
from runs.compare.sides import ComparisonSide, measured_scores, read_executions
from runs.engine.plan import OUTCOMES_PATH
from runs.models.runs import Run
from runs.models.stored import pack_leaf_scores
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db


def read_side(run: Run) -> ComparisonSide:
    """Return a run as one side of a comparison."""
    return ComparisonSide(run, *read_executions(run)[1], cases={})


def test_the_outcomes_judged_beside_a_tree_are_called_what_pages_call_them():
    suite = make_suite()
    run = make_run(suite=suite, target=make_target())
    for number in range(10):
        result = make_result(run=run, case=make_case(suite=suite, key=f"C-{number}"))
        make_score(result=result, path=OUTCOMES_PATH, kind="outcomes", score=0.5)
    found = measured_scores(read_side(run))
    assert [one.name for one in found.figures.values()] == ["Expected outcomes"]


def test_packed_scores_measure_what_the_rows_of_scores_do():
    """Means of repetitions are exact; missed parts do not hide a score, and no score is never 0."""
    suite = make_suite()
    run = make_run(suite=suite, target=make_target(), repetitions=3)
    given = {"C-1": [0.1, 0.2, 0.3], "C-2": [0.7, None], "C-3": [None]}
    for key, scores in given.items():
        case = make_case(suite=suite, key=key)
        for repetition, score in enumerate(scores, 1):
            result = make_result(run=run, case=case, repetition=repetition)
            state = "unscored" if score is None else "scored"
            missed = ["tone"] if score == 0.2 else []
            make_score(
                result=result, path="check", state=state, score=score, failed_required=missed
            )
    by_rows = measured_scores(read_side(run))
    run.leaf_scores = pack_leaf_scores(run.pk)
    for found in (by_rows, measured_scores(read_side(run))):
        measured = found.figures[MeasuredFigure(EVALUATOR, "check")]
        assert (measured.executions, measured.mean, measured.cases) == (4, 0.325, 2)
        [column] = found.columns(["C-2", "C-1", "C-3", "in no run"]).values()
        exact = [0.7, mean(given["C-1"]), None, None]
        assert [None if np.isnan(one) else one for one in column] == exact
