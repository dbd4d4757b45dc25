"""What a run would start, cost and take, from what past runs used; nothing is made up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.scoring.tree import Node
from evaluators.templatetags.figures import money
from runs.models import Suite, Target
from runs.reports.estimated_costs import Cost, cost, duration_of
from runs.reports.judge_warnings import agent_warning, agents_of, family_warning
from runs.reports.past_usage import PastRuns, calls_of
from runs.reports.planned_calls import Judges, planned_judge_calls
from runs.reports.recorded_cases import recorded_counts, recorded_warning
from runs.reports.unscorable_cases import unscorable_warnings
from runs.targets import target_kinds

NO_RUN = "no finished run of this target or its model yet"
NO_OUTPUT = "no output recorded"
NO_JUDGE_RUN = "no finished run with this judge yet"


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """What one run would cost: each purse None with the reason where past runs do not tell.

    `basis` says which past runs the target's cost and time rest on, "" for none.
    """

    name: str
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None
    duration_ms: float | None
    basis: str
    reason: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the form as it stands would start; sums are None when a part is unknown.

    `judges` are the names of who judges with the calls they are asked at most; `target_calls` the
    executions that ask a target, recorded outputs ask none. `low_usd` and `high_usd` are None where
    all past runs cost the same to a cent.
    """

    runs: int
    cases: int
    repetitions: int
    executions: int
    target_calls: int
    judge_calls: int
    judges: tuple[tuple[str, int], ...]
    targets: tuple[TargetEstimate, ...]
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None
    duration_ms: float | None
    done_at: datetime | None
    basis: str
    judge_basis: str
    warnings: tuple[str, ...]
    over_budget: str
    button: str


@dataclass(frozen=True, slots=True)
class Order:
    """What the form asks for, as far as it is filled in; `root` is the tree the run is scored by.

    With `tags` the cases are those that have one of them, with `keys` those that are named.
    """

    suite: Suite
    root: Node
    targets: Sequence[Target]
    cases: int
    with_outcomes: int
    repetitions: int
    concurrency: int
    judge: LanguageModel | None
    budget_usd: Decimal | None
    tags: Collection[str] = ()
    keys: Collection[str] | None = None

    @property
    def executions(self) -> int:
        """Return the executions of one run."""
        return self.cases * self.repetitions

    @property
    def outcomes(self) -> Decimal:
        """Return the share of the cases that have expected outcomes."""
        return Decimal(self.with_outcomes) / max(self.cases, 1)


def estimate(order: Order) -> Estimate:
    """Return what the order would start, cost and take, with the runs that this rests on."""
    agents = agents_of(order.suite)
    asked = planned_judge_calls(
        order.suite,
        order.root,
        cases=order.cases,
        with_outcomes=order.with_outcomes,
        tags=order.tags,
        keys=order.keys,
    )
    past = PastRuns(order.suite, order.targets, _judge_names(order, list(agents)))
    recorded = recorded_counts(order.suite, order.targets, tags=order.tags, keys=order.keys)
    parts = tuple(
        _of_target(order, target, past, recorded.get(target.pk), is_judged=bool(asked))
        for target in order.targets
    )
    run_usd, evaluation_usd = (
        _sum([getattr(part, name) for part in parts]) for name in ("run_usd", "evaluation_usd")
    )
    total = _sum([run_usd, evaluation_usd])
    low, high = (_sum([getattr(part, name) for part in parts]) for name in ("low_usd", "high_usd"))
    is_range = money(low) != money(high)
    # Runs started together share the judge's and the machine's time; they go on side by side.
    spans = [part.duration_ms for part in parts]
    duration_ms = max(span for span in spans if span) if spans and all(spans) else None
    judges = _judges(order, asked, order.repetitions * len(parts))
    return Estimate(
        runs=len(parts),
        cases=order.cases,
        repetitions=order.repetitions,
        executions=order.executions * len(parts),
        target_calls=order.executions * sum(_is_asked(target) for target in order.targets),
        judge_calls=sum(calls for _, calls in judges),
        judges=judges,
        targets=parts,
        run_usd=run_usd,
        evaluation_usd=evaluation_usd,
        total_usd=total,
        low_usd=low if is_range else None,
        high_usd=high if is_range else None,
        duration_ms=duration_ms,
        done_at=None
        if duration_ms is None
        else timezone.localtime() + timedelta(milliseconds=duration_ms),
        basis=_basis(parts),
        judge_basis=past.judged.basis if asked and parts else "",
        warnings=tuple(
            warning
            for warning in (
                *(
                    recorded_warning(one.name, recorded[one.pk], order.cases)
                    for one in order.targets
                    if one.pk in recorded
                ),
                *unscorable_warnings(order.suite, order.root, tags=order.tags, keys=order.keys),
                family_warning(order.judge, order.targets),
                agent_warning(agents, order.targets),
            )
            if warning
        ),
        over_budget=_over_budget(order, parts),
        button=_button(len(parts), total),
    )


def _judge_names(order: Order, agents: Sequence[str]) -> set[str]:
    names = {order.judge.name, order.judge.slug} if order.judge else set()
    # A run that asks no judge besides is named after them.
    return names | ({", ".join(sorted(agents))} if agents else set())


def _judges(order: Order, asked: Judges, times: int) -> tuple[tuple[str, int], ...]:
    """Return the names of the judges with all their calls, the one asked most first."""
    named = [slug for kind, slug in asked if kind == "model" and slug]
    names = dict(LanguageModel.objects.filter(slug__in=named).values_list("slug", "name"))
    found: dict[str, int] = {}
    for (kind, who), calls in asked.items():
        usual = order.judge.name if order.judge else "no judge chosen yet"
        name = who if kind == "agent" else names.get(who, who or usual)
        found[name] = found.get(name, 0) + calls * times
    return tuple(sorted(found.items(), key=lambda one: -one[1])) if times else ()


def _is_asked(target: Target) -> bool:
    kind = target_kinds().get(target.kind)
    return kind is None or not kind.replays


def _of_target(
    order: Order, target: Target, past: PastRuns, recorded: int | None, *, is_judged: bool
) -> TargetEstimate:
    """Return what one run would cost; cases that a recorded target has no output for cost nothing."""
    own = past.of_target(target)
    executions = order.executions if recorded is None else recorded * order.repetitions
    run = cost(own.runs, "run", {run.pk: run.done_count for run in own.runs}, executions)
    evaluation = Cost(Decimal(0), Decimal(0), Decimal(0))
    if order.executions and not executions:
        run = evaluation = Cost(None, reason=NO_OUTPUT)
    elif is_judged:
        evaluation = _evaluation(order, past, executions)
    if not own.runs and executions:
        run = Cost(None, reason=NO_RUN)
    return TargetEstimate(
        name=target.name,
        run_usd=run.usd,
        evaluation_usd=evaluation.usd,
        total_usd=_sum([run.usd, evaluation.usd]),
        low_usd=_sum([run.low, evaluation.low]),
        high_usd=_sum([run.high, evaluation.high]),
        duration_ms=duration_of(own.runs, executions, order.concurrency) if executions else None,
        basis=own.basis,
        reason="; ".join(dict.fromkeys(filter(None, (run.reason, evaluation.reason)))),
    )


def _evaluation(order: Order, past: PastRuns, executions: int) -> Cost:
    """Return what judging so many executions would cost: past runs tell what a planned call comes to."""
    planned = {
        run.pk: run.done_count * past.calls_an_execution(run, outcomes=order.outcomes)
        for run in past.judged.runs
    }
    runs = [run for run in past.judged.runs if planned[run.pk]]
    if not runs:
        return Cost(None, reason=NO_JUDGE_RUN)
    wanted = calls_of(order.root, order.outcomes) * executions
    return cost(runs, "evaluation", planned, wanted)


def _basis(parts: Sequence[TargetEstimate]) -> str:
    """Say what the whole rests on; of several targets each says its own."""
    if len(parts) == 1:
        return parts[0].basis
    return "from past runs, named below" if any(part.basis for part in parts) else ""


def _over_budget(order: Order, parts: Sequence[TargetEstimate]) -> str:
    # Recorded outputs were paid before the run: its budget holds the other purse alone.
    counted = (
        part.total_usd if _is_asked(target) else part.evaluation_usd
        for target, part in zip(order.targets, parts, strict=True)
    )
    known = [usd for usd in counted if usd is not None]
    if order.budget_usd is None or not known or max(known) <= order.budget_usd:
        return ""
    return (
        f"The budget is below the estimate of {money(max(known))} a run. The run would stop early."
    )


def _button(runs: int, total: Decimal | None) -> str:
    start = f"Start {runs} runs" if runs > 1 else "Start run"
    return start if total is None or not runs else f"{start}, about {money(total)}"


def _sum(parts: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum, None when a part is unknown or there is none."""
    known = list(parts)
    if not known or any(part is None for part in known):
        return None
    return sum((part for part in known if part is not None), Decimal(0))
