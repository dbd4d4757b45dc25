"""What evaluators measured of a run is told by names that people know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from runs.compare.comparison import ComparisonSide, measured_scores
from runs.engine.plan import OUTCOMES_PATH
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
    make_target,
)

pytestmark = pytest.mark.django_db


def test_the_outcomes_judged_beside_a_tree_are_called_what_pages_call_them():
    suite = make_suite()
    run = make_run(suite=suite, target=make_target())
    keys = {}
    for number in range(10):
        result = make_result(run=run, case=make_case(suite=suite, key=f"C-{number}"))
        make_score(result=result, path=OUTCOMES_PATH, kind="outcomes", score=0.5)
        keys[result.pk] = f"C-{number}"
    found = measured_scores(cast("ComparisonSide", SimpleNamespace(run=run, keys=keys)))
    assert [one.name for one in found.values()] == ["Expected outcomes"]
