"""Judge whether the context has everything that the expected output states: what the search did not find.

The judge takes the expected output apart into statements and says of each whether it follows from the context. The score
is the share that does: statements of the reference found in the context ÷ all its statements, as the context recall of
RAGAS (Es, James, Espinosa-Anke and Schockaert, 2023, and its documentation).

The answer plays no part: a low score says that the agent could not have known. The context is what the tools returned
(`context: tools`, perhaps of one `tool`), or stands in the metadata of the case (`context: metadata.context`). Each
entry of a list is a passage. Without a context or an expected output the evaluator is unscored.

Good: beside `faithfulness`, to tell a poor search from a poor answer.

Bad: an expected output that states less than a good answer needs. What it leaves out is not looked for.

```yaml
name: found_everything
type: context_recall
tool: search
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds._base import CaseFacts, Context, kind
from evaluators.kinds._prompts import REFERENCE, FilledPrompt, fill
from evaluators.kinds._statements import (
    ContextConfig,
    find_missing_context,
    find_passages,
    judge_findings,
    quote_passages,
    read_statements,
    statements_schema,
)
from evaluators.scoring.types import Outcome, Unscored

PROMPT_VERSION = 1
FOUND = "found"
TASK = """\
You check the passages that a search gave to an AI agent against a reference answer: do they have what it states? Only \
the passages count, not what you know yourself.

The question: {{question}}
The reference answer: {{reference_answer}}
The passages are quoted below, numbered.

What to reply, in this order:
- reasoning: one or two sentences on what the passages lack, if anything.
- statements: each fact that the reference answer states, as one short sentence that can be read alone. An empty list \
if it states nothing.
  - statement: the fact.
  - evidence: the words of the passages it follows from, with the number of the passage; or what is missing.
  - found: true only if the passages say so or it follows from them alone."""


def find_missing(config: Mapping[str, Any], case: CaseFacts) -> str:
    """Return what a case lacks: an expected output, or the context."""
    return find_missing_context(config, case) if case.expected_output.strip() else "expected output"


@kind(
    label="Context recall",
    icon="e-judge",
    config=ContextConfig,
    uses_judge=True,
    needs=("an expected output", "a trace with tool results, or a context in the metadata"),
    find_missing=find_missing,
)
async def score(config: ContextConfig, context: Context) -> Outcome:
    """Return the share of the reference's statements that the context has."""
    if not context.case.expected_output.strip():
        return Unscored("the case has no expected output", stage="config")
    passages = find_passages(config, context)
    if isinstance(passages, Unscored):
        return passages
    filled = fill(TASK, context, always=(REFERENCE,))
    return await judge_findings(
        config,
        context,
        FilledPrompt(filled.instructions, (*filled.quoted, *quote_passages(passages))),
        purpose="context_recall",
        schema=statements_schema(FOUND),
        read=lambda reply: read_statements(reply, FOUND),
        without="the judge found no statement in the expected output",
    )
