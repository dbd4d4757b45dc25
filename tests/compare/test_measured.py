"""What evaluators measured of a run: under names that people know, and the same from packed scores as from rows."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from evaluators.scoring.numbers import mean
from runs.compare import sides
from runs.compare.evidence import EVALUATOR, Measured, MeasuredFigure, MeasuredRun
from runs.compare.sides import (
    ComparisonSide,
    measured_scores,
    read_executions,
    scores_to_test,
)
from runs.engine.plan import OUTCOMES_PATH
from runs.files.importing_results import import_results
from runs.models.runs import Run
from runs.models.stored import pack_leaf_scores
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, tree

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


CASES = 1_000


def test_evaluators_of_single_cases_take_no_room_beside_all_others():
    """Each case may have an evaluator of its own; 20,000 beside 20,000 would be gigabytes."""
    lines = (
        {
            "eval_id": f"C-{number}",
            "score": 0.5,
            "evaluator_results": [{"name": f"own-{number}", "score": number / CASES}],
        }
        for number in range(CASES)
    )
    content = "\n".join(map(json.dumps, lines)).encode()
    [run] = import_results(content, file="r.jsonl", suite=None, imported_by=None).runs
    side = read_side(run)
    tracemalloc.start()
    try:
        found = measured_scores(side)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000
    assert len(found.figures) == CASES
    columns = MeasuredRun(
        found.places,
        {figure: one for figure, one in found.figures.items() if figure.path == "own-7"},
    ).columns(["C-6", "C-7"])
    [column] = columns.values()
    assert [None if np.isnan(one) else one for one in column] == [None, 0.007]
    [tested] = scores_to_test([side], [found])
    assert [figure.path for figure in tested.figures] == ["own-0"]  # the tree of the run has it


def test_of_many_evaluators_that_only_some_cases_have_those_of_the_most_cases_are_tested(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sides, "MAX_OWN_TESTED", 2)
    suite, target = make_suite(), make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=tree(CHECK))
    runs = [make_run(suite=suite, target=target, snapshot=snapshot) for _ in range(2)]
    given = {CHECK["name"]: 3, "few": 9, "some": 10, "more": 12, "most": 11}
    before, after = (
        MeasuredRun(
            {},
            {
                MeasuredFigure(EVALUATOR, path): Measured.make(
                    path, np.arange(count), np.ones(count), cases=20
                )
                for path, count in (*given.items(), *more.items())
            },
        )
        for more in ({"most": 14}, {"few": 8})
    )
    tested = scores_to_test([ComparisonSide(run, {}, {}) for run in runs], [before, after])
    paths = [[figure.path for figure in one.figures] for one in tested]
    assert paths == [[CHECK["name"], "more", "most"]] * 2
