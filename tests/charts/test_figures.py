"""The figures and the Pareto front, from tables of values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import plotly.graph_objects as go
import pytest

from runs.charts.figures import (
    Offer,
    TrendPoint,
    dominators,
    money_axis,
    pareto_front,
    score_cost_figure,
    trend_figure,
)


def offer(number: int, score: float, cost: str, latency: float | None = 1000.0) -> Offer:
    return Offer(number, f"agent {number}", score, Decimal(cost), latency)


def beaten(*offers: Offer) -> dict[int, int | None]:
    return {number: by and by.number for number, by in dominators(offers).items()}


class TestFront:
    @pytest.mark.parametrize(
        ("offers", "expected"),
        [
            ([], {}),
            ([(1, 0.5, "1")], {1: None}),
            # dearer and better: both are choices
            ([(1, 0.5, "1"), (2, 0.6, "2")], {1: None, 2: None}),
            # dearer and worse
            ([(1, 0.5, "1"), (2, 0.4, "2")], {1: None, 2: 1}),
            # as good for more
            ([(1, 0.5, "1"), (2, 0.5, "2")], {1: None, 2: 1}),
            # better for the same
            ([(1, 0.5, "1"), (2, 0.6, "1")], {1: 2, 2: None}),
            # the same offer twice: neither beats the other
            ([(1, 0.5, "1"), (2, 0.5, "1")], {1: None, 2: None}),
            # of several that beat it, the best scoring is named
            ([(1, 0.6, "1"), (2, 0.8, "2"), (3, 0.5, "3")], {1: None, 2: None, 3: 2}),
            # floats that differ behind the ninth decimal are the same score
            ([(1, 0.1 + 0.2, "1"), (2, 0.3, "1")], {1: None, 2: None}),
            # what costs nothing is the cheapest, not unknown
            ([(1, 0.2, "0"), (2, 0.1, "0.01")], {1: None, 2: 1}),
        ],
    )
    def test_a_run_is_beaten_by_one_that_costs_no_more_and_scores_no_less(
        self, offers: list[tuple[int, float, str]], expected: dict[int, int | None]
    ) -> None:
        assert beaten(*(offer(*one) for one in offers)) == expected
        assert beaten(*(offer(*one) for one in reversed(offers))) == expected

    def test_the_front_begins_with_the_cheapest(self) -> None:
        found = pareto_front([offer(1, 0.9, "3"), offer(2, 0.5, "1"), offer(3, 0.4, "2")])
        assert [one.number for one in found] == [2, 1]


def score_cost(*offers: Offer) -> Any:
    return score_cost_figure(offers, axis="Total cost", limit=0.8, hover=lambda one: one.name)


def trend(*points: TrendPoint) -> Any:
    return trend_figure(points, limits=[0.8, 1.0], hover=lambda one: f"#{one.number}")


def assert_draws(figure: Any) -> None:
    """Check both drawings against plotly's own description of a figure."""
    for drawing in (figure.wide, figure.narrow):
        go.Figure(data=drawing["data"], layout=drawing["layout"])
        assert all(trace["type"] == "scatter" for trace in drawing["data"])


class TestScoreCost:
    def test_nothing_priced_draws_nothing(self) -> None:
        assert score_cost() is None

    @pytest.mark.parametrize("costs", [["0"], ["0", "0"], ["0.01"], ["0", "2"], ["0.001", "4"]])
    def test_every_spread_of_costs_can_be_drawn(self, costs: list[str]) -> None:
        figure = score_cost(*(offer(n, 0.5 + n / 10, cost) for n, cost in enumerate(costs, 1)))
        assert_draws(figure)
        axis = figure.wide["layout"]["xaxis"]
        assert (axis.get("type") == "log") == (costs == ["0.001", "4"])

    def test_bubbles_grow_with_latency_and_one_without_is_a_diamond(self) -> None:
        figure = score_cost(
            offer(1, 0.5, "1", 100), offer(2, 0.6, "2", 400), offer(3, 0.7, "3", None)
        )
        bubbles = figure.wide["data"][1]
        sizes = dict(zip(bubbles["text"], bubbles["marker"]["size"], strict=True))
        assert sizes["agent 2 #2"] > sizes["agent 1 #1"] > sizes["agent 3 #3"]
        symbols = dict(zip(bubbles["text"], bubbles["marker"]["symbol"], strict=True))
        assert symbols == {
            "agent 1 #1": "circle",
            "agent 2 #2": "circle",
            "agent 3 #3": "diamond",
        }

    def test_a_dominated_run_is_hollow(self) -> None:
        bubbles = score_cost(offer(1, 0.5, "1"), offer(2, 0.4, "2")).wide["data"][1]
        colours = dict(zip(bubbles["text"], bubbles["marker"]["color"], strict=True))
        assert colours == {"agent 1 #1": "var(--accent)", "agent 2 #2": "var(--paper)"}

    def test_points_have_their_intervals_and_open_their_runs(self) -> None:
        known = Offer(1, "mini", 0.5, Decimal(1), None, (0.4, 0.7), "/run/1")
        bubbles = score_cost(known, offer(2, 0.4, "2")).wide["data"][1]
        found = dict(zip(bubbles["customdata"], bubbles["error_y"]["array"], strict=True))
        assert found == {"/run/1": pytest.approx(0.2), "": 0}

    def test_the_front_ends_with_its_best_run(self) -> None:
        front = score_cost(offer(1, 0.5, "1"), offer(2, 0.6, "2")).wide["data"][0]
        assert (front["x"], front["y"]) == ([1.0, 2.0], [0.5, 0.6])
        assert "fill" not in front

    def test_two_hundred_runs_name_only_the_front(self) -> None:
        offers = [offer(n, 0.5, str(n)) for n in range(1, 200)] + [offer(200, 0.9, "300")]
        figure = score_cost(*offers)
        assert_draws(figure)
        named = [name for name in figure.wide["data"][1]["text"] if name]
        assert sorted(named) == ["agent 1 #1", "agent 200 #200"]
        assert "agent 1 #1, agent 200 #200" in figure.label

    def test_names_that_would_meet_leave_room_for_the_front(self) -> None:
        close = [offer(1, 0.80, "1"), offer(2, 0.799, "1.001"), offer(3, 0.5, "3")]
        for drawing in (score_cost(*close).wide, score_cost(*close).narrow):
            named = [name for name in drawing["data"][1]["text"] if name]
            assert len(named) == 2
            assert not any("#2" in name for name in named)

    def test_tags_in_a_name_stay_text(self) -> None:
        hostile = Offer(1, '<a href="//elsewhere">x</a>', 0.5, Decimal(1))
        bubbles = score_cost(hostile).wide["data"][1]
        assert "<a" not in bubbles["text"][0]
        assert "<a" not in bubbles["hovertext"][0]


def point(number: int, **more: Any) -> TrendPoint:
    facts = {
        "target": "mini",
        "suite_version": 1,
        "score": 0.7,
        "rate": 0.5,
        "interval": (0.4, 0.6),
    }
    return TrendPoint(number, **facts | more)


class TestTrend:
    def test_runs_without_a_figure_draw_nothing(self) -> None:
        assert trend() is None
        assert trend(point(1, score=None, rate=None, interval=None)) is None

    def test_one_run_is_a_point_with_its_interval(self) -> None:
        figure = trend(point(4))
        assert_draws(figure)
        rate, score = figure.wide["data"]
        assert (rate["y"], score["y"]) == ([0.5], [0.7])
        assert rate["error_y"]["array"] == [pytest.approx(0.1)]
        assert score["error_y"]["array"] == [0.0]
        assert "run #4" in figure.label

    def test_both_figures_carry_their_interval_over_their_run(self) -> None:
        rate, score = trend(point(4, score_interval=(0.65, 0.8))).wide["data"]
        assert score["error_y"]["array"] == [pytest.approx(0.1)]
        assert score["error_y"]["arrayminus"] == [pytest.approx(0.05)]
        assert list(rate["x"]) == list(score["x"]) == [0]

    def test_a_line_joins_three_runs_of_one_target(self) -> None:
        def modes(*targets: str) -> set[str]:
            points = [point(number, target=target) for number, target in enumerate(targets)]
            return {trace["mode"] for trace in trend(*points).wide["data"]}

        assert modes("mini", "mini", "mini") == {"lines+markers"}
        assert modes("mini", "mini") == {"markers"}
        assert modes("mini", "mini", "maxi") == {"markers"}
        assert modes(*["mini", "maxi"] * 60) == {"markers"}

    def test_a_missing_score_is_a_gap_and_never_zero(self) -> None:
        figure = trend(point(1), point(2, score=None), point(3))
        assert figure.wide["data"][1]["y"] == [0.7, None, 0.7]

    def test_a_figure_below_its_gate_is_hollow(self) -> None:
        rate, score = trend(point(1, is_rate_below=True)).wide["data"]
        assert rate["marker"]["color"] == ["var(--paper)"]
        assert score["marker"]["color"] == ["var(--accent)"]

    def test_two_hundred_runs_share_a_band_and_a_few_names(self) -> None:
        figure = trend(*(point(n, score_interval=(0.6, 0.8)) for n in range(1, 201)))
        assert_draws(figure)
        low, high, score_low, _, rate, _ = figure.wide["data"]
        assert (low["y"][0], high["y"][0], score_low["y"][0]) == (0.4, 0.6, 0.6)
        assert "error_y" not in rate
        assert rate["mode"] == "lines"
        names = figure.wide["layout"]["xaxis"]["ticktext"]
        assert names[-1] == "#200"
        assert len(names) <= 14
        assert len(figure.narrow["layout"]["xaxis"]["ticktext"]) <= 5

    def test_each_gate_has_a_line_of_its_figures_colour_and_both_share_one_at_the_same_height(
        self,
    ) -> None:
        def colors(*limits: float) -> list[str]:
            found = trend_figure([point(1)], limits=limits, hover=lambda _: "")
            assert found
            return [line["line"]["color"] for line in found.wide["layout"]["shapes"]]

        assert colors(0.8, 1.0) == ["var(--accent)", "var(--teal)"]
        assert colors(0.8, 0.8) == ["var(--ink-3)"]

    def test_a_new_version_of_the_suite_is_marked(self) -> None:
        notes = trend(point(1), point(2, suite_version=2)).wide["layout"]["annotations"]
        assert [note["text"] for note in notes] == ["suite v2"]


def test_costs_of_millionths_are_written_out_on_their_axis() -> None:
    axis = money_axis([0.00005, 0.00009], is_narrow=False)
    assert (axis["tickprefix"], axis["dtick"], axis["tickformat"]) == ("$", 0.00001, ".5f")


@pytest.mark.parametrize(
    ("costs", "step", "digits"),
    [([0.005, 0.013], 0.002, ".3f"), ([3.0, 9.0], 2.0, ".0f"), ([0.01], 0.001, ".3f")],
)
def test_ticks_of_money_have_the_same_decimals(
    costs: list[float], step: float, digits: str
) -> None:
    axis = money_axis(costs, is_narrow=False)
    assert (axis["dtick"], axis["tickformat"]) == (step, digits)
