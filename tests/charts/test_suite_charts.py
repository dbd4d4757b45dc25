"""What the charts of a suite are made of, read from its runs."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.asserts import assertNumQueries

from runs.charts.queries import ChartsPage, ChartsQuery, charts_page, score_cost_csv, trend_csv
from runs.costs import read_costs, run_costs, with_origins
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.running.services import start_run
from runs.summary.run import summarise
from tests.support.charts import make_charted_run
from tests.support.factories import (
    make_call,
    make_model,
    make_result,
    make_run,
    make_scored_run,
    make_suite,
    make_target,
)
from tests.support.scored_runs import TEXTS, finished_run

pytestmark = pytest.mark.django_db


def page(suite: Any, **asked: str) -> ChartsPage:
    return charts_page(suite, ChartsQuery.read(asked))


def drawn(found: ChartsPage) -> dict[int, int | None]:
    """Return the runs of the first chart, each with the number of the run that dominates it."""
    return {
        row.run.number: row.beaten_by.number if row.beaten_by else None
        for row in found.score_cost.drawn
    }


class TestQuery:
    @pytest.mark.parametrize(
        ("asked", "address"),
        [
            ({}, ""),
            ({"target": "a b", "last": "100"}, "?target=a+b&last=100"),
            ({"cost": "evaluation", "points": "every"}, "?cost=evaluation&points=every"),
            ({"last": "31", "cost": "magic", "points": "2"}, ""),
            ({"last": "9" * 40}, ""),
        ],
    )
    def test_the_address_keeps_what_makes_sense(self, asked: dict[str, str], address: str) -> None:
        assert ChartsQuery.read(asked).at("") == address


class TestScoreAndCost:
    def test_the_latest_run_of_each_target_is_weighed(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="mini", score=0.99, cost="0.1")
        make_charted_run(suite=suite, name="large", score=0.9, cost="2")
        make_charted_run(suite=suite, name="mini", score=0.8, cost="1")
        make_charted_run(suite=suite, name="waste", score=0.7, cost="3")
        assert drawn(page(suite)) == {3: None, 2: None, 4: 2}
        assert drawn(page(suite, points="every")) == {1: None, 3: 1, 2: 1, 4: 1}
        assert drawn(page(suite, target="mini", points="every")) == {1: None, 3: 1}

    @pytest.mark.parametrize(
        ("cost", "of_run", "of_execution", "of_passed_result"),
        [
            ("target", "4", "0.1", "0.2"),
            ("evaluation", "2", "0.05", "0.1"),
            ("total", "6", "0.15", "0.3"),
        ],
    )
    def test_the_cost_is_the_one_that_is_asked_for(
        self, cost: str, of_run: str, of_execution: str, of_passed_result: str
    ) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="mini", cost="4", passed=20)
        (row,) = page(suite, cost=cost).score_cost.drawn
        expected = (Decimal(of_run), Decimal(of_execution), Decimal(of_passed_result))
        assert (row.cost_usd, row.execution_usd, row.passed_result_usd) == expected

    def test_nothing_passed_has_no_cost_for_each_passed_result(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="mini", passed=0)
        assert page(suite).score_cost.drawn[0].passed_result_usd is None

    @pytest.mark.django_db(transaction=True)
    def test_repetitions_do_not_change_what_a_passed_result_costs(self) -> None:
        runs = [finished_run(TEXTS[:2], repetitions=times) for times in (1, 4)]
        costs = [page(run.suite).score_cost.drawn[0].passed_result_usd for run in runs]
        assert runs[0].pass_count
        assert costs[0] == costs[1] == Decimal("0.5") / runs[0].pass_count

    def test_a_cost_that_is_not_known_in_full_is_listed_and_not_drawn(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="mini", cost="4", unpriced=2)
        found = page(suite)
        assert found.score_cost.figure is None
        (row,) = found.score_cost.undrawn
        assert (row.cost_usd, row.known_usd) == (None, Decimal(6))
        assert [(name, one.priced, one.answers) for name, one in row.unpriced] == [("target", 1, 3)]
        assert drawn(page(suite, cost="evaluation")) == {1: None}

    def test_a_run_without_a_score_is_listed_and_not_drawn(self) -> None:
        suite = make_suite()
        make_run(suite=suite, execution_count=1, done_count=1, error_count=1)
        found = page(suite)
        assert (len(found.score_cost.drawn), len(found.score_cost.undrawn)) == (0, 1)

    def test_what_cost_nothing_is_drawn_at_zero(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="recorded", cost="0")
        assert page(suite).score_cost.drawn[0].execution_usd == 0


class TestTrend:
    @pytest.mark.parametrize("status", ["stopped", "budget_reached", "failed", "running"])
    def test_only_completed_runs_are_compared_and_the_rest_is_said(self, status: str) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="before", status=status)
        make_charted_run(suite=suite, name="mini")
        make_charted_run(suite=suite, name="mini", status=status)
        found = page(suite)
        assert [run.number for run in found.runs] == [2]
        (said,) = found.missing_runs
        assert said.startswith("1 run ")

    def test_the_last_runs_are_the_newest(self) -> None:
        suite = make_suite()
        for _ in range(13):
            make_charted_run(suite=suite, name="mini")
        assert [run.number for run in page(suite, last="12").runs] == list(range(13, 1, -1))

    def test_the_interval_is_the_one_of_the_summary(self) -> None:
        suite = make_suite()
        run = make_charted_run(suite=suite, name="mini")
        assert run.summary
        assert page(suite).runs[0].interval == tuple(run.summary["interval"])
        assert page(suite).runs[0].score_interval == tuple(run.summary["score_interval"])

    def test_an_older_summary_gets_the_interval_of_its_mean_score_from_the_results(self) -> None:
        run = make_scored_run(verdicts=["pass", "fail", "pass", "error"])
        summary = summarise([], run.suite.policy, is_completed=True, seed=1).as_json()
        del summary["score_interval"]
        Run.objects.filter(pk=run.pk).update(summary=summary)
        ends = page(run.suite).runs[0].score_interval
        assert ends is not None
        assert ends[0] < run.score_sum / run.score_count < ends[1]

    def test_a_suite_without_completed_runs_draws_nothing(self) -> None:
        found = page(make_suite())
        assert (found.trend.drawing, found.score_cost.figure, found.targets) == (None, None, [])


def test_the_queries_are_as_many_for_one_run_as_for_many() -> None:
    suite = make_suite()
    make_charted_run(suite=suite, name="mini", unpriced=1)
    with assertNumQueries(5):
        page(suite)
    for number in range(6):
        make_charted_run(suite=suite, name=f"agent {number}", unpriced=1)
    with assertNumQueries(5):
        page(suite)


def test_the_costs_of_many_runs_are_counted_like_those_of_one() -> None:
    suite = make_suite(cases=2)
    first, second = suite.cases.all()
    modelled = make_target(kind="chat", model=make_model())
    runs = [make_run(suite=suite) for _ in range(2)]
    runs.append(make_run(suite=suite, target=modelled))
    runs[2].snapshot["target"]["model"] = "juno-2"
    runs[2].save()
    make_result(run=runs[0], case=first, verdict="pass", score=0.9)
    make_result(run=runs[0], case=second, verdict="pass", score=0.9, run_cost_usd=None)
    make_result(run=runs[1], case=first, status="error", error_stage="target", run_cost_usd=None)
    asked = make_result(run=runs[2], case=first, verdict="pass", score=0.9)
    make_call(result=asked, purpose="target", cost_usd=None)
    make_call(result=asked, purpose="evaluation")
    make_call(result=asked, purpose="evaluation", cost_usd=None)
    found = read_costs(list(with_origins(Run.objects.all())))
    for run in runs:
        one, many = run_costs(Run.objects.get(pk=run.pk)), found[run.pk]
        for ours, theirs in ((many.run, one.run), (many.evaluation, one.evaluation)):
            assert (ours.usd, ours.is_partial) == (theirs.usd, theirs.is_partial)
            if ours.is_partial:
                assert (ours.priced, ours.answers) == (theirs.priced, theirs.answers)


@pytest.mark.django_db(transaction=True)
def test_ended_runs_are_charted_without_reading_their_results() -> None:
    run = finished_run(TEXTS[:2])
    unpriced = finished_run((None, TEXTS[0]))
    for case in unpriced.suite.cases.filter(recorded_output__isnull=False):
        case.recorded_output["cost_usd"] = None
        case.save()
    again = start_run(suite=unpriced.suite, target=unpriced.target, started_by=None)
    work_on_run(again.pk)
    for suite in (run.suite, unpriced.suite):
        with CaptureQueriesContext(connection) as queries:
            found = page(suite)
        assert not [query for query in queries if '"runs_result"' in query["sql"]]
    [charted] = [row for row in found.runs if row.number == again.number]
    # Where nothing was recorded, nothing was spent: that is a price.
    assert (charted.costs.run.priced, charted.costs.run.answers) == (1, 2)


class TestFiles:
    def test_the_cost_file_has_every_run_and_leaves_the_unknown_empty(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="=HYPERLINK(1)", score=0.9, cost="1", passed=20)
        make_charted_run(suite=suite, name="waste", score=0.8, cost="2")
        make_charted_run(suite=suite, name="kestrel", unpriced=1)
        rows = list(csv.DictReader(io.StringIO(score_cost_csv(page(suite).score_cost, "total"))))
        assert [row["target"] for row in rows] == ["'=HYPERLINK(1)", "waste", "kestrel"]
        assert [row["pareto"] for row in rows] == ["front", "dominated", ""]
        assert rows[0]["cost_per_passed_result_usd"] == "0.075000000"
        assert rows[1]["dominated_by_run"] == "1"
        assert (rows[2]["cost_usd"], rows[2]["cost_per_result_usd"]) == ("", "")
        assert rows[2]["unpriced"] == "target: 1 of 2 results priced"

    def test_the_trend_file_begins_with_the_oldest_run(self) -> None:
        suite = make_suite()
        make_charted_run(suite=suite, name="mini", passed=30)
        make_charted_run(suite=suite, name="mini", passed=40)
        rows = list(csv.DictReader(io.StringIO(trend_csv(page(suite).runs[::-1]))))
        assert [row["run"] for row in rows] == ["1", "2"]
        assert [row["pass_rate"] for row in rows] == ["0.75", "1.0"]
        assert rows[0]["mean_score"] == "0.8"
        assert float(rows[0]["pass_rate_low"]) < 0.75 < float(rows[0]["pass_rate_high"])


def test_the_baseline_is_named_in_the_trend() -> None:
    suite = make_suite()
    runs = [make_charted_run(suite=suite, name=name) for name in ("mini", "large")]
    assert page(suite).baseline is None
    suite.baseline_run = runs[0]
    suite.save()
    found = page(suite)
    assert found.baseline == runs[0].number
    assert found.trend.drawing
    heads = [spot.label.split("\n")[0] for spot in found.trend.drawing.spots]
    assert heads == [f"#{runs[0].number} mini, suite v1, the baseline", "#2 large, suite v1"]
