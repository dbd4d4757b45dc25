"""The pictures of a run, of a comparison and of a suite, each read when it is first seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from urllib.parse import urlencode

from django.urls import reverse

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.intervals import bootstrap_interval
from evaluators.scoring.numbers import sum_known
from runs.charts.distributions import COST, LATENCY, CaseFigures, Side, distribution, passes, scores
from runs.charts.drawing import Picture
from runs.charts.drift import EVALUATOR_PICTURES, drift_picture
from runs.charts.queries import ChartsQuery, suite_runs, suite_trend
from runs.charts.scatter import scatter
from runs.charts.trends import PartMean, PartTrend, part_dots
from runs.engine.plan import METRICS_KIND
from runs.filters.queries import ResultsQuery
from runs.models.results import EvaluatorScore, ScoreState
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import run_word


def read_cases(run: Run) -> list[CaseFigures]:
    """Return the cases of a run with their figures; one query."""
    columns = ("case__key", "live_state", "score", "latency_ms", "passed", "ended", "executions")
    rows = run.cases.live(run).order_by("position", "case_id")
    return [
        CaseFigures(
            key=key,
            state=state,
            score=score,
            latency_ms=latency_ms,
            cost_usd=sum_known(costs),
            passes=passed if ended == executions else None,
        )
        for key, state, score, latency_ms, passed, ended, executions, *costs in rows.values_list(
            *columns, "run_cost_usd", "evaluation_cost_usd"
        )
    ]


def run_side(run: Run) -> Side:
    """Return a run with its cases; one query."""
    return Side(f"#{run.number}", read_cases(run))


def case_links(run: Run) -> Callable[[str], str]:
    """Return what gives the address of the cases of a run for a filter."""
    page = reverse("runs:run", kwargs={"slug": run.suite.slug, "number": run.number})
    return lambda text: f"{ResultsQuery(text=text).at(page)}#results-title"


def comparison_case_links(baseline: Run, candidate: Run) -> Callable[[str], str]:
    """Return what gives the address of the cases of a comparison for a filter."""
    runs = {"baseline": run_word(baseline), "candidate": run_word(candidate), "show": "all"}
    return lambda text: f"{reverse('runs:compare')}?{urlencode(runs | {'q': text})}#changes"


def compared_case(baseline: Run, candidate: Run) -> Callable[[str], str]:
    """Return what gives the address of a case of a comparison."""
    runs = {"baseline": run_word(baseline), "candidate": run_word(candidate)}
    page = reverse("runs:compare-case")
    return lambda key: f"{page}?{urlencode(runs | {'case': key})}"


def scores_picture(run: Run) -> Picture:
    """Return the scores of a run with the thresholds of its policy."""
    return distribution(
        scores(run.scale),
        run_side(run),
        policy=run.readable_policy(),
        repetitions=run.repetitions,
        address=case_links(run),
    )


def latency_picture(run: Run) -> Picture:
    """Return the latencies of a run."""
    return distribution(
        LATENCY, run_side(run), repetitions=run.repetitions, address=case_links(run)
    )


def cost_picture(run: Run) -> Picture:
    """Return the costs of a run, of target and judges."""
    return distribution(COST, run_side(run), repetitions=run.repetitions, address=case_links(run))


def repetitions_picture(run: Run) -> Picture:
    """Return how many repetitions of each case passed."""
    return distribution(passes(run.repetitions), run_side(run), address=case_links(run))


# By the name in their addresses.
RUN_PICTURES: Mapping[str, Callable[[Run], Picture]] = {
    "scores": scores_picture,
    "latency": latency_picture,
    "cost": cost_picture,
    "repetitions": repetitions_picture,
}


def compared_scores(baseline: Run, candidate: Run) -> Picture:
    """Return the scores of the candidate over those of the baseline."""
    return distribution(
        scores(candidate.scale),
        run_side(candidate),
        baseline=run_side(baseline),
        policy=candidate.readable_policy(),
        address=comparison_case_links(baseline, candidate),
    )


def compared_latency(baseline: Run, candidate: Run) -> Picture:
    """Return the latencies of the candidate over those of the baseline."""
    address = comparison_case_links(baseline, candidate)
    return distribution(LATENCY, run_side(candidate), baseline=run_side(baseline), address=address)


def compared_cost(baseline: Run, candidate: Run) -> Picture:
    """Return the costs of the candidate over those of the baseline."""
    address = comparison_case_links(baseline, candidate)
    return distribution(COST, run_side(candidate), baseline=run_side(baseline), address=address)


def compared_cases(baseline: Run, candidate: Run) -> Picture:
    """Return the scores of the candidate against those of the baseline, case by case."""
    return scatter(
        run_side(baseline),
        run_side(candidate),
        scale=candidate.scale,
        case_address=compared_case(baseline, candidate),
        address=comparison_case_links(baseline, candidate),
    )


COMPARISON_PICTURES: Mapping[str, Callable[[Run, Run], Picture]] = {
    "scatter": compared_cases,
    "scores": compared_scores,
    "latency": compared_latency,
    "cost": compared_cost,
}


def trend_picture(suite: Suite) -> Picture:
    """Return the trend of each target over the last completed runs of a suite."""
    return suite_trend(suite_runs(suite, ChartsQuery()), suite.baseline_number, "score")


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
    intervals_by_run = _part_intervals(runs)
    for run in runs:
        intervals = intervals_by_run.get(run.pk, {})
        url = reverse("runs:run", args=[suite.slug, run.number])
        for key, name, scale, mean, judged in _part_means(run):
            trends[key] = PartTrend(name, scale, means[key])
            means[key].append(
                PartMean(run.number, url, run.target_name, mean, judged, intervals.get(key))
            )
    return part_dots(list(trends.values()), runs=[run.number for run in runs])


def _part_means(run: Run) -> Iterator[tuple[Part, str, int, float, int]]:
    """Yield path and key, name, scale, mean and count of the metrics and dimensions in a run's summary."""
    summary = run.summary or {}
    for part in summary.get("metrics", ()):
        yield (part["path"], part["key"]), part["name"], METRIC_SCALE, part["mean"], part["judged"]
    for part in summary.get("dimensions", ()):
        final = part["final"]
        if final["mean"] is not None:
            key = part["path"], part["key"]
            yield key, part["name"], DIMENSION_SCALE, final["mean"], final["counted"]


def _part_intervals(runs: Sequence[Run]) -> Mapping[int, Mapping[Part, tuple[float, float]]]:
    """Return the 95% intervals of the means over cases by run, for the newest that are few enough; one query."""
    rooms = accumulate(run.execution_count for run in runs[::-1])
    small = [
        run.pk
        for run, total in zip(runs[::-1], rooms, strict=True)
        if total <= MAX_JUDGED and list(_part_means(run))
    ]
    if not small:
        return {}
    judged = EvaluatorScore.objects.filter(
        result__run__in=small, kind__in=(METRICS_KIND, HYBRID_KIND), state=ScoreState.SCORED
    )
    columns = ("result__run", "path", "result__case", "details__metrics", "details__dimensions")
    sums: dict[tuple[int, Part], dict[int, tuple[float, int]]] = defaultdict(dict)
    for run, path, case, metrics, dimensions in judged.order_by().values_list(*columns):
        scores = [(part["key"], part["score"]) for part in metrics or ()]
        scores += [(part["key"], part.get("final")) for part in dimensions or ()]
        for key, score in scores:
            if score is not None:
                by_case = sums[run, (path, key)]
                total, count = by_case.get(case, (0.0, 0))
                by_case[case] = (total + score, count + 1)
    found: dict[int, dict[Part, tuple[float, float]]] = defaultdict(dict)
    for (run, part), by_case in sums.items():
        if ends := bootstrap_interval(list(by_case.values()), seed=run):
            found[run][part] = ends
    return found


SUITE_PICTURES: Mapping[str, Callable[[Suite], Picture]] = {
    "trend": trend_picture,
    "metrics": parts_picture,
    "drift": drift_picture,
    **EVALUATOR_PICTURES,
}
