"""The distributions of scores, latencies and costs: their columns, and the filters of these."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from pytest_django.asserts import assertNumQueries

from evaluators.scoring.policy import PolicySpec
from runs.charts.distributions import COST, LATENCY, CaseFigures, Side, distribution, passes, scores
from runs.charts.drawing import Picture
from runs.charts.figures import nice_step
from runs.charts.pictures import (
    COMPARISON_PICTURES,
    RUN_PICTURES,
    compared_scores,
    scores_picture,
)
from runs.compare.changes import ComparisonQuery
from runs.filters.queries import ResultsQuery, matching_cases, matching_keys
from tests.support.factories import make_case, make_result, make_run, make_scored_run, make_suite
from tests.support.members import make_client, make_member


def side(*values: Any, name: str = "#2", state: str = "pass", field: str = "score") -> Side:
    empty = {"score": None, "latency_ms": None, "cost_usd": None, "passes": None}
    cases = [
        CaseFigures(f"C-{place}", state, **empty | {field: value})
        for place, value in enumerate(values)
    ]
    return Side(name, cases)


def as_filter(text: str) -> str:
    return text


def drawn(picture: Picture) -> dict[str, list[str]]:
    """Return the rows of the table by their spans."""
    return {row.cells[0]: list(row.cells[1:]) for row in picture.rows}


class TestColumns:
    def test_scores_are_counted_up_to_the_next_edge(self) -> None:
        picture = distribution(scores(1), side(0.8, 0.849999, 0.85, 1.0), address=as_filter)
        assert drawn(picture) == {
            "0.80 to 0.85": ["2", "2"],
            "0.85 to 0.90": ["1", "1"],
            "0.95 to 1.00": ["1", "1"],
        }
        assert [row.url for row in picture.rows] == [
            "score >= 0.8 score < 0.85",
            "score >= 0.85 score < 0.9",
            "score >= 0.95",
        ]

    def test_the_axis_begins_below_scores_and_thresholds(self) -> None:
        high = distribution(scores(1), side(0.97), policy=PolicySpec(), address=as_filter)
        assert high.drawing
        texts = [mark.text for mark in high.drawing.below if mark.kind == "tick"]
        assert texts[-3:] == ["0.60", "0.80", "1.00"]
        assert [mark.text for mark in high.drawing.above if mark.text] == [
            "pass 0.80",
            "borderline 0.60",
        ]
        low = distribution(scores(10), side(0.1), address=as_filter)
        assert low.drawing
        assert "0.0" in [mark.text for mark in low.drawing.below]

    def test_a_column_is_stacked_by_verdict(self) -> None:
        cases = [*side(0.9, 0.9).cases, *side(0.9, state="fail").cases]
        picture = distribution(scores(1), Side("#2", cases), address=as_filter)
        assert picture.drawing
        [spot] = picture.drawing.spots
        assert spot.label == "0.90 to 0.95: 3 cases (2 pass, 1 fail)"
        assert [mark.verdict for mark in spot.marks] == ["", "pass", "fail"]
        assert drawn(picture) == {"0.90 to 0.95": ["2", "1", "3"]}

    def test_latencies_have_round_steps_and_their_middle(self) -> None:
        picture = distribution(
            LATENCY, side(900, 1500, 3100, field="latency_ms"), address=as_filter
        )
        assert [row.url for row in picture.rows] == [
            "latency >= 800ms latency < 1000ms",
            "latency >= 1400ms latency < 1600ms",
            "latency >= 3000ms latency < 3200ms",
        ]
        assert picture.label == "Latency of 3 cases of #2: median 1.5\xa0s, p95 3.1\xa0s"

    def test_a_few_high_values_share_the_last_column(self) -> None:
        picture = distribution(
            LATENCY, side(*[1000] * 40, 60_000, field="latency_ms"), address=as_filter
        )
        assert picture.rows[-1].cells[0] == "1.3\xa0s or more"
        assert picture.rows[-1].url == "latency >= 1300ms"

    def test_costs_are_exact(self) -> None:
        cases = side(Decimal("0.0041"), Decimal("0.006"), field="cost_usd")
        picture = distribution(COST, cases, address=as_filter)
        assert picture.rows[0].url == "cost >= $0.004 cost < $0.0045"
        assert picture.drawing
        texts = [mark.text for mark in picture.drawing.below]
        assert [text for text in texts if "$" in text] == ["$0.002", "$0.004", "$0.006"]

    @pytest.mark.parametrize("value", [0.001, 0.99, 1.0, 7.0, 12345.678])
    def test_one_case_is_one_column(self, value: float) -> None:
        picture = distribution(LATENCY, side(value, field="latency_ms"), address=as_filter)
        assert [row.cells[-1] for row in picture.rows] == ["1"]
        assert picture.note == "1 of 1 case"

    def test_repetitions_are_counted_by_how_many_passed(self) -> None:
        cases = side(0, 4, 4, 3, None, field="passes")
        picture = distribution(passes(4), cases, address=as_filter)
        assert drawn(picture) == {"0 of 4": ["1", "1"], "3 of 4": ["1", "1"], "4 of 4": ["2", "2"]}
        assert picture.note == "4 of 5 cases, 3 agree in every repetition"
        assert [row.url for row in picture.rows][1] == "passes >= 3 passes < 4"
        assert picture.drawing
        ticks = [mark.text for mark in picture.drawing.below if mark.kind == "tick"]
        assert ticks[-5:] == ["0", "1", "2", "3", "4"]

    def test_many_repetitions_share_columns(self) -> None:
        cases = side(0, 99, 100, field="passes")
        picture = distribution(passes(100), cases, address=as_filter)
        assert list(drawn(picture)) == ["0 to 9 of 100", "90 to 99 of 100", "100 of 100"]

    def test_both_runs_share_their_columns(self) -> None:
        picture = distribution(
            scores(1), side(0.9, 0.9), baseline=side(0.7, 0.9, None, name="#1"), address=as_filter
        )
        assert drawn(picture) == {"0.70 to 0.75": ["0", "0", "1"], "0.90 to 0.95": ["2", "2", "1"]}
        assert picture.note == "#2 2 of 2, #1 2 of 3"
        assert [(key.kind, key.text) for key in picture.legend[-1:]] == [("before", "#1")]
        # Only the baseline has cases here, and the filter asks about the candidate.
        assert [row.url for row in picture.rows] == ["", "score >= 0.9 score < 0.95"]

    @pytest.mark.parametrize(
        ("cases", "words"),
        [
            (side(), "No case has a score."),
            (side(None, None, state="error"), "No case has a score."),
        ],
    )
    def test_without_a_figure_it_says_so(self, cases: Side, words: str) -> None:
        picture = distribution(scores(1), cases, address=as_filter)
        assert (picture.drawing, picture.empty) == (None, words)

    def test_nothing_spent_is_no_column(self) -> None:
        picture = distribution(COST, side(Decimal(0), field="cost_usd"), address=as_filter)
        assert (picture.drawing, picture.empty) == (None, "Every case has a cost of 0.")

    def test_cases_without_the_figure_are_counted_and_linked(self) -> None:
        picture = distribution(scores(1), side(0.9, None), address=as_filter)
        assert picture.note == "1 of 2 cases"
        assert (picture.rest, picture.rest_url) == ("1 without", "score = none")

    @pytest.mark.parametrize(
        ("span", "most", "step"),
        [("1", 4, "0.5"), ("30", 4, "10"), ("0.0043", 16, "0.0005"), ("7", 16, "0.5")],
    )
    def test_steps_are_round(self, span: str, most: int, step: str) -> None:
        assert nice_step(Decimal(span), most) == Decimal(step)


def text_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["q"][0]


@pytest.mark.django_db
class TestFilters:
    @pytest.mark.parametrize("name", RUN_PICTURES)
    def test_a_column_lists_exactly_its_cases(self, name: str) -> None:
        run = make_run(suite=make_suite())
        values: Sequence[tuple[float, int, str]] = [
            *((0.1 + place / 20, 700 + 350 * place, f"0.00{place}1") for place in range(1, 10)),
            *((0.3, 5000, "0.2"), (0.55, 100, "0"), (1.0, 90_000, "0.0001")),
        ]
        for score, latency, cost in values:
            case = make_case(suite=run.suite)
            make_result(
                run=run,
                case=case,
                verdict="pass",
                score=score,
                latency_ms=latency,
                run_cost_usd=Decimal(cost),
                evaluation_cost_usd=None,
            )
        picture = RUN_PICTURES[name](run)
        assert sum(int(row.values[-1]) for row in picture.rows) == len(values)  # type: ignore[call-overload]
        for row in picture.rows:
            found = matching_cases(run, ResultsQuery(text=text_of(row.url)))
            assert found.count() == row.values[-1], row.cells[0]

    def test_a_column_of_a_comparison_lists_the_candidates_cases(self) -> None:
        suite = make_suite()
        before = make_scored_run(suite=suite, verdicts=["pass", "fail", "error"])
        after = make_scored_run(suite=suite, verdicts=["pass", "pass", "borderline"])
        picture = compared_scores(before, after)
        for row in picture.rows:
            if row.url:
                query = ComparisonQuery.read(dict(_pairs(row.url)))
                assert query.show == "all"
                assert len(matching_keys([after], before, query.text)) == row.values[-2]


def _pairs(url: str) -> list[tuple[str, str]]:
    return [(name, values[0]) for name, values in parse_qs(urlsplit(url).query).items()]


@pytest.mark.django_db
class TestPages:
    def test_the_page_of_a_run_only_keeps_room_for_its_pictures(self) -> None:
        run = make_scored_run(suite=make_suite(slug="support"), verdicts=["pass", "fail"])
        client = make_client(make_member("viewer"))
        html = client.get(reverse("runs:run", args=["support", run.number])).content.decode()
        for name in RUN_PICTURES:
            url = reverse("runs:run-picture", args=["support", run.number, name])
            # One repetition agrees with itself.
            assert (f'hx-get="{url}"' in html) == (name != "repetitions")
        assert 'class="picture"' not in html

    def test_a_picture_is_a_part_or_a_page(self) -> None:
        run = make_scored_run(suite=make_suite(slug="support"), verdicts=["pass", "fail"])
        client = make_client(make_member("viewer"))
        url = reverse("runs:run-picture", args=["support", run.number, "scores"])
        part = client.get(url, headers={"HX-Request": "true"})
        assert part.status_code == 200
        assert b"<html" not in part.content
        assert b'aria-label="0.40 to 0.45: 1 case (1 fail)" tabindex="0"' in part.content
        assert b'aria-label="0.90 to 0.95: 1 case (1 pass)" tabindex="-1"' in part.content
        page = client.get(url)
        assert b"<html" in page.content
        assert "HX-Request" in page["Vary"]

    def test_asking_ends_with_the_run(self) -> None:
        suite = make_suite(slug="support")
        active = make_scored_run(suite=suite, verdicts=["pass", "pending"], status="running")
        over = make_scored_run(suite=suite, verdicts=["pass"])
        client = make_client(make_member("viewer"))
        states = [
            client.get(
                reverse("runs:run-picture", args=["support", run.number, "scores"]) + "?live=1",
                headers={"HX-Request": "true"},
            ).status_code
            for run in (active, over)
        ]
        assert states == [200, 286]

    def test_the_tables_are_files(self) -> None:
        suite = make_suite(slug="support")
        before = make_scored_run(suite=suite, verdicts=["pass", "fail"])
        after = make_scored_run(suite=suite, verdicts=["pass", "pass"])
        client = make_client(make_member("viewer"))
        one = client.get(
            reverse("runs:run-picture-file", args=["support", before.number, "scores"])
        )
        assert one.content.decode().splitlines() == [
            "score_from,pass,fail,cases",
            "0.4,0,1,1",
            "0.9,1,0,1",
        ]
        named = {"baseline": "support:1", "candidate": f"support:{after.number}"}
        both = client.get(reverse("runs:comparison-picture-file", args=["scores"]), named)
        assert both.content.decode().splitlines()[0] == "score_from,pass,cases,cases_in_baseline"

    @pytest.mark.parametrize("name", COMPARISON_PICTURES)
    def test_a_comparison_has_the_same_pictures(self, name: str) -> None:
        suite = make_suite(slug="support")
        for _ in range(2):
            make_scored_run(suite=suite, verdicts=["pass", "fail"])
        client = make_client(make_member("viewer"))
        named = {"baseline": "support:1", "candidate": "support:2"}
        url = reverse("runs:comparison-picture", args=[name])
        part = client.get(url, named, headers={"HX-Request": "true"})
        assert b'class="picture"' in part.content
        assert client.get(url, {"baseline": "support:1"}).status_code == 404
        assert (
            f"{url}?baseline=support:1&amp;candidate=support:2"
            in client.get(reverse("runs:compare"), named).content.decode()
        )

    def test_there_are_no_other_pictures(self) -> None:
        run = make_scored_run(suite=make_suite(slug="support"), verdicts=["pass"])
        client = make_client(make_member("viewer"))
        url = reverse("runs:run-picture", args=["support", run.number, "weather"])
        assert client.get(url).status_code == 404

    def test_a_picture_takes_one_query_for_any_number_of_cases(self) -> None:
        few = make_scored_run(verdicts=["pass"])
        many = make_scored_run(verdicts=["pass", "fail", "borderline"] * 20)
        for run in (few, many):
            with assertNumQueries(1):
                scores_picture(run)
