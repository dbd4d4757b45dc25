"""Ask a judge the same question several times, and keep what it says each time (SCORING §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from evaluators.kinds._asking import ask
from evaluators.kinds._base import Context, JudgeQuestion, JudgeReply
from evaluators.scoring.samples import MEDIAN
from evaluators.scoring.types import Unscored, Usage
from evaluators.scoring.usage import total_usage

MOST_SAMPLES = 15
Joining = Literal["median", "mean", "majority"]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The readable replies of a judge in the order of its samples, and what all of them cost."""

    replies: tuple[JudgeReply, ...]
    usage: Usage
    warnings: tuple[str, ...] = ()


def judge_samples() -> Any:
    """Return the setting of how often the judge is asked for each score."""
    return Field(
        1,
        ge=1,
        le=MOST_SAMPLES,
        description=f"How often the judge is asked for each score, 1 to {MOST_SAMPLES}; each is paid.",
    )


def joining_samples() -> Any:
    """Return the setting of how several samples become one score."""
    return Field(
        MEDIAN,
        description="How several samples become one score: median, mean or the most frequent.",
    )


async def ask_samples(context: Context, question: JudgeQuestion, count: int) -> Sampled | Unscored:
    """Return the judge's replies to the question asked `count` times at once.

    Samples without a readable reply are left out with a warning; Unscored when none has one.
    """
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(ask(context, replace(question, sample=number)))
            for number in range(count)
        ]
    said = [task.result() for task in asked]
    replies = tuple(one for one in said if isinstance(one, JudgeReply))
    failures = [one for one in said if isinstance(one, Unscored)]
    usage = total_usage(one.usage for one in said)
    if not replies:
        return replace(failures[0], usage=usage)
    return Sampled(replies, usage, _left_out(failures, count))


def _left_out(failures: Sequence[Unscored], count: int) -> tuple[str, ...]:
    if not failures:
        return ()
    return (f"{len(failures)} of {count} samples are left out: {failures[0].reason}",)
