"""One run in numbers. Pure: values in, values out."""

from __future__ import annotations

from runs.summary.brief import Brief, brief
from runs.summary.cases import distribution_of, mean_by_name, means_of, state_of, summarise_case
from runs.summary.dimensions import DimensionMean, SideMean, dimension_means, finals_by_key
from runs.summary.figures import (
    CaseSummary,
    Execution,
    GateResult,
    Means,
    Summary,
    shares,
    total_of,
)
from runs.summary.metrics import MetricMean, means_by_key, metric_means
from runs.summary.outlook import Outlook, Progress, cases_outlook, metrics_outlook
from runs.summary.repetitions import (
    Latencies,
    RepetitionFigures,
    latencies_of,
    rank_of,
    repetitions_of,
)
from runs.summary.run import summarise
from runs.summary.verdicts import (
    BY_FORCE,
    CaseDecision,
    case_decision,
    case_verdict,
    count_reviews,
    verdict_of,
)

__all__ = [
    "BY_FORCE",
    "Brief",
    "CaseDecision",
    "CaseSummary",
    "DimensionMean",
    "Execution",
    "GateResult",
    "Latencies",
    "Means",
    "MetricMean",
    "Outlook",
    "Progress",
    "RepetitionFigures",
    "SideMean",
    "Summary",
    "brief",
    "case_decision",
    "case_verdict",
    "cases_outlook",
    "count_reviews",
    "dimension_means",
    "distribution_of",
    "finals_by_key",
    "latencies_of",
    "mean_by_name",
    "means_by_key",
    "means_of",
    "metric_means",
    "metrics_outlook",
    "rank_of",
    "repetitions_of",
    "shares",
    "state_of",
    "summarise",
    "summarise_case",
    "total_of",
    "verdict_of",
]
