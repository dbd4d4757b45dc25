"""The ports of one execution: its target, its judge, and where their calls are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DatabaseError, InterfaceError

from evaluators.judging.calls import (
    Admit,
    Begin,
    CallKey,
    CallRecord,
    ChatCall,
    Ledger,
    ModelCallError,
    TraceHeaders,
)
from evaluators.judging.client import ModelClient
from evaluators.judging.judge import ModelJudge
from evaluators.kinds._base import (
    Judge,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Kind,
    Message,
    Output,
    Sandbox,
)
from runs.engine import AskTarget
from runs.execution.admission import CallRefusedError
from runs.execution.agents import AgentClient
from runs.execution.causes import CAUSES
from runs.execution.loading import Calls, RunWork
from runs.models import CallPurpose
from runs.plan import Cause, TargetFailure
from runs.targets._base import AgentFailure, AgentRequest, ChatAnswer, ChatFailure, TargetContext

# A call for which nobody could be asked whether it may be made is not the target's failure.
NOT_MADE = (CallRefusedError, DatabaseError, InterfaceError)


@dataclass(slots=True)
class ExecutionPorts:
    """What one execution is handed; `is_refused` tells that one of its calls was not let through."""

    work: RunWork
    context: TargetContext
    client: ModelClient
    admit: Admit
    begin: Begin
    write_down: Callable[[CallRecord], None]
    earlier: Calls = field(default_factory=dict)
    agents: AgentClient | None = None
    sandbox: Sandbox | None = None
    ask_target: AskTarget | None = None
    is_refused: bool = False

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of evaluator by name."""
        return self.work.kinds

    async def answer(self) -> Output | TargetFailure:
        """Return what the target answers to the case."""
        context = self.context
        if self.work.target.uses_model:
            context = replace(context, chat=self._chat)
        if self.work.target.uses_agent:
            context = replace(context, agent=self._ask_agent)
        try:
            return await self.work.target.answer(self.work.target_config, context)
        except NOT_MADE as error:
            self.is_refused = True
            return TargetFailure(str(error), Cause.REFUSED)

    def judge(self, path: str) -> Judge | None:
        """Return the judge of the evaluator at that path; it says itself when none is chosen."""
        judge = ModelJudge(
            client=self.client,
            models=self.work.models,
            default=self.work.plan.judge,
            ledger=self._ledger(),
            target=self.work.plan.target.name,
            case=self.context.case.key,
            path=path,
        )
        return _RefusableJudge(judge, self)

    def _ledger(self) -> Ledger:
        return Ledger(self._recall, self.write_down, self.admit, self.begin)

    def _recall(self, key: CallKey, request_hash: str) -> CallRecord | None:
        return self.earlier.get((key, request_hash))

    async def _chat(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> ChatAnswer:
        slug = self.work.plan.target.model
        spec = self.work.models.get(slug)
        if spec is None:
            raise ChatFailure(f"there is no language model {slug!r} any more", Cause.FAILED)
        spec = replace(spec, parameters={**spec.parameters, **parameters}).within(timeout_s)
        call = ChatCall(
            tuple({"role": turn.role, "content": turn.content} for turn in messages),
            CallKey(CallPurpose.TARGET.value),
            trace=TraceHeaders(self.work.plan.target.name, self.context.case.key),
        )
        try:
            reply = await self.client.chat(spec, call, self._ledger())
        except ModelCallError as error:
            raise ChatFailure(error.reason, CAUSES.get(error.status, Cause.FAILED)) from error
        return ChatAnswer(reply.text, reply.usage, reply.model)

    async def _ask_agent(self, request: AgentRequest) -> Output:
        if self.agents is None:
            raise AgentFailure("agents are not called from here", Cause.FAILED)
        name = self.work.plan.target.name
        return await self.agents.ask(request, self.work.secrets, self._ledger(), target=name)


@dataclass(frozen=True, slots=True)
class _RefusableJudge:
    """A judge that tells its execution when a call is not let through."""

    judge: ModelJudge
    ports: ExecutionPorts

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Ask the judge."""
        try:
            return await self.judge.ask(question)
        except NOT_MADE as error:
            self.ports.is_refused = True
            raise JudgeFailure(str(error), stage="judge") from error
