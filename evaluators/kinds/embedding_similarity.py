"""Compare the meaning of the answer and the expected output by their embeddings.

An embedding model turns each text into a vector; the score follows from the cosine of the angle between the two: u·v ÷
(|u| × |v|). Both texts go to the `embeddings` address of an OpenAI-compatible server in one call, which counts in the
limits and the cost of its model like every other call.

Cosines of unrelated texts are rarely near 0. `zero_at` is the cosine that scores 0; above it the score rises evenly to 1
at a cosine of 1. A cosine below it scores 0. Change it on stored scores to see what would flip.

An empty answer, a case without an expected output, and a reply without two vectors leave the evaluator unscored.

Good: many short answers, where a judge would be slow. Choose `zero_at` from pairs that people found unlike.

Bad: facts. “It arrives on Monday” and “It does not arrive on Monday” have nearly the same embedding; ask a judge
(`type: semantic`).

```yaml
name: same_subject
type: embedding_similarity
model: embedder
zero_at: 0.5
```
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any

from pydantic import Field

from evaluators.kinds._base import Context, JudgeQuestion, KindConfig, PartsMissingError, kind
from evaluators.kinds._judging import ask, judge_timeout
from evaluators.scoring.numbers import rounded
from evaluators.scoring.types import Outcome, Score, Unscored

MAX_LENGTH = 100_000
FIGURE_DIGITS = 4


class EmbeddingSimilarityConfig(KindConfig):
    """The model, and which cosine scores 0."""

    model: str = Field(
        min_length=1, description="Short name of the language model that gives embeddings."
    )
    zero_at: float = Field(0.0, ge=0, lt=1, description="The cosine that scores 0.")
    timeout_s: int | None = judge_timeout()


def cosine(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the cosine of the angle between two vectors, None if one of them has no length."""
    lengths = math.hypot(*first) * math.hypot(*second)
    if not lengths or not math.isfinite(lengths):
        return None
    return max(-1.0, min(1.0, rounded(math.fsum(map(mul, first, second)) / lengths)))


def rescore(config: EmbeddingSimilarityConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored cosine; raises PartsMissingError without one."""
    if "cosine" not in details:
        raise PartsMissingError("This result does not record the cosine of its embeddings.")
    value = float(details["cosine"])
    share = max(0.0, (value - config.zero_at) / (1 - config.zero_at))
    return Score(
        share,
        reasoning=f"The cosine of the answer and the expected output is {value:.{FIGURE_DIGITS}f}.",
        details={
            **details,
            "figures": {"Cosine": round(value, FIGURE_DIGITS), "Scores 0": config.zero_at},
        },
    )


@kind(
    label="Embedding similarity",
    icon="e-expected",
    config=EmbeddingSimilarityConfig,
    rescore=rescore,
    uses_judge=True,
    needs=("an expected output",),
    find_missing=lambda _, case: "" if case.expected_output.strip() else "expected output",
    spellings={"embedding": {}},
)
async def score(config: EmbeddingSimilarityConfig, context: Context) -> Outcome:
    """Return how near the embeddings of the answer and the expected output are."""
    texts = (context.output.text, context.case.expected_output)
    if not texts[1].strip():
        return Unscored("the case has no expected output", stage="config")
    if not texts[0].strip():
        return Unscored("the answer is empty, so it has no meaning to compare")
    if max(map(len, texts)) > MAX_LENGTH:
        return Unscored(f"a text has more than {MAX_LENGTH:,} characters", stage="limits")
    reply = await ask(
        context,
        JudgeQuestion(
            purpose="embedding_similarity",
            instructions="",
            quoted=(),
            schema={},
            model=config.model,
            timeout_s=config.timeout_s,
            embedded=texts,
        ),
    )
    if isinstance(reply, Unscored):
        return reply
    first, second = reply.content["vectors"]
    value = cosine(first, second)
    if value is None:
        return Unscored("an embedding has no length", stage="parse", usage=reply.usage)
    details = {"model": reply.model, "cosine": value, "dimensions": len(first)}
    scored = rescore(config, details)
    return Score(
        scored.score, reasoning=scored.reasoning, details=scored.details, usage=reply.usage
    )
