"""Score against score: which cases share a point, how points look, and where they lead."""

from __future__ import annotations

import pytest

from runs.charts.distributions import CaseFigures, Side
from runs.charts.drawing import Picture
from runs.charts.scatter import scatter


def side(name: str, **scores: float | None) -> Side:
    cases = [CaseFigures(key, verdict(score), score, None, None) for key, score in scores.items()]
    return Side(name, cases)


def verdict(score: float | None) -> str:
    if score is None:
        return "error"
    return "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"


def drawn(before: Side, after: Side) -> Picture:
    return scatter(
        before,
        after,
        scale=1,
        case_address=lambda key: f"case {key}",
        address=lambda text: f"list {text}",
    )


def points(picture: Picture) -> list[tuple[str, str, str]]:
    assert picture.drawing
    return [(spot.label, spot.url, spot.marks[0].kind) for spot in picture.drawing.spots]


def test_each_case_is_a_point_that_opens_it() -> None:
    picture = drawn(side("#1", a=0.9, b=0.3, c=0.9), side("#2", a=0.4, b=0.85, c=0.95))
    assert sorted(points(picture)) == [
        ("a: 0.90 in #1, 0.40 in #2, worse verdict", "case a", "pair worse"),
        ("b: 0.30 in #1, 0.85 in #2, better verdict", "case b", "pair better"),
        ("c: 0.90 in #1, 0.95 in #2", "case c", "pair same"),
    ]
    assert picture.label == (
        "Score in #2 against score in #1: 1 case lower, 1 with a worse verdict, 1 with a better one"
    )


def test_the_table_begins_with_the_largest_drop() -> None:
    picture = drawn(side("#1", a=0.9, b=0.3), side("#2", a=0.4, b=0.85))
    assert [list(row.cells) for row in picture.rows] == [
        ["a", "0.90", "0.40", "−0.50"],
        ["b", "0.30", "0.85", "+0.55"],
    ]


def test_equal_cases_share_a_point_that_lists_them() -> None:
    picture = drawn(side("#1", a=1.0, b=1.0), side("#2", a=1.0, b=1.0))
    assert points(picture) == [
        ("2 cases near 1.00 in #1, 1.00 in #2", "list case = a, b", "pair same")
    ]


def test_more_cases_than_a_filter_can_name_have_no_link() -> None:
    many = {f"case-{number}": 1.0 for number in range(400)}
    [(label, url, _)] = points(drawn(side("#1", **many), side("#2", **many)))
    assert label.startswith("400 cases")
    assert url == ""


def test_twenty_thousand_cases_are_few_points_and_a_short_table() -> None:
    before = {f"c{number}": number / 20_000 for number in range(20_000)}
    after = {key: 1 - score for key, score in before.items()}
    picture = drawn(side("#1", **before), side("#2", **after))
    assert len(points(picture)) < 200
    assert len(picture.rows) == 20_000
    listed = [(url, len([*cells])) for url, cells in picture.listed_rows]
    assert len(listed) == 100
    assert all(url and count == 4 for url, count in listed)
    assert picture.as_csv().count("\n") == 20_001


def test_cases_without_a_score_in_both_runs_are_not_drawn() -> None:
    picture = drawn(side("#1", a=0.9, b=None, c=0.5), side("#2", a=0.9, b=0.5, d=0.5))
    assert len(points(picture)) == 1
    assert picture.note == "1 of 4 cases"


@pytest.mark.parametrize("score", [0.0, 0.79, 1.0])
def test_one_case_is_one_point(score: float) -> None:
    assert len(points(drawn(side("#1", a=score), side("#2", a=score)))) == 1


def test_without_a_pair_it_says_so() -> None:
    picture = drawn(side("#1", a=None), side("#2", a=0.9))
    assert (picture.drawing, picture.empty) == (None, "No case has a score in both runs.")
