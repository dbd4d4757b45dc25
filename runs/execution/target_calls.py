"""One answer of a target: its model or its address is called under one key, and every try is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evaluators.judging.calls import CallKey, ChatCall, Ledger, ModelCallError, TraceHeaders
from evaluators.judging.client import ModelClient
from evaluators.judging.specs import ModelSpec
from evaluators.kinds._base import Message, Output
from runs.execution.agents import AgentClient
from runs.execution.causes import CAUSES
from runs.execution.loading import AskedTarget
from runs.plan import Cause, TargetFailure
from runs.targets._base import (
    AgentFailure,
    AgentReading,
    AgentReply,
    AgentRequest,
    ChatAnswer,
    ChatFailure,
    TargetContext,
)


@dataclass(frozen=True, slots=True)
class TargetCalls:
    """What a target is handed to answer once.

    Its calls stand in the ledger under `key`. A `digest` takes the place of the hash of what is asked
    where that holds something random; `problem_of` tells what is wrong with the text of an answer, ""
    for nothing, and the ledger keeps that with it.
    """

    asked: AskedTarget
    key: CallKey
    trace: TraceHeaders
    models: Mapping[str, ModelSpec]
    client: ModelClient
    agents: AgentClient | None
    ledger: Ledger
    digest: str = ""
    problem_of: Callable[[str], str] | None = None

    async def answer(self, context: TargetContext) -> Output | TargetFailure:
        """Return what the target answers; what the ledger's `admit` raises passes through."""
        kind = self.asked.kind
        if kind.uses_model:
            context = replace(context, chat=self._chat)
        if kind.uses_agent:
            context = replace(context, agent=self._ask_agent)
        return await kind.answer(self.asked.config, context)

    async def _chat(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> ChatAnswer:
        slug = self.asked.plan.model
        spec = self.models.get(slug)
        if spec is None:
            raise ChatFailure(f"there is no language model {slug!r} any more", Cause.FAILED)
        spec = replace(spec, parameters={**spec.parameters, **parameters}).within(timeout_s)
        call = ChatCall(
            tuple({"role": turn.role, "content": turn.content} for turn in messages),
            self.key,
            trace=self.trace,
            request_hash=self.digest,
            problem_of=self.problem_of,
        )
        try:
            reply = await self.client.chat(spec, call, self.ledger)
        except ModelCallError as error:
            raise ChatFailure(error.reason, CAUSES.get(error.status, Cause.FAILED)) from error
        return ChatAnswer(reply.text, reply.usage, reply.model)

    async def _ask_agent(self, request: AgentRequest) -> Output:
        if self.agents is None:
            raise AgentFailure("agents are not called from here", Cause.FAILED)
        if self.problem_of is not None:
            request = replace(request, read=partial(_read, request, self.problem_of))
        return await self.agents.ask(
            request,
            self.asked.secrets,
            self.ledger,
            target=self.asked.plan.name,
            key=self.key,
            digest=self.digest,
        )


def _read(
    request: AgentRequest, problem_of: Callable[[str], str], reply: AgentReply
) -> AgentReading:
    """Return an output with what is wrong with its text: it can be read, and is not what was asked for."""
    reading = request.read(reply)
    if reading.output is None:
        return reading
    return replace(reading, problem=problem_of(reading.output.text))
