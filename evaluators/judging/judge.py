"""A judge: a question asked so that only the model can answer it, and asked again once if need be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evaluators.judging.calls import (
    CallKey,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    TraceHeaders,
)
from evaluators.judging.quoting import new_mark, quote, rule
from evaluators.judging.replies import UnreadableReplyError, closed_schema, read_reply
from evaluators.judging.requests import sha256_of
from evaluators.judging.specs import ModelSpec
from evaluators.kinds._base import JudgeFailure, JudgeQuestion, JudgeReply
from evaluators.scoring.usage import add_usage

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
REPLY_NOW = "Reply now with the JSON object."
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
        asked = _Asked(self._spec(question), question, closed_schema(question.schema))
        messages, digest = asked.written()
        first = await self._chat(asked, messages, digest, repair=0)
        if not first.problem:
            return JudgeReply(asked.content, first.usage, first.model)
        again = (
            *messages,
            {"role": "assistant", "content": first.text[:MOST_ECHO]},
            {"role": "user", "content": REPAIR.format(problem=first.problem)},
        )
        repaired = sha256_of([digest, first.text, first.problem])
        asked.takes_least = True
        try:
            second = await self._chat(asked, again, repaired, repair=1)
        except JudgeFailure as failure:
            failure.usage = add_usage(first.usage, failure.usage)
            raise
        usage = add_usage(first.usage, second.usage)
        if second.problem:
            reason = f"the judge's reply could not be read, nor the one after asking again: {second.problem}"
            raise JudgeFailure(reason, stage="parse", usage=usage)
        return JudgeReply(asked.content, usage, second.model)

    def _spec(self, question: JudgeQuestion) -> ModelSpec:
        slug = question.model or self.default
        if not slug:
            raise JudgeFailure("no judge is chosen for this suite or evaluator", stage="judge")
        if slug not in self.models:
            raise JudgeFailure(f"there is no language model {slug!r}", stage="judge")
        return self.models[slug].within(question.timeout_s)

    async def _chat(
        self, asked: _Asked, messages: Messages, digest: str, *, repair: int
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
            return await self.client.chat(asked.spec, call, self.ledger)
        except ModelCallError as error:
            reason = f"{asked.spec.name or asked.spec.slug}: {error.reason}"
            raise JudgeFailure(reason, stage="judge", usage=error.usage) from error


@dataclass(slots=True)
class _Asked:
    """One question on its way: as it is written, and what its last readable reply held.

    Once it has been asked again it `takes_least`: a reply of the question's least form will do.
    """

    spec: ModelSpec
    question: JudgeQuestion
    schema: Mapping[str, Any]
    content: Mapping[str, Any] = field(default_factory=dict)
    takes_least: bool = False

    def written(self) -> tuple[Messages, str]:
        """Return the messages, with a mark of their own, and the hash of the question without it."""
        texts = [self.question.instructions, *(text for _, text in self.question.quoted)]
        form = REPLY_RULE.format(schema=json.dumps(self.schema, ensure_ascii=False))
        canonical = [self.question.purpose, self._messages(CANONICAL_MARK, form)]
        return self._messages(new_mark(texts), form), sha256_of(canonical)

    def problem_of(self, text: str) -> str:
        """Read a reply and keep its content; return what is wrong with it, or ""."""
        question = self.question
        problem = self._read(text, self.schema, question.check)
        if not problem or not self.takes_least or question.least is None:
            return problem
        return problem if self._read(text, question.least, None) else ""

    def _read(
        self, text: str, schema: Mapping[str, Any], check: Callable[[Mapping[str, Any]], str] | None
    ) -> str:
        try:
            self.content = read_reply(text, schema)
        except UnreadableReplyError as error:
            return str(error)
        return check(self.content) if check else ""

    def _messages(self, mark: str, form: str) -> Messages:
        parts = [self.question.instructions]
        if self.question.quoted:
            parts.append(rule(mark))
        parts.append(form)
        quoted = [quote(label, text, mark) for label, text in self.question.quoted]
        return (
            {"role": "system", "content": "\n\n".join(parts)},
            {"role": "user", "content": "\n\n".join([*quoted, REPLY_NOW])},
        )
