"""Suites, versions, cases and whole results as the API tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from runs import lists
from runs.costs import CallCost
from runs.lists import ListQuery, with_tag
from runs.models.results import OPEN_RESULT_STATUSES, EvaluatorScore, Result
from runs.models.runs import Run
from runs.models.suites import Case, Suite, SuiteVersion
from runs.results.documents import result_facts, spelt_time, spelt_usd
from runs.results.overrides import ReviewHistory
from runs.results.result_page import AttemptRow, ResultPage, result_page
from runs.results.result_tree import ResultMetrics, TreeNode
from runs.results.run_list import run_word
from runs.suites.queries import policy_document
from runs.texts import MAX_SHOWN_LENGTH


@dataclass(frozen=True, slots=True)
class SuitesQuery(ListQuery):
    """Which suites the API lists."""

    tag: str = lists.text(help="Suites with this tag alone.")
    archived: bool = lists.flag(help="The archived suites instead of the others.")

    def suites(self) -> QuerySet[Suite]:
        """Return the suites that match with how many cases and runs they have; one query."""
        suites = Suite.objects.filter(archived_at__isnull=not self.archived)
        return counted(with_tag(suites, self.tag) if self.tag else suites)


def counted(suites: QuerySet[Suite]) -> QuerySet[Suite]:
    """Return suites with their counts, their judge and the run that is their baseline."""
    cases = Case.objects.filter(suite=OuterRef("pk"), is_current=True)
    return (
        suites.select_related("judge", "baseline_run")
        .annotate(
            case_count=_count(cases), run_count=_count(Run.objects.filter(suite=OuterRef("pk")))
        )
        .defer("baseline_run__snapshot", "baseline_run__summary", "baseline_run__leaf_scores")
    )


def suite_facts(suite: Suite) -> dict[str, Any]:
    """Return a suite of `counted` as plain JSON values."""
    baseline = suite.baseline_run
    if baseline is not None:
        baseline.suite = suite
    told: Any = suite
    return {
        "slug": suite.slug,
        "title": suite.title,
        "description": suite.description,
        "tags": suite.tags,
        "version": suite.version,
        "judge": suite.judge.slug if suite.judge else None,
        "cases": told.case_count,
        "runs": told.run_count,
        "baseline_run_id": suite.baseline_run_id,
        "baseline_run": run_word(baseline) if baseline else None,
        "archived_at": spelt_time(suite.archived_at),
        "created_at": spelt_time(suite.created_at),
        "updated_at": spelt_time(suite.updated_at),
    }


def whole_suite(suite: Suite) -> dict[str, Any]:
    """Return a suite of `counted` with its policy, evaluators and files; two queries."""
    current = suite.versions.filter(number=suite.version).values_list("content", flat=True).first()
    return {
        **suite_facts(suite),
        "policy": policy_document(suite.policy()),
        "evaluators": current["evaluators"] if current else None,
        "files": sorted(suite.files.values_list("path", flat=True)),
    }


def version_facts(suite: Suite, version: SuiteVersion) -> dict[str, Any]:
    """Return what lists show of a version."""
    return {
        "number": version.number,
        "is_current": version.number == suite.version,
        "note": version.note,
        "author": version.author.get_username() if version.author else None,
        "created_at": spelt_time(version.created_at),
        "content_hash": version.content_hash,
    }


def whole_version(suite: Suite, version: SuiteVersion) -> dict[str, Any]:
    """Return a version with what the suite was then; its cases by key and revision."""
    content = version.content
    return {
        **version_facts(suite, version),
        "title": content["title"],
        "description": content["description"],
        "tags": content["tags"],
        "judge": content["judge"] or None,
        "metadata": content["metadata"],
        "policy": policy_document(PolicySpec.model_validate(content["policy"])),
        "evaluators": content["evaluators"],
        "files": sorted(content["files"]),
        "cases": [{"key": one["key"], "revision": one["revision"]} for one in content["cases"]],
    }


def _count(rows: QuerySet[Any]) -> Any:
    total = rows.order_by().values("suite").annotate(total=Count("pk")).values("total")
    return Coalesce(Subquery(total, output_field=IntegerField()), 0)


LISTED = ("key", "revision", "is_current", "position", "title", "tags", "created_at")


def case_revision(suite: Suite, key: str, revision: int | None = None) -> Case:
    """Return a revision of a case, the current or else the last one; raises Http404."""
    revisions = suite.cases.filter(key=key)
    if revision is not None:
        revisions = revisions.filter(revision=revision)
    found = revisions.order_by("-is_current", "-revision").first()
    if found is None:
        raise Http404
    return found


def case_facts(case: Case) -> dict[str, Any]:
    """Return what lists show of a case as plain JSON values."""
    return {
        "key": case.key,
        "revision": case.revision,
        "is_current": case.is_current,
        "position": case.position,
        "title": case.title,
        "tags": case.tags,
        "created_at": spelt_time(case.created_at),
    }


def whole_case(case: Case) -> dict[str, Any]:
    """Return one revision in full; its evaluators are None where the suite's alone score it."""
    return {
        **case_facts(case),
        "input": case.input,
        "expected_output": case.expected_output,
        "expected_outcomes": case.expected_outcomes,
        "criteria": case.criteria,
        "metadata": case.metadata,
        "evaluators": case.evaluators,
        "evaluators_append": case.evaluators_append,
        "recorded_output": case.recorded_output,
    }


def whole_result(run: Run, result: Result) -> dict[str, Any]:
    """Return a result as plain JSON values: its case, answer, decision, evaluators, outcomes, metrics.

    Long texts are cut to 20,000 characters, and how long they are is told.
    """
    page = result_page(run, result.case.key, result.repetition)
    decision = page.decision
    return {
        **result_facts(run, page.result),
        "is_open": page.result.status in OPEN_RESULT_STATUSES,
        "case_content": whole_case(page.case),
        "output": _output(page),
        "conversation": [dict(turn) for turn in page.turns.messages],
        "steps": None if page.steps is None else [dict(step) for step in page.steps],
        "step_count": page.step_count,
        "rule": decision.rule if decision else None,
        "trace": [step.as_json() for step in decision.trace] if decision else [],
        "flip": decision.flip.as_json() if decision and decision.flip else None,
        "tree": _node(page.tree),
        "outcomes": [dict(outcome) for outcome in page.outcomes],
        "outcomes_judge": _said(page.outcomes_row),
        "metrics": [_metrics(judged) for judged in page.judged],
        "costs": {"run": _cost(page.costs.run), "evaluation": _cost(page.costs.evaluation)},
        "attempts": [_attempt(row) for row in page.attempts],
        "reviews": _reviews(page.reviews),
        "files": [{"path": file.path, "bytes": file.size} for file in page.files],
    }


def _reviews(history: ReviewHistory | None) -> list[dict[str, Any]]:
    """Return what people decided, the newest first, with what does not count any more."""
    decisions = [*history.standing, *history.past] if history else []
    return [
        {
            "by": one.by,
            "at": spelt_time(one.at),
            "verdict": one.verdict,
            "machine_verdict": one.machine or None,
            "note": one.note,
            "tags": list(one.tags),
            "outcome_marks": one.marks,
            "metric_labels": dict(one.labels),
            "counts": not one.state,
        }
        for one in sorted(decisions, key=attrgetter("at"), reverse=True)
    ]


def _output(page: ResultPage) -> dict[str, Any] | None:
    if not page.has_answer:
        return None
    return {
        "text": page.output_text,
        "characters": page.output_size,
        "is_cut": page.output_size > MAX_SHOWN_LENGTH,
    }


def _node(node: TreeNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "path": node.path,
        "kind": node.kind,
        "label": node.label,
        "weight": node.weight,
        "is_negated": node.is_negated,
        "state": node.state,
        "score": None if node.score is None else rounded(node.score),
        "verdict": node.verdict or None,
        "note": node.note,
        "arithmetic": node.arithmetic,
        "is_decisive": node.is_decisive,
        "said": _said(node.row),
        "children": [_node(child) for child in node.children],
    }


def _said(row: EvaluatorScore | None) -> dict[str, Any] | None:
    """Return what an evaluator said, on its own scale; None where nothing was recorded."""
    if row is None:
        return None
    return {
        "path": row.path,
        "raw_score": row.raw_score,
        "scale": row.scale,
        "reasoning": row.reasoning[:MAX_SHOWN_LENGTH],
        "findings": [_finding(found) for found in row.findings],
        "warnings": row.warnings,
        "details": row.details,
        "latency_ms": row.latency_ms,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": spelt_usd(row.cost_usd),
    }


def _finding(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": found["text"],
        "passed": bool(found["passed"]),
        "evidence": found.get("evidence", ""),
    }


def _metrics(judged: ResultMetrics) -> dict[str, Any]:
    return {
        "path": judged.path,
        "score": rounded(judged.score),
        "metrics": [
            {
                "name": bar.name,
                "tier": tier.name or None,
                "score": bar.score,
                "is_binary": bar.binary,
                "share": bar.share,
            }
            for tier in judged.tiers
            for bar in tier.bars
        ],
    }


def _cost(cost: CallCost) -> dict[str, Any]:
    return {
        "usd": spelt_usd(cost.usd),
        "calls": cost.calls,
        "failed": cost.failed,
        "answers": cost.answers,
        "priced": cost.priced,
        "input_tokens": cost.input_tokens,
        "output_tokens": cost.output_tokens,
        "is_partial": cost.is_partial,
    }


def _attempt(row: AttemptRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "is_current": row.is_current,
        "state": row.state,
        "score": row.score,
        "reason": row.reason,
        "cost_usd": spelt_usd(row.cost_usd),
        "calls": row.calls,
        "at": spelt_time(row.at),
    }
