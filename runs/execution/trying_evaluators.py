"""Score one output by one evaluator outside of any run, or find out what that would send."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from evaluators.judging.answers import storable
from evaluators.judging.calls import CallRecord
from evaluators.judging.client import ModelClient
from evaluators.judging.limits import Limiter
from evaluators.kinds._base import Output
from evaluators.scoring.tree import Aggregator, Node
from evaluators.scoring.types import Outcome, Skipped, Unscored
from evaluators.scoring.verdict import Rules
from runs.engine import Execution, execute
from runs.execution.agents import AgentClient
from runs.execution.database import DatabaseThread
from runs.execution.leasing import RENEW_EVERY_S, time_since_boot
from runs.execution.loading import RunWork, case_facts
from runs.execution.ports import ExecutionPorts
from runs.execution.sandboxes import sandbox_in_force
from runs.execution.slots import SlotKeeper
from runs.execution.tried_requests import unsent_of
from runs.execution.tried_scores import Tried, failed, found_of, spent_usd
from runs.execution.tried_work import output_of, work_of
from runs.execution.unsent import NOT_SENT, Unsent, UnsentAgents, UnsentClient, UnsentSandbox
from runs.models import EvaluatorTrial
from runs.models.evaluator_trials import LONGEST_TRY
from runs.targets._base import TargetContext

logger = logging.getLogger(__name__)

LONGEST_S = LONGEST_TRY.total_seconds()


@dataclass(slots=True)
class _World:
    """What an execution works with, and what it has written down of its calls."""

    client: ModelClient
    agents: AgentClient
    sandbox: Any
    records: list[CallRecord] = field(default_factory=list)


def try_evaluator(trial_id: int) -> None:
    """Carry a waiting try out; one that is gone, taken or given up is left."""
    trials = EvaluatorTrial.objects.select_related("suite", "case", "result__run")
    trial = trials.filter(pk=trial_id).first()
    if trial is None or not trial.begin():
        return
    records: list[CallRecord] = []
    began = time.perf_counter()
    try:
        found = asyncio.run(_found(trial, records))
    except TimeoutError:
        found = failed(f"It took longer than {LONGEST_S:g} s, the longest a try may take.", records)
    except Exception as error:
        logger.exception("Try %s of an evaluator broke off", trial_id)
        found = failed(f"{type(error).__name__}: {error}", records)
    found["duration_ms"] = round((time.perf_counter() - began) * 1000)
    has_failed = "problem" in found
    trial.finish(storable(found), cost_usd=spent_usd(records), has_failed=has_failed)


def _found(trial: EvaluatorTrial, records: list[CallRecord]) -> Coroutine[Any, Any, dict[str, Any]]:
    """Return the work on a try, with all it takes from the database read."""
    work, output = work_of(trial), output_of(trial)
    return _prepare(trial, work, output) if trial.is_dry else _try(trial, work, output, records)


async def _try(
    trial: EvaluatorTrial, work: RunWork, output: Output, records: list[CallRecord]
) -> dict[str, Any]:
    async with _paying_world(work, records) as world, asyncio.timeout(LONGEST_S):
        return found_of(await _score(trial, work, output, world), records)


async def _prepare(trial: EvaluatorTrial, work: RunWork, output: Output) -> dict[str, Any]:
    """Return what a try would send and start, by the steps of a real one; it costs nothing."""
    unsent = Unsent()
    client, agents = UnsentClient(unsent), UnsentAgents(unsent)
    try:
        async with asyncio.timeout(LONGEST_S):
            tried = await _score(trial, work, output, _World(client, agents, UnsentSandbox(unsent)))
    finally:
        await client.aclose()
        await agents.aclose()
    return {**found_of(tried, ()), **unsent_of(unsent, tried.root)}


@asynccontextmanager
async def _paying_world(work: RunWork, records: list[CallRecord]) -> AsyncIterator[_World]:
    """Give clients that hold to the limits all workers share, as the hands of a run do."""
    database = DatabaseThread()
    limiter = Limiter(SlotKeeper(work, secrets.token_hex(16), database), clock=time_since_boot)
    client, agents = ModelClient(limiter), AgentClient()
    renewing = asyncio.ensure_future(_every(RENEW_EVERY_S, limiter.renew))
    try:
        yield _World(client, agents, sandbox_in_force(), records)
    finally:
        renewing.cancel()
        await client.aclose()
        await agents.aclose()
        await limiter.aclose()
        database.close()


async def _every(seconds: float, renew: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await renew()


async def _score(trial: EvaluatorTrial, work: RunWork, output: Output, world: _World) -> Tried:
    case = case_facts(trial.case)
    ports = ExecutionPorts(
        work=work,
        context=TargetContext(work.plan.target.name, case, files=work.files),
        client=world.client,
        admit=_admit,
        begin=_begin,
        write_down=world.records.append,
        agents=world.agents,
        sandbox=world.sandbox,
    )
    root, rules = trial.root, Rules(trial.root, trial.rules)
    execution = Execution(
        case=case,
        root=without_gates(root) if trial.is_dry else root,
        rules=rules,
        files=work.files,
        output=output,
        # Runs judge them beside the whole tree. A try does not, and shows without a cost what they ask.
        judges_outcomes=trial.is_dry and not trial.path and bool(trial.judge),
    )
    outcomes = dict((await execute(execution, ports)).outcomes)
    if trial.is_dry:
        asked = {record.key.evaluator_path for record in world.records}
        outcomes = {
            path: Skipped(NOT_SENT) if path in asked or _was_kept(outcome) else outcome
            for path, outcome in outcomes.items()
        }
    return Tried(root, rules.policy, outcomes, rules.decide(outcomes))


def without_gates(node: Node) -> Node:
    """Return a tree in which no gate keeps an evaluator from being asked: who judges is still asked."""
    children = tuple(without_gates(child) for child in node.children)
    if node.aggregator is None or node.aggregator.is_judging:
        return replace(node, children=children)
    return replace(node, aggregator=Aggregator(), children=children)


def _was_kept(outcome: Outcome) -> bool:
    """Tell whether a program was not started, which is no failure to score."""
    return isinstance(outcome, Unscored) and NOT_SENT in outcome.reason


async def _admit() -> None:
    """Let every call through: a try has no run, no lease and no budget."""


def _begin() -> None:
    """Count nothing."""
