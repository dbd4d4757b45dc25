"""A target as judge: the question goes to it as a case, and its answer is read as a judge's reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evaluators.judging.answers import storable
from evaluators.judging.calls import CallKey, CallRecord, Ledger, TraceHeaders
from evaluators.judging.client import ModelClient
from evaluators.judging.judge import UNREADABLE
from evaluators.judging.questions import AskedQuestion
from evaluators.judging.requests import sha256_of
from evaluators.judging.specs import ModelSpec
from evaluators.kinds._base import (
    CaseFacts,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Message,
    Output,
    Sandbox,
)
from evaluators.scoring.types import Usage
from evaluators.scoring.usage import total_usage
from runs.execution.agents import AgentClient
from runs.execution.loading import AskedTarget
from runs.execution.program_calls import ProgramCall
from runs.execution.target_calls import TargetCalls
from runs.models import CallPurpose
from runs.plan import TargetFailure
from runs.targets._base import TargetConfig, TargetContext

# What of the settings of a program says which one it was; its text and files are frozen in the snapshot.
SHOWN = ("command", "folder")
MOST_COMMAND = 500


@dataclass(frozen=True, slots=True)
class AgentJudge:
    """A target that judges for the evaluator at `path`, the result of `case`.

    Its calls stand in the ledger under purpose evaluation and that path, apart by sample and repair, so
    that none of them is ever taken for an answer of the system under test or of another judge.
    """

    asked: AskedTarget
    path: str
    case: CaseFacts
    trace: TraceHeaders
    models: Mapping[str, ModelSpec]
    client: ModelClient
    agents: AgentClient | None
    sandbox: Sandbox | None
    ledger: Ledger

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return a reply of the schema's form, after one repair at most; its usage counts every try.

        Raises:
            JudgeFailure: stage judge when the target gave no answer, parse when its repaired reply
                still cannot be read. What the ledger's `admit` raises passes through.

        """
        asked, spent = _Asked(question), _Spent(self.ledger)
        text, digest = asked.as_one_text()
        answer = await self._answer(asked, spent, text, digest)
        if problem := asked.problem_of(answer.text):
            again = asked.again_as_one_text(answer.text, problem)
            repaired = sha256_of([digest, answer.text, problem])
            asked.takes_least = True
            answer = await self._answer(asked, spent, again, repaired, repair=1)
            if problem := asked.problem_of(answer.text):
                raise JudgeFailure(UNREADABLE.format(problem), stage="parse", usage=spent.usage)
        return JudgeReply(asked.content, spent.usage, _model_of(answer) or self.asked.plan.name)

    async def _answer(
        self, asked: _Asked, spent: _Spent, text: str, digest: str, *, repair: int = 0
    ) -> Output:
        """Return the output that the target gives to a text; raises JudgeFailure when there is none."""
        question, path = asked.question, self.path
        key = CallKey(CallPurpose.EVALUATION.value, path, question.sample, question.round, repair)
        calls = TargetCalls(
            asked=replace(self.asked, config=_within(self.asked.config, question.timeout_s)),
            key=key,
            trace=self.trace,
            models=self.models,
            client=self.client,
            agents=self.agents,
            ledger=spent.ledger,
            digest=digest,
            problem_of=asked.problem_of,
        )
        context = TargetContext(
            self.asked.plan.name, self._case(text, question), sandbox=self.sandbox
        )
        if self.asked.kind.uses_model or self.asked.kind.uses_agent:
            answer = await calls.answer(context)
        else:
            request = {**_shown(self.asked.config), "input": storable(text)}
            call = ProgramCall(self.asked.plan.name, key, digest, request, asked.problem_of)
            answer = await call.run(spent.ledger, lambda: calls.answer(context))
        if isinstance(answer, TargetFailure):
            reason = storable(f"{self.asked.plan.name}: {answer.reason}")
            raise JudgeFailure(reason, stage="judge", usage=spent.usage)
        return answer

    def _case(self, text: str, question: JudgeQuestion) -> CaseFacts:
        """Return the question as a case, under an id of its own.

        An agent that keeps sessions by id must not go on here with what it was asked as the system
        under test, nor in one sample with what it said in another.
        """
        sample = f"/{question.sample + 1}" if question.sample else ""
        return CaseFacts(
            key=f"{self.case.key}/{self.path or 'all'}{sample}",
            input=(Message("user", text),),
            metadata=self.case.metadata,
        )


class _Asked(AskedQuestion):
    """A question to an agent, which may be a simple program: one that picks JSON out of all it was sent."""

    def problem_of(self, text: str) -> str:
        """Read a reply and keep its content; return what is wrong with it, or "".

        One that stands word for word in a quoted text is a verdict of whoever wrote that text.
        """
        problem = AskedQuestion.problem_of(self, text)
        if problem:
            return problem
        said = {_squeezed(text), _squeezed(json.dumps(self.content, ensure_ascii=False))}
        quoted = [_squeezed(one) for _, one in self.question.quoted]
        is_copied = any(reply in one for reply in said for one in quoted)
        return "it stands word for word in a quoted text" if is_copied else ""


def _squeezed(text: str) -> str:
    return "".join(text.split())


@dataclass(slots=True)
class _Spent:
    """A ledger that adds up what the calls of one question cost, those found again included."""

    inner: Ledger
    records: list[CallRecord] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return replace(self.inner, recall=self._recall, record=self._record)

    @property
    def usage(self) -> Usage:
        return total_usage(record.usage for record in self.records)

    def _recall(self, key: CallKey, request_hash: str) -> CallRecord | None:
        found = self.inner.recall(key, request_hash)
        if found is not None:
            self.records.append(found)
        return found

    def _record(self, record: CallRecord) -> None:
        self.records.append(record)
        self.inner.record(record)


def _within(config: TargetConfig, timeout_s: float | None) -> TargetConfig:
    """Return a target's settings with another time-out; None leaves its own."""
    if timeout_s is None or "timeout_s" not in type(config).model_fields:
        return config
    return config.model_copy(update={"timeout_s": timeout_s})


def _shown(config: TargetConfig) -> dict[str, Any]:
    values = {name: getattr(config, name, "") for name in SHOWN}
    return {name: str(value)[:MOST_COMMAND] for name, value in values.items() if value}


def _model_of(output: Output) -> str:
    """Return the model that answered, as far as the target's trace tells."""
    steps = (step.name for step in output.trace or () if step.type == "model")
    return next(steps, "")
