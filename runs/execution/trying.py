"""Ask a target about one case outside any run, as its form or its page wanted, and keep what came back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from evaluators.judging.answers import storable
from evaluators.judging.calls import CallRecord
from evaluators.judging.client import ModelClient
from evaluators.judging.retries import ONE_TRY
from evaluators.judging.specs import spec_of
from evaluators.kinds._base import CaseFacts, Message
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from runs.execution.agents import AgentClient
from runs.execution.loading import RunWork
from runs.execution.ports import ExecutionPorts
from runs.execution.sandboxes import sandbox_in_force
from runs.execution.target_secrets import open_secrets
from runs.execution.trial_findings import answered, call_found, failed
from runs.models import SuiteFile, TargetTrial
from runs.models.clock import clock_offset
from runs.plan import Cause, Plan, TargetFailure, TargetPlan
from runs.targets import target_kind_named
from runs.targets._base import TargetContext

logger = logging.getLogger(__name__)

LONGEST_S = 300.0


def try_target(trial_id: int) -> None:
    """Carry a waiting try out; one that is gone or taken is left."""
    trial = TargetTrial.objects.select_related("model", "target").filter(pk=trial_id).first()
    if trial is None or not trial.begin():
        return
    try:
        found = asyncio.run(_ask(trial, _work(trial)))
    except Exception as error:
        logger.exception("Try %s of a target broke off", trial_id)
        failure = TargetFailure(f"{type(error).__name__}: {error}", Cause.FAILED)
        found = failed(failure) | {"duration_ms": None, "calls": []}
    trial.finish(storable(found))


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
            policy=Policy(),
            root=Node(name="all", kind="composite", config={}),
            target=TargetPlan(name, trial.kind, trial.config, slug),
        ),
        target=kind,
        target_config=config,
        target_id=trial.target_id,
        has_uploads=False,
        concurrency=1,
        budget_usd=None,
        models={slug: spec_of(trial.model)} if trial.model else {},
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
        admit=_admit,
        begin=_begin,
        write_down=records.append,
        agents=agents,
    )
    began = time.perf_counter()
    try:
        async with asyncio.timeout(LONGEST_S):
            answer = await ports.answer()
    except TimeoutError:
        said = f"no answer within {LONGEST_S:g} s, the longest a try may take"
        answer = TargetFailure(said, Cause.TIMEOUT)
    finally:
        await client.aclose()
        await agents.aclose()
    found = (
        failed(answer)
        if isinstance(answer, TargetFailure)
        else answered(answer, work.target_config)
    )
    duration_ms = round((time.perf_counter() - began) * 1000)
    return found | {"duration_ms": duration_ms, "calls": [call_found(record) for record in records]}


async def _admit() -> None:
    """Let every request through: a try has no run, no lease and no budget."""


def _begin() -> None:
    """Count nothing."""


def _case(stored: Mapping[str, Any]) -> CaseFacts:
    turns = tuple(Message(turn["role"], turn["content"]) for turn in stored["input"])
    return CaseFacts(key=stored["key"], input=turns, metadata=stored.get("metadata") or {})
