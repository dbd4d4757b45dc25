"""What cases asked and targets answered, read as far as a frozen document holds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models.functions import Length, Substr

from runs.models import Case, Result, ResultOutput, Run, Score
from runs.reports.result_neighbours import mark_of
from runs.reports.shared_words import outcomes, question, remarks, steps
from runs.sharing import LONGEST_TEXT, Allowance, Depth

# The repetition shown is the one that went worst.
WORST_FIRST = ("error", "fail", "borderline", "pass")


def with_texts(
    rows: Sequence[dict[str, Any]], runs: Sequence[Run], depth: Depth, allowance: Allowance
) -> None:
    """Add to the rows of cases, by their keys, what was asked, expected and answered in each run.

    Of each run it is the repetition that went worst. Five queries a run.
    """
    keys = [row["key"] for row in rows]
    found = [_results(run, keys) for run in runs]
    for row in rows:
        results = [by_key[row["key"]] for by_key in found if row["key"] in by_key]
        if results:
            case = results[-1].case
            row |= question(case.input, allowance)
            row["expected"] = allowance.cut(case.expected_output)
    for run, by_key in zip(runs, found, strict=True):
        _answers(run, rows, by_key, depth, allowance)


def _results(run: Run, keys: Sequence[str]) -> Mapping[str, Result]:
    rows = run.results.filter(case__key__in=keys).select_related("case").order_by("repetition")
    by_key: dict[str, list[Result]] = defaultdict(list)
    for row in rows:
        by_key[row.case.key].append(row)
    return {key: min(group, key=_badness) for key, group in by_key.items()}


def _badness(result: Result) -> int:
    state = mark_of(result)
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)


def _answers(
    run: Run,
    rows: Iterable[dict[str, Any]],
    results: Mapping[str, Result],
    depth: Depth,
    allowance: Allowance,
) -> None:
    ids = [one.pk for one in results.values()]
    outputs = _outputs(ids, depth)
    findings = findings_of(ids)
    for row in rows:
        result = results.get(row["key"])
        if result is None:
            continue
        output = outputs.get(result.pk, {})
        row.setdefault("answers", []).append(
            {
                "run": run.number,
                "repetition": result.repetition,
                "repetitions": run.repetitions,
                "state": mark_of(result),
                "output": allowance.cut(output.get("start") or "", output.get("size") or 0),
                "error": allowance.brief(result.error),
                "outcomes": outcomes(output.get("outcomes"), allowance),
                **remarks(findings.get(result.pk, []), allowance),
                **steps(output.get("trace"), allowance),
            }
        )


def _outputs(ids: Sequence[int], depth: Depth) -> Mapping[int, Mapping[str, Any]]:
    """Return the beginnings of the outputs: five million characters stay where they are."""
    columns = ["result_id", "start", "size", "outcomes"]
    columns += ["trace"] if depth.reaches(Depth.TRACES) else []
    rows = ResultOutput.objects.filter(result_id__in=ids).annotate(
        start=Substr("text", 1, LONGEST_TEXT), size=Length("text")
    )
    return {row["result_id"]: row for row in rows.values(*columns)}


def findings_of(ids: Sequence[int]) -> Mapping[int, list[Mapping[str, Any]]]:
    """Return by result what its evaluators found, in tree order; one query."""
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    scores = Score.objects.filter(result_id__in=ids).order_by("result_id", "position", "id")
    for pk, findings in scores.values_list("result_id", "findings"):
        found[pk] += findings
    return found


def titles_of(run: Run) -> Mapping[str, str]:
    """Return the titles of the cases of a run by their keys; one query."""
    cases = Case.objects.filter(results__run=run).order_by()
    return dict(cases.values_list("key", "title").distinct())
