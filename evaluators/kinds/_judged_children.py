"""A judge that makes one score of what the evaluators under a composite found."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from evaluators.kinds._base import ChildResult, Context, JudgeQuestion
from evaluators.kinds._opinions import OPINION_SCHEMA, opinion, scale_problem, without_single_sample
from evaluators.kinds._samples import Joining
from evaluators.kinds._script_payload import told_of
from evaluators.kinds._variables import fill, known_variables, unknown_variables
from evaluators.scoring.types import Outcome, Unscored

RESULTS = "evaluator_results"
# The second is how AgentV spells it.
RESULT_NAMES = (RESULTS, "EVALUATOR_RESULTS_JSON")
NAMED = re.compile(r"\{\{\s*(?:" + "|".join(RESULT_NAMES) + r")\s*\}\}")


def prompt_problem(prompt: str) -> str:
    """Return which variables of a prompt mean nothing to a judge over evaluators, or ""."""
    unknown = [name for name in unknown_variables(prompt) if name not in RESULT_NAMES]
    if not unknown:
        return ""
    names = ", ".join(f"{{{{{name}}}}}" for name in unknown)
    return f"{names} is not a variable; there are {', '.join((RESULTS, *known_variables()))}"


async def judged_by_model(
    written: str,
    context: Context,
    *,
    model: str,
    samples: int,
    samples_by: Joining,
    timeout_s: float | None,
) -> Outcome:
    """Return the score and findings of a judge that reads the results of the children as quoted text.

    `written` are the instructions; variables in it are filled in, `{{evaluator_results}}` among them.
    """
    label = f"[quoted text: {RESULTS}]"
    filled = fill(NAMED.sub(label, written), context)
    question = JudgeQuestion(
        purpose="llm_judge_aggregator",
        instructions=filled.instructions,
        quoted=(*filled.quoted, (RESULTS, _json(context.results))),
        schema=OPINION_SCHEMA,
        check=lambda reply: scale_problem(reply, 1),
        model=model,
        timeout_s=timeout_s,
    )
    found = await opinion(context, question, samples=samples, samples_by=samples_by)
    return found if isinstance(found, Unscored) else without_single_sample(found)


def _json(results: Sequence[ChildResult]) -> str:
    return json.dumps([told_of(one) for one in results], ensure_ascii=False, indent=1, default=str)
