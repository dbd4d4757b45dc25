"""Ask a target about one case outside any run, as its form or its page wanted, and keep what came back."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from evaluators.kinds._base import CaseFacts, Message, Output
from evaluators.model_calls.calls import CallRecord, storable
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.limit_policy import ONE_TRY
from evaluators.model_calls.models import model_spec
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.plan import Plan, TargetPlan
from runs.engine.ports import Cause, TargetFailure
from runs.execution.agents import AgentClient
from runs.execution.ledger import admit_always, count_nothing
from runs.execution.loading import RunWork
from runs.execution.ports import ExecutionPorts, sandbox_in_force
from runs.execution.target_secrets import open_secrets
from runs.models.database import clock_offset
from runs.models.suites import SuiteFile
from runs.models.temporary import MAX_TRY_LENGTH, TargetTrial
from runs.target_kinds import target_kind_named
from runs.target_kinds._base import TargetConfig, TargetContext
from runs.target_kinds._outputs import messages_as_json, trace_as_json, usage_as_json

MAX_SHOWN = 20_000
MAX_TURN_LENGTH = 100_000
MAX_TURNS, MAX_FILES, MAX_STEPS = 50, 50, 200


def describe_failure(failure: TargetFailure) -> dict[str, Any]:
    """Return why there is no answer, with its class."""
    return {"cause": failure.cause.value, "label": failure.cause.label, "reason": failure.reason}


def describe_answer(output: Output, config: TargetConfig) -> dict[str, Any]:
    """Return what the target answered, long parts cut for reading."""
    turns = messages_as_json(output)
    if not any(turn["content"] == output.text for turn in turns):
        turns = [*turns, {"role": "assistant", "content": output.text}]
    return {
        "length": len(output.text),
        "most": MAX_TURN_LENGTH,
        "messages": [
            {**turn, "content": turn["content"][:MAX_TURN_LENGTH]} for turn in turns[-MAX_TURNS:]
        ],
        "trace": _trace(output),
        "usage": usage_as_json(output.usage),
        "files": [_file(path, content) for path, content in list(output.files.items())[:MAX_FILES]],
        "file_count": len(output.files),
        "reports_nothing_of": _paths_without_value(output, config),
    }


def _trace(output: Output) -> list[dict[str, Any]] | None:
    """Return the first steps; what went in and came out of them is cut for reading."""
    steps = trace_as_json(output)
    return None if steps is None else [_cut_step(step) for step in steps[:MAX_STEPS]]


def _cut_step(step: dict[str, Any]) -> dict[str, Any]:
    long = {name: _as_text(step[name]) for name in ("input", "output") if name in step}
    return step | {name: text for name, text in long.items() if len(text) >= MAX_SHOWN}


def _paths_without_value(output: Output, config: TargetConfig) -> list[str]:
    """Return the titles of paths that are set and led nowhere: a slip of the pen, or nothing to tell."""
    found = {
        "tool_calls_path": output.trace,
        "files_path": output.files or None,
        "input_tokens_path": output.usage.input_tokens,
        "output_tokens_path": output.usage.output_tokens,
        "cost_path": output.usage.cost_usd,
    }
    settings = type(config).model_fields
    return [
        f"{settings[name].title} ({getattr(config, name)})"
        for name, value in found.items()
        if value is None and name in settings and getattr(config, name)
    ]


def _file(path: str, content: bytes) -> dict[str, Any]:
    beginning = content[:MAX_SHOWN]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        # A character may be cut in half at the end; anywhere else it is no text.
        is_cut = error.start > len(beginning) - 4 and len(content) > MAX_SHOWN
        text = beginning[: error.start].decode() if is_cut else ""
    return {"path": path, "size": len(content), "text": text.replace("\x00", "")}


def describe_call(record: CallRecord) -> dict[str, Any]:
    """Return one request with what came back; secrets never entered either."""
    return {
        "status": record.status.value,
        "http_status": record.http_status,
        "error": record.error,
        "latency_ms": record.latency_ms,
        "request": _as_text(record.request),
        "reply": _as_text(record.reply),
    }


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)[:MAX_SHOWN]


logger = logging.getLogger(__name__)

MAX_S = MAX_TRY_LENGTH.total_seconds()


def try_target(trial_id: int) -> None:
    """Carry a waiting try out; one that is gone or taken is left."""
    trial = TargetTrial.objects.select_related("model", "target").filter(pk=trial_id).first()
    if trial is None or not trial.begin():
        return
    try:
        found = asyncio.run(_ask(trial, _work(trial)))
    except Exception as error:
        logger.exception("Try %s of a target crashed", trial_id)
        failure = TargetFailure(f"{type(error).__name__}: {error}", Cause.FAILED)
        found = describe_failure(failure) | {"duration_ms": None, "calls": []}
    trial.finish(storable(found), has_failed="cause" in found)


def _work(trial: TargetTrial) -> RunWork:
    kind = target_kind_named(trial.kind)
    config = kind.config.model_validate(trial.config)
    name = trial.target.name if trial.target else "the target"
    slug = trial.model.slug if trial.model else ""
    files = SuiteFile.objects.filter(suite=trial.suite_id or 0).select_related("content")
    return RunWork(
        run_id=0,
        owner_id="",
        started_at=timezone.now(),
        clock_offset=clock_offset(),
        plan=Plan(
            suite={},
            policy=PolicySpec(),
            root=EvaluatorSpec(name="all", kind="composite", config={}),
            target=TargetPlan(name, trial.kind, trial.config, slug),
        ),
        target=kind,
        target_config=config,
        target_id=trial.target_id,
        has_uploads=False,
        concurrency=1,
        budget_usd=None,
        models={slug: model_spec(trial.model)} if trial.model else {},
        model_ids={},
        files={file.path: bytes(file.content.content) for file in files},
        kinds={},
        secrets=open_secrets(getattr(config, "headers", ()), trial.encrypted_secrets),
    )


async def _ask(trial: TargetTrial, work: RunWork) -> dict[str, Any]:
    records: list[CallRecord] = []
    client, agents = ModelClient(retries=ONE_TRY), AgentClient()
    ports = ExecutionPorts(
        work=work,
        context=TargetContext(
            work.plan.target.name,
            _case(trial.case),
            recorded=trial.recorded,
            files=work.files,
            sandbox=sandbox_in_force(),
        ),
        client=client,
        admit=admit_always,
        begin=count_nothing,
        write_down=records.append,
        agents=agents,
    )
    began = time.perf_counter()
    try:
        async with asyncio.timeout(MAX_S):
            answer = await ports.answer()
    except TimeoutError:
        reason = f"no answer within {MAX_S:g} s, the longest a try may take"
        answer = TargetFailure(reason, Cause.TIMEOUT)
    finally:
        await client.aclose()
        await agents.aclose()
    found = (
        describe_failure(answer)
        if isinstance(answer, TargetFailure)
        else describe_answer(answer, work.target_config)
    )
    duration_ms = round((time.perf_counter() - began) * 1000)
    return found | {
        "duration_ms": duration_ms,
        "calls": [describe_call(record) for record in records],
    }


def _case(stored: Mapping[str, Any]) -> CaseFacts:
    turns = tuple(Message(turn["role"], turn["content"]) for turn in stored["input"])
    return CaseFacts(key=stored["key"], input=turns, metadata=stored.get("metadata") or {})
