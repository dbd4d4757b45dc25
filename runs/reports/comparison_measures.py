"""The headline of a comparison: pass rate, mean score, latency and cost, each with its limit and what the cases say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from evaluators.templatetags.figures import counted, delta, duration, money, pct, plain, points
from runs.comparison import Paired
from runs.reports.compared import Compared
from runs.reports.comparison_conclusion import p_words
from runs.reports.comparison_sides import Side

TONES = {"regressed": "bad", "improved": "good"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of both runs: its change, whether its tolerance is kept, and what the cases say."""

    name: str
    change: float | Decimal | None
    unit: str
    before: str
    after: str
    note: str
    limit: str
    state: str
    tone: str
    said: Sequence[str]


def headline_measures(found: Compared) -> tuple[Measure, ...]:
    """Return the four figures, each run's own over all its executions (SCORING §9)."""
    limits, said = found.tolerances, found.evidence
    before, after, runs = found.baseline.figures, found.candidate.figures, found.runs
    slower = runs.latency_change_pct
    broken = {one.measure for one in runs.reasons}
    latency = before.mean_latency_ms, after.mean_latency_ms
    sides = found.baseline, found.candidate
    return (
        Measure(
            "Pass rate",
            runs.pass_rate_change,
            "pts",
            pct(before.pass_rate),
            pct(after.pass_rate),
            f"{before.passed} of {before.total} → {after.passed} of {after.total} executions"
            f"{_with_reviews(sides)}",
            _drop(limits.max_pass_rate_drop),
            _kept("pass rate", broken, runs.pass_rate_change),
            TONES.get(said.pass_rate.change, ""),
            _said(said.pass_rate),
        ),
        Measure(
            "Mean score",
            runs.score_change,
            "pts",
            pct(before.mean_score),
            pct(after.mean_score),
            _of("with a score", [(side.scored, side.figures.total) for side in sides]),
            _drop(limits.max_avg_score_drop),
            _kept("mean score", broken, runs.score_change),
            TONES.get(said.mean_score.change, ""),
            _said(said.mean_score),
        ),
        Measure(
            "Latency, mean",
            None if slower is None else slower / 100,
            "pct",
            duration(latency[0]),
            duration(latency[1]),
            _of("with a latency", [(side.timed, side.figures.total) for side in sides]),
            f"Limit: +{plain(limits.max_latency_increase_pct)}%",
            _kept("mean latency", broken, slower),
            "",
            (f"p95 {duration(sides[0].p95_ms)} → {duration(sides[1].p95_ms)}",),
        ),
        _cost(found.baseline, found.candidate),
    )


def _with_reviews(sides: Sequence[Side]) -> str:
    """Say how many decisions of people the figures of both runs count, "" where neither counts any."""
    if not any(side.reviews for side in sides):
        return ""
    return f", with {sides[0].reviews} → {counted(sides[1].reviews, 'review')}"


def _cost(before: Side, after: Side) -> Measure:
    was, now = before.cost_usd, after.cost_usd
    return Measure(
        "Total cost",
        now / was - 1 if was and now is not None else None,
        "pct",
        money(was),
        money(now),
        "",
        "No limit",
        "",
        "",
        (
            f"Run {money(before.run_cost_usd)} → {money(after.run_cost_usd)}",
            f"Evaluation {money(before.evaluation_cost_usd)} → {money(after.evaluation_cost_usd)}",
        ),
    )


def _of(words: str, counts: Sequence[tuple[int, int]]) -> str:
    """Say how many executions a figure counts on both sides; nothing where it counts all."""
    if all(count == total for count, total in counts):
        return ""
    (was, before), (now, after) = counts
    return f"{was} of {before} → {now} of {after} executions {words}"


def _drop(limit: float) -> str:
    return f"Limit: drop of {points(limit)}" if limit else "Limit: no drop"


def _kept(measure: str, broken: set[str], change: float | None) -> str:
    if change is None:
        return ""
    return "fail" if measure in broken else "pass"


def _said(one: Paired) -> Sequence[str]:
    """Return the interval over the shared cases, the p, and the least change they can show."""
    if one.mean is None or one.low is None or one.high is None:
        return ("No shared case has a verdict on both sides",)
    interval = f"{_signed(one.mean)} over shared cases, 95% CI {_signed(one.low)} to {_signed(one.high)} pts"
    tested = f", {p_words(one.p)}" if one.p is not None else ""
    told = [f"{interval}{tested}, n = {one.cases}"]
    if one.smallest is not None:
        told.append(f"Smallest change that shows at 80% power: {_in_points(one.smallest)}")
    elif one.p is None:
        told.append("Too few cases to tell a change from chance")
    return told


def _signed(share: float) -> str:
    return delta(share, "pts").removesuffix("\u00a0pts")


def _in_points(share: float) -> str:
    """Spell a size in points with one decimal: `4.2 pts`."""
    return f"{share * 100:.1f}\u00a0pts"
