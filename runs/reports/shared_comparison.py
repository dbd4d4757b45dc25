"""A comparison as a share link freezes it: what its page shows, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from evaluators.templatetags.figures import counted, delta
from runs.comparison import EVALUATOR
from runs.models import RunStatus
from runs.plan import read_plan
from runs.reports.comparison import Compared, Side, comparison_document
from runs.reports.comparison_measures import Measure
from runs.reports.comparison_metrics import GROUPS
from runs.reports.comparison_page import ComparisonPage, comparison_page
from runs.reports.comparison_query import ComparisonQuery
from runs.reports.shared_answers import with_texts
from runs.reports.shared_changes import case_of, changes, group_of
from runs.reports.shared_figures import gate_of
from runs.reports.shared_words import (
    MOST_CASES,
    MOST_WITH_TEXTS,
    counts_of,
    head,
    judge_word,
    policy_rows,
    tolerance_rows,
)
from runs.sharing import Allowance, Depth

EVALUATORS = GROUPS[EVALUATOR][0]


def shared_comparison(
    found: Compared,
    query: ComparisonQuery,
    *,
    depth: Depth,
    now: datetime,
) -> dict[str, Any]:
    """Return the document; what may leave of it at a depth, `let_through` says."""
    page = comparison_page(found, query)
    tolerances = found.tolerances
    before, after = found.baseline.run, found.candidate.run
    rows = islice(changes(found, query), MOST_CASES)
    cases = [case_of(number, row, after.scale) for number, row in enumerate(rows, 1)]
    has_texts = depth.reaches(Depth.OUTPUTS)
    texts = cases[: MOST_WITH_TEXTS if has_texts else 0]
    with_texts(texts, (before, after), depth, Allowance())
    limits = (
        tolerances.max_pass_rate_drop,
        tolerances.max_avg_score_drop,
        tolerances.max_latency_increase_pct,
    )
    return {
        **head("comparison", depth, now, f"#{before.number} against #{after.number}"),
        "verdict": _verdict(page),
        "tolerance": page.conclusion.limits,
        "evidence": page.conclusion.evidence,
        "facts": _facts(page),
        "suites": list(dict.fromkeys((before.suite.title, after.suite.title))),
        "policy": [*tolerance_rows(*limits), *policy_rows(read_plan(after.snapshot).policy)],
        "sides": [
            _side("baseline", found.baseline, page.counts[0]),
            _side("candidate", found.candidate, page.counts[1]),
        ],
        "measures": [_measure(one) for one in page.measures],
        "differences": [one.as_json() for one in found.differences],
        "is_comparable": found.is_comparable,
        "only_shared": page.is_shared,
        "unfinished": [
            f"Run #{one.number} is not completed ({RunStatus(one.status).label.lower()})"
            for one in (before, after)
            if one.status != RunStatus.COMPLETED
        ],
        "metrics": [group_of(one) for one in page.metrics if one.title != EVALUATORS],
        "evaluators": [group_of(one) for one in page.metrics if one.title == EVALUATORS],
        "changes": [
            {"label": one.label, "count": one.count, "icon": one.icon, "tone": one.tone}
            for one in page.table.chips
        ],
        "matrix": [
            {
                "verdict": verdict,
                "cells": [
                    {"count": one.count, "tone": one.tone, "is_same": one.is_same} for one in cells
                ],
            }
            for verdict, cells in page.matrix
        ],
        "flips": page.flips,
        "shared": found.shared,
        "out_of_grid": page.out_of_grid,
        "figures": comparison_document(found),
        "case_count": len(found.cases),
        "shown_count": len(cases),
        "text_count": len(texts),
        "cases": cases,
    }


def _verdict(page: ComparisonPage) -> dict[str, str]:
    sentence = page.conclusion.sentence
    for side in (page.found.baseline, page.found.candidate):
        # What a suite is called is no figure.
        sentence = sentence.replace(f"{side.run.suite.slug}{side.run}", f"Run {side.run}")
    return {
        "state": page.shape,
        "word": page.conclusion.word,
        "headline": page.conclusion.headline,
        "tone": page.tone,
        "sentence": sentence,
    }


def _facts(page: ComparisonPage) -> list[str]:
    before, after = page.found.baseline.run, page.found.candidate.run
    same = before.repetitions == after.repetitions
    both = counted(after.repetitions, "repetition")
    versions = [f"v{run.suite_version}" for run in (before, after)]
    if page.is_of_one_suite:
        suite = f"suite {' and '.join(dict.fromkeys(versions))}"
    else:
        suite = "two suites"
    return [
        f"{counted(page.found.in_both, 'case')} in both",
        f"{both} each" if same else f"{before.repetitions} and {both}",
        suite,
        " and ".join(dict.fromkeys((judge_word(before), judge_word(after)))),
    ]


def _side(role: str, side: Side, counts: Mapping[str, int]) -> dict[str, Any]:
    run = side.run
    return {
        "role": role,
        "number": run.number,
        "target": run.target_name,
        "status": run.status,
        "counts": counts_of(counts),
        "gates": [gate_of(one) for one in side.gates],
    }


def _measure(one: Measure) -> dict[str, Any]:
    return {
        "name": one.name,
        "change": delta(one.change, one.unit),
        "before": one.before,
        "after": one.after,
        "note": one.note,
        "limit": one.limit,
        "state": one.state,
        "tone": one.tone,
        "said": list(one.said),
    }
