"""Text similarity: every measure against the values of its reference implementation, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import kind_for_spelling, read_config
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

CAT = "The cat sat on the mat."
PARCEL = "It comes on Friday, between 14:00 and 17:00."
# Expected output, answer, and the values of sacrebleu 2.6.0 (BLEU, chrF), rouge-score 0.1.2, SQuAD's own script and
# Levenshtein's distance by hand, as they print them.
REFERENCE: list[tuple[str, str, dict[str, float]]] = [
    (
        CAT,
        "A cat was sitting on the mat.",
        {
            "levenshtein": 0.58620689655172,
            "token_f1": 0.66666666666667,
            "bleu": 0.36555522285451,
            "chrf": 0.46833824465152,
            "rouge_1": 0.61538461538462,
            "rouge_2": 0.36363636363636,
            "rouge_l": 0.61538461538462,
        },
    ),
    (
        CAT,
        CAT,
        {
            "levenshtein": 1.0,
            "token_f1": 1.0,
            "bleu": 1.0,
            "chrf": 1.0,
            "rouge_1": 1.0,
            "rouge_2": 1.0,
            "rouge_l": 1.0,
        },
    ),
    (
        CAT,
        "",
        {
            "levenshtein": 0.0,
            "token_f1": 0.0,
            "bleu": 0.0,
            "chrf": 0.0,
            "rouge_1": 0.0,
            "rouge_2": 0.0,
            "rouge_l": 0,
        },
    ),
    (
        PARCEL,
        "Your parcel (10,000 g) comes Friday between 14:00 and 17:00!",
        {
            "levenshtein": 0.56666666666667,
            "token_f1": 0.66666666666667,
            "bleu": 0.43788268658608,
            "chrf": 0.63343961586192,
            "rouge_1": 0.69565217391304,
            "rouge_2": 0.57142857142857,
            "rouge_l": 0.69565217391304,
        },
    ),
    (
        "kitten",
        "sitting",
        {
            "levenshtein": 0.57142857142857,
            "token_f1": 0.0,
            "bleu": 0.0,
            "chrf": 0.2113371154467,
            "rouge_1": 0.0,
            "rouge_l": 0.0,
        },
    ),
    (
        "Straße nach Köln",
        "Strasse nach Koeln",
        {
            "levenshtein": 0.77777777777778,
            "token_f1": 0.33333333333333,
            "bleu": 0.27516060407455,
            "chrf": 0.43976013929693,
        },
    ),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "measure: is missing"),
    ({"measure": "meteor"}, "is not one of"),
    ({"measure": "rouge_l", "ignore_case": True}, "it always ignores case"),
    ({"measure": "chrf", "stemmer": True}, "is not a setting of text_similarity"),
]


@pytest.mark.parametrize(("expected", "answer", "values"), REFERENCE)
def test_every_measure_gives_what_its_reference_gives(
    expected: str, answer: str, values: dict[str, float]
) -> None:
    scores = {
        measure: score_of(
            "text_similarity", {"measure": measure}, context_of(answer, expected_output=expected)
        ).score
        for measure in values
    }

    assert scores == pytest.approx(values, abs=1e-12)


def test_a_score_names_its_measure_and_figures_and_case_can_be_ignored() -> None:
    context = context_of("the CAT sat", expected_output="The cat sat")
    exact = score_of("text_similarity", {"measure": "levenshtein"}, context)
    caseless = score_of("text_similarity", {"measure": "levenshtein", "ignore_case": True}, context)

    assert exact.details["figures"] == {"Edits": 4, "Characters of the longer text": 11}
    assert exact.reasoning == (
        "Levenshtein similarity of the answer and the expected output is 0.6364."
    )
    assert (caseless.score, caseless.details["figures"]["Edits"]) == (1.0, 0)


def test_what_cannot_be_compared_is_unscored_and_never_0() -> None:
    for measure in ("levenshtein", "token_f1", "rouge_1", "rouge_2", "rouge_l", "bleu", "chrf"):
        config = {"measure": measure}
        nothing = unscored_of("text_similarity", config, context_of(expected_output=" \n"))
        assert (nothing.stage, nothing.reason) == ("config", "the case has no expected output")
        for texts in (("x" * 100_001, "x"), ("x", "x" * 5_000_000)):
            huge = unscored_of(
                "text_similarity", config, context_of(texts[0], expected_output=texts[1])
            )
            assert huge.stage == "limits"
            assert "at most 100,000 are compared" in huge.reason
    for measure, expected in (("token_f1", "the"), ("rouge_l", "…!"), ("rouge_2", "one")):
        empty = unscored_of(
            "text_similarity", {"measure": measure}, context_of(expected_output=expected)
        )
        assert "has nothing that" in empty.reason
    longest = context_of("ab " * 33_333, expected_output="ab " * 33_333)
    assert score_of("text_similarity", {"measure": "rouge_l"}, longest).score == 1


@pytest.mark.parametrize(("config", "said"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator close: ") as refused:
        read_config("text_similarity", config, evaluator="close")

    assert said in str(refused.value)


def test_the_measure_is_the_type_in_suite_files() -> None:
    for spelling in ("rouge-l", "rougeL", "rouge_l"):
        kind, preset = kind_for_spelling(spelling)
        assert (kind.name, dict(preset)) == ("text_similarity", {"measure": "rouge_l"})
