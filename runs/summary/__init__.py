"""One run in numbers. Pure: values in, values out."""

from __future__ import annotations

from runs.summary.cases import (
    case_verdict,
    distribution_of,
    mean_by_name,
    means_of,
    summarise_case,
    verdict_of,
)
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
from runs.summary.run import summarise

__all__ = [
    "CaseSummary",
    "Execution",
    "GateResult",
    "Means",
    "MetricMean",
    "Outlook",
    "Progress",
    "Summary",
    "case_verdict",
    "cases_outlook",
    "distribution_of",
    "mean_by_name",
    "means_by_key",
    "means_of",
    "metric_means",
    "metrics_outlook",
    "shares",
    "summarise",
    "summarise_case",
    "total_of",
    "verdict_of",
]
