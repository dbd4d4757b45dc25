"""One of two runs that are compared: its own figures, its cases, and what decided their verdicts."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from evaluators.scoring.numbers import mean
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.comparison import CaseSide, RunFacts, RunSide
from runs.models import Result, Run
from runs.plan import read_plan
from runs.reports.comparison_gates import gates_of
from runs.reports.gates import RunGate
from runs.reports.purses import known_of_both, purses
from runs.summary import (
    Execution,
    case_decision,
    case_verdict,
    count_reviews,
    latencies_of,
    means_of,
    state_of,
    total_of,
    verdict_of,
)

COLUMNS = (
    *("id", "case__key", "case__content_hash", "case__title", "outcome_marks"),
    *("status", "verdict", "score", "is_forced", "reviewed_verdict", "latency_ms"),
    *("run_cost_usd", "evaluation_cost_usd"),
)
MET, SCORED = "1", "scored"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its own figures over all its executions, and its cases by key.

    Of the executions that the figures count, `scored` have a score and `timed` a latency, the 95th
    percentile of which is `p95_ms`; `reviews` is how many decisions of people they count. `keys` are the cases of its results by the results' ids.
    """

    run: Run
    figures: RunSide
    scored: int
    timed: int
    errors: int
    reviews: int
    cost_usd: Decimal | None
    run_cost_usd: Decimal | None
    evaluation_cost_usd: Decimal | None
    p95_ms: float | None
    cases: Mapping[str, CaseSide]
    titles: Mapping[str, str]
    keys: Mapping[int, str]
    facts: RunFacts

    @property
    def gates(self) -> tuple[RunGate, RunGate]:
        """Return the Metrics and the Cases gate of the run, over all its cases."""
        return gates_of(self.run)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the cases."""
        run, figures = self.run, self.figures
        return {
            "suite": run.suite.slug,
            "suite_title": run.suite.title,
            "run": run.number,
            "target": run.target_name,
            "judge": run.judge_name,
            "suite_version": run.suite_version,
            "repetitions": run.repetitions,
            "status": run.status,
            "cases": len(self.cases),
            "executions": figures.total,
            "passed": figures.passed,
            "scored": self.scored,
            "timed": self.timed,
            "errors": self.errors,
            "reviews": self.reviews,
            "pass_rate": figures.pass_rate,
            "mean_score": figures.mean_score,
            "mean_latency_ms": figures.mean_latency_ms,
            "p95_latency_ms": self.p95_ms,
            "run_cost_usd": spelt_cost(self.run_cost_usd),
            "evaluation_cost_usd": spelt_cost(self.evaluation_cost_usd),
            "total_cost_usd": spelt_cost(self.cost_usd),
            "gates": {gate.name.lower(): gate.as_json() for gate in self.gates},
        }


@dataclass(slots=True)
class Recorded:
    """What is stored of a run's executions, in the order of the suite."""

    rows: list[Execution] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)

    def of(self, cases: Container[str]) -> Recorded:
        """Return the executions of these cases alone."""
        return Recorded(
            rows=[row for row in self.rows if row.case in cases],
            hashes={key: digest for key, digest in self.hashes.items() if key in cases},
            titles={key: title for key, title in self.titles.items() if key in cases},
            keys={result: key for result, key in self.keys.items() if key in cases},
            marks={key: marks for key, marks in self.marks.items() if key in cases},
        )


def recorded(run: Run) -> Recorded:
    """Return the executions of a run; one query."""
    found = Recorded()
    results = run.results.order_by("position", "repetition", "id").values_list(*COLUMNS)
    for result, key, digest, title, marks, *row in results:
        status, verdict, score, forced, reviewed, latency, paid, judged = row
        found.hashes[key], found.titles[key], found.keys[result] = digest, title, key
        if marks:
            found.marks.setdefault(key, []).append(marks)
        found.rows.append(
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
    return found


def side_of(run: Run, found: Recorded) -> Side:
    """Return the run by what is stored of it; its own frozen policy makes its cases' verdicts.

    A purse that no execution tells of is free where the run's own page says so, else not known; two queries then.
    Raises UnreadableSnapshotError for a run of another version.
    """
    policy = read_plan(run.snapshot).policy
    by_case: dict[str, list[Execution]] = {}
    for row in found.rows:
        by_case.setdefault(row.case, []).append(row)
    means, latencies = means_of(found.rows), latencies_of(found.rows)
    verdicts = [verdict_of(row, policy) for row in found.rows]
    evaluation = _or_free(means.evaluation_cost_usd, run)
    return Side(
        run=run,
        figures=RunSide(
            passed=sum(verdict is Verdict.PASS for verdict in verdicts),
            total=len(found.rows),
            mean_score=means.score,
            mean_latency_ms=means.latency_ms,
        ),
        scored=means.scored,
        timed=latencies.timed,
        errors=sum(
            row.is_ended and verdict is None
            for row, verdict in zip(found.rows, verdicts, strict=True)
        ),
        reviews=count_reviews(found.rows, policy),
        cost_usd=known_of_both(means.run_cost_usd, evaluation),
        run_cost_usd=means.run_cost_usd,
        evaluation_cost_usd=evaluation,
        p95_ms=latencies.latency_p95_ms,
        cases={
            key: _case(group, policy, found.marks.get(key, ())) for key, group in by_case.items()
        },
        titles=found.titles,
        keys=found.keys,
        facts=RunFacts(run.snapshot, run.repetitions, found.hashes),
    )


def _or_free(cost: Decimal | None, run: Run) -> Decimal | None:
    """Return the cost of evaluation; 0 where none was told because no judge was paid."""
    if cost is not None or run.is_active:
        return cost
    spent = purses(run).evaluation.usd
    return None if spent else spent


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
    return _case(group, policy, [row.outcome_marks for row in results if row.outcome_marks])


def spelt_cost(cost: Decimal | None) -> str | None:
    """Return US dollars as documents hold them, every digit kept; None where none was reported."""
    return None if cost is None else f"{cost:f}"


def _verdict(word: str) -> Verdict | None:
    return Verdict(word) if word else None


def _with_people(group: Sequence[Execution], policy: Policy) -> dict[str, Verdict | None]:
    """Return a case's verdict without and with what people decided, nothing where they did not."""
    if not any(row.reviewed_verdict is not None and row.is_ended for row in group):
        return {}
    counting = {
        "machine": replace(policy, count_reviews=False),
        "reviewed": replace(policy, count_reviews=True),
    }
    return {name: case_verdict(group, rules) for name, rules in counting.items()}


def _case(group: Sequence[Execution], policy: Policy, marks: Sequence[str]) -> CaseSide:
    """Return a case over its repetitions (SCORING §8), without the words that ten thousand cases do not show."""
    verdict = case_decision(group, policy, has_words=False).verdict
    verdicts = [one for row in group if (one := verdict_of(row, policy)) is not None]
    scores = [row.score for row in group if row.score is not None and row.status == SCORED]
    paid = total_of(row.run_cost_usd for row in group)
    judged = total_of(row.evaluation_cost_usd for row in group)
    return CaseSide(
        verdict=verdict,
        mean_score=mean(scores),
        state=state_of(group, verdict),
        passed=verdicts.count(Verdict.PASS),
        scored=len(verdicts),
        executions=len(group),
        is_flaky=len(set(verdicts)) > 1,
        **_with_people(group, policy),
        latency_ms=mean([row.latency_ms for row in group if row.latency_ms is not None]),
        run_cost_usd=paid,
        evaluation_cost_usd=judged,
        cost_usd=total_of((paid, judged)),
        outcomes=len(marks[0]) if marks else 0,
        outcomes_met=sum(set(column) == {MET} for column in zip(*marks, strict=False)),
    )
