"""What judging stored outputs again would cost and how long it would take, from the judge calls of their run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Avg, Count, Sum

from evaluators.model_calls.models import Prices
from evaluators.models import ZERO_USD
from evaluators.templatetags.figures import counted, money, thousands
from runs.models.results import ANSWERED, CallPurpose, ModelCall
from runs.models.runs import Run
from runs.running.judging_plan import EvaluatorPlan, JudgingPlan

NO_CALLS = "no judge call in the source to go by"


@dataclass(frozen=True, slots=True)
class JudgingEstimate:
    """What judging again would do; cost and time are None, with the reason, where the source does not tell.

    `results` of `total` chosen ones are judged, `kept` of `scores` cost nothing. `calls` is what is asked when
    no gate fails and nothing is repeated, `judges` the same by judge.
    """

    results: int
    total: int
    scores: int
    kept: int
    calls: int
    judges: tuple[tuple[str, int], ...]
    evaluators: tuple[EvaluatorPlan, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    cost_usd: Decimal | None
    duration_ms: float | None
    basis: str
    reason: str

    @property
    def text(self) -> str:
        """Say in a sentence what is kept, what is asked, and what that costs."""
        cost = "" if self.cost_usd is None else f", about {money(self.cost_usd)}"
        asked = counted(self.calls, "judge call") if self.calls else "no judge call"
        return (
            f"{thousands(self.kept)} of {counted(self.scores, 'score')} "
            f"{'is' if self.kept == 1 else 'are'} kept at no cost; {asked}{cost if self.calls else ''}."
        )


@dataclass(frozen=True, slots=True)
class _Use:
    """The mean tokens and latency of a judge call."""

    input_tokens: int
    output_tokens: int
    latency_ms: float


def estimate_judging(judging: JudgingPlan) -> JudgingEstimate:
    """Return the estimate; a call is taken to use as many tokens as the source's calls for that evaluator.

    An evaluator that the source did not ask a judge for is taken for an average one. One query.
    """
    uses, basis = _uses(judging)
    cost, reason = _cost(judging, uses)
    duration = None
    if uses or not judging.calls:
        duration = sum(
            (uses.get(path) or uses[""]).latency_ms * count
            for (path, _), count in judging.calls.items()
        )
    evaluators = judging.evaluators
    kept = sum(evaluator.kept for evaluator in evaluators)
    return JudgingEstimate(
        results=len({row.source for row in judging.results}),
        total=judging.total,
        scores=kept + sum(evaluator.judged.total() for evaluator in evaluators),
        kept=kept,
        calls=judging.calls.total(),
        judges=_judges(judging),
        evaluators=tuple(evaluators),
        left_out=tuple(judging.left_out_texts),
        warnings=tuple(judging.warnings),
        cost_usd=cost,
        duration_ms=None if duration is None else duration / judging.concurrency,
        basis=basis if judging.calls else "",
        reason=reason,
    )


def combine_estimates(estimates: Sequence[tuple[Run, JudgingEstimate]]) -> JudgingEstimate:
    """Return what judging several runs again would do in all, one after the other; texts name their run."""
    judges: Counter[str] = Counter()
    evaluators: dict[str, EvaluatorPlan] = {}
    texts: dict[str, list[str]] = {"left_out": [], "warnings": []}
    for run, estimate in estimates:
        judges.update(dict(estimate.judges))
        for name, found in texts.items():
            found += (f"Run {run}: {text}" for text in getattr(estimate, name))
        for one in estimate.evaluators:
            whole = evaluators.setdefault(one.path, EvaluatorPlan(one.path))
            whole.kept += one.kept
            whole.judged += one.judged
            whole.unscored |= one.unscored
            whole.calls += one.calls
    every = [estimate for _, estimate in estimates]
    costs, durations = [one.cost_usd for one in every], [one.duration_ms for one in every]
    unknown = (f"run {run}: {one.reason}" for run, one in estimates if one.cost_usd is None)
    return JudgingEstimate(
        results=sum(one.results for one in every),
        total=sum(one.total for one in every),
        scores=sum(one.scores for one in every),
        kept=sum(one.kept for one in every),
        calls=judges.total(),
        judges=tuple(judges.most_common()),
        evaluators=tuple(evaluators.values()),
        left_out=tuple(texts["left_out"]),
        warnings=tuple(texts["warnings"]),
        cost_usd=None if None in costs else sum((usd or ZERO_USD for usd in costs), ZERO_USD),
        duration_ms=None if None in durations else sum(ms or 0.0 for ms in durations),
        basis="from the judge calls of each run" if judges else "",
        reason=next(unknown, ""),
    )


def _uses(judging: JudgingPlan) -> tuple[Mapping[str, _Use], str]:
    """Return the means by evaluator, with that of all under "", and the basis in words; nothing without calls."""
    calls = ModelCall.objects.filter(
        run=judging.source, purpose=CallPurpose.EVALUATION, status__in=ANSWERED
    )
    rows: Any = (
        calls.order_by()
        .values_list("evaluator_path")
        .annotate(Count("id"), Sum("input_tokens"), Sum("output_tokens"), Avg("latency_ms"))
    )
    known = [row for row in rows if row[2] is not None and row[3] is not None]
    if not known:
        return {}, ""
    uses = {
        path: _Use(sent // n, received // n, ms or 0.0) for path, n, sent, received, ms in known
    }
    total = sum(row[1] for row in known)
    sent, received = (sum(row[place] for row in known) for place in (2, 3))
    latency = sum((row[4] or 0.0) * row[1] for row in known) / total
    uses[""] = _Use(sent // total, received // total, latency)
    source = f"{judging.source.suite.slug}{judging.source}"
    return uses, f"from the tokens of {counted(total, 'judge call')} of {source}"


def _cost(judging: JudgingPlan, uses: Mapping[str, _Use]) -> tuple[Decimal | None, str]:
    total = ZERO_USD
    for (path, (what, name)), count in judging.calls.items():
        model = judging.plan.models.get(name or judging.plan.judge) if what == "model" else None
        prices = Prices.from_json(model["prices"]) if model and model["prices"] else None
        if prices is None:
            judge = model["name"] if model else name
            return None, f"{judge} has no price"
        if prices.is_free:
            continue
        if not uses:
            return None, NO_CALLS
        use = uses.get(path) or uses[""]
        each = prices.cost_usd(
            input_tokens=use.input_tokens, output_tokens=use.output_tokens, cached_tokens=None
        )
        total += (each or ZERO_USD) * count
    return total, ""


def _judges(judging: JudgingPlan) -> tuple[tuple[str, int], ...]:
    """Return the names of the judges with their calls, most calls first."""
    models = judging.plan.models
    names: Counter[str] = Counter()
    for (_, (what, name)), count in judging.calls.items():
        slug = name or judging.plan.judge
        names[str(models[slug]["name"]) if what == "model" and slug in models else name] += count
    return tuple(names.most_common())
