"""The figure of score against cost and the Pareto front, from tables of values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import plotly.graph_objects as go
import pytest

from runs.charts.figures import (
    Offer,
    dominators,
    money_axis,
    pareto_front,
    score_cost_figure,
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


def points(figure: Any, drawing: str = "wide") -> dict[str, Any]:
    """Return the points of both traces as one."""
    traces = [trace for trace in getattr(figure, drawing)["data"] if "markers" in trace["mode"]]
    joined = {
        name: [value for trace in traces for value in trace[name]]
        for name in ("x", "y", "text", "hovertext", "customdata")
    }
    for name in ("size", "symbol"):
        joined[name] = [value for trace in traces for value in trace["marker"][name]]
    joined["array"] = [value for trace in traces for value in trace["error_y"]["array"]]
    joined["series"] = [trace["name"] for trace in traces for _ in trace["x"]]
    return joined


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
        bubbles = points(figure)
        sizes = dict(zip(bubbles["text"], bubbles["size"], strict=True))
        assert sizes["agent 2 #2"] > sizes["agent 1 #1"] > sizes["agent 3 #3"]
        symbols = dict(zip(bubbles["text"], bubbles["symbol"], strict=True))
        assert symbols == {
            "agent 1 #1": "circle",
            "agent 2 #2": "circle",
            "agent 3 #3": "diamond",
        }

    def test_a_dominated_run_is_hollow_and_a_series_of_its_own(self) -> None:
        figure = score_cost(offer(1, 0.5, "1"), offer(2, 0.4, "2"))
        bubbles = points(figure)
        series = dict(zip(bubbles["text"], bubbles["series"], strict=True))
        assert series == {"agent 1 #1": "front", "agent 2 #2": "dominated"}
        colours = {trace["name"]: trace["marker"]["color"] for trace in figure.wide["data"][1:]}
        assert colours == {"front": "var(--accent)", "dominated": "var(--paper)"}

    def test_the_gate_is_named_behind_the_end_of_its_line(self) -> None:
        layout = score_cost(offer(1, 0.5, "1")).wide["layout"]
        [line], [name] = layout["shapes"], layout["annotations"]
        assert (line["y0"], line["y1"], name["y"], name["text"]) == (
            0.8,
            0.8,
            0.8,
            "gate 80%",
        )
        assert line["name"] == name["name"] == "limit"
        assert (name["x"], name["xanchor"]) == (line["x1"], "left")

    def test_points_have_their_intervals_and_open_their_runs(self) -> None:
        known = Offer(1, "mini", 0.5, Decimal(1), None, (0.4, 0.7), "/run/1")
        bubbles = points(score_cost(known, offer(2, 0.4, "2")))
        found = dict(zip(bubbles["customdata"], bubbles["array"], strict=True))
        assert found == {"/run/1": pytest.approx(0.2), "": 0}

    def test_the_front_ends_with_its_best_run(self) -> None:
        front = score_cost(offer(1, 0.5, "1"), offer(2, 0.6, "2")).wide["data"][0]
        assert (front["x"], front["y"]) == ([1.0, 2.0], [0.5, 0.6])
        assert "fill" not in front

    def test_two_hundred_runs_name_only_the_front(self) -> None:
        offers = [offer(n, 0.5, str(n)) for n in range(1, 200)] + [offer(200, 0.9, "300")]
        figure = score_cost(*offers)
        assert_draws(figure)
        named = [name for name in points(figure)["text"] if name]
        assert sorted(named) == ["agent 1 #1", "agent 200 #200"]
        assert "agent 1 #1, agent 200 #200" in figure.label

    def test_names_of_neighbours_stand_on_different_sides(self) -> None:
        close = score_cost(offer(1, 0.80, "1"), offer(2, 0.799, "1.001"), offer(3, 0.5, "3"))
        for drawing, prefix in (("wide", "agent 1 "), ("narrow", "")):
            traces = getattr(close, drawing)["data"][1:]
            names = {
                name: place
                for trace in traces
                for name, place in zip(trace["text"], trace["textposition"], strict=True)
            }
            assert f"{prefix}#1" in names
            assert len({place for name, place in names.items() if name}) > 1

    def test_tags_in_a_name_stay_text(self) -> None:
        hostile = Offer(1, '<a href="//elsewhere">x</a>', 0.5, Decimal(1))
        bubbles = points(score_cost(hostile))
        assert "<a" not in bubbles["text"][0]
        assert "<a" not in bubbles["hovertext"][0]


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


def test_ticks_of_money_far_apart_have_the_same_decimals_below_a_dollar() -> None:
    assert money_axis([0.004, 0.05], is_narrow=False)["ticktext"] == [
        *("$0.005", "$0.010", "$0.020", "$0.050"),
    ]
    assert money_axis([0.004, 5.0], is_narrow=False)["ticktext"][-2:] == ["$1", "$3"]
