"""One question to a judge: how it is written for a model or as one text, and how replies are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.judging.quoting import new_mark, quote, rule
from evaluators.judging.replies import UnreadableReplyError, closed_schema, read_reply
from evaluators.judging.requests import sha256_of
from evaluators.kinds._base import JudgeQuestion

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
EARLIER_REPLY = "your earlier reply"
MOST_ECHO = 8_000

Messages = tuple[dict[str, str], ...]


@dataclass(slots=True)
class AskedQuestion:
    """One question on its way: as it is written, and what its last readable reply held.

    Once it has been asked again it `takes_least`: a reply of the question's least form will do.
    """

    question: JudgeQuestion
    schema: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    takes_least: bool = False

    def __post_init__(self) -> None:
        """Close the schema against keys it does not name."""
        self.schema = closed_schema(self.question.schema)

    def written(self) -> tuple[Messages, str]:
        """Return the messages, with a mark of their own, and the hash of the question without it."""
        canonical = [self.question.purpose, self._messages(CANONICAL_MARK)]
        return self._messages(new_mark(self._texts())), sha256_of(canonical)

    def written_again(self, messages: Messages, reply: str, problem: str) -> Messages:
        """Return the messages that ask for a repair of a reply."""
        return (
            *messages,
            {"role": "assistant", "content": reply[:MOST_ECHO]},
            {"role": "user", "content": REPAIR.format(problem=problem)},
        )

    def as_one_text(self) -> tuple[str, str]:
        """Return the whole question as one text, with a mark of its own, and its hash without it.

        That is for agents: some take in no more than the last text of the user.
        """
        canonical = [self.question.purpose, self._one_text(CANONICAL_MARK)]
        return self._one_text(new_mark(self._texts())), sha256_of(canonical)

    def again_as_one_text(self, reply: str, problem: str) -> str:
        """Return the whole question with a reply that cannot be used, quoted, and what is wrong with it."""
        mark = new_mark([*self._texts(), reply, problem])
        echo = quote(EARLIER_REPLY, reply[:MOST_ECHO], mark)
        return self._one_text(mark, echo, REPAIR.format(problem=problem))

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

    def _texts(self) -> list[str]:
        return [self.question.instructions, *(text for _, text in self.question.quoted)]

    def _messages(self, mark: str) -> Messages:
        return (
            {"role": "system", "content": "\n\n".join(self._told(mark))},
            {"role": "user", "content": "\n\n".join([*self._shown(mark), REPLY_NOW])},
        )

    def _one_text(self, mark: str, *after: str) -> str:
        return "\n\n".join([*self._told(mark), *self._shown(mark), *(after or (REPLY_NOW,))])

    def _told(self, mark: str) -> Iterable[str]:
        form = REPLY_RULE.format(schema=json.dumps(self.schema, ensure_ascii=False))
        rules = (rule(mark),) if self.question.quoted else ()
        return (self.question.instructions, *rules, form)

    def _shown(self, mark: str) -> Iterable[str]:
        return (quote(label, text, mark) for label, text in self.question.quoted)
