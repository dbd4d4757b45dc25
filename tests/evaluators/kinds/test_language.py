"""Language: what is told apart, what is too short, and codes that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._base import Message, PartsMissingError
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.language import _identifier, known_languages
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

KIND = "language"
TEXTS = {
    "de": "Ihre Bestellung ist heute zwischen vierzehn und siebzehn Uhr bei Ihnen.",
    "en": "Your order arrives today between two and five in the afternoon.",
    "fr": "Votre commande arrive aujourd'hui entre quatorze et dix-sept heures.",
    "ru": "Ваш заказ прибудет сегодня между двумя и пятью часами дня.",
    "ja": "ご注文の商品は本日午後二時から五時の間に届きます。",
}


def test_the_score_is_the_probability_of_the_right_languages() -> None:
    for code, text in TEXTS.items():
        right = score_of(KIND, {"expected": [code], "graded": True}, context_of(text))
        wrong = score_of(KIND, {"expected": ["sw"], "graded": True}, context_of(text))
        assert right.score > 0.8, code
        assert wrong.score < 0.02
        assert (right.findings[0].passed, wrong.findings[0].passed) == (True, False)
        assert f"The answer is in {code} (" in right.findings[0].text
    coded = f"{TEXTS['de']}\n```python\n{TEXTS['en'] * 9}\n```"
    few = {"expected": ["DE"], "among": ["de", "en"], "graded": True}
    assert score_of(KIND, few, context_of(coded)).score > 0.99
    for graded, score in ((True, 1.0), (False, 1.0)):
        both = {**few, "expected": ["de", "en"], "graded": graded}
        assert score_of(KIND, both, context_of("Guten Morgen, dear all")).score == score
    assert (
        score_of(KIND, {**few, "expected": ["en"], "graded": False}, context_of(coded)).score == 0
    )


def test_the_language_of_the_question_may_be_the_right_one_and_others_are_rescored() -> None:
    config = {"same_as_input": True}
    asked = (Message("user", TEXTS["fr"]),)
    same = score_of(KIND, config, context_of(TEXTS["fr"], input=asked))
    other = score_of(KIND, config, context_of(TEXTS["en"], input=asked))

    assert (same.details["asked_in"], same.score, other.score) == ("fr", 1, 0)
    rescore = get_kind(KIND).rescore
    assert rescore is not None
    assert rescore(read_config(KIND, {"expected": ["en"]}), other.details).score == 1
    for changed in ({"expected": ["en"], "among": ["en", "de"]}, {"same_as_input": True}):
        with pytest.raises(PartsMissingError):
            rescore(read_config(KIND, changed), {**other.details, "asked_in": ""})


def test_what_is_too_short_or_in_no_language_is_unscored_and_never_0() -> None:
    config = {"expected": ["de"]}
    for text in ("", "OK", "12345 67890 …", f"```\n{TEXTS['en']}\n```", "\ud800" * 99):
        assert (
            "letters outside code; 12 are needed"
            in unscored_of(KIND, config, context_of(text)).reason
        )
    numbers = context_of(TEXTS["de"], input=(Message("user", "12?"),))
    assert "no letters" in unscored_of(KIND, {"same_as_input": True}, numbers).reason
    assert score_of(KIND, config, context_of(TEXTS["de"] * 70_000)).score == 1
    for hostile in (
        "```\n" * 12_000 + TEXTS["de"],
        "\x00" * 50 + TEXTS["de"],
        "\ud800" + TEXTS["de"],
        TEXTS["de"] + "\n" + "```x\n" * 18_000,
        TEXTS["de"] + "\u0301" * 50_000 + "\u0323" * 50_000,
    ):
        assert score_of(KIND, config, context_of(hostile)).score == 1


def test_the_codes_are_those_of_the_model() -> None:
    assert known_languages() == set(_identifier().labels) - {"zxx"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "give either expected"),
        ({"expected": ["de"], "same_as_input": True}, "give either expected"),
        (
            {"expected": ["german"]},
            "'german' is not the code of a language that can be recognised; write one of ace, af",
        ),
        ({"expected": ["de"], "among": ["en"]}, "de is expected and not among those"),
        ({"expected": ["de"], "min_letters": 0}, "min_letters: 0 is refused"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator tongue: ") as refused:
        read_config(KIND, config, evaluator="tongue")

    assert said in str(refused.value)
