"""Carry out one execution: the target answers, evaluators score, the rules decide.

Knows no database, no network and no clock: all of that is handed in as ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError

from evaluators.kinds._base import CaseFacts, Context, Judge, Kind, KindConfig, Output, Sandbox
from evaluators.scoring.aggregation import aggregate, gate_failure, gate_order
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Skipped, Unscored
from evaluators.scoring.verdict import Decision, decide
from runs.plan import COMPOSITE_KIND, OUTCOMES_KIND, OUTCOMES_PATH, needs_outcomes_call
from runs.targets._base import Cause, TargetFailure

logger = logging.getLogger(__name__)

AskTarget = Callable[[str, str], Awaitable[Output]]
JUDGING_AGGREGATORS = ("code_judge", "llm_judge")


class Ports(Protocol):
    """What an execution needs of the world."""

    kinds: Mapping[str, Kind]
    sandbox: Sandbox | None
    ask_target: AskTarget | None

    async def answer(self) -> Output | TargetFailure:
        """Return what the target answers to the case."""
        ...

    def judge(self, path: str) -> Judge | None:
        """Return the judge for the evaluator at that path, None when the run has none."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """One case to be carried out once.

    With an `output` the target is not asked again. `kept` are outcomes by path that stand from
    before: those evaluators do not run. Expected outcomes are judged only if `judges_outcomes`.
    """

    case: CaseFacts
    root: Node
    policy: Policy
    files: Mapping[str, bytes] = field(default_factory=dict)
    output: Output | None = None
    kept: Mapping[str, Outcome] = field(default_factory=dict)
    judges_outcomes: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionOutcome:
    """How an execution ended: with a failure of the target, or with a decision on its output.

    `outcomes` holds by path what every evaluator said that ran or was skipped: leaves, composites
    whose aggregator is a judge, and "@outcomes".
    """

    output: Output | None = None
    failure: TargetFailure | None = None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    decision: Decision | None = None


async def execute(execution: Execution, ports: Ports) -> ExecutionOutcome:
    """Return how the execution ended; never raises for what targets, judges and evaluators do."""
    output = execution.output
    if output is None:
        answer = await _ask_target(ports)
        if isinstance(answer, TargetFailure):
            return ExecutionOutcome(failure=answer)
        output = answer
    scoring = _Scoring(execution, ports, output)
    await scoring.run()
    outcomes = scoring.outcomes
    decision = decide(
        execution.root,
        {path: outcome for path, outcome in outcomes.items() if path != OUTCOMES_PATH},
        execution.policy,
        expected_outcomes=execution.case.expected_outcomes,
        outcome_results=_outcome_results(execution, outcomes),
    )
    return ExecutionOutcome(output=output, outcomes=outcomes, decision=decision)


async def _ask_target(ports: Ports) -> Output | TargetFailure:
    try:
        return await ports.answer()
    except Exception as error:
        logger.exception("A target failed in a way it does not name")
        return TargetFailure(_reason(error), Cause.FAILED)


def _outcome_results(
    execution: Execution, outcomes: Mapping[str, Outcome]
) -> tuple[OutcomeResult, ...] | Unscored | None:
    """Return what was found of the expected outcomes, by the call beside the tree or by an evaluator."""
    if not execution.case.expected_outcomes:
        return None
    beside = outcomes.get(OUTCOMES_PATH)
    if isinstance(beside, Unscored):
        return beside
    if isinstance(beside, Score):
        return beside.outcomes
    found = (o.outcomes for o in outcomes.values() if isinstance(o, Score))
    return next((results for results in found if results is not None), None)


class _Scoring:
    """The evaluators of one execution at work; `outcomes` fills as they finish."""

    def __init__(self, execution: Execution, ports: Ports, output: Output) -> None:
        self.execution = execution
        self.ports = ports
        self.output = output
        self.outcomes: dict[str, Outcome] = {}

    async def run(self) -> None:
        """Run the tree, and beside it the call for the expected outcomes where one is needed."""
        work = [self._run(self.execution.root, "")]
        if self._needs_outcomes_call():
            work.append(self._judge_outcomes())
        await _together(work)

    def _needs_outcomes_call(self) -> bool:
        return (
            self.execution.judges_outcomes
            and bool(self.execution.case.expected_outcomes)
            and OUTCOMES_KIND in self.ports.kinds
            and needs_outcomes_call(self.execution.root, self.ports.kinds)
        )

    async def _judge_outcomes(self) -> None:
        kept = self.execution.kept.get(OUTCOMES_PATH)
        node = Node(name=OUTCOMES_PATH, kind=OUTCOMES_KIND, config={})
        outcome = kept if kept is not None else await self._score(node, OUTCOMES_PATH)
        self.outcomes[OUTCOMES_PATH] = outcome

    async def _run(self, node: Node, path: str) -> Outcome:
        """Return the outcome of a node once its children have theirs."""
        if node.kind != COMPOSITE_KIND:
            outcome = self.execution.kept.get(path) or await self._score(node, path)
            self.outcomes[path] = outcome
            return outcome
        children: dict[str, Outcome] = {}
        first, after = gate_order(node)
        await self._run_children(node, path, first, children)
        failure = gate_failure(node, children)
        if failure is not None:
            self._skip(node, path, after, children, failure)
        else:
            await self._run_children(node, path, after, children)
        ordered = {child.name: children[child.name] for child in node.children}
        if node.aggregator is None or node.aggregator.type not in JUDGING_AGGREGATORS:
            return aggregate(node, ordered, self.execution.policy)
        outcome = self.execution.kept.get(path) or await self._score(node, path, ordered)
        self.outcomes[path] = outcome
        return outcome

    async def _run_children(
        self, node: Node, path: str, names: Iterable[str], children: dict[str, Outcome]
    ) -> None:
        wanted = set(names)

        async def run_child(child: Node) -> None:
            children[child.name] = await self._run(child, _below(path, child.name))

        await _together([run_child(child) for child in node.children if child.name in wanted])

    def _skip(
        self,
        node: Node,
        path: str,
        names: Iterable[str],
        children: dict[str, Outcome],
        reason: str,
    ) -> None:
        wanted, skipped = set(names), Skipped(reason)
        for child in node.children:
            if child.name not in wanted:
                continue
            children[child.name] = skipped
            below = _below(path, child.name)
            for inner, found in walk(child):
                if found.kind != COMPOSITE_KIND:
                    self.outcomes[_below(below, inner)] = skipped

    async def _score(
        self, node: Node, path: str, children: Mapping[str, Outcome] | None = None
    ) -> Outcome:
        """Return what the evaluator says; anything it raises becomes Unscored here and nowhere else."""
        kind = self.ports.kinds.get(node.kind)
        if kind is None:
            return Unscored(f"there is no evaluator kind {node.kind!r}", stage="config")
        try:
            context = self._context(path, children or {})
            outcome: object = await kind.score(_config(kind, node), context)
        except ValidationError as error:
            first = error.errors()[0]
            field_name = ".".join(str(part) for part in first["loc"]) or "config"
            return Unscored(f"{field_name}: {first['msg']}", stage="config")
        except Exception as error:
            logger.exception("Evaluator %s of kind %s failed", path, node.kind)
            return Unscored(_reason(error), stage="evaluator")
        if isinstance(outcome, Score | Unscored | Skipped):
            return outcome
        found = type(outcome).__name__
        return Unscored(f"the evaluator returned {found}, not a score", stage="evaluator")

    def _context(self, path: str, children: Mapping[str, Outcome]) -> Context:
        return Context(
            path=path,
            case=self.execution.case,
            output=self.output,
            judge=self.ports.judge(path),
            sandbox=self.ports.sandbox,
            ask_target=self.ports.ask_target,
            children=children,
            files=self.execution.files,
        )


def _config(kind: Kind, node: Node) -> KindConfig:
    return kind.config.model_validate(node.config)


def _below(path: str, name: str) -> str:
    return "/".join(part for part in (path, name) if part)


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _together(work: list[Awaitable[None]]) -> None:
    """Run all of it at once; one piece alone needs no task of its own."""
    if len(work) == 1:
        await work[0]
        return
    async with asyncio.TaskGroup() as group:
        for piece in work:
            group.create_task(_awaited(piece))


async def _awaited(piece: Awaitable[None]) -> None:
    await piece
