"""The trend of each target, and metrics and dimensions over runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.charts.drawing import Picture
from runs.charts.pictures import parts_picture, trend_picture
from runs.charts.trends import (
    BASE,
    PartMean,
    PartTrend,
    TrendFigure,
    TrendRun,
    part_dots,
    target_trends,
)
from runs.models.results import EvaluatorScore
from tests.support.charts import make_charted_run
from tests.support.factories import make_case, make_result, make_run, make_suite
from tests.support.members import make_client, make_member


def run(number: int, target: str = "mini", **facts: Any) -> TrendRun:
    known = {
        "suite_version": 1,
        "score": TrendFigure(0.8, (0.7, 0.9)),
        "rate": TrendFigure(0.75, (0.6, 0.85), is_below=True),
        "counts": {"pass": 3, "fail": 1},
    }
    return TrendRun(number=number, url=f"run {number}", target=target, **known | facts)


def kinds(picture: Picture, kind: str) -> int:
    assert picture.drawing
    return sum(mark.kind.split(" ")[0] == kind for mark in picture.drawing.below)


def texts(picture: Picture) -> list[str]:
    assert picture.drawing
    drawing = picture.drawing
    return [mark.text for mark in (*drawing.below, *drawing.above) if mark.text]


class TestTrend:
    @pytest.mark.parametrize(
        ("targets", "lines"),
        [
            (["mini"], 0),
            (["mini", "mini"], 0),
            (["mini"] * 3, 2),
            (["mini", "large", "mini", "mini", "large"], 2),
            (["mini", "large"] * 3, 4),
        ],
    )
    def test_a_line_joins_three_runs_of_one_target(self, targets: list[str], lines: int) -> None:
        picture = target_trends([run(place, name) for place, name in enumerate(targets)], limit=0.8)
        assert kinds(picture, "series") == lines

    def test_every_run_is_a_link_that_says_its_figures(self) -> None:
        picture = target_trends(
            [run(7, score=TrendFigure(0.8, (0.7, 0.9), is_below=True))], limit=0.85
        )
        assert picture.drawing
        [spot] = picture.drawing.spots
        assert spot.url == "run 7"
        assert spot.label == (
            "#7 mini, suite v1\nmean score 80.0% (95% CI 70.0% to 90.0%), below its gate\n"
            "pass rate 75.0% (95% CI 60.0% to 85.0%), below its gate; 3 pass, 1 fail"
        )
        assert [mark.kind for mark in spot.marks] == ["hit", "whisker s1", "dot s1 hollow", "", ""]

    def test_the_pass_rate_is_drawn_against_its_own_gate(self) -> None:
        picture = target_trends([run(7)], limit=0.85, shown="rate")
        assert "gate 85%" in texts(picture)
        assert picture.drawing
        assert picture.drawing.spots[0].marks[2].kind == "dot s1 hollow"
        assert picture.note == "Pass rate of 1 of 1 completed run"

    def test_each_line_and_the_newest_run_is_named_at_the_edge_with_its_last_figure(self) -> None:
        targets = ["old", "mini", "mini", "mini", "large"]
        runs = [run(place, name) for place, name in enumerate(targets)]
        picture = target_trends([*runs, run(9, score=TrendFigure(None))], limit=0.8)
        assert picture.drawing
        named = [mark for mark in picture.drawing.above if "narrow" not in mark.kind]
        assert {mark.text: mark.kind for mark in named} == {
            "mini 80.0%": "end s1 wide",
            "large 80.0%": "end s2 wide",
            "gate 80%": "tick",
        }
        places = sorted(float(dict(mark.at)["y"]) for mark in named)
        assert min(after - before for before, after in pairwise(places)) >= 15
        assert places[-1] <= BASE + 4

    def test_new_versions_and_the_gate_are_marked(self) -> None:
        runs = [run(1), run(2, suite_version=2), run(3, suite_version=2)]
        assert {"suite v2", "gate 80%"} <= {*texts(target_trends(runs, limit=0.8))}

    def test_the_targets_that_ran_last_have_looks_of_their_own(self) -> None:
        picture = target_trends([run(place, f"t{place}") for place in range(8)], limit=None)
        named = [key.text for key in picture.legend if key.symbol]
        assert named == ["t7", "t6", "t5", "t4", "t3", "Other targets"]

    def test_a_run_without_a_score_keeps_its_verdicts(self) -> None:
        without = run(1, score=TrendFigure(None), counts={"error": 2})
        picture = target_trends([without, run(2)], limit=0.8)
        assert picture.drawing
        assert [mark.verdict for mark in picture.drawing.spots[0].marks] == ["", "error"]
        assert picture.note == "Mean score of 1 of 2 completed runs"

    @pytest.mark.parametrize("runs", [[], [run(1, score=TrendFigure(None))]])
    def test_without_a_score_it_says_when_it_begins(self, runs: list[TrendRun]) -> None:
        picture = target_trends(runs, limit=0.8)
        assert picture.drawing is None
        assert picture.empty == "A trend begins with the first completed run."


class TestParts:
    def test_every_run_has_its_interval_and_the_latest_is_filled(self) -> None:
        means = [
            PartMean(1, "run 1", "mini", 3.0, 4, (2.5, 3.5)),
            PartMean(2, "run 2", "mini", 4.0, 4, (3.5, 4.5)),
        ]
        picture = part_dots([PartTrend("Tone", 5, means)], runs=[1, 2])
        assert picture.drawing
        assert [[mark.kind for mark in spot.marks] for spot in picture.drawing.spots] == [
            ["whisker earlier", "dot earlier"],
            ["whisker s1", "dot s1"],
        ]
        assert picture.drawing.spots[1].label == (
            "Tone in #2 mini: 4.0 (95% CI 3.5 to 4.5) of 5, 4 results judged"
        )
        assert [row.cells[1] for row in picture.rows] == ["#2", "#1"]
        # The axis begins with the last tick below everything.
        ticks = [text for text in texts(picture) if text != "Tone"]
        assert ticks == ["2", "3", "4", "5"]

    def test_a_metric_that_the_latest_run_lacks_is_not_painted_as_its_own(self) -> None:
        means = [PartMean(1, "run 1", "mini", 3.0, 4)]
        picture = part_dots([PartTrend("Tone", 5, means)], runs=[1, 2])
        assert picture.drawing
        assert [mark.kind for mark in picture.drawing.spots[0].marks] == ["dot earlier"]

    def test_without_metrics_it_says_so(self) -> None:
        assert part_dots([], runs=[1, 2, 3]).empty == "No completed run has metrics or dimensions."


@pytest.mark.django_db
class TestSuites:
    def test_completed_runs_of_a_suite_are_drawn_in_the_same_queries(self) -> None:
        suite = make_suite(slug="support")
        counts = []
        for _ in range(2):
            make_charted_run(suite=suite, name="mini")
            make_charted_run(suite=suite, name="large", status="stopped")
            with CaptureQueriesContext(connection) as queries:
                picture = trend_picture(suite)
            counts.append(len(queries))
        assert counts[0] == counts[1]
        assert [row.values[0] for row in picture.rows] == [3, 1]

    def test_means_come_from_summaries_and_the_interval_from_scores(self) -> None:
        suite = make_suite(slug="support")
        metric = {"path": "judge", "key": "tone", "name": "Tone", "mean": 3.5, "judged": 2}
        made = make_run(suite=suite, summary={"metrics": [metric]})
        for score in (3, 4):
            result = make_result(run=made, case=make_case(suite=suite), verdict="pass", score=0.9)
            EvaluatorScore.objects.create(
                result=result,
                path="judge",
                position=1,
                kind="metrics_judge",
                state="scored",
                score=0.7,
                details={"metrics": [{"key": "tone", "score": score}]},
            )
        [row] = parts_picture(suite).rows
        assert list(row.cells) == ["Tone", "#1", made.target_name, "3.5", "3.0 to 4.0", "2"]

    def test_the_page_of_a_suite_keeps_room_for_the_trend(self) -> None:
        suite = make_suite(slug="support")
        client = make_client(make_member("viewer"))
        url = reverse("runs:suite-picture", args=["support", "trend"])
        page = reverse("runs:suite", args=["support"])
        assert url not in client.get(page).content.decode()
        make_charted_run(suite=suite, name="mini")
        assert f'hx-get="{url}"' in client.get(page).content.decode()
        part = client.get(url, headers={"HX-Request": "true"}).content.decode()
        assert 'aria-label="#1 mini, suite v' in part
        file = client.get(reverse("runs:suite-picture-file", args=["support", "trend"]))
        assert file.content.decode().startswith("run,target,suite_version,mean_score")
