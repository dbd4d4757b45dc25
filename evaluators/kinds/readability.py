"""Measure how hard an answer is to read, by a published formula. No model is called.

| formula | the figure |
|---|---|
| `flesch_reading_ease` | 206.835 − 1.015 × words/sentences − 84.6 × syllables/words (Flesch, 1948) |
| `flesch_kincaid_grade` | 0.39 × words/sentences + 11.8 × syllables/words − 15.59 (Kincaid and others, 1975) |
| `gunning_fog` | 0.4 × (words/sentences + 100 × long words/words), long: 3 syllables or more (Gunning, 1952) |
| `smog` | 3.1291 + 1.043 × √(30 × long words/sentences), long: 3 syllables or more (McLaughlin, 1969) |
| `coleman_liau` | 5.88 × letters/words − 29.6 × sentences/words − 15.8 (Coleman and Liau, 1975) |
| `automated_readability` | 4.71 × letters/words + 0.5 × words/sentences − 21.43 (Smith and Senter, 1967) |
| `lix` | words/sentences + 100 × long words/words, long: 7 letters or more (Björnsson, 1968) |

Flesch reading ease is higher for easier texts, 60 to 70 for plain English; all others are higher for harder ones. All but
the first and the last give the American school grade that can read the text.

The score is 1 where the figure is from `minimum` to `maximum`. Outside it is 0, or falls evenly to 0 over the distance
`margin`. One of the two bounds is enough.

A sentence ends with . ! ? or …, at an empty line and before an item of a list. A number is a word of one syllable, and
figures count as letters. Syllables follow the rules of English spelling, right for about 98 of 100 words of running
text; in other languages use `lix`, which needs none. An answer without a word is unscored, and so is one of more than
1,000,000 characters.

Good: answers to customers that have to stay plain, with a wide margin.

Bad: an answer of one sentence, or one that is mostly code. The formulas were made for passages of 100 words.

```yaml
name: plain_english
type: readability
formula: flesch_reading_ease
minimum: 60
margin: 20
```
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, PartsMissingError, kind
from evaluators.scoring.numbers import rounded
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

MAX_LENGTH = 1_000_000
# Longer texts are counted in a thread, so that they do not block the event loop.
LONG = 20_000
FIGURE_DIGITS = 2
LABELS = {
    "flesch_reading_ease": "Flesch reading ease",
    "flesch_kincaid_grade": "Flesch–Kincaid grade",
    "gunning_fog": "Gunning fog",
    "smog": "SMOG",
    "coleman_liau": "Coleman–Liau",
    "automated_readability": "Automated readability index",
    "lix": "LIX",
}

# Begun only where a run of marks begins, so that a million points cost no more than others.
SENTENCE_END = re.compile(
    r"""(?<![.!?…])[.!?…]++["\u201d\u2019»)\]]*+(?:\s+|\Z)|\n[^\S\n]*\n|\n(?=[^\S\n]*(?:[-*•]|\d{1,3}[.)])[^\S\n])"""
)
WORD = re.compile(r"[^\W_]+(?:['\u2019.,:-][^\W_]+)*")
VOWELS = re.compile(r"[aeiouyäöüàâéèêëîïôûœæ]+")
# A final e, and that of -ed and -es, is silent, except in -le, -ted, -ded, and after a hissing sound.
SILENT_E = re.compile(
    r"[^aeiouy]e\Z(?<![^aeiouy]le)|[^aeiouytd]ed\Z|(?:[^aeiouyscgxzh]|th)es\Z(?<![^aeiouy]les)"
)
LONG_SYLLABLES = 3
LONG_LETTERS = 7


def count_parts(text: str) -> dict[str, int]:
    """Return how many sentences, words, letters, syllables and long words a text has."""
    words = WORD.findall(text)
    letters = [sum(map(str.isalnum, word)) for word in words]
    syllables = [count_syllables(word) for word in words]
    return {
        "sentences": sum(WORD.search(each) is not None for each in SENTENCE_END.split(text)),
        "words": len(words),
        "letters": sum(letters),
        "syllables": sum(syllables),
        "words of 3 syllables or more": sum(count >= LONG_SYLLABLES for count in syllables),
        "words of 7 letters or more": sum(count >= LONG_LETTERS for count in letters),
    }


def count_syllables(word: str) -> int:
    """Return the syllables of an English word by its spelling: its groups of vowels without silent ones."""
    word = word.lower()
    return max(1, len(VOWELS.findall(word)) - (SILENT_E.search(word) is not None))


def measure(formula: str, counts: Mapping[str, int]) -> float:
    """Return a figure from the counts of a text that has a word."""
    words, sentences = counts["words"], counts["sentences"]
    words_a_sentence = words / sentences
    letters, syllables = counts["letters"] / words, counts["syllables"] / words
    polysyllables = counts["words of 3 syllables or more"]
    match formula:
        case "flesch_reading_ease":
            return 206.835 - 1.015 * words_a_sentence - 84.6 * syllables
        case "flesch_kincaid_grade":
            return 0.39 * words_a_sentence + 11.8 * syllables - 15.59
        case "gunning_fog":
            return 0.4 * (words_a_sentence + 100 * polysyllables / words)
        case "smog":
            return 3.1291 + 1.043 * math.sqrt(30 * polysyllables / sentences)
        case "coleman_liau":
            return 5.88 * letters - 29.6 * sentences / words - 15.8
        case "automated_readability":
            return 4.71 * letters + 0.5 * words_a_sentence - 21.43
        case _:
            return words_a_sentence + 100 * counts["words of 7 letters or more"] / words


class ReadabilityConfig(KindConfig):
    """The formula, and which figures score 1."""

    formula: Literal[
        "flesch_reading_ease",
        "flesch_kincaid_grade",
        "gunning_fog",
        "smog",
        "coleman_liau",
        "automated_readability",
        "lix",
    ] = Field(description="The formula.")
    minimum: float | None = Field(
        None, description="The lowest figure that scores 1. Empty: no lower bound."
    )
    maximum: float | None = Field(
        None, description="The highest figure that scores 1. Empty: no upper bound."
    )
    margin: float = Field(
        0.0, ge=0, description="How far outside the score falls evenly to 0; 0: it is 0 at once."
    )

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.minimum is None and self.maximum is None:
            raise ValueError("readability needs minimum or maximum: the figures that score 1")
        if None not in (self.minimum, self.maximum) and self.minimum > self.maximum:  # type: ignore[operator]  # neither is None
            raise ValueError(f"minimum {self.minimum:.10g} is above maximum {self.maximum:.10g}")
        return self


def rescore(config: ReadabilityConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored counts by this formula and these bounds."""
    counts = details.get("figures", {})
    if not counts.get("words"):
        raise PartsMissingError("This result does not record the words of its answer.")
    figure = measure(config.formula, counts)
    low = -math.inf if config.minimum is None else config.minimum
    high = math.inf if config.maximum is None else config.maximum
    outside = rounded(max(low - figure, figure - high, 0.0))
    share = max(0.0, 1 - outside / config.margin) if config.margin else float(outside == 0)
    bounds = (
        f"from {low:.10g} to {high:.10g}"
        if math.isfinite(low) and math.isfinite(high)
        else f"at least {low:.10g}"
        if math.isfinite(low)
        else f"at most {high:.10g}"
    )
    label = f"{LABELS[config.formula]} is {figure:.{FIGURE_DIGITS}f}"
    text = f"{label}, {bounds}" if outside == 0 else f"{label}, not {bounds}"
    return Score(
        share if outside else 1.0,
        findings=(Finding(text, outside == 0),),
        details={"figures": counts, "figure": figure},
    )


@kind(
    label="Readability",
    icon="e-gauge",
    config=ReadabilityConfig,
    rescore=rescore,
    spellings={name: {"formula": name} for name in LABELS},
)
async def score(config: ReadabilityConfig, context: Context) -> Outcome:
    """Return 1 if the figure of the answer is within the bounds, else less by its distance."""
    text = context.output.text
    if len(text) > MAX_LENGTH:
        reason = f"the answer has {len(text):,} characters; at most {MAX_LENGTH:,} are counted"
        return Unscored(reason, stage="limits")
    counts = await asyncio.to_thread(count_parts, text) if len(text) > LONG else count_parts(text)
    if not counts["words"]:
        return Unscored("the answer has no word, so nothing can be counted")
    return rescore(config, {"figures": counts})
