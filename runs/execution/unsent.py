"""What would be sent, written down in place of sending it: the client, the agents and the sandbox of a dry run.

All that leads to a request is that of a real one; only the last step, which costs, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.judging.answers import Failure
from evaluators.judging.calls import CallKey, CallStatus
from evaluators.judging.client import ModelClient
from evaluators.judging.retries import ONE_TRY
from evaluators.judging.specs import ModelSpec
from evaluators.judging.tries import Try
from evaluators.kinds._base import SandboxRefusal, ScriptCall, ScriptResult
from runs.execution.agent_tries import AgentTry, shown_request
from runs.execution.agents import AgentClient

NOT_SENT = "nothing was sent: this is a dry run"


@dataclass(frozen=True, slots=True)
class UnsentRequest:
    """One request of a judge: `body` is what would travel as JSON, `to` names the target of an agent that judges.

    `spec` is the language model, None where an agent at an address is asked. `digest` is the same for
    the same question, whatever random marks stand in it.
    """

    key: CallKey
    digest: str
    body: Mapping[str, Any]
    spec: ModelSpec | None = None
    to: str = ""


@dataclass(slots=True)
class Unsent:
    """Everything a dry run would have sent or started, in the order it came to it."""

    requests: list[UnsentRequest] = field(default_factory=list)
    scripts: list[ScriptCall] = field(default_factory=list)


class UnsentClient(ModelClient):
    """Prepares calls of models like any client, and writes them down instead."""

    def __init__(self, unsent: Unsent) -> None:
        """Ask for everything once."""
        super().__init__(retries=ONE_TRY)
        self._unsent = unsent

    async def _send(self, ended: Try) -> None:
        request = UnsentRequest(ended.call.key, ended.digest, ended.request, spec=ended.spec)
        self._unsent.requests.append(request)
        ended.failure = Failure(CallStatus.REFUSED, NOT_SENT)


class UnsentAgents(AgentClient):
    """Prepares requests to agents like any client, and writes them down instead, without secrets."""

    def __init__(self, unsent: Unsent) -> None:
        """Open nothing, ever."""
        super().__init__()
        self._unsent = unsent

    async def _send(self, ended: AgentTry) -> None:
        shown = shown_request(ended.request, ended.secrets)
        self._unsent.requests.append(UnsentRequest(ended.key, ended.digest, shown, to=ended.target))
        ended.status, ended.reason = CallStatus.REFUSED, NOT_SENT


@dataclass(frozen=True, slots=True)
class UnsentSandbox:
    """Takes the runs of programs, and starts none."""

    unsent: Unsent

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Write the call down; raises SandboxRefusal."""
        self.unsent.scripts.append(call)
        raise SandboxRefusal(NOT_SENT)
