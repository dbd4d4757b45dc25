"""Judge whether the useful passages of the context come first: how well the search ranked.

The judge says of each passage whether it helps to reach the expected output, or, in a case without one, to answer the
question. The score is the mean of precision@k over the ranks k of the useful passages: Σ (precision@k × v(k)) ÷ useful
passages, where v(k) is 1 for a useful passage, as the context precision of RAGAS (its documentation). Useful passages
at ranks 1 and 3 of 3 score (1/1 + 2/3) ÷ 2 = 0.833. A context without a useful passage scores 0.

The answer plays no part. The passages are what the tools returned (`context: tools`, perhaps of one `tool`), or stand
in the metadata of the case (`context: metadata.context`), in their order; each entry of a list is a passage. Without a
context the evaluator is unscored.

Good: a search whose first hits the agent reads most.

Bad: tools that return one record each. Their order says nothing.

```yaml
name: best_first
type: context_precision
tool: search
```
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.kinds._base import Context, kind
from evaluators.kinds._prompts import QUESTION, REFERENCE, FilledPrompt, fill
from evaluators.kinds._statements import (
    ContextConfig,
    JudgedParts,
    find_missing_context,
    find_passages,
    judge_findings,
    numbered,
    numbering_problem,
    parts_schema,
    quote_passages,
)
from evaluators.scoring.types import Finding, Outcome, Unscored

PROMPT_VERSION = 1
TASK = """\
You judge what a search gave to an AI agent: which passages help to answer the question?

The question: {{question}}
A reference answer, if people wrote one: {{reference_answer}}
The passages are quoted below, numbered.

What to reply, in this order:
- reasoning: one or two sentences on which passages help and which do not.
- passages: every passage, by its number.
  - number: its number.
  - evidence: the words that help, or what it is about instead.
  - useful: true if it has something that the reference answer states, or, without a reference answer, something that \
answers the question. A passage on the same subject that answers nothing is not useful."""


def mean_precision(useful: Sequence[bool]) -> float:
    """Return the mean of precision@k over the ranks of the useful passages, 0 without one."""
    ranks = [rank for rank, is_useful in enumerate(useful, 1) if is_useful]
    return (
        math.fsum(hits / rank for hits, rank in enumerate(ranks, 1)) / len(ranks) if ranks else 0.0
    )


@kind(
    label="Context precision",
    icon="e-judge",
    config=ContextConfig,
    uses_judge=True,
    needs=("a trace with tool results, or a context in the metadata of the case",),
    find_missing=find_missing_context,
)
async def score(config: ContextConfig, context: Context) -> Outcome:
    """Return the mean precision at the ranks of the useful passages."""
    passages = find_passages(config, context)
    if isinstance(passages, Unscored):
        return passages
    filled = fill(TASK, context, always=(QUESTION, REFERENCE))
    return await judge_findings(
        config,
        context,
        FilledPrompt(filled.instructions, (*filled.quoted, *quote_passages(passages))),
        purpose="context_precision",
        schema=parts_schema(
            "passages", {"number": {"type": "integer"}, "useful": {"type": "boolean"}}
        ),
        check=lambda reply: numbering_problem(reply, "passages", len(passages)),
        read=_read,
        without="the judge named no passage",
    )


def _read(reply: Mapping[str, Any]) -> JudgedParts:
    entries = numbered(reply, "passages")
    findings = tuple(
        Finding(
            f"Passage {entry['number']} is {'' if entry['useful'] else 'not '}useful",
            bool(entry["useful"]),
            str(entry["evidence"]),
        )
        for entry in entries
    )
    return JudgedParts(findings, mean_precision([finding.passed for finding in findings]))
