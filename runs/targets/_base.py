"""What every kind of target is made of: its config, what it is given and how it is registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from evaluators.kinds._base import CaseFacts, Message, Output, Sandbox
from evaluators.scoring.types import Usage
from runs.plan import Cause, TargetFailure


class TargetConfig(BaseModel):
    """The settings of one target; unknown keys are refused by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    sandbox: Sandbox | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


AnswerFunction = Callable[[Any, TargetContext], Awaitable[Output | TargetFailure]]


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A registered kind of target.

    `uses_model` targets need a language model. `replays` tells that answers are read from storage:
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
    replays: bool = False
    uses_sandbox: bool = False


def target_kind(
    *,
    label: str,
    icon: str,
    config: type[TargetConfig],
    uses_model: bool = False,
    replays: bool = False,
    uses_sandbox: bool = False,
) -> Callable[[AnswerFunction], AnswerFunction]:
    """Mark a module's answer function; the scan makes the kind, named after the module."""

    def mark(function: AnswerFunction) -> AnswerFunction:
        function.target_facts = {  # type: ignore[attr-defined]
            "label": label,
            "icon": icon,
            "config": config,
            "uses_model": uses_model,
            "replays": replays,
            "uses_sandbox": uses_sandbox,
        }
        return function

    return mark
