"""Compare two runs: whole runs by tolerances, shared cases one by one (SCORING §9)."""

from __future__ import annotations

from runs.comparison._cases import (
    ADDED,
    ERROR,
    IMPROVEMENT,
    REGRESSION,
    REMOVED,
    UNCHANGED,
    CaseChange,
    CaseSide,
    by_harm,
    compare_case,
    compare_cases,
)
from runs.comparison._comparability import Difference, RunFacts, differences
from runs.comparison._evidence import FEWEST_CASES, Evidence, evidence, holm
from runs.comparison._measured import (
    DIMENSION,
    EVALUATOR,
    METRIC,
    Figure,
    Measured,
    MeasuredChange,
    MeasuredPair,
    OwnMean,
    measured_pairs,
)
from runs.comparison._paired import (
    IMPROVED,
    NO_CLEAR_CHANGE,
    REGRESSED,
    TOO_FEW_CASES,
    Paired,
    paired,
    paired_figures,
)
from runs.comparison._ranking import Standing, ranks
from runs.comparison._runs import Reason, RunComparison, RunSide, Tolerances, compare_runs
from runs.comparison._significance import Significance, shared_changes, significance

__all__ = [
    "ADDED",
    "DIMENSION",
    "ERROR",
    "EVALUATOR",
    "FEWEST_CASES",
    "IMPROVED",
    "IMPROVEMENT",
    "METRIC",
    "NO_CLEAR_CHANGE",
    "REGRESSED",
    "REGRESSION",
    "REMOVED",
    "TOO_FEW_CASES",
    "UNCHANGED",
    "CaseChange",
    "CaseSide",
    "Difference",
    "Evidence",
    "Figure",
    "Measured",
    "MeasuredChange",
    "MeasuredPair",
    "OwnMean",
    "Paired",
    "Reason",
    "RunComparison",
    "RunFacts",
    "RunSide",
    "Significance",
    "Standing",
    "Tolerances",
    "by_harm",
    "compare_case",
    "compare_cases",
    "compare_runs",
    "differences",
    "evidence",
    "holm",
    "measured_pairs",
    "paired",
    "paired_figures",
    "ranks",
    "shared_changes",
    "significance",
]
