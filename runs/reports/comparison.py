"""Two runs side by side: what differs beside their targets, the figures of both, and every case."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.comparison import (
    ADDED,
    ERROR,
    REMOVED,
    CaseChange,
    CaseSide,
    Difference,
    RunComparison,
    RunFacts,
    RunSide,
    Tolerances,
    compare_cases,
    compare_runs,
    differences,
)
from runs.models import Result, Run
from runs.plan import read_plan
from runs.summary import Execution, means_of, summarise_case, total_of, verdict_of

COLUMNS = (
    *("case__key", "status", "verdict", "score", "is_forced", "reviewed_verdict", "latency_ms"),
    *("run_cost_usd", "evaluation_cost_usd", "case__content_hash"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its own figures over all its executions, and its cases by key.

    Of the executions that the figures count, `scored` have a score and `timed` a latency.
    """

    run: Run
    figures: RunSide
    scored: int
    timed: int
    errors: int
    cost_usd: Decimal | None
    run_cost_usd: Decimal | None
    evaluation_cost_usd: Decimal | None
    cases: Mapping[str, CaseSide]
    facts: RunFacts


@dataclass(frozen=True, slots=True)
class Compared:
    """The two runs compared; `shared` is how many cases have a verdict on both sides."""

    baseline: Side
    candidate: Side
    differences: tuple[Difference, ...]
    runs: RunComparison
    cases: tuple[CaseChange, ...]

    @property
    def shared(self) -> int:
        """Return how many cases both runs have a verdict for."""
        return sum(change.status not in (ERROR, ADDED, REMOVED) for change in self.cases)

    @property
    def is_comparable(self) -> bool:
        """Tell whether verdicts that differ can only differ for the target."""
        return not any(one.spoils for one in self.differences)


def compared(
    baseline: Run, candidate: Run, tolerances: Tolerances, *, only_shared: bool = False
) -> Compared:
    """Return the comparison; each run's own frozen policy makes its cases' verdicts. Two queries.

    With `only_shared` the figures of both are those of the cases whose keys both have. Raises
    UnreadableSnapshotError for a run of another version.
    """
    recorded = _executions(baseline), _executions(candidate)
    if only_shared:
        keys = {*recorded[0][1]} & {*recorded[1][1]}
        recorded = _only(keys, *recorded[0]), _only(keys, *recorded[1])
    before, after = _side(baseline, *recorded[0]), _side(candidate, *recorded[1])
    return Compared(
        baseline=before,
        candidate=after,
        differences=differences(before.facts, after.facts),
        runs=compare_runs(before.figures, after.figures, tolerances),
        cases=compare_cases(before.cases, after.cases),
    )


def _only(
    keys: Container[str], rows: Sequence[Execution], hashes: Mapping[str, str]
) -> tuple[list[Execution], dict[str, str]]:
    return (
        [row for row in rows if row.case in keys],
        {key: digest for key, digest in hashes.items() if key in keys},
    )


def _side(run: Run, rows: Sequence[Execution], hashes: Mapping[str, str]) -> Side:
    policy = read_plan(run.snapshot).policy
    by_case: dict[str, list[Execution]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    means = means_of(rows)
    return Side(
        run=run,
        figures=RunSide(
            passed=sum(verdict_of(row, policy) is Verdict.PASS for row in rows),
            total=len(rows),
            mean_score=means.score,
            mean_latency_ms=means.latency_ms,
        ),
        scored=means.scored,
        timed=sum(row.latency_ms is not None for row in rows),
        errors=sum(row.is_ended and verdict_of(row, policy) is None for row in rows),
        cost_usd=total_of((means.run_cost_usd, means.evaluation_cost_usd)),
        run_cost_usd=means.run_cost_usd,
        evaluation_cost_usd=means.evaluation_cost_usd,
        cases={key: _case(key, group, policy) for key, group in by_case.items()},
        facts=RunFacts(run.snapshot, run.repetitions, hashes),
    )


def _executions(run: Run) -> tuple[list[Execution], dict[str, str]]:
    """Return the executions in the order of the suite, and the content hash of each case by key."""
    rows: list[Execution] = []
    hashes: dict[str, str] = {}
    results = run.results.order_by("position", "repetition", "id").values_list(*COLUMNS)
    for key, status, verdict, score, forced, reviewed, latency, paid, judged, digest in results:
        hashes[key] = digest
        rows.append(
            Execution(
                case=key,
                status=status,
                verdict=_verdict(verdict),
                score=score,
                is_forced=forced,
                reviewed_verdict=_verdict(reviewed),
                latency_ms=latency,
                run_cost_usd=paid,
                evaluation_cost_usd=judged,
            )
        )
    return rows, hashes


def _verdict(word: str) -> Verdict | None:
    return Verdict(word) if word else None


def _case(key: str, group: Sequence[Execution], policy: Policy) -> CaseSide:
    found = summarise_case(key, group, policy)
    return CaseSide(
        verdict=found.verdict,
        mean_score=found.means.score,
        state=found.state,
        passed=found.passed,
        scored=found.scored,
        executions=found.executions,
        latency_ms=found.means.latency_ms,
        cost_usd=total_of((found.means.run_cost_usd, found.means.evaluation_cost_usd)),
    )


def side_of_case(results: Sequence[Result], policy: Policy) -> CaseSide:
    """Return one case of a run by its results, as a comparison of the whole runs has it."""
    group = [
        Execution(
            case="",
            status=row.status,
            verdict=_verdict(row.verdict),
            score=row.score,
            is_forced=row.is_forced,
            reviewed_verdict=_verdict(row.reviewed_verdict),
            latency_ms=row.latency_ms,
            run_cost_usd=row.run_cost_usd,
            evaluation_cost_usd=row.evaluation_cost_usd,
        )
        for row in results
    ]
    return _case("", group, policy)


def comparison_document(found: Compared) -> dict[str, Any]:
    """Return the comparison as plain JSON values."""
    return {
        "baseline": _run_json(found.baseline),
        "candidate": _run_json(found.candidate),
        "differences": [one.as_json() for one in found.differences],
        "is_comparable": found.is_comparable,
        **found.runs.as_json(),
        "shared_cases": found.shared,
        "cases": [_change_json(change) for change in found.cases],
    }


def _run_json(side: Side) -> dict[str, Any]:
    run, figures = side.run, side.figures
    return {
        "suite": run.suite.slug,
        "run": run.number,
        "target": run.target_name,
        "status": run.status,
        "executions": figures.total,
        "passed": figures.passed,
        "errors": side.errors,
        "pass_rate": figures.pass_rate,
        "mean_score": figures.mean_score,
        "mean_latency_ms": figures.mean_latency_ms,
        "total_cost_usd": None if side.cost_usd is None else f"{side.cost_usd:f}",
    }


def _change_json(change: CaseChange) -> dict[str, Any]:
    sides = {"baseline": change.baseline, "candidate": change.candidate}
    return {
        "case": change.case,
        "status": change.status,
        "has_flipped": change.has_flipped,
        "score_change": change.score_change,
        **{name: None if side is None else _case_json(side) for name, side in sides.items()},
    }


def _case_json(side: CaseSide) -> dict[str, Any]:
    verdict = None if side.verdict is None else side.verdict.value
    return {"verdict": verdict, "mean_score": side.mean_score}
