"""One row a case in the table of a run's results: its repetitions, and what they came to together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import mean
from evaluators.scoring.policy import Policy
from runs.models import Case, Run
from runs.reports.case_groups import execution_of, policy_of
from runs.reports.matching import is_retryable
from runs.reports.overrides import Override, override_of_case, with_names
from runs.reports.repetition_marks import RepetitionMark, mark_of_row, people_of_row, result_url
from runs.summary import BY_FORCE, CaseSummary, summarise_case, total_of

PURSES = ("run_cost_usd", "evaluation_cost_usd")
OPEN_STATES = ("running", "waiting")
# A row shows no more marks than these: a case's own page has them all.
MOST_MARKS = 12


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case with its repetitions; a figure that is missing is None.

    `passed` of `scored` repetitions passed, and their scores lie from `lowest` to `highest`, with two
    or more of them. `unshown` repetitions have no mark of their own. `retries` is how often a person
    had it tried again, `retryable` how many results of its can be. `override` is what people decided.
    """

    id: int
    key: str
    title: str
    tags: tuple[str, ...]
    state: str
    url: str
    score: float | None
    metrics: float | None
    outcomes: tuple[float, ...]
    repetitions: tuple[RepetitionMark, ...]
    unshown: int
    scored: int
    passed: int
    is_flaky: bool
    spread: float | None
    lowest: float | None
    highest: float | None
    note: str
    latency_ms: float | None
    cost_usd: Decimal | None
    retries: int
    retryable: int
    override: Override | None


def case_rows(run: Run, groups: Sequence[Mapping[str, Any]]) -> tuple[CaseRow, ...]:
    """Return the rows of the groups, in their order; two queries, and one for reviewers where people decided."""
    ids = [group["case_id"] for group in groups]
    cases = Case.objects.only("key", "title", "tags").in_bulk(ids)
    columns = (
        *("id", "case_id", "repetition", "status", "verdict", "outcome_marks"),
        *("decided_by", "error", "is_forced", "score", "metrics_score", "latency_ms"),
        *("run_cost_usd", "evaluation_cost_usd", "generation", "reviewed_verdict"),
    )
    policy = policy_of(run)
    results: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in run.results.filter(case_id__in=ids).order_by("repetition").values(*columns):
        results[row["case_id"]].append(row)
    overrides = with_names(
        {case: override_of_case(rows, policy) for case, rows in results.items()},
        {case: [row["id"] for row in rows] for case, rows in results.items()},
    )
    return tuple(
        replace(
            _row(run, policy, group, cases[group["case_id"]], results[group["case_id"]]),
            override=overrides[group["case_id"]],
        )
        for group in groups
    )


def _row(
    run: Run,
    policy: Policy,
    group: Mapping[str, Any],
    case: Case,
    results: Sequence[Mapping[str, Any]],
) -> CaseRow:
    marks = [mark_of_row(row, policy) for row in results]
    telling = next((row for row in results if row["is_forced"]), None) or next(
        (row for row, mark in zip(results, marks, strict=True) if mark == group["state"]),
        results[0],
    )
    found = summarise_case(case.key, [execution_of(row) for row in results], policy)
    return CaseRow(
        id=case.pk,
        key=case.key,
        title=case.title,
        tags=tuple(case.tags),
        state=group["state"],
        url=result_url(run, case.key, telling["repetition"]),
        score=found.means.score,
        metrics=_mean(row["metrics_score"] for row in results),
        outcomes=_outcome_shares([row["outcome_marks"] for row in results if row["outcome_marks"]]),
        repetitions=tuple(
            RepetitionMark(
                row["repetition"],
                result_url(run, case.key, row["repetition"]),
                mark,
                row["score"],
                people_of_row(row),
            )
            for row, mark in zip(results[:MOST_MARKS], marks, strict=False)
        ),
        unshown=max(0, len(results) - MOST_MARKS),
        scored=found.scored,
        passed=found.passed,
        is_flaky=found.is_flaky,
        spread=found.spread,
        lowest=found.lowest,
        highest=found.highest,
        note=_note(results, group["state"], telling, found),
        latency_ms=_mean(row["latency_ms"] for row in results),
        cost_usd=total_of(row[purse] for row in results for purse in PURSES),
        retries=max(row["generation"] for row in results) - 1,
        retryable=sum(is_retryable(run, row["status"]) for row in results),
        override=None,
    )


def _note(
    results: Sequence[Mapping[str, Any]],
    state: str,
    telling: Mapping[str, Any],
    found: CaseSummary,
) -> str:
    """Say in a few words what decided; of several repetitions, the rule that made one verdict of them."""
    if len(results) == 1 or state == "error":
        return str(telling["error"] or telling["decided_by"])
    if found.rule == BY_FORCE:
        forced = sum(row["is_forced"] for row in results)
        return f"{telling['decided_by']}, in {forced} of {found.scored}"
    if state in OPEN_STATES:
        return f"so far {found.decided_by}" if found.scored else ""
    return found.decided_by


def _mean(values: Iterable[float | None]) -> float | None:
    return mean([value for value in values if value is not None])


def _outcome_shares(marks: Sequence[str]) -> tuple[float, ...]:
    """Return for each outcome the share of repetitions that met it."""
    if not marks:
        return ()
    return tuple(column.count("1") / len(marks) for column in zip(*marks, strict=False))
