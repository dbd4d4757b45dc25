"""One execution: the target answers, evaluators score with gates first, and the rules decide."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from evaluators.kinds._base import ChildResult, Context, Kind, KindConfig, Output
from evaluators.reading.json import is_storable, storable
from evaluators.scoring.score_tree import aggregate_children, child_score, gate_failure, gate_order
from evaluators.scoring.tree import EvaluatorSpec, below, walk
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score, Skipped, Unscored
from runs.engine.plan import OUTCOMES_KIND, OUTCOMES_PATH, needs_outcomes_call, outcome_samples
from runs.engine.ports import Cause, Execution, ExecutionOutcome, Ports, TargetFailure

logger = logging.getLogger(__name__)

# An output of more characters is scored by one evaluator after another: each makes copies of it for its prompts.
LONG_OUTPUT = 1_000_000


class Scoring:
    """The running evaluators of one execution; `outcomes` fills as they finish."""

    def __init__(self, execution: Execution, ports: Ports, output: Output) -> None:
        self.execution = execution
        self.ports = ports
        self.output = output
        self.outcomes: dict[str, Outcome] = {}
        self.combined: dict[str, Outcome] = {}
        is_long = len(output.text) > LONG_OUTPUT
        self._turn = asyncio.Semaphore() if is_long else nullcontext()

    async def run(self) -> None:
        """Run the tree, and alongside it the call for the expected outcomes where one is needed."""
        work = [self._run(self.execution.root, "", is_awaited=False)]
        if self._needs_outcomes_call():
            work.append(self._judge_outcomes())
        await _together(work)

    def _needs_outcomes_call(self) -> bool:
        return (
            self.execution.judges_outcomes
            and bool(self.execution.case.expected_outcomes)
            and OUTCOMES_KIND in self.ports.kinds
            and needs_outcomes_call(
                self.execution.root, self.ports.kinds, self.execution.rules.policy
            )
        )

    async def _judge_outcomes(self) -> Outcome:
        kept = self.execution.kept.get(OUTCOMES_PATH)
        samples = outcome_samples(self.execution.root)
        config = {"samples": samples} if samples > 1 else {}
        node = EvaluatorSpec(name=OUTCOMES_PATH, kind=OUTCOMES_KIND, config=config)
        outcome = kept if kept is not None else await self._score(node, OUTCOMES_PATH)
        self.outcomes[OUTCOMES_PATH] = outcome
        return outcome

    async def _run(self, node: EvaluatorSpec, path: str, *, is_awaited: bool) -> Outcome | None:
        """Return the outcome of a node after those of its children; of a composite only if awaited."""
        if not node.is_composite:
            outcome = self.execution.kept.get(path) or await self._score(node, path)
            self.outcomes[path] = outcome
            return outcome
        children = await self._run_children(node, path, is_awaited=is_awaited)
        if node.aggregator is None or not node.aggregator.is_judging:
            return self._aggregate(node, path, children) if is_awaited else None
        results = self._results_below(node, path)
        kept = self.execution.kept.get(path)
        outcome = kept or await self._score(node, path, children, results)
        self.outcomes[path] = outcome
        return outcome

    def _results_below(self, node: EvaluatorSpec, path: str) -> tuple[ChildResult, ...]:
        """Return the outcomes of everything below a composite, for the script or judge that reads them."""
        return tuple(
            self._child_result(child, below(path, child.name), node.child_weight(child))
            for child in node.children
        )

    def _child_result(self, node: EvaluatorSpec, path: str, weight: float) -> ChildResult:
        outcome = self.outcomes.get(path) or self.combined.get(path)
        score = child_score(node, outcome)
        policy = self.execution.rules.policy
        return ChildResult(
            name=node.name,
            kind=node.kind,
            weight=weight,
            outcome=outcome,
            score=score,
            verdict="" if score is None else str(policy.verdict_for(score)),
            results=self._results_below(node, path),
        )

    def _aggregate(
        self, node: EvaluatorSpec, path: str, children: Mapping[str, Outcome]
    ) -> Outcome:
        """Return the outcome of a composite; gates and required ones fail closed (SCORING §4.1)."""
        tree = self.execution.rules.tree
        policy = tree.policy
        if tree.nodes[tree.index_of[path]].strict:
            policy = policy.model_copy(update={"on_unscored": "error"})
        outcome = self.combined[path] = aggregate_children(node, children, policy)
        return outcome

    async def _run_children(
        self, node: EvaluatorSpec, path: str, *, is_awaited: bool
    ) -> Mapping[str, Outcome]:
        """Run the children, gates before the rest; return the outcomes that gates and judges read.

        The score of an awaited composite is made of its children's, so that they are awaited too.
        """
        first, after = gate_order(node)
        is_judged = node.aggregator is not None and node.aggregator.is_judging
        children: dict[str, Outcome] = {}

        async def run_child(child: EvaluatorSpec) -> None:
            awaits = is_awaited or is_judged or child.name in first
            outcome = await self._run(child, below(path, child.name), is_awaited=awaits)
            if outcome is not None:
                children[child.name] = outcome

        await _together([run_child(child) for child in node.children if child.name in first])
        failure = gate_failure(node, children) if first else None
        rest = [child for child in node.children if child.name in after]
        if failure is None:
            await _together([run_child(child) for child in rest])
        else:
            self._skip(rest, path, Skipped(failure))
        return {
            child.name: children[child.name] for child in node.children if child.name in children
        }

    def _skip(self, nodes: Iterable[EvaluatorSpec], path: str, skipped: Skipped) -> None:
        for node in nodes:
            for inner, found in walk(node, below(path, node.name)):
                if not found.is_composite:
                    self.outcomes[inner] = skipped

    async def _score(
        self,
        node: EvaluatorSpec,
        path: str,
        children: Mapping[str, Outcome] | None = None,
        results: tuple[ChildResult, ...] = (),
    ) -> Outcome:
        """Return the evaluator's outcome; only here does an exception become Unscored."""
        kind = self.ports.kinds.get(node.kind)
        if kind is None:
            return Unscored(f"there is no evaluator kind {node.kind!r}", stage="config")
        try:
            context = self._context(path, children or {}, results)
            config = self._config(kind, node, path)
            async with self._turn:
                outcome: object = await kind.score(config, context)
        except ValidationError as error:
            first = error.errors()[0]
            field_name = ".".join(str(part) for part in first["loc"]) or "config"
            return Unscored(f"{field_name}: {first['msg']}", stage="config")
        except Exception as error:
            logger.exception("Evaluator %s of kind %s failed", path, node.kind)
            return Unscored(error_reason(error), stage="evaluator")
        if isinstance(outcome, Score):
            # For a negated evaluator a finding that holds is a miss, and the other way round.
            findings = tuple(
                Finding(storable(item.text), item.passed != node.negate, storable(item.evidence))
                for item in outcome.findings
            )
            return replace(
                outcome,
                findings=findings,
                reasoning=storable(outcome.reasoning),
                warnings=tuple(map(storable, outcome.warnings)),
                details=_storable_details(outcome.details),
            )
        if isinstance(outcome, Unscored):
            details = _storable_details(outcome.details)
            return replace(outcome, reason=storable(outcome.reason), details=details)
        if isinstance(outcome, Skipped):
            return outcome
        found = type(outcome).__name__
        return Unscored(f"the evaluator returned {found}, not a score", stage="evaluator")

    def _config(self, kind: Kind, node: EvaluatorSpec, path: str) -> KindConfig:
        config = self.execution.configs.get(path)
        if config is None:
            config = self.execution.configs[path] = kind.config.model_validate(node.config)
        return config

    def _context(
        self, path: str, children: Mapping[str, Outcome], results: tuple[ChildResult, ...]
    ) -> Context:
        return Context(
            path=path,
            case=self.execution.case,
            output=self.output,
            judge=self.ports.judge(path),
            sandbox=self.ports.sandbox,
            target_as_judge=partial(self.ports.target_as_judge, path),
            children=children,
            results=results,
            files=self.execution.files,
            baseline=self.execution.baseline,
        )


def error_reason(error: BaseException) -> str:
    """Return an error in words."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _together(work: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Run all coroutines at once; a single one needs no task."""
    if len(work) == 1:
        await work[0]
    elif work:
        async with asyncio.TaskGroup() as group:
            for piece in work:
                group.create_task(piece)


async def execute(execution: Execution, ports: Ports) -> ExecutionOutcome:
    """Return how the execution ended; errors of targets, judges and evaluators never raise."""
    output = execution.output
    if output is None:
        answer = await _ask_target(ports)
        if isinstance(answer, TargetFailure):
            return ExecutionOutcome(failure=answer)
        output = answer
    scoring = Scoring(execution, ports, output)
    await scoring.run()
    outcomes = scoring.outcomes
    decision = execution.rules.decide(
        {path: outcome for path, outcome in outcomes.items() if path != OUTCOMES_PATH},
        expected_outcomes=execution.case.expected_outcomes,
        outcome_results=_outcome_results(execution, outcomes, ports.kinds),
    )
    if output.warnings:
        decision = replace(decision, warnings=(*output.warnings, *decision.warnings))
    return ExecutionOutcome(output=output, outcomes=outcomes, decision=decision)


def _storable_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return details as they are, but for what no database stores: they may quote any answer."""
    kept: Mapping[str, Any] = details if is_storable(details) else storable(details)
    return kept


async def _ask_target(ports: Ports) -> Output | TargetFailure:
    try:
        return await ports.answer()
    except Exception as error:
        logger.exception("A target failed in a way it does not name")
        return TargetFailure(error_reason(error), Cause.FAILED)


def _outcome_results(
    execution: Execution, outcomes: Mapping[str, Outcome], kinds: Mapping[str, Kind]
) -> tuple[OutcomeResult, ...] | Unscored | None:
    """Return the judged expected outcomes, from the call alongside the tree or from an evaluator."""
    if not execution.case.expected_outcomes:
        return None
    beside = outcomes.get(OUTCOMES_PATH)
    if isinstance(beside, Unscored):
        return beside
    if isinstance(beside, Score):
        return beside.outcomes
    in_order = (outcomes.get(path) for path, _ in walk(execution.root))
    found = (outcome.outcomes for outcome in in_order if isinstance(outcome, Score))
    judged = next((results for results in found if results is not None), None)
    return judged if judged is not None else _unscored_source(execution.root, outcomes, kinds)


def _unscored_source(
    root: EvaluatorSpec, outcomes: Mapping[str, Outcome], kinds: Mapping[str, Kind]
) -> Unscored | None:
    """Return why the tree's evaluator could not judge the expected outcomes (SCORING §4.1)."""
    for path, node in walk(root):
        outcome = outcomes.get(path)
        supplies = node.kind in kinds and kinds[node.kind].supplies_outcomes
        if supplies and isinstance(outcome, Unscored):
            return outcome
    return None
