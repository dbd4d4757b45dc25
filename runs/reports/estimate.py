"""What a run would start, cost and take, from what past runs used; nothing is made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import OuterRef, QuerySet, Subquery

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import money
from runs.models import Result, ResultStatus, Run, RunStatus, Suite, Target
from runs.reports.judge_warnings import agent_warning, agents_of, family_warning
from runs.reports.planned_calls import planned_judge_calls

RUNS_LOOKED_AT = 5
ENDED = (RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.BUDGET_REACHED)
NO_RUN = "no finished run of this suite with this target yet"
NO_JUDGE_RUN = "no finished run of this suite with this judge yet"
NO_PRICE = "the model has no price"


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """What one run would cost: each purse None with the reason where past runs do not tell."""

    name: str
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    duration_ms: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the form as it stands would start; sums are None when a part is unknown."""

    runs: int
    cases: int
    repetitions: int
    executions: int
    judge_calls: int
    targets: tuple[TargetEstimate, ...]
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    duration_ms: float | None
    basis: str
    warnings: tuple[str, ...]
    button: str


@dataclass(frozen=True, slots=True)
class Order:
    """What the form asks for, as far as it is filled in."""

    suite: Suite
    targets: Sequence[Target]
    cases: int
    with_outcomes: int
    repetitions: int
    concurrency: int
    judge: LanguageModel | None
    budget_usd: Decimal | None
    tags: Sequence[str] = ()


def estimate(order: Order) -> Estimate:
    """Return what the order would start, cost and take, with the runs that this rests on."""
    executions = order.cases * order.repetitions
    past = list(_past_runs(order.suite))
    agents = agents_of(order.suite)
    calls = planned_judge_calls(
        order.suite, cases=order.cases, with_outcomes=order.with_outcomes, tags=order.tags
    )
    parts = tuple(
        _of_target(order, target, past, executions, agents, asks_judge=calls > 0)
        for target in order.targets
    )
    totals = [_sum(part.run_usd for part in parts), _sum(part.evaluation_usd for part in parts)]
    total = _sum(totals) if parts else None
    # Runs started together share the judge's and the machine's time; they go on side by side.
    spans = [part.duration_ms for part in parts]
    return Estimate(
        runs=len(parts),
        cases=order.cases,
        repetitions=order.repetitions,
        executions=executions * len(parts),
        judge_calls=calls * order.repetitions * len(parts),
        targets=parts,
        run_usd=totals[0] if parts else None,
        evaluation_usd=totals[1] if parts else None,
        total_usd=total,
        duration_ms=max(span for span in spans if span) if spans and all(spans) else None,
        basis=_basis(past, order.targets),
        warnings=tuple(
            warning
            for warning in (
                family_warning(order.judge, order.targets),
                agent_warning(agents, order.targets),
                _budget_warning(order, parts),
            )
            if warning
        ),
        button=_button(len(parts), total),
    )


def _past_runs(suite: Suite) -> QuerySet[Run]:
    """Return the suite's last ended runs, with what their first scored result cost."""
    scored = Result.objects.filter(run=OuterRef("pk"), status=ResultStatus.SCORED)
    first = scored.order_by("position", "repetition")
    return (
        suite.runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
        .defer("snapshot", "leaf_scores")
        .annotate(
            first_run_cost=Subquery(first.values("run_cost_usd")[:1]),
            first_evaluation_cost=Subquery(first.values("evaluation_cost_usd")[:1]),
        )
        .order_by("-number")[: 10 * RUNS_LOOKED_AT]
    )


def _of_target(
    order: Order,
    target: Target,
    past: Sequence[Run],
    executions: int,
    agents: Mapping[str, Sequence[str]],
    *,
    asks_judge: bool,
) -> TargetEstimate:
    own = [run for run in past if run.target_id == target.pk][:RUNS_LOOKED_AT]
    names = {order.judge.name, order.judge.slug} if order.judge else set()
    if agents:
        # A run that asks no judge besides is named after them.
        names.add(", ".join(sorted(agents)))
    judged = [run for run in past if run.judge_name in names][:RUNS_LOOKED_AT]
    run_usd, why_run = _mean_cost(own, "run", executions, NO_RUN)
    evaluation_usd, why_evaluation = _mean_cost(judged, "evaluation", executions, NO_JUDGE_RUN)
    if not asks_judge:
        evaluation_usd, why_evaluation = Decimal(0), ""
    return TargetEstimate(
        name=target.name,
        run_usd=run_usd,
        evaluation_usd=evaluation_usd,
        total_usd=_sum((run_usd, evaluation_usd)),
        duration_ms=_duration(own, executions, order.concurrency),
        reason="; ".join(dict.fromkeys(filter(None, (why_run, why_evaluation)))),
    )


def _mean_cost(
    runs: Sequence[Run], purse: str, executions: int, no_run: str
) -> tuple[Decimal | None, str]:
    if not runs:
        return None, no_run
    known = [run for run in runs if _knows_cost(run, purse)]
    if not known:
        return None, NO_PRICE
    spent = sum((getattr(run, f"{purse}_cost_usd") for run in known), Decimal(0))
    return spent / sum(run.done_count for run in known) * executions, ""


def _knows_cost(run: Run, purse: str) -> bool:
    """Tell whether a run's purse had a price; what costs nothing has one of 0."""
    first = getattr(run, f"first_{purse}_cost")
    return first is not None or getattr(run, f"{purse}_cost_usd") > 0


def _duration(runs: Sequence[Run], executions: int, concurrency: int) -> float | None:
    """Return milliseconds: the hands' time an execution took, shared by as many hands as asked for."""
    timed = [
        (worked_ms, run)
        for run in runs
        if run.finished_at and (worked_ms := run.worked_ms(now=run.finished_at))
    ]
    if not timed:
        return None
    busy_ms = sum(worked_ms * min(run.concurrency, run.done_count) for worked_ms, run in timed)
    each_ms = busy_ms / sum(run.done_count for _, run in timed)
    hands = max(min(concurrency, executions), 1)
    return each_ms * executions / hands


def _basis(past: Sequence[Run], targets: Sequence[Target]) -> str:
    chosen = {target.pk for target in targets}
    runs = [run.number for run in past if run.target_id in chosen][:RUNS_LOOKED_AT]
    if not runs:
        return ""
    if len(runs) == 1:
        return f"from run #{runs[0]}"
    return f"from {len(runs)} runs, #{min(runs)} to #{max(runs)}"


def _budget_warning(order: Order, parts: Sequence[TargetEstimate]) -> str:
    known = [part.total_usd for part in parts if part.total_usd is not None]
    if order.budget_usd is None or not known or max(known) <= order.budget_usd:
        return ""
    return (
        f"The budget is below the estimate of {money(max(known))} a run. The run would stop early."
    )


def _button(runs: int, total: Decimal | None) -> str:
    start = f"Start {runs} runs" if runs > 1 else "Start run"
    return start if total is None or not runs else f"{start}, about {money(total)}"


def _sum(parts: Iterable[Decimal | None]) -> Decimal | None:
    known = list(parts)
    if any(part is None for part in known):
        return None
    return sum((part for part in known if part is not None), Decimal(0))
