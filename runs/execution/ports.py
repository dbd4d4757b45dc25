"""The ports of one execution: its target, its judge, and where their calls are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError

from evaluators.judging.calls import Admit, Begin, CallKey, CallRecord, Ledger, TraceHeaders
from evaluators.judging.client import ModelClient
from evaluators.judging.judge import ModelJudge
from evaluators.kinds._base import (
    Judge,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Kind,
    Output,
    Sandbox,
)
from runs.execution.admission import CallRefusedError
from runs.execution.agent_judges import AgentJudge
from runs.execution.agents import OWN_CALL, AgentClient
from runs.execution.loading import Calls, RunWork
from runs.execution.target_calls import TargetCalls
from runs.plan import Cause, TargetFailure
from runs.targets._base import TargetContext

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
    is_refused: bool = False

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of evaluator by name."""
        return self.work.kinds

    async def answer(self) -> Output | TargetFailure:
        """Return what the target answers to the case."""
        calls = TargetCalls(
            asked=self.work.asked,
            key=OWN_CALL,
            trace=TraceHeaders(self.work.plan.target.name, self.context.case.key),
            models=self.work.models,
            client=self.client,
            agents=self.agents,
            ledger=self._ledger(),
        )
        try:
            return await calls.answer(self.context)
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

    def target_as_judge(self, path: str, name: str) -> Judge | None:
        """Return the target of that name as judge for the evaluator at that path, None if it is not asked."""
        asked = self.work.agents.get(name)
        if asked is None:
            return None
        judge = AgentJudge(
            asked=asked,
            path=path,
            case=self.context.case,
            trace=TraceHeaders(self.work.plan.target.name, self.context.case.key, path),
            models=self.work.models,
            client=self.client,
            agents=self.agents,
            sandbox=self.sandbox,
            ledger=self._ledger(),
        )
        return _RefusableJudge(judge, self)

    def _ledger(self) -> Ledger:
        return Ledger(self._recall, self.write_down, self.admit, self.begin)

    def _recall(self, key: CallKey, request_hash: str) -> CallRecord | None:
        return self.earlier.get((key, request_hash))


@dataclass(frozen=True, slots=True)
class _RefusableJudge:
    """A judge that tells its execution when a call is not let through."""

    judge: Judge
    ports: ExecutionPorts

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Ask the judge."""
        try:
            return await self.judge.ask(question)
        except NOT_MADE as error:
            self.ports.is_refused = True
            raise JudgeFailure(str(error), stage="judge") from error
