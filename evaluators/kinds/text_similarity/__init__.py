"""Measure how alike the answer and the expected output are, by a published formula. No model is called.

| measure | the score |
|---|---|
| `levenshtein` | 1 − edits ÷ characters of the longer text; an edit adds, removes or replaces one character |
| `token_f1` | F1 of the words as in SQuAD (Rajpurkar and others, 2016): lower case, without punctuation and a, an, the |
| `rouge_1`, `rouge_2` | F1 of the words, of the pairs of neighbouring words (ROUGE-N; Lin, 2004) |
| `rouge_l` | F1 of the longest common subsequence of words (ROUGE-L; Lin, 2004) |
| `bleu` | BLEU of one text (Papineni and others, 2002), up to 4 words, with tokens as in mteval-v13a and exponential smoothing |
| `chrf` | chrF (Popović, 2015): F2 of sequences of 1 to 6 characters, without white space |

In suite files the measure may be the type: `type: rouge_l`. ROUGE reads letters and digits of every script in lower
case and uses no word stems. `ignore_case` belongs to the measures that tell upper from lower case: `levenshtein`,
`bleu` and `chrf`. An empty answer scores 0. A case without an expected output, or whose expected output has none of
the words that the measure counts, leaves the evaluator unscored, and so does a text of more than 100,000 characters.

Good: a translation or a summary with a known right answer, where you follow whether its wording moves. `chrf` also fits
languages that write no spaces.

Bad: a pass threshold taken from a paper. Such scores compare versions on the same cases; they do not say that an answer
is right. A wrong number changes one character: use `field_accuracy`, or a judge.

```yaml
name: close_to_reference
type: text_similarity
measure: rouge_l
```
"""

from __future__ import annotations

import asyncio
from typing import Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds.text_similarity.measures import LABELS, MEASURES, NothingToCompareError
from evaluators.scoring.types import Outcome, Score, Unscored

MAX_LENGTH = 100_000
# Longer texts are compared in a thread, so that they do not block the event loop.
LONG = 5_000
FIGURE_DIGITS = 4
WITH_CASE = ("levenshtein", "bleu", "chrf")


class TextSimilarityConfig(KindConfig):
    """The measure and how it reads the texts."""

    measure: Literal["levenshtein", "token_f1", "rouge_1", "rouge_2", "rouge_l", "bleu", "chrf"] = (
        Field(description="The formula that gives the score.")
    )
    ignore_case: bool = Field(False, description="Compare without regard to upper and lower case.")

    @model_validator(mode="after")
    def _has_a_case_to_ignore(self) -> Self:
        if self.ignore_case and self.measure not in WITH_CASE:
            raise ValueError(f"{self.measure} takes no ignore_case: it always ignores case")
        return self


@kind(
    label="Text similarity",
    icon="e-expected",
    config=TextSimilarityConfig,
    needs=("an expected output",),
    find_missing=lambda _, case: "" if case.expected_output.strip() else "expected output",
    spellings={name: {"measure": name} for name in MEASURES}
    | {"rouge1": {"measure": "rouge_1"}, "rouge2": {"measure": "rouge_2"}},
)
async def score(config: TextSimilarityConfig, context: Context) -> Outcome:
    """Return how alike the answer and the expected output are."""
    texts = {"expected output": context.case.expected_output, "answer": context.output.text}
    if not texts["expected output"].strip():
        return Unscored("the case has no expected output", stage="config")
    for name, text in texts.items():
        if len(text) > MAX_LENGTH:
            reason = f"the {name} has {len(text):,} characters; at most {MAX_LENGTH:,} are compared"
            return Unscored(reason, stage="limits")
    expected, answer = (text.casefold() if config.ignore_case else text for text in texts.values())
    measure = MEASURES[config.measure]
    try:
        if max(len(expected), len(answer)) > LONG:
            similarity = await asyncio.to_thread(measure, expected, answer)
        else:
            similarity = measure(expected, answer)
    except NothingToCompareError:
        reason = f"the expected output has nothing that {LABELS[config.measure]} counts"
        return Unscored(reason, stage="config")
    figures = {name: round(value, FIGURE_DIGITS) for name, value in similarity.figures.items()}
    label = LABELS[config.measure]
    return Score(
        similarity.score,
        reasoning=f"{label} of the answer and the expected output is {similarity.score:.{FIGURE_DIGITS}f}.",
        details={"label": label, "figures": figures},
    )
