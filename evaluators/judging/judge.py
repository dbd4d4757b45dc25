"""A judge: a question asked so that only the model can answer it, and asked again once if need be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evaluators.judging.calls import (
    NO_USAGE,
    CallKey,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    TraceHeaders,
    add_usage,
)
from evaluators.judging.quoting import new_mark, quote, rule
from evaluators.judging.replies import UnreadableReplyError, closed, read_reply
from evaluators.judging.requests import sha256_of
from evaluators.judging.specs import ModelSpec
from evaluators.kinds._base import JudgeFailure, JudgeQuestion, JudgeReply
from evaluators.scoring.types import Usage

if TYPE_CHECKING:
    from evaluators.judging.client import ModelClient

EVALUATION = "evaluation"
# Stands for the random mark where a question is hashed, so that the same question has the same hash.
CANONICAL_MARK = "mark"
REPLY_RULE = (
    "Reply with one JSON object and nothing else: no text before or after it. It satisfies this "
    "JSON schema:\n{schema}"
)
REPAIR = (
    "That reply cannot be used: {problem}. Reply again with the whole corrected JSON object and "
    "nothing else. The rules about quoted texts still hold."
)
MOST_ECHO = 8_000

Messages = tuple[dict[str, str], ...]


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
        spec = self._spec(question)
        messages, digest = _written(question)
        first = await self._chat(spec, question, messages, digest, repair=0)
        if not first.problem:
            return _read(first, question, NO_USAGE)
        again = (
            *messages,
            {"role": "assistant", "content": first.text[:MOST_ECHO]},
            {"role": "user", "content": REPAIR.format(problem=first.problem)},
        )
        repaired = sha256_of([digest, first.text, first.problem])
        try:
            second = await self._chat(spec, question, again, repaired, repair=1)
        except JudgeFailure as failure:
            failure.usage = add_usage(first.usage, failure.usage)
            raise
        if second.problem:
            raise JudgeFailure(
                f"the judge's reply could not be read, nor the one after asking again: {second.problem}",
                stage="parse",
                usage=add_usage(first.usage, second.usage),
            )
        return _read(second, question, first.usage)

    def _spec(self, question: JudgeQuestion) -> ModelSpec:
        slug = question.model or self.default
        if not slug:
            raise JudgeFailure("no judge is chosen for this suite or evaluator", stage="judge")
        if slug not in self.models:
            raise JudgeFailure(f"there is no language model {slug!r}", stage="judge")
        return self.models[slug]

    async def _chat(
        self,
        spec: ModelSpec,
        question: JudgeQuestion,
        messages: Messages,
        digest: str,
        *,
        repair: int,
    ) -> ChatReply:
        key = CallKey(EVALUATION, self.path, question.sample, question.round, repair)
        trace = TraceHeaders(self.target, self.case, self.path)
        call = ChatCall(
            messages,
            key,
            schema=closed(question.schema),
            trace=trace,
            request_hash=digest,
            problem_of=lambda text: _problem(text, question),
        )
        try:
            return await self.client.chat(spec, call, self.ledger)
        except ModelCallError as error:
            reason = f"{spec.name or spec.slug}: {error.reason}"
            raise JudgeFailure(reason, stage="judge", usage=error.usage) from error


def _written(question: JudgeQuestion) -> tuple[Messages, str]:
    """Return the messages, with a mark of their own, and the hash of the question without it."""
    texts = [question.instructions, *(text for _, text in question.quoted)]
    return (
        _messages(question, new_mark(texts)),
        sha256_of([question.purpose, _messages(question, CANONICAL_MARK)]),
    )


def _messages(question: JudgeQuestion, mark: str) -> Messages:
    schema = json.dumps(closed(question.schema), ensure_ascii=False)
    parts = [question.instructions]
    if question.quoted:
        parts.append(rule(mark))
    system = "\n\n".join([*parts, REPLY_RULE.format(schema=schema)])
    quoted = "\n\n".join(quote(label, text, mark) for label, text in question.quoted)
    user = (
        f"{quoted}\n\nReply now with the JSON object."
        if quoted
        else "Reply now with the JSON object."
    )
    return ({"role": "system", "content": system}, {"role": "user", "content": user})


def _problem(text: str, question: JudgeQuestion) -> str:
    try:
        content = read_reply(text, question.schema)
    except UnreadableReplyError as error:
        return str(error)
    return question.check(content) if question.check else ""


def _read(reply: ChatReply, question: JudgeQuestion, before: Usage) -> JudgeReply:
    content: Mapping[str, Any] = read_reply(reply.text, question.schema)
    return JudgeReply(content, add_usage(reply.usage, before), reply.model)
