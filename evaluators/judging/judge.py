"""A judge: a question asked so that only the model can answer it, and asked again once if need be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaluators.judging.calls import (
    CallKey,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    TraceHeaders,
)
from evaluators.judging.questions import AskedQuestion, Messages
from evaluators.judging.requests import sha256_of
from evaluators.judging.specs import ModelSpec
from evaluators.kinds._base import JudgeFailure, JudgeQuestion, JudgeReply
from evaluators.scoring.usage import add_usage

if TYPE_CHECKING:
    from evaluators.judging.client import ModelClient

EVALUATION = "evaluation"
UNREADABLE = "the judge's reply could not be read, nor the one after asking again: {}"


@dataclass(frozen=True, slots=True)
class ModelJudge:
    """A judge of one result, as kinds are handed it; `at` makes the one of each evaluator.

    `models` holds the language models by slug and `default` names the suite's. The ledger finds
    replies given before a worker was lost and records every call.
    """

    client: ModelClient
    models: Mapping[str, ModelSpec]
    default: str
    ledger: Ledger
    target: str = ""
    case: str = ""
    path: str = ""

    def at(self, path: str) -> ModelJudge:
        """Return the same judge asking for the evaluator at this path."""
        return replace(self, path=path)

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return a reply of the schema's form, after one repair at most; its usage counts every try.

        Raises:
            JudgeFailure: stage judge when the model could not be asked, parse when its repaired
                reply still cannot be read.

        """
        spec, asked = self._spec(question), AskedQuestion(question)
        messages, digest = asked.written()
        first = await self._chat(spec, asked, messages, digest)
        if not first.problem:
            return JudgeReply(asked.content, first.usage, first.model)
        again = asked.written_again(messages, first.text, first.problem)
        repaired = sha256_of([digest, first.text, first.problem])
        asked.takes_least = True
        try:
            second = await self._chat(spec, asked, again, repaired, repair=1)
        except JudgeFailure as failure:
            failure.usage = add_usage(first.usage, failure.usage)
            raise
        usage = add_usage(first.usage, second.usage)
        if second.problem:
            raise JudgeFailure(UNREADABLE.format(second.problem), stage="parse", usage=usage)
        return JudgeReply(asked.content, usage, second.model)

    def _spec(self, question: JudgeQuestion) -> ModelSpec:
        slug = question.model or self.default
        if not slug:
            raise JudgeFailure("no judge is chosen for this suite or evaluator", stage="judge")
        if slug not in self.models:
            raise JudgeFailure(f"there is no language model {slug!r}", stage="judge")
        return self.models[slug].within(question.timeout_s)

    async def _chat(
        self,
        spec: ModelSpec,
        asked: AskedQuestion,
        messages: Messages,
        digest: str,
        *,
        repair: int = 0,
    ) -> ChatReply:
        question = asked.question
        call = ChatCall(
            messages,
            CallKey(EVALUATION, self.path, question.sample, question.round, repair),
            schema=asked.schema,
            trace=TraceHeaders(self.target, self.case, self.path),
            request_hash=digest,
            problem_of=asked.problem_of,
        )
        try:
            return await self.client.chat(spec, call, self.ledger)
        except ModelCallError as error:
            reason = f"{spec.name or spec.slug}: {error.reason}"
            raise JudgeFailure(reason, stage="judge", usage=error.usage) from error
