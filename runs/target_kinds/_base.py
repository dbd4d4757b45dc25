"""What every kind of target consists of: its config, its context and its registration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict

from evaluators.kinds._base import CaseFacts, Message, Output, Sandbox
from evaluators.scoring.types import Usage
from runs.engine.ports import Cause, TargetFailure


class TargetConfig(BaseModel):
    """The settings of one target; unknown keys are refused by name.

    A field may name one of the `sections` of the form in its `json_schema_extra`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    sections: ClassVar[tuple[str, ...]] = ()


class ChatFailure(Exception):  # noqa: N818 - the name says what happened
    """The model behind a chat port gave no answer."""

    def __init__(self, reason: str, cause: Cause) -> None:
        """Keep the reason, in words that a user can act on."""
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer of a model in one turn."""

    text: str
    usage: Usage
    model: str


class Chat(Protocol):
    """A model to talk to. The context passes it in, so that a target imports no transport."""

    async def __call__(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> ChatAnswer:
        """Return the answer; raise ChatFailure if there is none in time. The default timeout is the model's."""
        ...


class Header(BaseModel):
    """One header of a request. The value of a secret header is stored apart, encrypted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    value: str = ""
    secret: bool = False


class AgentFailure(Exception):  # noqa: N818 - the name says what happened
    """The agent behind an address gave no readable answer."""

    def __init__(self, reason: str, cause: Cause) -> None:
        """Keep the reason, in words that a user can act on."""
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The content of a reply with a 2xx status; if `is_json`, `json` is the content parsed as JSON."""

    text: str
    json: Any = None
    is_json: bool = False
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class AgentReading:
    """The reading of a reply: an output or a problem, and the usage in both cases."""

    output: Output | None = None
    problem: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One request to an agent's endpoint; the port adds the values of the secret headers.

    `timeout_s` covers all `tries` and the waits between them. `body` is JSON, None for none.
    """

    method: str
    url: str
    headers: tuple[Header, ...]
    body: Any
    read: Callable[[AgentReply], AgentReading]
    timeout_s: float
    tries: int = 1
    most_at_once: int = 1


class Agent(Protocol):
    """An agent's endpoint. The context passes it in, so that a target imports no transport."""

    async def __call__(self, request: AgentRequest) -> Output:
        """Return the output with its latency; raise AgentFailure if there is none in time."""
        ...


@dataclass(frozen=True, slots=True)
class TargetContext:
    """Everything a target needs to answer one case.

    `recorded` is the stored output of the case in the form of a recorded line, None without one.
    `files` are the files of the suite by path.
    """

    target: str
    case: CaseFacts
    recorded: Mapping[str, Any] | None = None
    chat: Chat | None = None
    agent: Agent | None = None
    sandbox: Sandbox | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


AnswerFunction = Callable[[Any, TargetContext], Awaitable[Output | TargetFailure]]


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A registered kind of target.

    A kind that `uses_model` needs a language model. A kind that `uses_agent` calls an address; the ledger
    records these calls with their cost, like calls of models. A kind that `replays` reads its answers from
    storage: asking again costs nothing, and one missing output says nothing about the others. A kind that
    `awaits` is not asked at all: a program pushes its outputs. A kind that `uses_sandbox` runs a program of
    the member who configured the target.
    """

    name: str
    label: str
    icon: str
    config: type[TargetConfig]
    answer: AnswerFunction
    manual: str
    uses_model: bool = False
    uses_agent: bool = False
    replays: bool = False
    awaits: bool = False
    uses_sandbox: bool = False

    @property
    def can_judge(self) -> bool:
        """Tell whether it answers by itself, so that it can judge and be tried."""
        return not (self.replays or self.awaits)


class TargetOptions(TypedDict, total=False):
    """The options of a kind besides label, icon and config; see TargetKind."""

    uses_model: bool
    uses_agent: bool
    replays: bool
    awaits: bool
    uses_sandbox: bool


def target_kind(
    *, label: str, icon: str, config: type[TargetConfig], **options: Unpack[TargetOptions]
) -> Callable[[AnswerFunction], AnswerFunction]:
    """Mark a module's answer function; the scan makes a TargetKind with the module's name."""

    def mark(function: AnswerFunction) -> AnswerFunction:
        facts = {"label": label, "icon": icon, "config": config, **options}
        function.target_facts = facts  # type: ignore[attr-defined]  # the scan reads it there
        return function

    return mark
