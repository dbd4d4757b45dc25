"""The ports of one execution: its target, its judges, its programs and its ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError

from evaluators.kinds._base import (
    CaseFacts,
    Judge,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Kind,
    Message,
    Output,
    Sandbox,
)
from evaluators.model_calls.calls import (
    OWN_CALL,
    Admit,
    Begin,
    CallKey,
    CallOutcome,
    CallRecord,
    ChatCall,
    Ledger,
    ModelCallError,
    TakeRoom,
    TraceHeaders,
    sha256_hex,
    take_room_at_once,
)
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.judge import UNREADABLE, ModelJudge, PendingQuestion
from evaluators.model_calls.models import ModelSpec
from evaluators.reading.json import storable
from evaluators.scoring.types import Usage, total_usage
from runs.engine.ports import Cause, TargetFailure
from runs.execution.ledger import CallRefusedError
from runs.execution.loading import Calls, FrozenTarget, RunWork
from runs.execution.target_secrets import CAUSES
from runs.models.results import CallPurpose
from runs.target_kinds._base import (
    AgentFailure,
    AgentReading,
    AgentReply,
    AgentRequest,
    ChatAnswer,
    ChatFailure,
    TargetConfig,
    TargetContext,
)

if TYPE_CHECKING:
    from runs.execution.agents import AgentClient


@dataclass(frozen=True, slots=True)
class TargetCalls:
    """One question to a target, with the clients and the ledger of its calls.

    The ledger stores the calls under `key`. `digest` replaces the hash of the request where the
    request holds something random. `find_problem` returns what is wrong with the text of an answer,
    "" for nothing; the ledger stores it with the call.
    """

    target: FrozenTarget
    key: CallKey
    trace: TraceHeaders
    models: Mapping[str, ModelSpec]
    client: ModelClient
    agents: AgentClient | None
    ledger: Ledger
    digest: str = ""
    find_problem: Callable[[str], str] | None = None

    async def answer(self, context: TargetContext) -> Output | TargetFailure:
        """Return the target's answer; errors of the ledger's `admit` pass through."""
        kind = self.target.kind
        if kind.uses_model:
            context = replace(context, chat=self._chat)
        if kind.uses_agent:
            context = replace(context, agent=self._ask_agent)
        return await kind.answer(self.target.config, context)

    async def _chat(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> ChatAnswer:
        slug = self.target.plan.model
        spec = self.models.get(slug)
        if spec is None:
            raise ChatFailure(f"there is no longer a language model {slug!r}", Cause.FAILED)
        spec = replace(spec, parameters={**spec.parameters, **parameters}).within(timeout_s)
        call = ChatCall(
            tuple({"role": turn.role, "content": turn.content} for turn in messages),
            self.key,
            trace=self.trace,
            request_hash=self.digest,
            find_problem=self.find_problem,
        )
        try:
            reply = await self.client.chat(spec, call, self.ledger)
        except ModelCallError as error:
            raise ChatFailure(error.reason, CAUSES.get(error.status, Cause.FAILED)) from error
        return ChatAnswer(reply.text, reply.usage, reply.model)

    async def _ask_agent(self, request: AgentRequest) -> Output:
        if self.agents is None:
            raise AgentFailure("agents are not called from here", Cause.FAILED)
        if self.find_problem is not None:
            request = replace(request, read=partial(_read, request, self.find_problem))
        return await self.agents.ask(
            request,
            self.target.secrets,
            self.ledger,
            target=self.target.plan.name,
            key=self.key,
            digest=self.digest,
        )


def _read(
    request: AgentRequest, find_problem: Callable[[str], str], reply: AgentReply
) -> AgentReading:
    """Read a reply and add the problem of a text that is readable but not what was asked for."""
    reading = request.read(reply)
    if reading.output is None:
        return reading
    return replace(reading, problem=find_problem(reading.output.text))


STATUSES = {cause: status for status, cause in CAUSES.items()}
STOPPED = TargetFailure("stopped before it ended", Cause.FAILED)


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One run of a target's program; `request` is the part of it that may be stored and shown."""

    target: str
    key: CallKey
    digest: str
    request: Mapping[str, Any]
    find_problem: Callable[[str], str]
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def run(
        self, ledger: Ledger, answer: Callable[[], Awaitable[Output | TargetFailure]]
    ) -> Output | TargetFailure:
        """Return the program's answer, from the ledger if it answered before."""
        earlier = ledger.recall(self.key, self.digest)
        if earlier is not None:
            stored = earlier.reply if isinstance(earlier.reply, dict) else {}
            return Output(text=str(stored.get("text") or ""), usage=earlier.usage)
        await ledger.admit()
        began_s = time.perf_counter()
        ended: Output | TargetFailure = STOPPED
        ledger.begin()
        try:
            ended = await answer()
        finally:
            ledger.record(self._record(ended, round((time.perf_counter() - began_s) * 1000)))
        return ended

    def _record(self, ended: Output | TargetFailure, latency_ms: int) -> CallRecord:
        usage, reply = Usage(), None
        if isinstance(ended, TargetFailure):
            status = STATUSES.get(ended.cause, CallOutcome.SERVER_ERROR)
            error = str(storable(ended.reason))
        else:
            usage, error = ended.usage, self.find_problem(ended.text)
            reply = storable({"text": ended.text})
            status = CallOutcome.UNREADABLE if error else CallOutcome.OK
        return CallRecord(
            key=self.key,
            model=self.target,
            status=status,
            request_hash=self.digest,
            request=self.request,
            created_at=self.created_at,
            error=error,
            reply=reply,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            latency_ms=latency_ms,
        )


# The settings that identify a program; its text and files are frozen in the snapshot.
SHOWN = ("command", "folder")
MAX_COMMAND = 500


@dataclass(frozen=True, slots=True)
class AgentJudge:
    """A target that judges for the evaluator at `path`, the result of `case`.

    The ledger stores its calls under purpose evaluation and that path, by sample and repair. So no call
    is ever reused as an answer of the system under test or of another judge.
    """

    target: FrozenTarget
    path: str
    case: CaseFacts
    trace: TraceHeaders
    models: Mapping[str, ModelSpec]
    client: ModelClient
    agents: AgentClient | None
    sandbox: Sandbox | None
    ledger: Ledger

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return a reply that fits the schema, after at most one repair; its usage counts every try.

        Raises:
            JudgeFailure: stage judge when the target gave no answer, parse when its repaired reply
                still cannot be read. Errors of the ledger's `admit` pass through.

        """
        agent_question, spent = _AgentQuestion(question), _CostTracker(self.ledger)
        text, digest = agent_question.as_one_text()
        answer = await self._answer(agent_question, spent, text, digest)
        if problem := agent_question.find_problem(answer.text):
            again = agent_question.repair_as_one_text(answer.text, problem)
            repaired = sha256_hex([digest, answer.text, problem])
            agent_question.takes_least = True
            answer = await self._answer(agent_question, spent, again, repaired, repair=1)
            if problem := agent_question.find_problem(answer.text):
                raise JudgeFailure(UNREADABLE.format(problem), stage="parse", usage=spent.usage)
        return JudgeReply(
            agent_question.content, spent.usage, _traced_model(answer) or self.target.plan.name
        )

    async def _answer(
        self,
        agent_question: _AgentQuestion,
        spent: _CostTracker,
        text: str,
        digest: str,
        *,
        repair: int = 0,
    ) -> Output:
        """Return the target's output for a text; raises JudgeFailure without one."""
        question, path = agent_question.question, self.path
        key = CallKey(CallPurpose.EVALUATION.value, path, question.sample, question.round, repair)
        calls = TargetCalls(
            target=replace(self.target, config=_within(self.target.config, question.timeout_s)),
            key=key,
            trace=self.trace,
            models=self.models,
            client=self.client,
            agents=self.agents,
            ledger=spent.ledger,
            digest=digest,
            find_problem=agent_question.find_problem,
        )
        context = TargetContext(
            self.target.plan.name, self._case(text, question), sandbox=self.sandbox
        )
        if self.target.kind.uses_model or self.target.kind.uses_agent:
            answer = await calls.answer(context)
        else:
            request = {**_shown(self.target.config), "input": storable(text)}
            call = ProgramCall(
                self.target.plan.name, key, digest, request, agent_question.find_problem
            )
            answer = await call.run(spent.ledger, lambda: calls.answer(context))
        if isinstance(answer, TargetFailure):
            reason = storable(f"{self.target.plan.name}: {answer.reason}")
            raise JudgeFailure(reason, stage="judge", usage=spent.usage)
        return answer

    def _case(self, text: str, question: JudgeQuestion) -> CaseFacts:
        """Return the question as a case with its own id.

        An agent that keeps sessions by id must not continue its session as the system under test, nor
        that of another sample.
        """
        sample = f"/{question.sample + 1}" if question.sample else ""
        return CaseFacts(
            key=f"{self.case.key}/{self.path or 'all'}{sample}",
            input=(Message("user", text),),
            metadata=self.case.metadata,
        )


class _AgentQuestion(PendingQuestion):
    """A question to an agent, which may be a simple program that picks JSON out of its input."""

    def find_problem(self, text: str) -> str:
        """Read a reply and keep its content; return what is wrong with it, or "".

        A reply that appears word for word in a quoted text is a verdict by the author of that text.
        """
        problem = PendingQuestion.find_problem(self, text)
        if problem:
            return problem
        forms = {_squeezed(text), _squeezed(json.dumps(self.content, ensure_ascii=False))}
        quoted = [_squeezed(text) for _, text in self.question.quoted]
        is_copied = any(reply in quote for reply in forms for quote in quoted)
        return "it is word for word in a quoted text" if is_copied else ""


def _squeezed(text: str) -> str:
    return "".join(text.split())


@dataclass(slots=True)
class _CostTracker:
    """A ledger that adds up the calls of one question, including reused ones."""

    inner: Ledger
    records: list[CallRecord] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return replace(self.inner, recall=self._recall, record=self._record)

    @property
    def usage(self) -> Usage:
        return total_usage(record.usage for record in self.records)

    def _recall(self, key: CallKey, request_hash: str) -> CallRecord | None:
        record = self.inner.recall(key, request_hash)
        if record is not None:
            self.records.append(record)
        return record

    def _record(self, record: CallRecord) -> None:
        self.records.append(record)
        self.inner.record(record)


def _within(config: TargetConfig, timeout_s: float | None) -> TargetConfig:
    """Return a target's settings with another timeout; None leaves it."""
    if timeout_s is None or "timeout_s" not in type(config).model_fields:
        return config
    return config.model_copy(update={"timeout_s": timeout_s})


def _shown(config: TargetConfig) -> dict[str, Any]:
    values = {name: getattr(config, name, "") for name in SHOWN}
    return {name: str(value)[:MAX_COMMAND] for name, value in values.items() if value}


def _traced_model(output: Output) -> str:
    """Return the model that answered if the target's trace names it."""
    steps = (step.name for step in output.trace or () if step.type == "model")
    return next(steps, "")


# When the ledger could not be asked for permission, the target is not to blame.
NOT_MADE = (CallRefusedError, DatabaseError, InterfaceError)


@dataclass(slots=True)
class ExecutionPorts:
    """The ports of one execution; `is_refused` tells whether one of its calls was refused."""

    work: RunWork
    context: TargetContext
    client: ModelClient
    admit: Admit
    begin: Begin
    write_down: Callable[[CallRecord], None]
    earlier: Calls = field(default_factory=dict)
    take_room: TakeRoom = take_room_at_once
    take_room_for_judge: TakeRoom = take_room_at_once
    agents: AgentClient | None = None
    sandbox: Sandbox | None = None
    is_refused: bool = False

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of evaluator by name."""
        return self.work.kinds

    async def answer(self) -> Output | TargetFailure:
        """Return the target's answer to the case."""
        calls = TargetCalls(
            target=self.work.frozen_target,
            key=OWN_CALL,
            trace=TraceHeaders(self.work.plan.target.name, self.context.case.key),
            models=self.work.models,
            client=self.client,
            agents=self.agents,
            ledger=self._ledger(self.take_room),
        )
        try:
            return await calls.answer(self.context)
        except NOT_MADE as error:
            self.is_refused = True
            return TargetFailure(str(error), Cause.REFUSED)

    def judge(self, path: str) -> Judge | None:
        """Return the judge of the evaluator at that path; it reports by itself when none is chosen."""
        judge = ModelJudge(
            client=self.client,
            models=self.work.models,
            default=self.work.plan.judge,
            ledger=self._ledger(self.take_room_for_judge),
            target=self.work.plan.target.name,
            case=self.context.case.key,
            path=path,
        )
        return _RefusableJudge(judge, self)

    def target_as_judge(self, path: str, name: str) -> Judge | None:
        """Return the target of that name as judge of the evaluator at that path, None if it is unknown."""
        target = self.work.agents.get(name)
        if target is None:
            return None
        judge = AgentJudge(
            target=target,
            path=path,
            case=self.context.case,
            trace=TraceHeaders(self.work.plan.target.name, self.context.case.key, path),
            models=self.work.models,
            client=self.client,
            agents=self.agents,
            sandbox=self.sandbox,
            ledger=self._ledger(self.take_room_for_judge),
        )
        return _RefusableJudge(judge, self)

    def _ledger(self, take_room: TakeRoom) -> Ledger:
        return Ledger(self._recall, self.write_down, self.admit, self.begin, take_room)

    def _recall(self, key: CallKey, request_hash: str) -> CallRecord | None:
        return self.earlier.get((key, request_hash))


@dataclass(frozen=True, slots=True)
class _RefusableJudge:
    """A judge that tells its execution when a call is refused."""

    judge: Judge
    ports: ExecutionPorts

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Ask the judge."""
        try:
            return await self.judge.ask(question)
        except NOT_MADE as error:
            self.ports.is_refused = True
            raise JudgeFailure(str(error), stage="judge") from error
