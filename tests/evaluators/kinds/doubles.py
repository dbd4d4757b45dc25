"""A judge that answers from a list, and the contexts kinds are tried in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._base import (
    CaseFacts,
    Context,
    Judge,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Message,
    Output,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
)
from evaluators.model_calls.judge import UnreadableReplyError, read_reply
from evaluators.scoring.types import Outcome, Score, Unscored, Usage

ASKED = "Where is my order TW-1?"
AGENT = "reviewer"
ANSWERED = "It is out for delivery today between 14:00 and 17:00."


class ListedJudge:
    """Answers with the texts it was given, read as strictly as a real judge's and repaired once."""

    def __init__(self, *replies: Any) -> None:
        self.replies = [r if isinstance(r, str) else json.dumps(r) for r in replies]
        self.questions: list[JudgeQuestion] = []
        self.problems: list[str] = []

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        self.questions.append(question)
        for calls in (1, 2):
            least = question.least if calls == 2 else None
            usage = Usage(input_tokens=10 * calls, output_tokens=calls, calls=calls)
            if not self.replies:
                raise JudgeFailure("the server does not answer", stage="judge", usage=usage)
            try:
                text = self.replies.pop(0)
                content = read_reply(text, question.schema)
                problem = question.check(content) if question.check else ""
            except UnreadableReplyError as error:
                problem = str(error)
                content = {}
            if problem and least is not None:
                with suppress(UnreadableReplyError):
                    content, problem = read_reply(text, least), ""
            if not problem:
                return JudgeReply(content, usage, "listed")
            self.problems.append(problem)
        raise JudgeFailure(f"unreadable twice: {problem}", stage="parse", usage=usage)


class ListedSandbox:
    """Starts nothing: notes what was to run and gives the results it was given."""

    def __init__(self, *results: ScriptResult | str) -> None:
        self.results = [
            one if isinstance(one, ScriptResult) else ScriptResult(one, "", 0) for one in results
        ]
        self.calls: list[ScriptCall] = []

    async def run(self, call: ScriptCall) -> ScriptResult:
        self.calls.append(call)
        if not self.results:
            raise SandboxRefusal("scripts are switched off")
        return self.results.pop(0)


def case_of(**facts: Any) -> CaseFacts:
    return CaseFacts(**{"key": "C-1", "input": (Message("user", ASKED),)} | facts)


def context_of(text: str = ANSWERED, *, judge: Judge | None = None, **facts: Any) -> Context:
    names = ("children", "files", "sandbox", "results", "baseline")
    own = {name: facts.pop(name) for name in names if name in facts}
    told = {"trace": facts.pop("trace", None), "usage": facts.pop("usage", Usage())}
    output = Output(text, files=facts.pop("left", {}), **told)
    agents = {AGENT: judge}
    return Context("path", case_of(**facts), output, judge=judge, target_as_judge=agents.get, **own)


def outcome_of(kind: str, config: Mapping[str, Any], context: Context) -> Outcome:
    return asyncio.run(get_kind(kind).score(read_config(kind, config), context))


def score_of(kind: str, config: Mapping[str, Any], context: Context) -> Score:
    outcome = outcome_of(kind, config, context)
    assert isinstance(outcome, Score), outcome
    return outcome


def unscored_of(kind: str, config: Mapping[str, Any], context: Context) -> Unscored:
    outcome = outcome_of(kind, config, context)
    assert isinstance(outcome, Unscored), outcome
    return outcome
