"""Tell which language an answer is written in, without a model.

py3langid looks at sequences of letters and gives each of 140 languages a probability; for the languages of one text it
adds up to 1. The score is 1 if the likeliest is an expected one, else 0; with `graded: true` it is the probability of the
expected ones together, which is lower for short answers, however clear. Languages are written as in ISO 639: `de`, `en`, `pt`, `zh`, `yue`.

`expected` lists the languages that are right. `same_as_input: true` takes the likeliest language of the last question
instead. `among` limits the choice to the languages that can occur at all, which helps with short answers. Blocks
between lines of three backticks are left out, as code is in no language; one that is not closed reaches to the end.

An answer with fewer than `min_letters` letters, or no question to compare with, is unscored: what is too short to tell
is no mistake. Only the first 100,000 characters are read.

Good: an agent that answers people in their own language.

Bad: to tell close relatives apart in a sentence, such as Danish and Norwegian, or Serbian and Croatian.

```yaml
name: in_german
type: language
expected: [de]
among: [de, en, fr]
```
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from evaluators.kinds._base import Context, KindConfig, PartsMissingError, kind
from evaluators.kinds._prompts import last_question
from evaluators.reading.combining import cut_marks
from evaluators.scoring.types import SCORE_DIGITS, Finding, Outcome, Score, Unscored

MAX_LENGTH = 100_000
MAX_LANGUAGES = 200
# The likeliest languages that are kept beside those that are asked about.
MAX_SHOWN = 5
LEAST_SHOWN = 0.001
FIGURE_DIGITS = 4
NO_LANGUAGE = "zxx"
SHARE_DIGITS = 6
# A block that is not closed reaches to the end, so that no line is looked at twice.
FENCED = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


# Without it, the first answers would each load a model, in threads of their own.
_LOADING = Lock()


def _identifier() -> Any:
    """Return the model, about 100 MB; loaded with the first answer, as most processes never ask."""
    with _LOADING:
        return _load()


@cache
def _load() -> Any:
    from py3langid.langid import (  # type: ignore[import-untyped]  # it comes without types
        MODEL_FILE,
        LanguageIdentifier,
    )

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def known_languages() -> frozenset[str]:
    """Return the codes that py3langid can answer with, without loading its model."""
    return frozenset(CODES.split())


# A test compares them with the model's own.
CODES = """
ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr
fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko
ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl ps pt qu ro ru
rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo yue
zh zu
"""


class LanguageConfig(KindConfig):
    """Which languages are right, and how the score is read."""

    expected: tuple[str, ...] = Field(
        (),
        max_length=MAX_LANGUAGES,
        description="The languages that are right, one on each line, such as de.",
    )
    same_as_input: bool = Field(
        False, description="The language of the last question is right, whichever it is."
    )
    among: tuple[str, ...] = Field(
        (),
        max_length=MAX_LANGUAGES,
        description="The languages that can occur at all, one on each line. Empty: all that are known.",
    )
    graded: bool = Field(
        False, description="Score the probability, not only whether the likeliest one is right."
    )
    min_letters: int = Field(
        12, ge=1, le=10_000, description="An answer with fewer letters is unscored."
    )

    @field_validator("expected", "among")
    @classmethod
    def _are_known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        codes = tuple(code.strip().lower() for code in codes)
        if unknown := [code for code in codes if code not in known_languages()]:
            raise ValueError(
                f"{unknown[0]!r} is not the code of a language that can be recognised; write one of "
                f"{', '.join(sorted(known_languages()))}"
            )
        return tuple(dict.fromkeys(codes))

    @model_validator(mode="after")
    def _names_a_language(self) -> Self:
        if bool(self.expected) == self.same_as_input:
            raise ValueError("give either expected, the languages that are right, or same_as_input")
        if outside := [code for code in self.expected if self.among and code not in self.among]:
            raise ValueError(f"{outside[0]} is expected and not among those that can occur")
        return self


def rescore(config: LanguageConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored probabilities for these languages.

    Raises PartsMissingError for other languages to choose among, or a question that was not read.
    """
    shares: Mapping[str, float] = details.get("shares", {})
    if list(config.among) != details.get("among") or (
        config.same_as_input and not details.get("asked_in")
    ):
        raise PartsMissingError("The language was not looked for in this way in this result.")
    right = (str(details["asked_in"]),) if config.same_as_input else config.expected
    found = max(shares, key=lambda code: shares[code])
    probability = min(1.0, sum(shares.get(code, 0.0) for code in right))
    is_right = found in right
    wanted = " or ".join(right)
    # Rounded down, so that 100% means that nothing else is possible.
    percent = math.floor(shares[found] * 1000) / 10
    text = f"The answer is in {found} ({percent:g}%), {'as' if is_right else 'not'} {wanted}"
    if is_right:
        text += " is expected"
    return Score(
        round(probability, SCORE_DIGITS) if config.graded else float(is_right),
        findings=(Finding(text, is_right),),
        details={**details, "figures": _likeliest(shares, right)},
    )


def _likeliest(shares: Mapping[str, float], right: tuple[str, ...]) -> dict[str, float]:
    """Return the languages to show: the likeliest and those that are right."""
    ordered = sorted(shares, key=lambda code: -shares[code])
    likeliest = [code for code in ordered[:MAX_SHOWN] if shares[code] >= LEAST_SHOWN]
    shown = dict.fromkeys([*likeliest, *right])
    return {code: round(shares.get(code, 0.0), FIGURE_DIGITS) for code in shown}


@kind(
    label="Language",
    icon="e-chat",
    config=LanguageConfig,
    rescore=rescore,
    spellings={"is_language": {}},
)
async def score(config: LanguageConfig, context: Context) -> Outcome:
    """Return how probable it is that the answer is in a language that is right."""
    answer, letters = _prose(context.output.text)
    if letters < config.min_letters:
        reason = f"the answer has {letters} letters outside code; {config.min_letters} are needed"
        return Unscored(reason)
    details: dict[str, Any] = {"among": list(config.among)}
    details["shares"] = await asyncio.to_thread(_shares, answer, config.among)
    if config.same_as_input:
        question, letters = _prose(last_question(context))
        if not letters:
            return Unscored("the question has no letters, so its language is unknown")
        asked = await asyncio.to_thread(_shares, question, config.among)
        details["asked_in"] = max(asked, key=lambda code: asked[code])
    return rescore(config, details)


def _prose(text: str) -> tuple[str, int]:
    """Return a text without fenced blocks, and how many letters it has."""
    text = cut_marks(FENCED.sub("", text[:MAX_LENGTH]))
    return text, sum(map(str.isalpha, text))


def _shares(text: str, among: tuple[str, ...]) -> dict[str, float]:
    """Return the probability of each language that has one; they add up to 1."""
    ranked = {
        code: share
        for code, share in _identifier().rank(text)
        if code != NO_LANGUAGE and (not among or code in among)
    }
    total = sum(ranked.values())
    shares = {code: round(share / total, SHARE_DIGITS) for code, share in ranked.items()}
    return {code: share for code, share in shares.items() if share}
