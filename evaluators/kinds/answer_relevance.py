"""Judge whether what an answer says is about the question.

The judge takes the answer apart into statements and says of each whether it helps to answer the question. The score is
relevant statements ÷ all statements, as the answer relevancy of DeepEval (its documentation). The paper on RAGAS
measures the same by questions that a model writes for the answer, compared by embeddings; this needs no embeddings and
names the statements that lead away.

Whether a statement is true does not matter: see `faithfulness`. An answer that only evades the question has no relevant
statement and scores 0. An empty answer is unscored.

Good: agents that ramble, advertise or answer another question.

Bad: questions that ask for a long report. Everything in it may be relevant, and it may still be a poor one.

```yaml
name: to_the_point
type: answer_relevance
```
"""

from __future__ import annotations

from evaluators.kinds._base import Context, kind
from evaluators.kinds._prompts import ANSWER, CONVERSATION, fill
from evaluators.kinds._statements import (
    JudgedConfig,
    judge_findings,
    read_statements,
    statements_schema,
)
from evaluators.scoring.types import Outcome, Unscored

PROMPT_VERSION = 1
RELEVANT = "relevant"
TASK = """\
You judge whether one answer of an AI agent is about what it was asked. Whether it is right does not matter.

What it was asked: {{input}}
The answer under test: {{candidate_answer}}

What to reply, in this order:
- reasoning: one or two sentences on what leads away from the question, if anything.
- statements: everything that the answer says, each as one short sentence that can be read alone. Leave out greetings. \
An evasion or a refusal is one statement.
  - statement: what it says.
  - evidence: which part of the question it serves, or where it leads instead.
  - relevant: true if it helps to answer the question, directly or as its reason, condition or next step. An evasion \
is not relevant."""


class AnswerRelevanceConfig(JudgedConfig):
    """The judge."""


@kind(
    label="Answer relevance",
    icon="e-judge",
    config=AnswerRelevanceConfig,
    uses_judge=True,
    spellings={"answer_relevancy": {}},
)
async def score(config: AnswerRelevanceConfig, context: Context) -> Outcome:
    """Return the share of the answer's statements that help to answer the question."""
    if not context.output.text.strip():
        return Unscored("the answer is empty, so it says nothing")
    return await judge_findings(
        config,
        context,
        fill(TASK, context, always=(CONVERSATION, ANSWER)),
        purpose="answer_relevance",
        schema=statements_schema(RELEVANT),
        read=lambda reply: read_statements(reply, RELEVANT),
        without="the judge found no statement in the answer",
    )
