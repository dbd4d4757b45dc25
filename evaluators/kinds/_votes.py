"""The rounds of a deliberation: judges vote, read what the others said, and vote again (SCORING §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.kinds._asking import ask
from evaluators.kinds._base import Context, JudgeQuestion, JudgeReply
from evaluators.scoring.brackets import BRACKETS, Bracket, Vote, bracket_of, is_quorate, winner_of
from evaluators.scoring.types import ScoreOutOfRangeError, Unscored, Usage
from evaluators.scoring.usage import total_usage

LABELS = "ABCDEFGHIJKLMNO"
MOST_JUDGES = len(LABELS)
LONGEST_REASON = 2_000
BRACKET_NAMES = [bracket.name for bracket in BRACKETS]

VOTE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "reasons": {"type": "string"},
        "score": {"type": "number"},
        "bracket": {"type": "string", "enum": BRACKET_NAMES},
    },
    "required": ["reasons", "score", "bracket"],
    "additionalProperties": False,
}
# A vote that names its bracket counts, whatever became of the score beside it.
LEAST_SCHEMA = {
    **VOTE_SCHEMA,
    "properties": {**VOTE_SCHEMA["properties"], "score": {}},
    "required": ["reasons", "bracket"],
}

Round = Mapping[str, Any]
Asking = Callable[[Sequence[Mapping[str, Any]], str], JudgeQuestion]


@dataclass(frozen=True, slots=True)
class Deliberated:
    """Every vote of every round, what all of them cost, and why there is no winner, "" when there is one."""

    rounds: tuple[Round, ...]
    usage: Usage
    problem: Unscored | None = None


async def deliberate(
    context: Context, models: Sequence[str], rounds: int, question: Asking
) -> Deliberated:
    """Return the votes of the judges over the rounds, and of one round more when the last is a tie.

    `question` makes a judge's question of the others' last votes and its own label. A round in which
    fewer than half of the judges give a readable vote ends it without a winner.
    """
    held: list[Round] = []
    spent: list[Usage] = []
    while len(held) < rounds or (len(held) == rounds and is_tied(held[-1])):
        votes, usage = await _round(context, models, held, question)
        held.append({"number": len(held) + 1, "breaks_tie": len(held) == rounds, "votes": votes})
        spent.append(usage)
        if not is_quorate(len(readable(held[-1])), len(models)):
            return Deliberated(tuple(held), total_usage(spent), _too_few(held[-1]))
    return Deliberated(tuple(held), total_usage(spent))


def readable(held: Round) -> list[Mapping[str, Any]]:
    """Return the votes of a round that name a bracket."""
    return [vote for vote in held["votes"] if vote["bracket"]]


def votes_of(held: Round) -> list[Vote]:
    """Return the votes of a round as the rules count them."""
    return [Vote(vote["bracket"], vote["score"]) for vote in readable(held)]


def ballot(held: Round, winner: Bracket) -> list[dict[str, Any]]:
    """Return every bracket with the judges who voted for it in a round."""
    cast = readable(held)
    return [
        {
            "name": one.name,
            "low": one.low,
            "high": one.high,
            "won": one == winner,
            "judges": [vote["judge"] for vote in cast if vote["bracket"] == one.name],
        }
        for one in BRACKETS
    ]


def is_tied(held: Round) -> bool:
    """Tell whether several brackets have most votes."""
    return winner_of(votes_of(held)).is_tie


def problem_of(reply: Mapping[str, Any]) -> str:
    """Return how a vote contradicts itself, or ""."""
    try:
        meant = bracket_of(float(reply["score"]))
    except ScoreOutOfRangeError as error:
        return str(error)
    if meant.name != reply["bracket"]:
        return (
            f"score is {reply['score']}, which lies in {meant.name} and not in {reply['bracket']}"
        )
    return ""


async def _round(
    context: Context, models: Sequence[str], held: Sequence[Round], question: Asking
) -> tuple[list[Mapping[str, Any]], Usage]:
    """Ask every judge once; each has its own sample, each round its own number."""
    before = readable(held[-1]) if held else []

    async def vote(number: int) -> tuple[Mapping[str, Any], Usage]:
        label, model = LABELS[number], models[number]
        others = [one for one in before if one["judge"] != label]
        asked = replace(question(others, label), model=model, sample=number, round=len(held))
        reply = await ask(context, asked)
        return _vote(reply, label, model), reply.usage

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(vote(number)) for number in range(len(models))]
    done = [task.result() for task in tasks]
    return [vote for vote, _ in done], total_usage(usage for _, usage in done)


def _vote(reply: JudgeReply | Unscored, label: str, model: str) -> Mapping[str, Any]:
    facts = {"judge": label, "slug": model, "model": model, "bracket": "", "score": None}
    if isinstance(reply, Unscored):
        return {**facts, "reasons": "", "problem": reply.reason, "stage": reply.stage}
    said = reply.content
    return {
        **facts,
        "model": reply.model,
        "bracket": str(said["bracket"]),
        "score": _own_score(said),
        "reasons": str(said["reasons"]),
        "problem": "",
    }


def _own_score(said: Mapping[str, Any]) -> float | None:
    given = said.get("score")
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    return None if problem_of(said) else float(given)


def _too_few(held: Round) -> Unscored:
    votes = held["votes"]
    failed = [vote for vote in votes if not vote["bracket"]]
    count = len(votes) - len(failed)
    first = failed[0]
    reason = (
        f"{count} of {len(votes)} judges gave a readable vote in round {held['number']}, fewer than half; "
        f"judge {first['judge']}: {first['problem']}"
    )
    return Unscored(reason, stage=first["stage"])
