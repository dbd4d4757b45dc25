"""Do an alignment: the writer proposes instructions, and the judge scores held-out results by each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts, JudgeFailure, JudgeQuestion, Output
from evaluators.model_calls.models import model_spec
from evaluators.models import ZERO_USD, LanguageModel
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.types import Score
from runs.engine.execute import execute
from runs.engine.plan import Plan, judge_models, tree_of_one
from runs.engine.ports import Execution
from runs.execution.jobs import AskModels, JobCalls, JobFailedError
from runs.execution.ledger import CallRefusedError
from runs.execution.loading import RunWork, work_outside_runs
from runs.models.jobs import ModelJob
from runs.reviews.alignment.planning import (
    NO_TARGET,
    CallPrices,
    call_prices,
    read_examples,
    read_outputs,
)
from runs.reviews.alignment.rules import TODAY
from runs.reviews.alignment.specs import AlignmentOutcome, AlignmentSpec, Candidate, HeldOutOpinion
from runs.reviews.alignment.writing import read_candidates, writer_question

# The steps of the job: the writer, then the judge by today's instructions and by each candidate.
WRITING, JUDGING = 0, 1
GONE = "its output was removed"
# A writer is asked as a judge is.
JUDGES = "the judge's"
NOT_SCORED = "it was not scored"
# The limits of the model hold besides.
MAX_IN_FLIGHT = 20


@dataclass(frozen=True, slots=True)
class HeldOutOutput:
    """A held-out result with what its evaluator reads."""

    result: int
    case: CaseFacts
    target: str
    output: Output


def read_alignment(job: ModelJob) -> tuple[RunWork, AskModels]:
    """Read what an alignment needs from the database."""
    spec = AlignmentSpec.model_validate(job.request)
    slugs = judge_models(spec.node, all_kinds(), default=spec.judge)
    judges = list(LanguageModel.objects.filter(slug__in=slugs))
    if job.model is None or len(judges) < len(slugs):
        raise JobFailedError("A language model of this alignment does not exist any more.")
    root = tree_of_one(spec.path, spec.node)
    plan = Plan(suite={}, policy=spec.policy, root=root, target=NO_TARGET, judge=spec.judge)
    models = [*judges, job.model]
    work = replace(
        work_outside_runs(plan, job.suite_id),
        models={model.slug: model_spec(model) for model in models},
        model_ids={model.slug: model.pk for model in models},
        kinds=all_kinds(),
    )
    held_out = [
        HeldOutOutput(row.pk, row.case.facts, row.run.target_name, output)
        for row, output in read_outputs([entry.result for entry in spec.held_out])
    ]
    secrets = [entry.output.text for entry in held_out]
    question = writer_question(spec, read_examples(spec), secrets)
    runs = set(job.sources.values_list("pk", flat=True))
    prices = call_prices(spec, question, job.model, judges, runs)
    alignment = Alignment(spec, job.model.slug, question, prices, held_out)
    return work, alignment.ask_models


@dataclass(frozen=True, slots=True)
class Alignment:
    """One alignment with the question to its writer, about what calls cost, and the results that decide."""

    spec: AlignmentSpec
    writer: str
    question: JudgeQuestion
    prices: CallPrices
    held_out: Sequence[HeldOutOutput]

    async def ask_models(self, calls: JobCalls) -> Mapping[str, Any]:
        """Return the candidates and what each instructions gave the held-out results, as far as calls were allowed."""
        try:
            candidates, left_out = await self._write(calls)
        except CallRefusedError:
            return AlignmentOutcome().as_json()
        texts = [self.spec.text, *(candidate.text for candidate in candidates)]
        opinions: dict[int, dict[int, HeldOutOpinion]] = {key: {} for key in range(len(texts))}
        for result, score in self.spec.scores.items():
            opinions[TODAY][result] = self._opinion(score)
        for key, result, opinion in await self._judge_all(calls, texts):
            opinions[key][result] = opinion
        there = {entry.result for entry in self.held_out}
        for decision in self.spec.held_out:
            if decision.result not in there:
                for given in opinions.values():
                    given.setdefault(decision.result, HeldOutOpinion(reason=GONE))
        outcome = AlignmentOutcome(
            candidates=tuple(candidates), left_out=tuple(left_out), opinions=opinions
        )
        return outcome.as_json()

    async def _write(self, calls: JobCalls) -> tuple[list[Candidate], list[str]]:
        writer = calls.model(self.writer, WRITING, estimate_usd=self.prices.writer_usd)
        try:
            reply = await writer.ask(self.question)
        except JudgeFailure as failure:
            reason = failure.reason.replace(JUDGES, "its")
            raise JobFailedError(f"The writer gave no instructions: {reason}.") from failure
        secrets = [entry.output.text for entry in self.held_out]
        return read_candidates(reply.content, self.spec, secrets)

    async def _judge_all(
        self, calls: JobCalls, texts: Sequence[str]
    ) -> list[tuple[int, int, HeldOutOpinion]]:
        """Return what each text gave each result, without those that could not be asked for."""
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)

        async def judge(key: int, entry: HeldOutOutput) -> tuple[int, int, HeldOutOpinion] | None:
            async with slots:
                opinion = await self._judge(calls, entry, key, texts[key])
            return None if opinion is None else (key, entry.result, opinion)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(judge(key, entry))
                for key in range(len(texts))
                for entry in self.held_out
                if key != TODAY or entry.result not in self.spec.scores
            ]
        return [judged for task in tasks if (judged := task.result()) is not None]

    async def _judge(
        self, calls: JobCalls, entry: HeldOutOutput, key: int, text: str
    ) -> HeldOutOpinion | None:
        """Return what a text gives a result, None where a call was refused."""
        spec = self.spec
        root = tree_of_one(spec.path, spec.node_with(text))
        ports = calls.ports(
            spec.path,
            entry.case,
            entry.target,
            JUDGING + key,
            estimate_usd=self.prices.judge_usd or ZERO_USD,
        )
        execution = Execution(
            case=entry.case,
            root=root,
            rules=Rules(root, spec.policy),
            files=calls.work.files,
            output=entry.output,
            judges_outcomes=False,
        )
        outcome = (await execute(execution, ports)).outcomes.get(spec.path)
        if ports.is_refused:
            return None
        if isinstance(outcome, Score):
            return self._opinion(spec.node.counted_score(outcome.score))
        return HeldOutOpinion(reason=outcome.reason if outcome is not None else NOT_SCORED)

    def _opinion(self, score: float) -> HeldOutOpinion:
        return HeldOutOpinion(score=score, verdict=self.spec.policy.verdict_for(score).value)
