"""What every kind of target is made of: its config, what it is given and how it is registered."""

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

    A field may say in `json_schema_extra` in which of the `sections` of the form it stands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    sections: ClassVar[tuple[str, ...]] = ()


class ChatFailure(Exception):  # noqa: N818 - it says what happened
    """The model behind a chat port gave no answer."""

    def __init__(self, reason: str, cause: Cause) -> None:
        """Keep the reason in words a user can act on."""
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a model answered in one turn."""

    text: str
    usage: Usage
    model: str


class Chat(Protocol):
    """A model to talk to. Handed in, so that a target imports no transport."""

    async def __call__(
        self,
        messages: Sequence[Message],
        parameters: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> ChatAnswer:
        """Return the answer; raise ChatFailure when there is none in time, by default the model's."""
        ...


class Header(BaseModel):
    """One header of a request. A secret one has no value here: that is kept apart, encrypted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    value: str = ""
    secret: bool = False


class AgentFailure(Exception):  # noqa: N818 - it says what happened
    """The agent behind an address gave no answer that could be read."""

    def __init__(self, reason: str, cause: Cause) -> None:
        """Keep the reason in words a user can act on."""
        super().__init__(reason)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent sent with a status of 2xx; `is_json` tells that `json` is its content read as JSON."""

    text: str
    json: Any = None
    is_json: bool = False
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class AgentReading:
    """What could be made of a reply: an output, or what is wrong with it; what it cost either way."""

    output: Output | None = None
    problem: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One request to an agent's endpoint; the values of its secret headers are the port's to add.

    `timeout_s` is for all `tries` together, with the waits between them. `body` is JSON, None for none.
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
    """An agent's endpoint. Handed in, so that a target imports no transport."""

    async def __call__(self, request: AgentRequest) -> Output:
        """Return the output, with how long it took; raise AgentFailure when there is none in time."""
        ...


@dataclass(frozen=True, slots=True)
class TargetContext:
    """Everything a target is given to answer one case.

    `recorded` is the stored output of the case in the form of a recorded line, None without one.
    `files` are those of the suite, by path.
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

    `uses_model` targets need a language model. `uses_agent` targets call an address; like calls of
    models theirs are in the ledger, with their cost. `replays` tells that answers are read from storage:
    asking again costs nothing, and one missing output says nothing about the others.
    `uses_sandbox` targets run a program of whoever set them up.
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
    uses_sandbox: bool = False


class TargetOptions(TypedDict, total=False):
    """What a kind of target may add to its label, icon and config; TargetKind says what each means."""

    uses_model: bool
    uses_agent: bool
    replays: bool
    uses_sandbox: bool


def target_kind(
    *, label: str, icon: str, config: type[TargetConfig], **options: Unpack[TargetOptions]
) -> Callable[[AnswerFunction], AnswerFunction]:
    """Mark a module's answer function; the scan makes the kind, named after the module."""

    def mark(function: AnswerFunction) -> AnswerFunction:
        facts = {"label": label, "icon": icon, "config": config, **options}
        function.target_facts = facts  # type: ignore[attr-defined]  # the scan reads it there
        return function

    return mark
