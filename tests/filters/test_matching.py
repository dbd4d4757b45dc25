"""Which cases match a filter: every operator with numbers, names, texts and missing values, and every change."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.filters.fields import find_field
from runs.filters.matching import ResultRows
from runs.filters.queries import matching_keys
from runs.models.runs import Run
from runs.models.stored import pack_leaf_scores
from runs.models.suites import Suite
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
    refresh_cases,
)
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]
TREE = tree({**CHECK, "name": "tone"})
CASES: dict[int, dict[str, Any]] = {
    1: {"tags": ["billing"], "metadata": {"channel": "email"}},
    2: {"tags": ["billing", "late"], "metadata": {"channel": "chat"}},
    3: {"tags": []},
    4: {"tags": []},
}
ERROR = {"status": "error", "error": "502", "error_stage": "target"}
BEFORE: dict[int, dict[str, Any]] = {
    1: {"verdict": "pass", "score": 0.9},
    2: {"verdict": "pass", "score": 0.8},
    3: {"verdict": "pass", "score": 0.5},
    4: {"verdict": "fail", "score": 0.65},
}
NOW: dict[int, dict[str, Any]] = {
    1: {"verdict": "pass", "score": 0.9, "output": {"text": "A refund"}},
    2: {"verdict": "fail", "score": 0.3, "output": {"text": "A refund, too late"}},
    3: {**ERROR, "output": {"text": "Late"}},
    4: {"verdict": "borderline", "score": 0.7},
}
TONES = {1: 0.30000000001, 2: 0.5}


def run_with(suite: Suite, results: dict[int, dict[str, Any]]) -> Run:
    """Make a run with a result of each case."""
    target = make_target()
    snapshot = make_snapshot(suite=suite, target=target, tree=TREE)
    run = make_run(suite=suite, target=target, snapshot=snapshot)
    for number, facts in results.items():
        result = make_result(run=run, case=suite.cases.get(key=str(number)), **facts)
        if results is NOW and number in TONES:
            make_score(result=result, path="tone", score=TONES[number], reasoning="")
    refresh_cases(run)
    return run


@pytest.fixture
def two_runs() -> tuple[Run, Run]:
    """Make the same four cases run twice."""
    suite = make_suite(tree=TREE)
    for number, facts in CASES.items():
        say = [{"role": "user", "content": "Hello"}]
        make_case(suite=suite, key=str(number), title="", input=say, **facts)
    return run_with(suite, BEFORE), run_with(suite, NOW)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {1, 2, 3, 4}),
        ("refund", {1, 2}),
        ("-refund", {3, 4}),
        ("output = late", {2, 3}),
        ("output != late", {1, 4}),
        ("refund output = late", {2}),
        ("refund or output = late", {1, 2, 3}),
        ("verdict = fail", {2}),
        ("verdict = fail, error", {2, 3}),
        ("verdict != fail", {1, 3, 4}),
        ("not verdict = fail", {1, 3, 4}),
        ("score < 0.5", {2}),
        ("score <= 0.7", {2, 4}),
        ("score >= 70%", {1, 4}),
        ("score = 0.7", {4}),
        ("score != 0.7", {1, 2}),
        ("score = none", {3}),
        ("score != none", {1, 2, 4}),
        ("score = none, 0.7", {3, 4}),
        ("score != none, 0.7", {1, 2}),
        ("not score < 0.5", {1, 3, 4}),
        ("tone = 0.3", {1}),
        ("tag = billing", {1, 2}),
        ("tag = billing tag = late", {2}),
        ("tag != late", {1, 3, 4}),
        ("meta.channel = email", {1}),
        ("meta.channel != email", {2, 3, 4}),
        ("meta.channel != email, none", {2}),
        ("tag = none", {3, 4}),
        ("tag != none", {1, 2}),
        ("tag = none, late", {2, 3, 4}),
        ("meta.channel = none", {3, 4}),
        ("not (verdict = pass or verdict = fail)", {3, 4}),
        ("score fell", {2}),
        ("score rose", {4}),
        ("score changed", {2, 4}),
        ("score fell by 0.5", {2}),
        ("score rose by 5%", {4}),
        ("score rose by 0.06", set()),
        ("score changed by 0.1", {2}),
        ("verdict fell", {2}),
        ("verdict rose", {4}),
        ("verdict changed", {2, 4}),
    ],
)
def test_which_cases_match(two_runs: tuple[Run, Run], text: str, found: set[int]) -> None:
    before, now = two_runs
    assert {int(key) for key in matching_keys([now], before, text)} == found


def test_means_from_packed_scores_are_those_of_the_rows() -> None:
    """Repetitions, a negated evaluator, scores that are none and missed parts, in one run and in two."""
    suite, target = make_suite(), make_target()
    negated = {**CHECK, "name": "no_card", "negate": True}
    runs = []
    for root in (tree({**CHECK, "name": "tone"}, negated), TREE):
        snapshot = make_snapshot(suite=suite, target=target, tree=root)
        run = make_run(suite=suite, target=target, snapshot=snapshot, repetitions=3)
        for number in range(12):
            case, _ = suite.cases.get_or_create(key=str(number // 3), position=number // 3)
            result = make_result(run=run, case=case, repetition=number % 3 + 1)
            for path, score in (("tone", number / 11), ("no_card", number % 7 / 7)):
                if number in (4, 9, 10, 11):
                    make_score(result=result, path=path, score=None)
                    continue
                missed = ["kind"] * (number % 2)
                make_score(result=result, path=path, score=score, failed_required=missed)
        refresh_cases(run)
        runs.append(run)
    fields = [find_field(f"evaluator.{name}") for name in ("tone", "no_card", "unknown")]

    def means(runs: list[Run]) -> list[Any]:
        rows = ResultRows(runs)
        return [rows.values(field) for field in fields if field is not None]

    from_rows = [means(runs), means(runs[:1])]
    assert [len(found) for found in from_rows[0]] == [6, 6, 0]
    for run in runs:
        Run.objects.filter(pk=run.pk).update(leaf_scores=pack_leaf_scores(run.pk))
    with CaptureQueriesContext(connection) as queries:
        assert [means(runs), means(runs[:1])] == from_rows
    assert not any("evaluatorscore" in query["sql"] for query in queries)
