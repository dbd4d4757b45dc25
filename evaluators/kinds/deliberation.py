"""Let several judges vote, read each other's reasons and vote again.

Each judge votes for a bracket and says why. From the second round on, each judge reads the reasons of the
others. The bracket with the most votes in the last round wins. Use it when a single judge is not reliable
enough: when much is at stake, or when people disagree about the answers.

| bracket | scores | midpoint |
|---|---|---|
| Poor | 0 to 25 | 12.5 |
| Fair | 26 to 50 | 38 |
| Good | 51 to 75 | 63 |
| Excellent | 76 to 100 | 88 |

- **Judges**: `judges: [model-a, model-b, model-c]` names one language model per judge; `judges: 3` asks the
  suite's judge three times. Different models notice different things.
- **Agents**: `agents: [code-reviewer, fact-checker]` names targets of this site that vote beside the models, or
  alone: chat models, agents over HTTP or commands. Recorded outputs cannot vote, because they answer no questions.
  The run freezes the settings of each target when it starts. Like any target, an agent also gets the metadata of
  the case, and an id made of the case's id, the evaluator's name and its number in the panel, the same in every
  round. It does not receive the expected output, but from the second round on the reasons of the others, who may
  quote it.
- **Score**: the midpoint of the winning bracket. With `score_by: mean` it is the mean of the scores that
  its voters gave within the bracket.
- **A tie** gets one extra round. If the votes are still tied, the lower bracket wins.
- **A judge without a readable vote** is left out with a warning. If fewer than half of the judges vote in a
  round, the deliberation is unscored, never 0.

The votes of all rounds are kept. Every judge is paid in every round; what agents cost counts as judge cost,
with the tokens and the price that they report. A command runs under the limits of scripts, and only for
members who may run scripts.

Good: three models from different providers, or two models and an agent that can look things up; criteria that
say what is at stake, two rounds.

Bad: fifteen judges on the same model in five rounds. They agree with themselves, and it costs 75 calls. The
agent under test on its own panel: it favours what it wrote, and the page that starts a run warns you.

```yaml
name: tone_panel
type: deliberation
judges: 3
rounds: 2
criteria: Would you send this answer to an upset customer unchanged?
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import (
    Context,
    JudgeQuestion,
    JudgeReply,
    KindConfig,
    PartsMissingError,
    kind,
)
from evaluators.kinds._judging import JUDGE_RULES, ask, ask_agent, judge_timeout
from evaluators.kinds._prompts import fill, prompt_text
from evaluators.scoring.samples import (
    BRACKETS,
    Bracket,
    Vote,
    deliberation_score,
    find_bracket,
    has_quorum,
    winning_bracket,
)
from evaluators.scoring.types import (
    Outcome,
    Score,
    ScoreOutOfRangeError,
    Unscored,
    Usage,
    total_usage,
)

LABELS = "ABCDEFGHIJKLMNO"
MAX_JUDGES = len(LABELS)
MAX_REASON_LENGTH = 2_000
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
# A vote counts if it names its bracket, even without a valid score.
MIN_SCHEMA = {
    **VOTE_SCHEMA,
    "properties": {**VOTE_SCHEMA["properties"], "score": {}},
    "required": ["reasons", "bracket"],
}


@dataclass(frozen=True, slots=True)
class PanelMember:
    """One judge of a panel: the target `agent`, else the model with this slug, "" for the suite's judge."""

    model: str = ""
    agent: str = ""


Round = Mapping[str, Any]
Asking = Callable[[Sequence[Mapping[str, Any]], str, PanelMember], JudgeQuestion]


@dataclass(frozen=True, slots=True)
class Deliberation:
    """Every vote of every round, the usage of all, and the problem if there is no winner."""

    rounds: tuple[Round, ...]
    usage: Usage
    problem: Unscored | None = None


async def deliberate(
    context: Context, panel: Sequence[PanelMember], rounds: int, question: Asking
) -> Deliberation:
    """Return the votes of all rounds, with one extra round if the last is a tie.

    `question` builds a judge's question from the last votes of the others and its own label. If fewer than
    half of the judges give a readable vote in a round, there is no winner.
    """
    results: list[Round] = []
    usages: list[Usage] = []
    while len(results) < rounds or (len(results) == rounds and is_tied(results[-1])):
        votes, usage = await _round(context, panel, results, question)
        results.append(
            {"number": len(results) + 1, "breaks_tie": len(results) == rounds, "votes": votes}
        )
        usages.append(usage)
        if not has_quorum(len(readable_votes(results[-1])), len(panel)):
            return Deliberation(tuple(results), total_usage(usages), _too_few(results[-1]))
    return Deliberation(tuple(results), total_usage(usages))


def readable_votes(result: Round) -> list[Mapping[str, Any]]:
    """Return the votes of a round that name a bracket."""
    return [vote for vote in result["votes"] if vote["bracket"]]


def read_votes(result: Round) -> list[Vote]:
    """Return the votes of a round in the form that scoring uses."""
    return [Vote(vote["bracket"], vote["score"]) for vote in readable_votes(result)]


def ballot(result: Round, winner: Bracket) -> list[dict[str, Any]]:
    """Return every bracket with the judges that voted for it in a round."""
    votes = readable_votes(result)
    return [
        {
            "name": bracket.name,
            "low": bracket.low,
            "high": bracket.high,
            "won": bracket == winner,
            "judges": [vote["judge"] for vote in votes if vote["bracket"] == bracket.name],
        }
        for bracket in BRACKETS
    ]


def is_tied(result: Round) -> bool:
    """Tell whether several brackets share the most votes."""
    return winning_bracket(read_votes(result)).is_tie


def vote_problem(reply: Mapping[str, Any]) -> str:
    """Return how a vote contradicts itself, or ""."""
    try:
        bracket = find_bracket(float(reply["score"]))
    except ScoreOutOfRangeError as error:
        return str(error)
    if bracket.name != reply["bracket"]:
        return f"score is {reply['score']}, which belongs to {bracket.name} and not to {reply['bracket']}"
    return ""


async def _round(
    context: Context, panel: Sequence[PanelMember], results: Sequence[Round], question: Asking
) -> tuple[list[Mapping[str, Any]], Usage]:
    """Ask every judge once; samples number the judges."""
    last_votes = readable_votes(results[-1]) if results else []

    async def vote(number: int) -> tuple[Mapping[str, Any], Usage]:
        label, member = LABELS[number], panel[number]
        others = [other for other in last_votes if other["judge"] != label]
        own_question = replace(
            question(others, label, member), model=member.model, sample=number, round=len(results)
        )
        if member.agent:
            reply = await ask_agent(context, member.agent, own_question)
        else:
            reply = await ask(context, own_question)
        return _vote(reply, label, member), reply.usage

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(vote(number)) for number in range(len(panel))]
    done = [task.result() for task in tasks]
    return [vote for vote, _ in done], total_usage(usage for _, usage in done)


def _vote(reply: JudgeReply | Unscored, label: str, member: PanelMember) -> Mapping[str, Any]:
    names = {"judge": label, "slug": member.model, "agent": member.agent, "model": member.model}
    facts = {**names, "bracket": "", "score": None}
    if isinstance(reply, Unscored):
        return {**facts, "reasons": "", "problem": reply.reason, "stage": reply.stage}
    content = reply.content
    return {
        **facts,
        "model": reply.model,
        "bracket": str(content["bracket"]),
        "score": _own_score(content),
        "reasons": str(content["reasons"]),
        "problem": "",
    }


def _own_score(content: Mapping[str, Any]) -> float | None:
    score = content.get("score")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    return None if vote_problem(content) else float(score)


def _too_few(result: Round) -> Unscored:
    votes = result["votes"]
    failed = [vote for vote in votes if not vote["bracket"]]
    count = len(votes) - len(failed)
    first = failed[0]
    reason = (
        f"{count} of {len(votes)} judges gave a readable vote in round {result['number']}, fewer than half; "
        f"judge {first['judge']}: {first['problem']}"
    )
    return Unscored(reason, stage=first["stage"])


PROMPT_VERSION = 2
USUAL_JUDGES, USUAL_ROUNDS, MAX_ROUNDS = 3, 2, 5
JUDGE_NAMES = ("judges", "participants", "models")

TASK = """\
You are one of several judges who vote on one answer of an AI agent. You are judge {label}.{role}

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
What its tools were asked and returned: {{tool_calls}}
{reference}
The criteria. Where none are given, judge how well the answer does what the task asks:

"""

REFERENCE = """\
A reference answer written by people, one way of being right among others: {{reference_answer}}
"""

# A target is made to carry out tasks.
ROLE_OF_AGENTS = """ \
Judge the answer and do nothing else: do not carry out the task yourself, and change nothing anywhere."""

OTHERS = """\
This is a later round. What the other judges wrote in the round before is quoted: {names}. Weigh each of \
their reasons against the answer itself. Change your mind where a reason holds, keep to it where none \
does; how many think so is no reason."""

REPLY = """\
What to reply, in this order:
- reasons: two to five sentences with the words of the answer that matter, what speaks for it and what \
against it.
- score: a number from 0 to 100 that follows from the reasons.
- bracket: the one that the score lies in after rounding. Poor, 0 to 25: fails what was asked. Fair, 26 to \
50: a part is right and much must be redone. Good, 51 to 75: does what was asked with flaws that show. \
Excellent, 76 to 100: nothing that matters to correct."""


class DeliberationConfig(KindConfig):
    """The judges, their criteria, and how their votes are scored."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("criteria",)

    criteria: str = Field(
        "",
        description="The criteria, or a file of the suite with them. Empty: the criteria of the case, "
        "else the task itself.",
        json_schema_extra={"widget": "textarea"},
    )
    models: tuple[str, ...] = Field(
        (),
        max_length=MAX_JUDGES,
        description="Short names of the language models that judge, one per line.",
    )
    agents: tuple[str, ...] = Field(
        (),
        max_length=MAX_JUDGES,
        description="Names of the targets that judge too, one per line: chat models, agents over HTTP or "
        "commands.",
    )
    judges: int | None = Field(
        None,
        ge=1,
        le=MAX_JUDGES,
        description=f"How often the judge of the suite votes if no models are named, 1 to {MAX_JUDGES}. "
        f"Empty: {USUAL_JUDGES}, and never if agents are named.",
    )
    rounds: int = Field(
        USUAL_ROUNDS,
        ge=1,
        le=MAX_ROUNDS,
        description=f"The number of rounds, 1 to {MAX_ROUNDS}. A tie adds one.",
    )
    score_by: Literal["midpoint", "mean"] = Field(
        "midpoint",
        description="The midpoint of the winning bracket, or the mean of its voters' scores.",
    )
    timeout_s: int | None = judge_timeout()

    @model_validator(mode="after")
    def _has_one_panel(self) -> Self:
        if self.models and self.judges not in (None, len(self.models)):
            raise ValueError(
                f"judges: {self.judges} judges and {len(self.models)} models; keep one of them"
            )
        for setting, names in (("models", self.models), ("agents", self.agents)):
            if not all(name.strip() for name in names):
                raise ValueError(f"{setting}: a name is empty")
        size = len(self.panel)
        if size == 1:
            setting = "models" if self.models else "agents" if self.agents else "judges"
            raise ValueError(f"{setting}: one judge cannot deliberate; take two or more")
        if size > MAX_JUDGES:
            raise ValueError(f"agents: the panel has {size} judges; {MAX_JUDGES} is the limit")
        return self

    def judged_settings(self) -> Mapping[str, object]:
        """Return the criteria; the votes record the judges and the rounds."""
        return {"criteria": self.criteria}

    @property
    def panel(self) -> tuple[PanelMember, ...]:
        """Return the judges, models before agents."""
        models = _panel_models(self.models, self.agents, self.judges)
        return (
            *(PanelMember(model=slug) for slug in models),
            *(PanelMember(agent=name) for name in self.agents),
        )


def _panel_models(
    models: Sequence[str], agents: Sequence[str], judges: int | None
) -> tuple[str, ...]:
    """Return the slug of each judge that is a model, "" for the suite's judge."""
    usual = 0 if agents else USUAL_JUDGES
    return tuple(models) or ("",) * (judges or usual)


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the judges as a number or as models; raises ValueError for two of a sort."""
    settings = dict(mapping)
    lists = [name for name in JUDGE_NAMES if isinstance(settings.get(name), list | tuple)]
    numbers = [name for name in JUDGE_NAMES if name in settings and name not in lists]
    for names, setting in ((lists, "models"), (numbers, "judges")):
        if len(names) > 1:
            raise ValueError(f"{names[0]} and {names[1]} both name the judges; keep one of them")
        for name in names:
            settings[f"new {setting}"] = settings.pop(name)
    for setting in ("models", "judges"):
        if f"new {setting}" in settings:
            settings[setting] = settings.pop(f"new {setting}")
    return settings


def list_models(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models of all rounds, with the one that breaks a tie."""
    named = tuple(str(slug) for slug in config.get("models") or ())
    judges = int(config["judges"]) if config.get("judges") else None
    return _panel_models(named, config.get("agents") or (), judges) * _most_rounds(config)


def list_targets(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agents of all rounds, with the one that breaks a tie."""
    return tuple(str(name) for name in config.get("agents") or ()) * _most_rounds(config)


def _most_rounds(config: Mapping[str, Any]) -> int:
    return int(config.get("rounds") or USUAL_ROUNDS) + 1


def rescore(config: DeliberationConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored votes; raises PartsMissingError for other judges or rounds."""
    rounds = details.get("rounds") or ()
    regular_rounds = len(rounds) - (1 if rounds and rounds[-1]["breaks_tie"] else 0)
    if not rounds or regular_rounds != config.rounds:
        raise PartsMissingError(f"This result was not voted on in {config.rounds} rounds.")
    voted = tuple(PanelMember(vote["slug"], vote.get("agent", "")) for vote in rounds[-1]["votes"])
    if voted != config.panel:
        raise PartsMissingError("These judges did not vote on this result.")
    last = rounds[-1]
    votes = read_votes(last)
    winner = winning_bracket(votes)
    score = deliberation_score(votes, by_mean=config.score_by == "mean")
    tie = "; still a tie, so the lower bracket wins" if winner.is_tie else ""
    won = f"{winner.bracket.name} won with {winner.votes} of {len(votes)} votes{tie}."
    reasons = [
        f"{vote['judge']}: {vote['reasons']}"
        for vote in readable_votes(last)
        if vote["bracket"] == winner.bracket.name
    ]
    return Score(
        score,
        raw_score=score * 100,
        scale=100.0,
        reasoning="\n".join([won, *reasons]),
        details={
            **details,
            "summary": f"{len(last['votes'])} judges, {len(rounds)} round{'s' * (len(rounds) > 1)}: {won}",
            "score_by": config.score_by,
            "brackets": ballot(last, winner.bracket),
        },
    )


@kind(
    label="Deliberation",
    icon="e-panel",
    config=DeliberationConfig,
    rescore=rescore,
    uses_judge=True,
    spellings={"panel": {}},
    read=read,
    list_models=list_models,
    list_targets=list_targets,
)
async def score(config: DeliberationConfig, context: Context) -> Outcome:
    """Return the score of the winning bracket, with every vote of every round."""
    try:
        criteria = prompt_text(config.criteria, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    criteria = criteria or context.case.criteria.strip() or "(none given)"

    def question(
        others: Sequence[Mapping[str, Any]], label: str, member: PanelMember
    ) -> JudgeQuestion:
        task = TASK.replace("{label}", label)
        task = task.replace("{role}", ROLE_OF_AGENTS if member.agent else "")
        task = task.replace("{reference}", "" if member.agent else REFERENCE)
        return _question(config, context, task, criteria, others)

    deliberation = await deliberate(context, config.panel, config.rounds, question)
    details = {"rounds": list(deliberation.rounds)}
    if deliberation.problem is not None:
        return replace(deliberation.problem, details=details, usage=deliberation.usage)
    left_out = [
        f"judge {vote['judge']} is left out of round {result['number']}: {vote['problem']}"
        for result in deliberation.rounds
        for vote in result["votes"]
        if vote["problem"]
    ]
    return replace(rescore(config, details), usage=deliberation.usage, warnings=tuple(left_out))


def _question(
    config: DeliberationConfig,
    context: Context,
    task: str,
    criteria: str,
    others: Sequence[Mapping[str, Any]],
) -> JudgeQuestion:
    filled = fill(task, context)
    reasons = [
        (f"judge {vote['judge']}, who voted {vote['bracket']}", vote["reasons"][:MAX_REASON_LENGTH])
        for vote in others
    ]
    names = ", ".join(f"[quoted text: {name}]" for name, _ in reasons)
    parts = [
        filled.instructions + criteria,
        OTHERS.replace("{names}", names) if reasons else "",
        JUDGE_RULES,
        REPLY,
    ]
    return JudgeQuestion(
        purpose="deliberation",
        instructions="\n\n".join(part for part in parts if part),
        quoted=(*filled.quoted, *reasons),
        schema=VOTE_SCHEMA,
        check=vote_problem,
        least=MIN_SCHEMA,
        timeout_s=config.timeout_s,
    )
