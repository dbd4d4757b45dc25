"""One result as the API tells of it: what lists show of it."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from evaluators.scoring.numbers import rounded
from runs.models import Case, Result, ResultStatus, Run
from runs.reports.matching import with_tag
from runs.reports.repetition_marks import result_url
from runs.reports.run_facts import spelt_time, spelt_usd
from runs.summary import total_of


def results_asked(
    run: Run, *, verdict: str = "", status: str = "", tag: str = "", case: str = ""
) -> QuerySet[Result]:
    """Return the results of a run that match, with what lists show of them and nothing heavy."""
    narrow = Q()
    if verdict:
        narrow &= Q(verdict=verdict)
    if status:
        narrow &= Q(status=status)
    if case:
        narrow &= Q(case__key=case)
    if tag:
        narrow &= Q(case__in=with_tag(Case.objects.filter(suite=run.suite_id), tag))
    found = run.results.filter(narrow).select_related("case")
    shown = ("case__key", "case__revision", "case__title", "case__tags")
    columns = [column.attname for column in Result._meta.concrete_fields]
    return found.only(*columns, *shown)


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
