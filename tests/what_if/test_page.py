"""What-if as a page lists it, without a database: the drawing of scores, and flips by the harm they do."""

from __future__ import annotations

import pytest

from runs.what_if.asking import Band, CaseFlip, ExecutionFlip, FlipSide, Histogram, ScoreBin
from runs.what_if.deciding import Stale
from runs.what_if.panel import (
    NARROW,
    WIDE,
    FlipQuery,
    by_harm,
    score_change,
    score_histogram,
    unanswered_evaluators,
)

BANDS = (Band("borderline", 0.6), Band("pass", 0.8))


def drawn(counts: dict[int, tuple[int, int]], before=BANDS, after=BANDS, scale: int = 1):
    bins = tuple(
        ScoreBin(at / 20, (at + 1) / 20, *counts.get(at, (0, 0)))  # twenty bins of 0.05
        for at in range(20)
    )
    return score_histogram(Histogram(bins, before, after), scale)


def flip(key: str, before: str, after: str, review: str = "") -> CaseFlip:
    sides = FlipSide(before, 0.5), FlipSide(after, 0.5)
    return CaseFlip(1, key, *sides, (ExecutionFlip(1, 1, *sides, "pass", review),))


def test_bars_have_the_colour_of_the_band_they_lie_in_and_are_cut_where_one_begins():
    wide = drawn({10: (2, 2), 12: (1, 1), 19: (4, 4)}).wide
    assert [bar.verdict for bar in wide.bars] == ["fail", "borderline", "pass"]
    assert [bar.height for bar in wide.bars] == ["42.0", "21.0", "84.0"]
    moved = drawn({12: (1, 1)}, after=(Band("borderline", 0.62), Band("pass", 0.63))).wide
    assert [bar.verdict for bar in moved.bars] == ["fail", "borderline", "pass"]
    assert [mark.text for mark in moved.bands] == ["borderline 0.62", "pass 0.63"]
    assert len(moved.old_bands) == 2


def test_bars_before_are_outlined_only_where_they_differ():
    found = drawn({12: (1, 1), 13: (3, 0), 14: (0, 3)})
    assert (len(found.wide.bars), len(found.wide.outlines)) == (2, 1)
    assert found.has_outlines
    assert not found.has_old_bands
    assert [(row.scores, row.before, row.after) for row in found.rows] == [
        ("0.60 to 0.65", 1, 1),
        ("0.65 to 0.70", 3, 0),
        ("0.70 to 0.75", 0, 3),
    ]


@pytest.mark.parametrize("counts", [{}, {0: (1, 1)}, {19: (0, 7)}, {19: (1, 0)}])
@pytest.mark.parametrize(
    "bands", [BANDS, (Band("fallback", 0.8),), (Band("borderline", 1.0), Band("pass", 1.0))]
)
def test_nothing_is_drawn_outside_of_the_drawing(counts, bands):
    found = drawn(counts, after=bands)
    for one, width in ((found.wide, WIDE), (found.narrow, NARROW)):
        for bar in (*one.bars, *one.outlines):
            assert 0 <= float(bar.x) <= float(bar.x) + float(bar.width) <= width + 0.1
            assert 0 <= float(bar.y) <= 110
        for mark in (*one.ticks, *one.bands, *one.old_bands):
            assert 0 <= float(mark.x) <= width
        assert (one.ticks[0].anchor, one.ticks[-1].anchor) == ("start", "end")


def test_scores_are_spelt_on_the_scale_of_the_suite_and_outcomes_have_no_bands():
    found = drawn({12: (1, 1)}, after=(Band("fallback", 0.8),), scale=100)
    assert found.label == "Histogram of the scores of 1 result; fallback from 80"
    assert [bar.verdict for bar in found.wide.bars] == [""]
    assert found.rows[0].scores == "60 to 65"


def test_flips_are_listed_by_the_harm_they_do():
    flips = [
        flip("rise", "fail", "pass"),
        flip("slip", "pass", "borderline"),
        flip("fall", "pass", "fail"),
        flip("inside", "fail", "fail"),
        flip("wait", "fail", "waiting"),
        flip("against", "borderline", "pass", "contradicted"),
    ]
    keys = [one.key for one in by_harm(flips)]
    assert keys == ["against", "fall", "slip", "wait", "rise", "inside"]


def test_an_address_that_cannot_be_read_asks_for_all():
    odd = FlipQuery.read({"page": "-1", "review": "none", "run": "9" * 30})
    assert (odd.page, odd.review, len(odd.run)) == (1, "", 9)
    assert FlipQuery(run="3", change="pass-fail", page=2).here == "?run=3&change=pass-fail&page=2"
    assert FlipQuery().at("") == ""


def test_what_stays_open_is_said_with_what_it_needs_and_what_stands_in():
    stale = (
        Stale("tone", "tone", "llm_judge", "its settings changed", "kept", "judge", 3, 9),
        Stale("fit", "fit", "code_judge", "it is new", "open", "script", 1, 1200),
    )
    assert [(one.name, one.needs, one.instead) for one in unanswered_evaluators(stale)] == [
        ("tone", "new model calls", "its stored score is used for 3 of 9 results"),
        ("fit", "its script to run again", "1 of 1\u202f200 results waits for it"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "scale", "shown"),
    [
        (0.71, 0.88, 1, "0.71 → 0.88"),
        (0.95, 0.95, 1, "0.95"),
        (0.9512, 0.9579, 1, "0.951 → 0.957"),
        (0.95, 0.95000001, 1, "0.95000000 → 0.95000001"),
        (None, 0.5, 1, "– → 0.50"),
        (None, None, 1, "–"),
        (0.7, 0.704, 100, "70.0 → 70.4"),
    ],
)
def test_scores_of_a_flip_are_told_apart_or_shown_once(before, after, scale, shown):
    assert score_change(before, after, scale) == shown
