"""Readability: the published formulas on texts counted by hand, the bounds, and answers that cannot be counted."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._base import PartsMissingError
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.readability import count_parts, count_syllables
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

# 2 sentences, 10 words, 31 letters, 10 syllables.
SHORT = "The cat sat on the mat. It was warm there."
# 2 sentences, 32 words, 128 letters, 41 syllables (as the CMU dictionary says too), 2 words of three syllables, 6 of
# seven letters.
PARCEL = (
    "We shipped your order this morning. The van will deliver it between two and five in the afternoon, and you "
    "will get a message with a link when the driver is near."
)
FIGURES = {
    "flesch_reading_ease": (117.16, 82.20125),
    "flesch_kincaid_grade": (-1.84, 5.76875),
    "gunning_fog": (2.0, 8.9),
    "smog": (3.1291, 8.84185),
    "coleman_liau": (-3.492, 5.87),
    "automated_readability": (-4.329, 5.41),
    "lix": (5.0, 34.75),
}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"minimum": 60}, "formula: is missing"),
    ({"formula": "smog"}, "readability needs minimum or maximum"),
    ({"formula": "smog", "minimum": 9, "maximum": 8}, "minimum 9 is above maximum 8"),
    ({"formula": "smog", "maximum": float("nan")}, "maximum: nan is refused"),
    ({"formula": "smog", "maximum": 9, "margin": -1}, "margin: -1 is refused"),
]


def test_every_formula_gives_its_published_figure() -> None:
    for formula, figures in FIGURES.items():
        for text, figure in zip((SHORT, PARCEL), figures, strict=True):
            score = score_of("readability", {"formula": formula, "minimum": -999}, context_of(text))
            assert score.details["figure"] == pytest.approx(figure, abs=5e-5), formula
            assert score.score == 1


def test_sentences_words_and_syllables_are_counted_as_the_manual_says() -> None:
    for word, count in (
        ("make", 1),
        ("table", 2),
        ("wanted", 2),
        ("asked", 1),
        ("boxes", 2),
        ("2026", 1),
    ):
        assert count_syllables(word) == count, word
    counts = count_parts(
        "Pay $3.50 today… Or don't!\n\nFirst:\n- the well-known way\n- by card?) Dr. X"
    )
    assert (counts["sentences"], counts["words"]) == (7, 13)
    assert count_parts("Größe ist nicht alles. Überhaupt nicht.")["words of 7 letters or more"] == 1


@pytest.mark.parametrize(
    ("bounds", "score", "text"),
    [
        ({"minimum": 60}, 1.0, "Flesch reading ease is 82.20, at least 60"),
        (
            {"minimum": 70, "maximum": 82.20125},
            1.0,
            "Flesch reading ease is 82.20, from 70 to 82.20125",
        ),
        ({"maximum": 70}, 0.0, "Flesch reading ease is 82.20, not at most 70"),
        (
            {"maximum": 72.20125, "margin": 40},
            0.75,
            "Flesch reading ease is 82.20, not at most 72.20125",
        ),
        ({"minimum": 90, "margin": 5}, 0.0, "Flesch reading ease is 82.20, not at least 90"),
    ],
)
def test_a_figure_outside_its_bounds_loses_by_its_distance(
    bounds: dict[str, Any], score: float, text: str
) -> None:
    found = score_of(
        "readability", {"formula": "flesch_reading_ease", **bounds}, context_of(PARCEL)
    )

    assert found.score == pytest.approx(score)
    assert [(one.text, one.passed) for one in found.findings] == [(text, score == 1)]


def test_other_formulas_and_bounds_rescore_the_stored_counts() -> None:
    stored = score_of("readability", {"formula": "lix", "maximum": 30}, context_of(PARCEL))
    rescore = get_kind("readability").rescore
    assert rescore is not None

    again = rescore(read_config("readability", {"formula": "smog", "maximum": 9}), stored.details)
    assert (again.score, again.details["figure"]) == (1.0, pytest.approx(8.84185, abs=5e-5))
    with pytest.raises(PartsMissingError):
        rescore(read_config("readability", {"formula": "smog", "maximum": 9}), {})


def test_an_answer_that_cannot_be_counted_is_unscored_and_never_0() -> None:
    config = {"formula": "gunning_fog", "maximum": 12}
    for text in ("", " \n", "👍 …!"):
        assert "has no word" in unscored_of("readability", config, context_of(text)).reason
    assert unscored_of("readability", config, context_of("word " * 1_000_000)).stage == "limits"
    for text in (
        "\n" * 999_990 + "word",
        "- " * 499_990 + "x",
        "." * 999_990 + " x",
        "." * 999_990 + "x",
        'x."' + '"' * 999_990 + "x",
        "a'" * 499_990,
    ):
        score_of("readability", config, context_of(text))


@pytest.mark.parametrize(("config", "said"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator plain: ") as refused:
        read_config("readability", config, evaluator="plain")

    assert said in str(refused.value)
