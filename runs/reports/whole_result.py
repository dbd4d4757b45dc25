"""One result in full as the API tells of it: the figures of its page."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from evaluators.scoring.numbers import rounded
from runs.models import OPEN_RESULT_STATUSES, Result, Run, Score
from runs.reports.case_document import whole_case
from runs.reports.conversation import LONGEST_SHOWN
from runs.reports.overrides import ReviewHistory
from runs.reports.result_attempts import AttemptRow
from runs.reports.result_facts import result_facts
from runs.reports.result_metrics import ResultMetrics
from runs.reports.result_page import ResultPage, result_page
from runs.reports.result_purses import CallPurse
from runs.reports.result_tree import TreeNode
from runs.reports.run_facts import spelt_time, spelt_usd


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
        "purses": {"run": _purse(page.purses.run), "evaluation": _purse(page.purses.evaluation)},
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
        "is_cut": page.output_size > LONGEST_SHOWN,
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


def _said(row: Score | None) -> dict[str, Any] | None:
    """Return what an evaluator said, on its own scale; None where nothing was recorded."""
    if row is None:
        return None
    return {
        "path": row.path,
        "raw_score": row.raw_score,
        "scale": row.scale,
        "reasoning": row.reasoning[:LONGEST_SHOWN],
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


def _purse(purse: CallPurse) -> dict[str, Any]:
    return {
        "usd": spelt_usd(purse.usd),
        "calls": purse.calls,
        "failed": purse.failed,
        "answers": purse.answers,
        "priced": purse.priced,
        "input_tokens": purse.input_tokens,
        "output_tokens": purse.output_tokens,
        "is_partial": purse.is_partial,
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
