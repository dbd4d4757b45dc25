"""Judge whether the context that the agent was given supports everything its answer states.

The judge takes the answer apart into statements and says of each whether it follows from the context. The score is the
share of the statements that do: supported statements ÷ all statements, as the faithfulness of RAGAS (Es, James,
Espinosa-Anke and Schockaert, 2023).

The context is what the tools returned (`context: tools`, perhaps of one `tool`), or stands in the metadata of the case
(`context: metadata.context`). Each entry of a list is a passage. Without a context, or with an answer that states
nothing, such as a refusal, the evaluator is unscored.

Whether a statement is true in the world does not matter, and neither does whether it answers the question: see
`answer_relevance` and the judges.

Good: an agent that answers from documents or records, to find what it made up.

Bad: a chat without sources. There is nothing to be faithful to.

```yaml
name: grounded
type: faithfulness
context: metadata.context
```
"""

from __future__ import annotations

from evaluators.kinds._base import Context, kind
from evaluators.kinds._prompts import ANSWER, FilledPrompt, fill
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
SUPPORTED = "supported"
TASK = """\
You check one answer of an AI agent against the passages that it was given. Only they count: what you know yourself \
does not, and neither does whether the statement is true.

The question it was asked: {{question}}
The answer under test: {{candidate_answer}}
The passages are quoted below, numbered.

What to reply, in this order:
- reasoning: one or two sentences on what the passages do not support, if anything.
- statements: each fact that the answer states, as one short sentence that can be read alone, without pronouns. Leave \
out greetings, questions, offers and what only repeats the question. An empty list if it states nothing.
  - statement: the fact.
  - evidence: the words of the passages it follows from, with the number of the passage; or what is missing or \
contradicts it.
  - supported: true only if the passages say so or it follows from them alone."""


@kind(
    label="Faithfulness",
    icon="e-judge",
    config=ContextConfig,
    uses_judge=True,
    needs=("a trace with tool results, or a context in the metadata of the case",),
    find_missing=find_missing_context,
    spellings={"groundedness": {}},
)
async def score(config: ContextConfig, context: Context) -> Outcome:
    """Return the share of the answer's statements that the context supports."""
    passages = find_passages(config, context)
    if isinstance(passages, Unscored):
        return passages
    if not context.output.text.strip():
        return Unscored("the answer is empty, so it states nothing")
    filled = fill(TASK, context, always=(ANSWER,))
    return await judge_findings(
        config,
        context,
        FilledPrompt(filled.instructions, (*filled.quoted, *quote_passages(passages))),
        purpose="faithfulness",
        schema=statements_schema(SUPPORTED),
        read=lambda reply: read_statements(reply, SUPPORTED),
        without="the judge found no statement in the answer",
    )
