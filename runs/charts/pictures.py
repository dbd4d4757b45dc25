"""The pictures of a run, of a comparison and of a suite, each read when it is first seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode

from django.urls import reverse

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.intervals import bootstrap_interval
from evaluators.scoring.numbers import sum_known
from runs.charts.distributions import COST, LATENCY, CaseFigures, Side, distribution, scores
from runs.charts.drawing import Picture
from runs.charts.queries import ChartsQuery, suite_runs
from runs.charts.scatter import scatter
from runs.charts.trends import PartMean, PartTrend, TrendRun, part_dots, target_trends
from runs.engine.plan import METRICS_KIND
from runs.filters.queries import ResultsQuery
from runs.models.results import EvaluatorScore, ScoreState
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import run_word


def read_cases(run: Run) -> list[CaseFigures]:
    """Return the cases of a run with their figures; one query."""
    columns = ("case__key", "live_state", "score", "latency_ms", "run_cost_usd")
    rows = run.cases.live(run).order_by("position", "case_id")
    return [
        CaseFigures(key, state, score, latency, sum_known([paid, judged]))
        for key, state, score, latency, paid, judged in rows.values_list(
            *columns, "evaluation_cost_usd"
        )
    ]


def run_side(run: Run) -> Side:
    """Return a run with its cases; one query."""
    return Side(f"#{run.number}", read_cases(run))


def listed(run: Run) -> Callable[[str], str]:
    """Return what gives the address of the cases of a run for a filter."""
    page = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number})
    return lambda text: f"{ResultsQuery(text=text).at(page)}#results-title"


def listed_in_comparison(baseline: Run, candidate: Run) -> Callable[[str], str]:
    """Return what gives the address of the cases of a comparison for a filter."""
    runs = {"baseline": run_word(baseline), "candidate": run_word(candidate), "show": "all"}
    return lambda text: f"{reverse('runs:compare')}?{urlencode(runs | {'q': text})}#changes"


def scores_picture(run: Run) -> Picture:
    """Return the scores of a run with the thresholds of its policy."""
    return distribution(
        scores(run.scale),
        run_side(run),
        policy=run.readable_policy(),
        repetitions=run.repetitions,
        address=listed(run),
    )


def latency_picture(run: Run) -> Picture:
    """Return the latencies of a run."""
    return distribution(LATENCY, run_side(run), repetitions=run.repetitions, address=listed(run))


def cost_picture(run: Run) -> Picture:
    """Return the costs of a run, of target and judges."""
    return distribution(COST, run_side(run), repetitions=run.repetitions, address=listed(run))


# By the name in their addresses.
RUN_PICTURES: Mapping[str, Callable[[Run], Picture]] = {
    "scores": scores_picture,
    "latency": latency_picture,
    "cost": cost_picture,
}


def compared_scores(baseline: Run, candidate: Run) -> Picture:
    """Return the scores of the candidate over those of the baseline."""
    return distribution(
        scores(candidate.scale),
        run_side(candidate),
        baseline=run_side(baseline),
        policy=candidate.readable_policy(),
        address=listed_in_comparison(baseline, candidate),
    )


def compared_latency(baseline: Run, candidate: Run) -> Picture:
    """Return the latencies of the candidate over those of the baseline."""
    address = listed_in_comparison(baseline, candidate)
    return distribution(LATENCY, run_side(candidate), baseline=run_side(baseline), address=address)


def compared_cost(baseline: Run, candidate: Run) -> Picture:
    """Return the costs of the candidate over those of the baseline."""
    address = listed_in_comparison(baseline, candidate)
    return distribution(COST, run_side(candidate), baseline=run_side(baseline), address=address)


def compared_cases(baseline: Run, candidate: Run) -> Picture:
    """Return the scores of the candidate against those of the baseline, case by case."""
    runs = {"baseline": run_word(baseline), "candidate": run_word(candidate)}
    case_page = reverse("runs:compare-case")
    return scatter(
        run_side(baseline),
        run_side(candidate),
        scale=candidate.scale,
        case_address=lambda key: f"{case_page}?{urlencode(runs | {'case': key})}",
        address=listed_in_comparison(baseline, candidate),
    )


COMPARISON_PICTURES: Mapping[str, Callable[[Run, Run], Picture]] = {
    "scatter": compared_cases,
    "scores": compared_scores,
    "latency": compared_latency,
    "cost": compared_cost,
}


def trend_picture(suite: Suite) -> Picture:
    """Return the trend of each target over the last completed runs of a suite."""
    runs = suite_runs(suite, ChartsQuery())
    return target_trends(
        [
            TrendRun(
                number=run.number,
                url=run.url,
                target=run.target,
                suite_version=run.suite_version,
                score=run.metrics_gate.share,
                interval=run.score_interval,
                rate=run.cases_gate.share,
                is_below=run.metrics_gate.state == "failed",
                counts=run.counts,
            )
            for run in runs
        ],
        limit=runs[-1].metrics_gate.limit if runs else None,
    )


# More dots would hide each other; for larger runs no interval is computed.
MAX_DOTS = 6
MAX_JUDGED = 20_000
METRIC_SCALE, DIMENSION_SCALE = 5, 10
Part = tuple[str, str]


def parts_picture(suite: Suite) -> Picture:
    """Return the means of metrics and dimensions in the last completed runs."""
    completed = suite.runs.filter(status=RunStatus.COMPLETED, source_run=None)
    light = completed.select_related("suite").defer("snapshot", "leaf_scores")
    runs = list(light.order_by("-number")[:MAX_DOTS])[::-1]
    trends: dict[Part, PartTrend] = {}
    means: dict[Part, list[PartMean]] = defaultdict(list)
    for run in runs:
        intervals = _part_intervals(run) if run is runs[-1] else {}
        url = reverse("runs:run", args=[suite.slug, run.number])
        for key, name, scale, mean, judged in _part_means(run):
            trends[key] = PartTrend(name, scale, means[key])
            means[key].append(
                PartMean(run.number, url, run.target_name, mean, judged, intervals.get(key))
            )
    return part_dots(list(trends.values()), runs=len(runs))


def _part_means(run: Run) -> Iterator[tuple[Part, str, int, float, int]]:
    """Yield path and key, name, scale, mean and count of the metrics and dimensions in a run's summary."""
    summary = run.summary or {}
    for one in summary.get("metrics", ()):
        yield (one["path"], one["key"]), one["name"], METRIC_SCALE, one["mean"], one["judged"]
    for one in summary.get("dimensions", ()):
        final = one["final"]
        if final["mean"] is not None:
            key = one["path"], one["key"]
            yield key, one["name"], DIMENSION_SCALE, final["mean"], final["counted"]


def _part_intervals(run: Run) -> Mapping[Part, tuple[float, float]]:
    """Return the 95% intervals of the means of a run over its cases; one query."""
    if run.execution_count > MAX_JUDGED or not list(_part_means(run)):
        return {}
    judged = EvaluatorScore.objects.filter(
        result__run=run, kind__in=(METRICS_KIND, HYBRID_KIND), state=ScoreState.SCORED
    )
    columns = ("path", "result__case", "details__metrics", "details__dimensions")
    sums: dict[Part, dict[int, tuple[float, int]]] = defaultdict(dict)
    for path, case, metrics, dimensions in judged.order_by().values_list(*columns):
        scores = [(one["key"], one["score"]) for one in metrics or ()]
        scores += [(one["key"], one.get("final")) for one in dimensions or ()]
        for key, score in scores:
            if score is not None:
                total, count = sums[path, key].get(case, (0.0, 0))
                sums[path, key][case] = (total + score, count + 1)
    found = {
        part: bootstrap_interval(list(by_case.values()), seed=run.pk)
        for part, by_case in sums.items()
    }
    return {part: ends for part, ends in found.items() if ends}


SUITE_PICTURES: Mapping[str, Callable[[Suite], Picture]] = {
    "trend": trend_picture,
    "metrics": parts_picture,
}
