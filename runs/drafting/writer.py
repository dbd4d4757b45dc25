"""Ask a model for drafted cases, one batch after the other: the work on a job that drafts cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaluators.kinds._base import JudgeFailure
from evaluators.model_calls.models import Prices, model_prices, model_spec
from evaluators.models import ZERO_USD
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from runs.drafting.questions import batch_question, read_drafts
from runs.drafting.services import call_usd
from runs.engine.plan import Plan, TargetPlan
from runs.execution.jobs import AskModels, JobCalls, JobFailedError
from runs.execution.ledger import CallRefusedError
from runs.execution.loading import RunWork, work_outside_runs
from runs.models.jobs import ModelJob

# A model that gave two replies that nobody can read is not asked a third time.
MAX_UNREADABLE = 2


def read_drafting(job: ModelJob) -> tuple[RunWork, AskModels]:
    """Return what a job needs, and what asks its model; raises JobFailedError if there is none."""
    if job.model is None:
        raise JobFailedError(f"The language model {job.model_name} was deleted.")
    root = EvaluatorSpec(name="all", kind=COMPOSITE, config={})
    plan = Plan({}, PolicySpec(), root, TargetPlan("none", "recorded"))
    work = replace(
        work_outside_runs(plan, job.suite_id),
        models={job.model.slug: model_spec(job.model)},
        model_ids={job.model.slug: job.model.pk},
    )
    drafting = Drafting(job.request, job.model.slug, model_prices(job.model))
    return work, drafting.ask


class Drafting:
    """The batches of a job, and the rows that they gave so far."""

    def __init__(self, asked: Mapping[str, Any], model: str, prices: Prices | None) -> None:
        """Begin with the first batch."""
        self._asked, self._model, self._prices = asked, model, prices
        self._rows: list[dict[str, Any]] = []
        self._notes: list[dict[str, Any]] = []

    async def ask(self, calls: JobCalls) -> dict[str, Any]:
        """Return the rows and what became of each batch, also where the model or the budget ended it early."""
        problem, unreadable = "", 0
        for step, (part, wanted) in enumerate(self._asked["batches"]):
            titles = [row["title"] for row in self._rows if row.get("title")]
            question = batch_question(self._asked, part=part, wanted=wanted, titles=titles)
            usd = call_usd(question, wanted, self._prices) if self._prices else ZERO_USD
            try:
                reply = await calls.model(self._model, step, estimate_usd=usd).ask(question)
            except CallRefusedError:
                break
            except JudgeFailure as failure:
                unreadable += failure.stage == "parse"
                reason = failure.reason.replace("the judge's", "its")
                self._notes.append({"got": 0, "left_out": 0, "problem": reason})
                if failure.stage != "parse" or unreadable == MAX_UNREADABLE:
                    problem = reason
                    break
            else:
                self._take(reply.content["cases"], part, wanted)
        if problem and not self._rows:
            raise JobFailedError(f"{problem.rstrip('.')}.")
        return {"rows": self._rows, "batches": self._notes, "problem": problem}

    def _take(self, cases: list[Any], part: int, wanted: int) -> None:
        metadata = self._asked["metadata"]
        new = read_drafts(cases, wanted=wanted, part=part, metadata=metadata)
        self._rows += new
        self._notes.append({"got": len(new), "left_out": len(cases) - len(new), "problem": ""})
