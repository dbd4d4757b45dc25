"""Means of negated evaluators tell what counted: more is better, on the run's page and in comparisons."""

from __future__ import annotations

import pytest

from runs.compare.sides import measured_scores
from runs.results.run_figures import evaluator_rows
from tests.compare.test_measured import read_side
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

TREE = tree(
    {**CHECK, "name": "no_slang", "negate": True},
    {**tree(CHECK), "name": "risky", "negate": True},
)


def test_a_leaf_is_turned_round_and_a_composite_that_was_already_is_not():
    suite = make_suite(slug="support", tree=TREE)
    case = make_case(suite=suite, key="C-1")
    target = make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=TREE)
    run = make_run(suite=suite, target=target, snapshot=snapshot)
    result = make_result(run=run, case=case)
    make_score(result=result, path="no_slang", kind="text_check", score=0.0)
    make_score(result=result, path="risky", kind="composite", score=0.75)

    means = {row.name: row.mean for row in evaluator_rows(run)}
    assert means == {"no_slang": 1.0, "risky": 0.75}

    found = measured_scores(read_side(run))
    measured = {figure.path: cases.by_case.tolist() for figure, cases in found.figures.items()}
    assert measured == {"no_slang": [1.0], "risky": [0.75]}


def test_what_cases_alone_have_is_turned_round_as_well():
    own = {"evaluators": tree({**CHECK, "name": "no_card", "negate": True})}
    suite = make_suite(slug="support", tree=TREE)
    run = make_run(
        suite=suite, snapshot=make_snapshot(suite=suite, target=make_target(), tree=TREE)
    )
    for number in range(10):
        case = make_case(suite=suite, key=f"C-{number}", evaluators_append=number % 2 == 0, **own)
        result = make_result(run=run, case=case)
        make_score(result=result, path="no_card", kind="text_check", score=0.0)

    found = measured_scores(read_side(run))

    measured = {figure.path: cases.by_case.tolist() for figure, cases in found.figures.items()}
    assert measured == {"no_card": [1.0] * 10}

    (row,) = evaluator_rows(run)
    assert (row.name, row.mean, row.scored) == ("no_card", 1.0, 10)


def test_a_mean_over_cases_that_negate_and_cases_that_do_not_takes_each_as_it_counts():
    plain = tree(CHECK)
    suite = make_suite(slug="support", tree=plain)
    run = make_run(
        suite=suite, snapshot=make_snapshot(suite=suite, target=make_target(), tree=plain)
    )
    negated = {"evaluators": tree({**CHECK, "negate": True})}
    for key, own, score in (("C-1", {}, 1.0), ("C-2", negated, 0.25), ("C-3", negated, 0.5)):
        result = make_result(run=run, case=make_case(suite=suite, key=key, **own))
        make_score(result=result, path=CHECK["name"], kind="text_check", score=score)

    (row,) = evaluator_rows(run)
    assert (row.mean, row.scored) == (0.75, 3)
