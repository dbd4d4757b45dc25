"""Every figure of a run as one JSON document: what it was, what it came to, and each case over its repetitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any

from evaluators.scoring.evaluation import HYBRID_KIND
from evaluators.scoring.numbers import mean, rounded
from runs.models import Run, Score, ScoreState
from runs.models.executions import executions_of
from runs.plan import CHANGED
from runs.reports.case_groups import policy_of
from runs.reports.purses import purses
from runs.reports.run_repetitions import repetitions_of_run
from runs.rescoring.writing import RESCORED
from runs.summary import CaseSummary, Summary, summarise_case

CHUNK = 2000
MEASURED = ("metrics", "dimensions")


def run_document(run: Run, *, url: str) -> dict[str, Any]:
    """Return the run in plain JSON values.

    Costs are numbers of US dollars as in files of results, None where no price is known. Of a run
    that goes on or has no summary the figures are None, and the cases are so far. "changed" lists what
    the run did otherwise than its suite: evaluator (None for the policy), name, old and new.
    "scored_again_from" is the number of the run whose stored scores these are, None for one that ran.
    """
    spent, finals = purses(run), _final_scores(run)
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
        Score.objects.filter(result__run=run, kind=HYBRID_KIND, state=ScoreState.SCORED)
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
