"""How long the executions of a run took and how many tokens they used, failed and repeated calls included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Avg, Count, Sum

from runs.models import CallPurpose, Run
from runs.summary import Latencies, Means, Summary, rank_of

TOKENS = ("input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens in and out; None where nobody reported any."""

    input: int | None
    output: int | None

    @property
    def is_known(self) -> bool:
        """Tell whether anybody reported any."""
        return self.input is not None or self.output is not None


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Mean, median and 95th percentile of the latencies of `timed` of `executions`, in milliseconds."""

    executions: int
    timed: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    target: Tokens
    judges: Tokens


def usage_of_run(run: Run) -> RunUsage:
    """Return the usage of a run so far: of an ended one as it was summed up, else in four queries."""
    if run.summary and "timed" in run.summary:
        summary = Summary.from_json(run.summary)
        latencies = Latencies(summary.timed, summary.latency_p50_ms, summary.latency_p95_ms)
        return _usage(run, summary.means, latencies)
    means, timed = _means(run)
    return _usage(
        run, means, Latencies(timed, *(_rank(run, share, timed) for share in (0.5, 0.95)))
    )


def _usage(run: Run, means: Means, latencies: Latencies) -> RunUsage:
    return RunUsage(
        executions=run.execution_count,
        timed=latencies.timed,
        mean_ms=means.latency_ms,
        p50_ms=latencies.latency_p50_ms,
        p95_ms=latencies.latency_p95_ms,
        target=Tokens(means.input_tokens, means.output_tokens),
        judges=Tokens(means.evaluation_input_tokens, means.evaluation_output_tokens),
    )


def _means(run: Run) -> tuple[Means, int]:
    results = run.results.order_by().aggregate(
        mean=Avg("latency_ms"), timed=Count("latency_ms"), **_sums()
    )
    calls: Any = run.model_calls.order_by().values("purpose").annotate(**_sums())
    paid: dict[str, Mapping[str, Any]] = {row["purpose"]: row for row in calls}
    nothing: Mapping[str, Any] = dict.fromkeys(_sums())
    judges = paid.get(CallPurpose.EVALUATION, nothing)
    target = paid.get(CallPurpose.TARGET, nothing)
    if not run.snapshot["target"]["model"] or not any(target[name] for name in _sums()):
        target = results
    means = Means(
        latency_ms=results["mean"],
        input_tokens=target["input_tokens_sum"],
        output_tokens=target["output_tokens_sum"],
        evaluation_input_tokens=judges["input_tokens_sum"],
        evaluation_output_tokens=judges["output_tokens_sum"],
    )
    return means, results["timed"]


def _sums() -> dict[str, Sum]:
    return {f"{name}_sum": Sum(name) for name in TOKENS}


def _rank(run: Run, share: float, timed: int) -> float | None:
    """Return the nearest rank of the latencies as the summary has it."""
    place = rank_of(share, timed)
    known = run.results.exclude(latency_ms=None).order_by("latency_ms")
    return known.values_list("latency_ms", flat=True)[place : place + 1].first() if timed else None
