"""Send the case to a model behind an OpenAI-compatible endpoint; its answer is the output.

The system prompt goes before the messages of the case. The parameters are sent with every call and override
those of the language model. A target that needs more time than other users of the model can have its own
timeout.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from evaluators.kinds._base import Message, Output, Step
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import ChatFailure, TargetConfig, TargetContext, target_kind

MAX_TIMEOUT_S = 3600
OWN_PARAMETERS = ("model", "messages", "stream", "n", "response_format")


class ChatConfig(TargetConfig):
    """The system prompt and parameters of the model under test."""

    system_prompt: str = Field("", description="Instructions sent before the case's messages.")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="Sent with every call, such as temperature."
    )
    timeout_s: int | None = Field(
        None,
        ge=1,
        le=MAX_TIMEOUT_S,
        title="Timeout in seconds",
        description=f"How long to wait for an answer, 1 to {MAX_TIMEOUT_S} seconds. "
        "Empty: as the language model says.",
    )

    @field_validator("parameters")
    @classmethod
    def _leave_ours_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(set(value) & set(OWN_PARAMETERS))
        if taken:
            raise ValueError(f"{taken[0]} is set by Evalsite; leave it out of the parameters")
        return value


@target_kind(label="Chat model", icon="i-model", config=ChatConfig, uses_model=True)
async def answer(config: ChatConfig, context: TargetContext) -> Output | TargetFailure:
    """Return the model's answer to the messages of the case, with one model step as its trace."""
    if context.chat is None:
        return TargetFailure(f"target {context.target} has no model to ask", Cause.FAILED)
    system = (Message("system", config.system_prompt),) if config.system_prompt else ()
    try:
        turns = (*system, *context.case.input)
        reply = await context.chat(turns, config.parameters, timeout_s=config.timeout_s)
    except ChatFailure as failure:
        return TargetFailure(failure.reason, failure.cause)
    if not reply.text.strip():
        return TargetFailure("the model answered with no text", Cause.BAD_REPLY)
    step = Step(
        type="model",
        name=reply.model,
        started_ms=0,
        duration_ms=reply.usage.latency_ms,
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
    )
    messages = (*context.case.input, Message("assistant", reply.text))
    return Output(text=reply.text, messages=messages, trace=(step,), usage=reply.usage)
