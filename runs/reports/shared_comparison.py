"""A comparison as a share link freezes it: what its page shows, in plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import count, islice
from typing import Any

from evaluators.templatetags.figures import counted, delta, score
from runs.comparison import EVALUATOR
from runs.models import RunStatus
from runs.plan import read_plan
from runs.reports.comparison import Compared, Side, comparison_document
from runs.reports.comparison_measures import Measure
from runs.reports.comparison_metrics import GROUPS, MetricGroup
from runs.reports.comparison_page import ComparisonPage, comparison_page
from runs.reports.comparison_query import EVERY, ComparisonQuery
from runs.reports.comparison_rows import ChangeRow, change_table
from runs.reports.diverging import Bar
from runs.reports.shared_answers import with_texts
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
    rows = islice(_rows(found, query), MOST_CASES)
    cases = [_case(number, row, after.scale) for number, row in enumerate(rows, 1)]
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
        "metrics": [_group(one) for one in page.metrics if one.title != EVALUATORS],
        "evaluators": [_group(one) for one in page.metrics if one.title == EVALUATORS],
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


def _rows(found: Compared, query: ComparisonQuery) -> Iterator[ChangeRow]:
    """Yield every case, the most harmful change first, whatever the page was narrowed to."""
    whole = replace(query, show=EVERY, cell="", text="")
    for number in count(1):
        table = change_table(found, replace(whole, page=number))
        yield from table.rows
        if not table.later_url:
            return


def _verdict(page: ComparisonPage) -> dict[str, str]:
    sentence = page.conclusion.sentence
    for side in (page.found.baseline, page.found.candidate):
        # What a suite is called is no figure.
        sentence = sentence.replace(f"{side.run.suite.slug}{side.run}", f"Run {side.run}")
    return {
        "state": page.shape,
        "word": page.conclusion.title,
        "tone": page.tone,
        "sentence": sentence,
    }


def _group(group: MetricGroup) -> dict[str, Any]:
    return {
        "title": group.title,
        "scale": group.scale,
        "axis": group.axis,
        "rows": [
            {
                "name": row.name,
                "path": row.path,
                "means": row.means,
                "change": row.change,
                "tone": row.tone,
                "said": row.said,
                "note": row.note,
                **_bar(row.bar),
            }
            for row in group.rows
        ],
    }


def _bar(bar: Bar | None) -> dict[str, str]:
    if bar is None:
        return {}
    low, high = bar.whisker or ("", "")
    return {"x": bar.x, "width": bar.width, "bar_tone": bar.tone, "low": low, "high": high}


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


def _case(number: int, row: ChangeRow, scale: int) -> dict[str, Any]:
    one = row.change
    before, after = one.baseline, one.candidate
    return {
        "place": number,
        "key": one.case,
        "title": row.title,
        "label": row.label,
        "icon": row.icon,
        "tone": row.tone,
        "before": row.states[0],
        "after": row.states[1],
        "only": "" if before and after else "candidate" if after else "baseline",
        "before_score": score(before.mean_score, scale) if before else "",
        "after_score": score(after.mean_score, scale) if after else "",
        "change": delta(one.score_change, "pts"),
        **_bar(row.bar),
        "met": row.met,
        "cost": delta(row.cost, "pct"),
        "latency": delta(row.latency, "pct"),
    }
