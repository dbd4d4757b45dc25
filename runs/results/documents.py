"""Runs and results as JSON documents: what lists, the API, files and the command line tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.db.models import QuerySet

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import mean, rounded
from runs import lists
from runs.case_groups import policy_of
from runs.costs import Cost, RunCosts, run_costs
from runs.engine.plan import CHANGED
from runs.lists import ListQuery, with_tag
from runs.models.results import EvaluatorScore, Result, ResultStatus, ScoreState, VerdictChoice
from runs.models.runs import RESCORED, Run
from runs.models.stored import executions_of
from runs.models.suites import Case
from runs.results.case_rows import result_url
from runs.results.run_figures import repetitions_of_run
from runs.results.run_list import RunRow, run_row
from runs.suites.queries import policy_document
from runs.summary.cases import summarise_case
from runs.summary.figures import CaseSummary, Summary, total_of

CHUNK = 2000
MEASURED = ("metrics", "dimensions")


def run_document(run: Run, *, url: str) -> dict[str, Any]:
    """Return the run in plain JSON values.

    Costs are numbers of US dollars as in files of results, None where no price is known. Of a run
    that goes on or has no summary the figures are None, and the cases are so far. "changed" lists what
    the run did otherwise than its suite: evaluator (None for the policy), name, old and new.
    "scored_again_from" is the number of the run whose stored scores these are, None for one that ran.
    """
    spent, finals = run_costs(run), _final_scores(run)
    return {
        "suite": run.suite.slug,
        "run": run.number,
        "url": url,
        "target": run.target_name,
        "judge": run.judge_name or None,
        "suite_version": run.suite_version,
        "changed": run.snapshot.get(CHANGED) or [],
        "scored_again_from": (run.snapshot.get(RESCORED) or {}).get("run"),
        "repetitions": run.repetitions,
        "status": run.status,
        "status_reason": run.status_reason,
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "executions": run.execution_count,
        "done": run.done_count,
        "errors": run.error_count,
        "run_cost_usd": _number(spent.run.usd),
        "evaluation_cost_usd": _number(spent.evaluation.usd),
        "total_cost_usd": _number(spent.total_usd),
        "summary": _with_numbers(run.summary),
        **_beside_summary(run, finals),
        "cases": [_case(case, finals.get(case.case, [])) for case in case_summaries(run)],
    }


def run_figures(run: Run) -> dict[str, Any]:
    """Return what a run came to in plain JSON values, its costs as text: the summary, and the figures beside it."""
    return {"summary": _whole_summary(run.summary), **_beside_summary(run, _final_scores(run))}


def case_summaries(run: Run) -> Iterator[CaseSummary]:
    """Yield every case over its repetitions, in the order of the suite; three queries."""
    policy = policy_of(run)
    for key, group in groupby(executions_of(run, parts=True), key=attrgetter("case")):
        yield summarise_case(key, list(group), policy)


def _whole_summary(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a summary with every figure there is; one of an earlier time may lack some."""
    if stored is None:
        return None
    measured = {name: stored.get(name) or [] for name in MEASURED}
    return {**Summary.from_json(stored).as_json(), **measured}


def _beside_summary(run: Run, finals: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {**_repeated(run), **_final(run, [one for scores in finals.values() for one in scores])}


def _repeated(run: Run) -> dict[str, Any]:
    """Return what repetitions came to, with how many cases each figure is of; nothing without any."""
    found = repetitions_of_run(run)
    if found is None:
        return {}
    return {
        "over_repetitions": {
            "all_k_passed": found.all_passed.count,
            "any_k_passed": found.any_passed.count,
            "finished_cases": found.all_passed.total,
            "flaky": found.flaky.count,
            "comparable_cases": found.flaky.total,
            "mean_spread": found.spread,
            "spread_cases": found.spread_cases,
        }
    }


def _final_scores(run: Run) -> Mapping[str, Sequence[float]]:
    """Return by case what the first hybrid judge of each execution gave on the whole, 0 to 10; one query."""
    rows = (
        EvaluatorScore.objects.filter(result__run=run, kind=HYBRID_KIND, state=ScoreState.SCORED)
        .order_by("result_id", "position", "id")
        .values_list("result_id", "result__case__key", "details__final_evaluation__final_score")
    )
    found: dict[str, dict[int, float]] = {}
    for pk, key, final in rows.iterator(chunk_size=CHUNK):
        if final is not None:
            found.setdefault(key, {}).setdefault(pk, final)
    return {key: list(scores.values()) for key, scores in found.items()}


def _final(run: Run, scores: Sequence[float]) -> dict[str, Any]:
    """Return the final evaluation over the run under seed 003's names; nothing without a hybrid judge."""
    if not scores:
        return {}
    summed = (run.summary or {}).get("means") or {}
    return {
        "final_evaluation": {
            "final_score": _mean(scores),
            "final_dimensions": summed.get("dimensions") or {},
            "scored_executions": len(scores),
        }
    }


def _case(case: CaseSummary, finals: Sequence[float]) -> dict[str, Any]:
    written: dict[str, Any] = _with_numbers(case.as_json())
    if not finals:
        return written
    # The names under which seed 003 aggregates repetitions; scores are 0 to 10.
    return {**written, "final_score": _mean(finals), "final_dimensions": written["dimensions"]}


def _mean(scores: Sequence[float]) -> float | None:
    average = mean(scores)
    return None if average is None else rounded(average)


def _number(usd: Decimal | str | None) -> float | None:
    """Return dollars; a billionth is the least and 15 digits are exact, so none is lost."""
    return None if usd is None else float(usd)


def _with_numbers(value: Any) -> Any:
    """Return figures with the costs that are stored as text as numbers."""
    if isinstance(value, dict):
        return {
            name: _number(part)
            if name.endswith("_usd") and isinstance(part, str)
            else _with_numbers(part)
            for name, part in value.items()
        }
    return [_with_numbers(part) for part in value] if isinstance(value, list) else value


def run_facts(run: Run) -> dict[str, Any]:
    """Return a run of `listed` as plain JSON values, by the figures that the list of runs shows."""
    row = run_row(run)
    return _facts(run, row, row.costs)


def whole_run(run: Run) -> dict[str, Any]:
    """Return a run of `listed` with its policy, its summary, and both purses with their counts.

    `summary` is None until the run has ended. `changed` lists what the run did otherwise than its
    suite: evaluator (None for the policy), name, old and new.
    """
    costs = run_costs(run)
    return {
        **_facts(run, run_row(run), costs),
        "concurrency": run.concurrency,
        "budget_usd": spelt_usd(run.budget_usd),
        "policy": policy_document(policy_of(run)),
        "changed": run.snapshot.get(CHANGED) or [],
        "costs": {"run": _cost(costs.run), "evaluation": _cost(costs.evaluation)},
        "over_repetitions": None,
        "final_evaluation": None,
        **run_figures(run),
    }


def spelt_usd(usd: Decimal | None) -> str | None:
    """Return dollars with all their digits; None is not known."""
    return None if usd is None else f"{usd:f}"


def spelt_time(at: datetime | None) -> str | None:
    """Return a time as ISO 8601 with its zone."""
    return None if at is None else at.isoformat()


def _facts(run: Run, row: RunRow, costs: RunCosts) -> dict[str, Any]:
    return {
        "id": run.pk,
        "name": row.word,
        "suite": run.suite.slug,
        "number": run.number,
        "url": row.url,
        "target": row.target,
        "judge": row.judge or None,
        "is_scripted": row.is_scripted,
        "suite_version": run.suite_version,
        "is_baseline": row.is_baseline,
        "campaign": run.campaign_id,
        "scored_again_from": row.source_number,
        "note": row.note,
        "repetitions": run.repetitions,
        "status": row.status,
        "status_reason": row.reason,
        "created_at": spelt_time(run.created_at),
        "created_by": row.started_by or None,
        "started_at": spelt_time(run.started_at),
        "finished_at": spelt_time(run.finished_at),
        "cases": run.case_count,
        "executions": row.executions,
        "done": row.done,
        "counts": _counts(row.counts),
        "gates": {"metrics": row.metrics.as_json(), "cases": row.cases.as_json()},
        "run_cost_usd": spelt_usd(costs.run.usd),
        "evaluation_cost_usd": spelt_usd(costs.evaluation.usd),
        "total_cost_usd": spelt_usd(costs.total_usd),
        "costs_are_partial": costs.is_partial,
    }


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many executions stand how, every state named."""
    states = ("pass", "borderline", "fail", "error", "waiting", "cancelled")
    return {state: counts.get(state, 0) for state in states}


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "usd": spelt_usd(cost.usd),
        "answers": cost.answers,
        "priced": cost.priced,
        "input_tokens": cost.input_tokens,
        "output_tokens": cost.output_tokens,
        "is_partial": cost.is_partial,
    }


@dataclass(frozen=True, slots=True)
class ExecutionsQuery(ListQuery):
    """Which executions of a run the API lists."""

    verdict: str = lists.choice(VerdictChoice.values, help="Results with this verdict alone.")
    status: str = lists.choice(ResultStatus.values, help="Results that are so far alone.")
    tag: str = lists.text(help="Results of cases with this tag alone.")
    case: str = lists.text(help="Results of the case with this key.")

    def results(self, run: Run) -> QuerySet[Result]:
        """Return the results of a run that match, with what lists show of them and nothing heavy."""
        columns = {"verdict": "verdict", "status": "status", "case": "case__key"}
        asked = {columns[name]: getattr(self, name) for name in self.filters if name in columns}
        found = run.results.filter(**asked).select_related("case")
        if self.tag:
            found = found.filter(
                case__in=with_tag(Case.objects.filter(suite=run.suite_id), self.tag)
            )
        shown = ("case__key", "case__revision", "case__title", "case__tags")
        return found.only(*(column.attname for column in Result._meta.concrete_fields), *shown)


def result_facts(run: Run, result: Result) -> dict[str, Any]:
    """Return a result as plain JSON values; one without a verdict has no score, never 0."""
    marks = result.outcome_marks
    is_scored = result.status == ResultStatus.SCORED and result.score is not None
    costs = (result.run_cost_usd, result.evaluation_cost_usd)
    return {
        "id": result.pk,
        "run_id": run.pk,
        "case": result.case.key,
        "case_revision": result.case.revision,
        "title": result.case.title,
        "tags": result.case.tags,
        "repetition": result.repetition,
        "url": result_url(run, result.case.key, result.repetition),
        "status": result.status,
        "verdict": result.verdict or None,
        "reviewed_verdict": result.reviewed_verdict or None,
        "score": rounded(result.score) if is_scored and result.score is not None else None,
        "decided_by": result.decided_by or None,
        "outcomes_met": marks.count("1") if marks else None,
        "outcomes_total": len(marks) if marks else None,
        "error": result.error or None,
        "error_stage": result.error_stage or None,
        "warnings": result.warnings,
        "attempt": result.attempt,
        "generation": result.generation,
        "started_at": spelt_time(result.started_at),
        "finished_at": spelt_time(result.finished_at),
        "latency_ms": result.latency_ms,
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "run_cost_usd": spelt_usd(result.run_cost_usd),
        "evaluation_cost_usd": spelt_usd(result.evaluation_cost_usd),
        "total_cost_usd": spelt_usd(total_of(costs)),
    }
