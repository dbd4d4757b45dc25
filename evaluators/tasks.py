"""Test a language model with real calls: the work that its page queues for a worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from celery import shared_task

from evaluators.model_calls.calls import (
    NO_USAGE,
    CallKey,
    CallOutcome,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    refuses_mode,
)
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.judge import REPLY_RULE, UnreadableReplyError, read_reply
from evaluators.model_calls.limit_policy import ONE_TRY
from evaluators.model_calls.models import REPLY_MODES, ModelSpec, model_spec
from evaluators.models import LanguageModel
from evaluators.scoring.types import Usage, add_usage

MAX_S = 60.0
MAX_MODELS = 200
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"capital": {"type": "string"}},
    "required": ["capital"],
    "additionalProperties": False,
}
QUESTION = "What is the capital of Portugal?"
MESSAGES = (
    {"role": "system", "content": REPLY_RULE.format(schema=json.dumps(SCHEMA))},
    {"role": "user", "content": QUESTION},
)


@shared_task(name="evaluators.tasks.test_language_model", ignore_result=True)
def test_language_model(*, model_id: int, **later: object) -> None:
    """Test a model and store the result, unless the test is no longer wanted."""
    model = LanguageModel.objects.filter(pk=model_id).first()
    if model is not None and model.begin_test():
        model.finish_test(asyncio.run(try_model(model_spec(model))).as_json())


@dataclass(frozen=True, slots=True)
class ModeTrial:
    """The result of one reply mode; `state` is supported, unreadable or refused."""

    mode: str
    state: str
    reason: str = ""
    latency_ms: int | None = None


@dataclass(slots=True)
class ModelTrial:
    """The result of a test; `error` is a CallOutcome with its `reason` if a call got no answer."""

    modes: list[ModeTrial] = field(default_factory=list)
    usage: Usage = NO_USAGE
    price_version: str = ""
    answered_by: str = ""
    models: list[str] = field(default_factory=list)
    error: str = ""
    reason: str = ""
    http_status: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; money as text."""
        cost = self.usage.cost_usd
        return {
            "modes": [
                {"mode": t.mode, "state": t.state, "reason": t.reason, "latency_ms": t.latency_ms}
                for t in self.modes
            ],
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "cost_usd": None if cost is None else str(cost),
            "calls": self.usage.calls,
            "price_version": self.price_version,
            "answered_by": self.answered_by,
            "models": self.models[:MAX_MODELS],
            "model_count": len(self.models),
            "error": self.error,
            "reason": self.reason,
            "http_status": self.http_status,
        }


async def try_model(spec: ModelSpec) -> ModelTrial:
    """Call the model once in each reply mode, without retries, and list the models of its server.

    Stops at the first failure that is not caused by the reply mode.
    """
    client = ModelClient(retries=ONE_TRY)
    trial = ModelTrial(price_version=spec.price_version)
    quick = replace(spec, timeout_s=min(spec.timeout_s, MAX_S))
    try:
        for mode in REPLY_MODES:
            if not await _try_mode(client, replace(quick, reply_mode=mode), trial):
                return trial
        trial.models = await client.model_ids(quick)
    finally:
        await client.aclose()
    return trial


async def _try_mode(client: ModelClient, spec: ModelSpec, trial: ModelTrial) -> bool:
    """Try one mode; False if a call failed for another reason than the mode."""
    call = ChatCall(
        MESSAGES, CallKey("test"), schema=SCHEMA, find_problem=_problem, is_mode_fixed=True
    )
    try:
        reply = await client.chat(spec, call, Ledger())
    except ModelCallError as error:
        trial.usage = add_usage(trial.usage, error.usage)
        return _is_refused_mode(trial, spec.reply_mode, error)
    trial.usage = add_usage(trial.usage, reply.usage)
    trial.answered_by = reply.model
    trial.modes.append(_mode_trial(spec.reply_mode, reply))
    return True


def _mode_trial(mode: str, reply: ChatReply) -> ModeTrial:
    state = "unreadable" if reply.problem else "supported"
    return ModeTrial(mode, state, reply.problem, reply.usage.latency_ms)


def _is_refused_mode(trial: ModelTrial, mode: str, error: ModelCallError) -> bool:
    """Record a failed call; True if the server only refused the reply mode."""
    is_refused = error.status is CallOutcome.REFUSED
    if is_refused and mode != "text" and refuses_mode(error.http_status, error.reason):
        trial.modes.append(ModeTrial(mode, "refused", error.reason, error.usage.latency_ms))
        return True
    trial.error, trial.reason, trial.http_status = error.status, error.reason, error.http_status
    return False


def _problem(text: str) -> str:
    try:
        read_reply(text, SCHEMA)
    except UnreadableReplyError as error:
        return str(error)
    return ""
