"""Try a target on one case, or an evaluator on one output, outside any run, and keep the outcome."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.kinds._base import (
    BaselineOutput,
    CaseFacts,
    Message,
    Output,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
)
from evaluators.kinds._judging import named_agents
from evaluators.model_calls.calls import CallKey, CallOutcome, CallRecord, Failure
from evaluators.model_calls.client import ModelClient, Try
from evaluators.model_calls.limit_policy import ONE_TRY
from evaluators.model_calls.models import ModelSpec, model_spec
from evaluators.model_calls.rate_limits import Limiter
from evaluators.models import LanguageModel
from evaluators.reading.json import storable
from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import Outcome, Skipped, Unscored
from runs.engine.execute import execute
from runs.engine.plan import Plan, TargetPlan, baseline_paths, judge_calls, judge_models
from runs.engine.ports import Cause, Execution, TargetFailure
from runs.execution.agents import AgentClient, AgentTry, shown_request
from runs.execution.claims import RENEW_EVERY_S, time_since_boot
from runs.execution.database import DatabaseThread
from runs.execution.execution_ports import ExecutionPorts
from runs.execution.ledger import admit_always, count_nothing
from runs.execution.loading import FrozenTarget, RunWork, work_outside_runs
from runs.execution.shared_limits import SlotKeeper
from runs.execution.target_secrets import TargetSecrets, open_secrets, run_secrets
from runs.models.results import ANSWERED, Artifact, ComparedOutput, ResultOutput
from runs.models.stored import SCORE_COLUMNS, kept_output, score_rows
from runs.models.suites import Target
from runs.models.temporary import MAX_TRY_LENGTH, EvaluatorTrial, TargetTrial
from runs.scripts import sandbox_in_force
from runs.target_kinds import get_target_kind
from runs.target_kinds._base import TargetConfig, TargetContext
from runs.target_kinds._outputs import (
    messages_as_json,
    output_from_json,
    trace_as_json,
    usage_as_json,
)

logger = logging.getLogger(__name__)

MAX_S = MAX_TRY_LENGTH.total_seconds()


MAX_TARGET_TEXT = 20_000
MAX_TURN_LENGTH = 100_000
MAX_TURNS, MAX_ANSWER_FILES, MAX_STEPS = 50, 50, 200


def _describe_target_failure(failure: TargetFailure) -> dict[str, Any]:
    """Return why there is no answer, and the kind of failure."""
    return {"cause": failure.cause.value, "label": failure.cause.label, "reason": failure.reason}


def _describe_answer(output: Output, config: TargetConfig) -> dict[str, Any]:
    """Return the target's answer with long parts cut."""
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
        "files": [
            _answer_file(path, content)
            for path, content in list(output.files.items())[:MAX_ANSWER_FILES]
        ],
        "file_count": len(output.files),
        "empty_paths": _paths_without_value(output, config),
    }


def _trace(output: Output) -> list[dict[str, Any]] | None:
    """Return the first steps, with their long inputs and outputs cut."""
    steps = trace_as_json(output)
    return None if steps is None else [_cut_step(step) for step in steps[:MAX_STEPS]]


def _cut_step(step: dict[str, Any]) -> dict[str, Any]:
    long = {name: _cut_json(step[name]) for name in ("input", "output") if name in step}
    return step | {name: text for name, text in long.items() if len(text) >= MAX_TARGET_TEXT}


def _paths_without_value(output: Output, config: TargetConfig) -> list[str]:
    """Return the titles of paths that are set but found no value: mistyped, or nothing reported."""
    values = {
        "tool_calls_path": output.trace,
        "files_path": output.files or None,
        "input_tokens_path": output.usage.input_tokens,
        "output_tokens_path": output.usage.output_tokens,
        "cost_path": output.usage.cost_usd,
    }
    settings = type(config).model_fields
    return [
        f"{settings[name].title} ({getattr(config, name)})"
        for name, value in values.items()
        if value is None and name in settings and getattr(config, name)
    ]


def _answer_file(path: str, content: bytes) -> dict[str, Any]:
    beginning = content[:MAX_TARGET_TEXT]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        # The cut may split the last character. An error before it means that this is not text.
        is_cut = error.start > len(beginning) - 4 and len(content) > MAX_TARGET_TEXT
        text = beginning[: error.start].decode() if is_cut else ""
    return {"path": path, "size": len(content), "text": text.replace("\x00", "")}


def _describe_call(record: CallRecord) -> dict[str, Any]:
    """Return a request and its reply; neither ever holds secrets."""
    return {
        "status": record.status.value,
        "http_status": record.http_status,
        "error": record.error,
        "latency_ms": record.latency_ms,
        "request": _cut_json(record.request),
        "reply": _cut_json(record.reply),
    }


def _cut_json(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)[:MAX_TARGET_TEXT]


def try_target(trial_id: int) -> None:
    """Run a waiting trial; do nothing when it is gone or another worker has it."""
    trial = TargetTrial.objects.select_related("model", "target").filter(pk=trial_id).first()
    if trial is None or not trial.begin():
        return
    try:
        answer = asyncio.run(_ask_target(trial, _target_work(trial)))
    except Exception as error:
        logger.exception("Trial %s of a target crashed", trial_id)
        failure = TargetFailure(f"{type(error).__name__}: {error}", Cause.FAILED)
        answer = _describe_target_failure(failure) | {"duration_ms": None, "calls": []}
    trial.finish(storable(answer), has_failed="cause" in answer)


def _target_work(trial: TargetTrial) -> RunWork:
    name = trial.target.name if trial.target else "the target"
    slug = trial.model.slug if trial.model else ""
    plan = Plan(
        suite={},
        policy=PolicySpec(),
        root=EvaluatorSpec(name="all", kind="composite", config={}),
        target=TargetPlan(name, trial.kind, trial.config, slug),
    )
    work = work_outside_runs(plan, trial.suite_id)
    return replace(
        work,
        target_id=trial.target_id,
        models={slug: model_spec(trial.model)} if trial.model else {},
        secrets=open_secrets(getattr(work.target_config, "headers", ()), trial.encrypted_secrets),
    )


async def _ask_target(trial: TargetTrial, work: RunWork) -> dict[str, Any]:
    records: list[CallRecord] = []
    client, agents = ModelClient(retries=ONE_TRY), AgentClient()
    ports = ExecutionPorts(
        work=work,
        context=TargetContext(
            work.plan.target.name,
            _trial_case(trial.case),
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
        reason = f"no answer within {MAX_S:g} s, the longest a trial may take"
        answer = TargetFailure(reason, Cause.TIMEOUT)
    finally:
        await client.aclose()
        await agents.aclose()
    description = (
        _describe_target_failure(answer)
        if isinstance(answer, TargetFailure)
        else _describe_answer(answer, work.target_config)
    )
    duration_ms = round((time.perf_counter() - began) * 1000)
    return description | {
        "duration_ms": duration_ms,
        "calls": [_describe_call(record) for record in records],
    }


def _trial_case(stored: Mapping[str, Any]) -> CaseFacts:
    turns = tuple(Message(turn["role"], turn["content"]) for turn in stored["input"])
    return CaseFacts(key=stored["key"], input=turns, metadata=stored.get("metadata") or {})


NOT_SENT = "nothing was sent: this is a dry run"


@dataclass(frozen=True, slots=True)
class UnsentRequest:
    """A request that a judge would get, with its JSON in `body`.

    `spec` is the language model. It is None for an agent, and `to` names that target. Requests that
    differ only in their random marks have the same `digest`.
    """

    key: CallKey
    digest: str
    body: Mapping[str, Any]
    spec: ModelSpec | None = None
    to: str = ""


@dataclass(slots=True)
class Unsent:
    """Everything a dry run would have sent or started, in order."""

    requests: list[UnsentRequest] = field(default_factory=list)
    scripts: list[ScriptCall] = field(default_factory=list)


class UnsentClient(ModelClient):
    """Prepares calls of models like any client, but records them instead of sending them."""

    def __init__(self, unsent: Unsent) -> None:
        """Retry nothing."""
        super().__init__(retries=ONE_TRY)
        self._unsent = unsent

    def _prepare(self, spec: ModelSpec) -> None:
        """Load nothing."""

    async def _send(self, ended: Try) -> None:
        request = UnsentRequest(ended.call.key, ended.digest, ended.request, spec=ended.spec)
        self._unsent.requests.append(request)
        ended.failure = Failure(CallOutcome.REFUSED, NOT_SENT)


class UnsentAgents(AgentClient):
    """Prepares requests to agents like any client, but records them without secrets, unsent."""

    def __init__(self, unsent: Unsent) -> None:
        """Open no connection."""
        super().__init__()
        self._unsent = unsent

    async def _send(self, ended: AgentTry) -> None:
        shown = shown_request(ended.request, ended.secrets)
        self._unsent.requests.append(UnsentRequest(ended.key, ended.digest, shown, to=ended.target))
        ended.status, ended.reason = CallOutcome.REFUSED, NOT_SENT


@dataclass(frozen=True, slots=True)
class UnsentSandbox:
    """Records the programs that would run, and starts none."""

    unsent: Unsent

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Record the call; raises SandboxRefusal."""
        self.unsent.scripts.append(call)
        raise SandboxRefusal(NOT_SENT)


CHARACTERS_A_TOKEN = 4
MAX_FILES = 200
MAX_STDIN = 1_000_000


def describe_unsent(unsent: Unsent, root: EvaluatorSpec) -> dict[str, Any]:
    """Return each distinct request once, with how often it would be sent, and each program."""
    ordered = sorted(unsent.requests, key=lambda request: (request.key.round, request.key.sample))
    seen = Counter(request.key.evaluator_path for request in ordered)
    times = Counter((request.key.evaluator_path, request.digest) for request in ordered)
    first = {(request.key.evaluator_path, request.digest): request for request in reversed(ordered)}
    most = _calls_at_most(root)
    return {
        "requests": [
            {**_request(first[place]), "times": count, "in_all": _more(place[0], seen, most)}
            for place, count in times.items()
        ],
        "scripts": [_script(call) for call in unsent.scripts],
    }


def _calls_at_most(root: EvaluatorSpec) -> dict[str, int]:
    """Return the maximum of judge calls of each evaluator by path."""
    alone = ((path, node.replace(children=())) for path, node in walk(root))
    return {path: judge_calls(node, all_kinds()) for path, node in alone}


def _more(path: str, seen: Mapping[str, int], most: Mapping[str, int]) -> int | None:
    """Return the maximum of calls where more depend on the replies; else None."""
    return most[path] if most.get(path, 0) > seen[path] else None


def _request(request: UnsentRequest) -> dict[str, Any]:
    # As text, because databases do not keep the order of keys in JSON.
    body, spec = json.dumps(request.body), request.spec
    tokens = len(json.dumps(request.body, ensure_ascii=False)) // CHARACTERS_A_TOKEN
    cost = _price(spec, tokens)
    return {
        "path": request.key.evaluator_path,
        "model": (spec.name or spec.slug) if spec else request.to,
        "address": spec.base_url if spec else str(request.body.get("url", "")),
        "is_chat": spec is not None,
        "body": body,
        "tokens": tokens,
        "cost_usd": None if cost is None else str(cost),
    }


def _price(spec: ModelSpec | None, tokens: int) -> Decimal | None:
    if spec is None or spec.prices is None:
        return None
    return spec.prices.cost_usd(input_tokens=tokens, output_tokens=0, cached_tokens=None)


def _script(call: ScriptCall) -> dict[str, Any]:
    left = {f"$EVAL_WORKSPACE/{name}": content for name, content in call.workspace.items()}
    sizes = sorted((name, len(content)) for name, content in {**call.files, **left}.items())
    return {
        "command": list(call.command),
        "environment": list(call.environment.items()),
        "stdin": call.stdin[:MAX_STDIN].decode("utf-8", "replace"),
        "files": sizes[:MAX_FILES],
        "file_count": len(sizes),
        "seconds": call.seconds,
        "needs_network": call.needs_network,
        "folder": call.folder,
    }


MAX_CALLS = 200
MAX_SHOWN = 100_000
COLUMNS = SCORE_COLUMNS[1:]


@dataclass(frozen=True, slots=True)
class TrialScore:
    """One output scored by a tree: the outcome of every evaluator and the decision."""

    root: EvaluatorSpec
    policy: PolicySpec
    outcomes: Mapping[str, Outcome]
    decision: Decision


def describe_scores(score: TrialScore, records: Sequence[CallRecord]) -> dict[str, Any]:
    """Return the outcome of a trial, with money as text."""
    return {
        "decision": score.decision.as_json(),
        "scores": [_plain(row) for row in score_columns(score)],
        "calls": _calls(records),
        "call_count": len(records),
    }


def score_columns(score: TrialScore) -> list[dict[str, Any]]:
    """Return the columns of a stored score for every evaluator of the tree, in tree order."""
    rows = score_rows(0, score.root, score.outcomes, score.decision)
    return [dict(zip(COLUMNS, row[1:], strict=True)) for row in rows]


def describe_failure(reason: str, records: Sequence[CallRecord]) -> dict[str, Any]:
    """Return why a trial failed, with the calls that it made."""
    return {"problem": reason, "calls": _calls(records), "call_count": len(records)}


def spent_usd(records: Sequence[CallRecord]) -> Decimal | None:
    """Return the cost of the answered calls; None when none of them has a known price."""
    answered = [record for record in records if record.status.value in ANSWERED]
    known = [record.cost_usd for record in answered if record.cost_usd is not None]
    return sum(known, Decimal(0)) if known or not answered else None


def as_text(value: Any) -> str:
    """Return a request or a reply as text; anything but text as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _calls(records: Sequence[CallRecord]) -> list[dict[str, Any]]:
    ordered = sorted(records, key=lambda record: record.created_at)
    return [_call(record) for record in ordered[:MAX_CALLS]]


def _call(record: CallRecord) -> dict[str, Any]:
    key, cost = record.key, record.cost_usd
    return {
        "path": key.evaluator_path,
        "sample": key.sample,
        "round": key.round,
        "repair": key.repair,
        "model": record.model,
        "status": record.status.value,
        "http_status": record.http_status,
        "error": record.error,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cost_usd": None if cost is None else str(cost),
        "latency_ms": record.latency_ms,
        "request": as_text(record.request)[:MAX_SHOWN],
        "reply": as_text(record.reply)[:MAX_SHOWN],
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    cost = row["cost_usd"]
    return {**row, "cost_usd": None if cost is None else str(cost)}


TARGET = "a trial"
RECORDED = "recorded"


def trial_work(trial: EvaluatorTrial) -> RunWork:
    """Return what the evaluators of a trial need.

    A dry run sends nothing, so it gets no keys, secrets or limits.
    """
    root, kinds, is_dry = EvaluatorSpec.model_validate(trial.tree), all_kinds(), trial.is_dry
    agents = _agents(root, is_dry=is_dry)
    slugs = judge_models(root, kinds, default=trial.judge) - {""}
    slugs |= {agent.plan.model for agent in agents.values()} - {""}
    models = list(LanguageModel.objects.filter(slug__in=slugs))
    name = trial.result.run.target_name if trial.result else TARGET
    plan = Plan(
        suite={},
        policy=PolicySpec.model_validate(trial.policy),
        root=root,
        target=TargetPlan(name, RECORDED),
        judge=trial.judge,
    )
    return replace(
        work_outside_runs(plan, trial.suite_id),
        models={model.slug: _spec(model, is_dry=is_dry) for model in models},
        model_ids={model.slug: model.pk for model in models},
        kinds=kinds,
        agents=agents,
    )


def read_output(trial: EvaluatorTrial) -> Output:
    """Return the output to score: the stored one with the target's files, or the pasted one."""
    if trial.result is None:
        return output_from_json(trial.pasted or {})
    artifacts = Artifact.objects.filter(result=trial.result).select_related("content")
    files = {artifact.path: bytes(artifact.content.content) for artifact in artifacts}
    return kept_output(trial.result.output, files)


def read_baseline(trial: EvaluatorTrial) -> BaselineOutput | None:
    """Return what the output is compared with: the pasted one, that of its run, or that of the suite's baseline."""
    if trial.baseline:
        return BaselineOutput(trial.baseline)
    if not baseline_paths(trial.root, all_kinds()):
        return None
    compared = ComparedOutput.objects.filter(result=trial.result).first()
    if compared is not None:
        return BaselineOutput(compared.text, compared.problem)
    outputs = ResultOutput.objects.filter(
        result__run=trial.suite.baseline_run_id or 0,
        result__case__key=trial.case.key,
        removed_at=None,
    )
    output = outputs.exclude(result=trial.result).order_by("result__repetition").first()
    return None if output is None else BaselineOutput(output.text)


def _spec(model: LanguageModel, *, is_dry: bool) -> ModelSpec:
    spec = model_spec(model)
    if not is_dry:
        return spec
    return replace(spec, api_key="", key_problem="", requests_per_minute=None)


def _agents(root: EvaluatorSpec, *, is_dry: bool) -> dict[str, FrozenTarget]:
    """Return the targets that the evaluators ask for a judgement by name, as they are now."""
    names = {agent.name for agent in named_agents(root, all_kinds())}
    result: dict[str, FrozenTarget] = {}
    for row in Target.objects.filter(name__in=names, archived_at=None).select_related("model"):
        kind = get_target_kind(row.kind)
        config: Any = kind.config.model_validate(row.config)
        model = row.model.slug if row.model else ""
        plan = TargetPlan(row.name, row.kind, row.config, model, row.pk)
        kept = TargetSecrets() if is_dry else run_secrets(row, config)
        result[row.name] = FrozenTarget(plan, kind, config, kept)
    return result


@dataclass(slots=True)
class _Clients:
    """The clients of an execution, and the calls that they recorded."""

    client: ModelClient
    agents: AgentClient
    sandbox: Any
    records: list[CallRecord] = field(default_factory=list)


def try_evaluator(trial_id: int) -> None:
    """Run a waiting trial; do nothing when it is gone, lost, or another worker has it."""
    trials = EvaluatorTrial.objects.select_related("suite", "case", "result__run")
    trial = trials.filter(pk=trial_id).first()
    if trial is None or not trial.begin():
        return
    records: list[CallRecord] = []
    began = time.perf_counter()
    try:
        result = asyncio.run(_result(trial, records))
    except TimeoutError:
        result = describe_failure(
            f"It took longer than {MAX_S:g} s, the longest a trial may take.", records
        )
    except Exception as error:
        logger.exception("Trial %s of an evaluator crashed", trial_id)
        result = describe_failure(f"{type(error).__name__}: {error}", records)
    result["duration_ms"] = round((time.perf_counter() - began) * 1000)
    has_failed = "problem" in result
    trial.finish(storable(result), cost_usd=spent_usd(records), has_failed=has_failed)


def _result(
    trial: EvaluatorTrial, records: list[CallRecord]
) -> Coroutine[Any, Any, dict[str, Any]]:
    """Read what the trial needs from the database and return its coroutine."""
    work = trial_work(trial)
    tried = read_output(trial), read_baseline(trial)
    return _prepare(trial, work, tried) if trial.is_dry else _try(trial, work, tried, records)


# The output that is scored, and what it is compared with.
Tried = tuple[Output, BaselineOutput | None]


async def _try(
    trial: EvaluatorTrial, work: RunWork, tried: Tried, records: list[CallRecord]
) -> dict[str, Any]:
    async with _sending_clients(work, records) as clients, asyncio.timeout(MAX_S):
        return describe_scores(await _score(trial, work, tried, clients), records)


async def _prepare(trial: EvaluatorTrial, work: RunWork, tried: Tried) -> dict[str, Any]:
    """Go through the steps of a real trial and return what it would send and start."""
    unsent = Unsent()
    client, agents = UnsentClient(unsent), UnsentAgents(unsent)
    try:
        async with asyncio.timeout(MAX_S):
            score = await _score(
                trial, work, tried, _Clients(client, agents, UnsentSandbox(unsent))
            )
    finally:
        await client.aclose()
        await agents.aclose()
    return {**describe_scores(score, ()), **describe_unsent(unsent, score.root)}


@asynccontextmanager
async def _sending_clients(work: RunWork, records: list[CallRecord]) -> AsyncIterator[_Clients]:
    """Yield clients that keep to the limits that all workers share."""
    database = DatabaseThread()
    limiter = Limiter(SlotKeeper(work, secrets.token_hex(16), database), clock=time_since_boot)
    client, agents = ModelClient(limiter), AgentClient()
    renewing = asyncio.ensure_future(_every(RENEW_EVERY_S, limiter.renew))
    try:
        yield _Clients(client, agents, sandbox_in_force(), records)
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


async def _score(
    trial: EvaluatorTrial, work: RunWork, tried: Tried, clients: _Clients
) -> TrialScore:
    case = trial.case.facts
    ports = ExecutionPorts(
        work=work,
        context=TargetContext(work.plan.target.name, case, files=work.files),
        client=clients.client,
        admit=admit_always,
        begin=count_nothing,
        write_down=clients.records.append,
        agents=clients.agents,
        sandbox=clients.sandbox,
    )
    root, rules = trial.root, Rules(trial.root, trial.rules)
    execution = Execution(
        case=case,
        root=without_gates(root) if trial.is_dry else root,
        rules=rules,
        files=work.files,
        output=tried[0],
        baseline=tried[1],
        # A run judges expected outcomes too. A trial does not, but a dry run shows the request.
        judges_outcomes=trial.is_dry and not trial.path and bool(trial.judge),
    )
    outcomes = dict((await execute(execution, ports)).outcomes)
    if trial.is_dry:
        calling = {record.key.evaluator_path for record in clients.records}
        outcomes = {
            path: Skipped(NOT_SENT) if path in calling or _was_not_started(outcome) else outcome
            for path, outcome in outcomes.items()
        }
    return TrialScore(root, rules.policy, outcomes, rules.decide(outcomes))


def without_gates(node: EvaluatorSpec) -> EvaluatorSpec:
    """Return the tree without its gates, so that every evaluator runs; judging composites stay."""
    children = tuple(without_gates(child) for child in node.children)
    if node.aggregator is None or node.aggregator.is_judging:
        return node.replace(children=children)
    return node.replace(config={}, children=children)


def _was_not_started(outcome: Outcome) -> bool:
    """Tell whether the evaluator has no score only because its program was not started."""
    return isinstance(outcome, Unscored) and NOT_SENT in outcome.reason
