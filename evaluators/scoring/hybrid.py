"""Hybrid evaluation: combine deterministic checks and a judge by dimension, 0 to 10 (SCORING §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from evaluators.scoring.numbers import mean, on_scale, require_weight, weighted_mean
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError

SCALE = 10.0
DIMENSIONS = ("task", "process", "autonomy", "closeness", "efficiency", "spark")
JUDGE_ONLY, DETERMINISTIC_ONLY, WEIGHTED = "judge_only", "deterministic_only", "weighted"
POLICIES = (JUDGE_ONLY, DETERMINISTIC_ONLY, WEIGHTED)
PASSED, FAILED, ERRORED = "passed", "failed", "error"
SCHEMA_VERSION = 1


class HybridError(DomainError):
    """Checks or judge replies cannot be combined."""

    code = "invalid_hybrid"


@dataclass(frozen=True, slots=True)
class Check:
    """One deterministic check: passed, failed or error, and the dimensions it counts towards."""

    outcome: str
    dimensions: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown outcome."""
        if self.outcome not in (PASSED, FAILED, ERRORED):
            raise HybridError(
                f"check “{self.name}”: {self.outcome!r} is not passed, failed or error"
            )


@dataclass(frozen=True, slots=True)
class JudgeOpinion:
    """A judge's scores in one iteration: every dimension and overall, 0 to 10."""

    overall: float
    dimensions: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse scores outside 0 to 10."""
        on_scale(self.overall, SCALE, "overall")
        for name, score in self.dimensions.items():
            on_scale(score, SCALE, f"dimension “{name}”")


@dataclass(frozen=True, slots=True)
class DimensionPolicy:
    """The source of a dimension's final score; `judge_weight` is the judge's share if it is weighted."""

    source: str = JUDGE_ONLY
    judge_weight: float = 0.5

    def __post_init__(self) -> None:
        """Refuse unknown sources and weights outside 0 to 1."""
        if self.source not in POLICIES:
            raise HybridError(
                f"dimension policy {self.source!r} is not one of {', '.join(POLICIES)}"
            )
        if not 0.0 <= self.judge_weight <= 1.0:
            raise ScoreOutOfRangeError(f"judge_weight {self.judge_weight!r} is not from 0 to 1")


@dataclass(frozen=True, slots=True)
class FinalEvaluation:
    """The scores of checks and judge with their combination; all 0 to 10, None without a score."""

    deterministic_dimensions: Mapping[str, float]
    judge_dimensions: Mapping[str, float]
    judge_overall: JudgeOpinion | None
    final_dimensions: Mapping[str, float]
    final_score: float | None
    summary: Mapping[str, int]
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values."""
        overall = self.judge_overall
        return {
            "schema_version": SCHEMA_VERSION,
            "deterministic_dimensions": dict(self.deterministic_dimensions),
            "judge_dimensions": dict(self.judge_dimensions),
            "judge_overall": None
            if overall is None
            else {"score": overall.overall, "evidence": list(overall.evidence)},
            "final_dimensions": dict(self.final_dimensions),
            "final_score": self.final_score,
            "summary": dict(self.summary),
            "warnings": list(self.warnings),
        }


def deterministic_dimensions(checks: Sequence[Check]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the mean of the checks of every dimension, passed 10 and failed 0, and the warnings.

    A check that errored is left out with a warning; a dimension with only such checks has no score.
    """
    scores_by_dimension: dict[str, list[float]] = {}
    warnings = []
    for number, check in enumerate(checks, start=1):
        if check.outcome == ERRORED:
            name = (check.name or str(number)).removeprefix("check ")
            warnings.append(f"check {name} errored and is left out")
            continue
        for dimension in check.dimensions:
            scores_by_dimension.setdefault(dimension, []).append(
                SCALE if check.outcome == PASSED else 0.0
            )
    averages = {name: mean(scores) for name, scores in scores_by_dimension.items()}
    return {n: score for n, score in averages.items() if score is not None}, tuple(warnings)


def median_opinion(opinions: Sequence[JudgeOpinion]) -> JudgeOpinion | None:
    """Return the median of every dimension and overall over the successful iterations, if any."""
    if not opinions:
        return None
    names = dict.fromkeys(name for opinion in opinions for name in opinion.dimensions)
    return JudgeOpinion(
        overall=median(opinion.overall for opinion in opinions),
        dimensions={
            name: median(o.dimensions[name] for o in opinions if name in o.dimensions)
            for name in names
        },
        evidence=tuple(text for opinion in opinions for text in opinion.evidence),
    )


def check_counts(
    checks: Sequence[Check], *, judge_successes: int, judge_failures: int
) -> dict[str, int]:
    """Return how many checks passed, failed and errored, and how many judge iterations succeeded."""
    outcomes = [check.outcome for check in checks]
    return {
        "deterministic_passed_checks": outcomes.count(PASSED),
        "deterministic_failed_checks": outcomes.count(FAILED),
        "deterministic_error_checks": outcomes.count(ERRORED),
        "judge_successful_iterations": judge_successes,
        "judge_failed_iterations": judge_failures,
    }


def final_dimensions(
    deterministic: Mapping[str, float],
    judged: Mapping[str, float],
    policies: Mapping[str, DimensionPolicy],
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the final score of every dimension by its policy; without one it is judge_only.

    If one side has no score, the other counts alone, with a warning. Only a judge_only dimension
    has no score without the judge's.
    """
    final: dict[str, float] = {}
    warnings = []
    for name in dict.fromkeys((*judged, *(n for n in deterministic if n in policies))):
        policy = policies.get(name, DimensionPolicy())
        sides = (judged.get(name), deterministic.get(name))
        score, warning = _final_dimension(name, policy, sides)
        if score is not None:
            final[name] = score
        if warning:
            warnings.append(warning)
    return final, tuple(warnings)


def evaluate_hybrid(
    checks: Sequence[Check],
    opinions: Sequence[JudgeOpinion],
    *,
    failed_iterations: int = 0,
    policies: Mapping[str, DimensionPolicy] | None = None,
    dimension_weights: Mapping[str, float] | None = None,
) -> FinalEvaluation:
    """Return the final evaluation. Its score is the judge's overall score.

    With `dimension_weights` it is the weighted mean of the final dimensions that have a score.
    """
    deterministic, check_warnings = deterministic_dimensions(checks)
    overall = median_opinion(opinions)
    judged = {} if overall is None else dict(overall.dimensions)
    final, dimension_warnings = final_dimensions(deterministic, judged, policies or {})
    score = None if overall is None else overall.overall
    if dimension_weights is not None:
        score = _weighted_dimensions(final, dimension_weights)
    return FinalEvaluation(
        deterministic_dimensions=deterministic,
        judge_dimensions=judged,
        judge_overall=overall,
        final_dimensions=final,
        final_score=score,
        summary=check_counts(
            checks, judge_successes=len(opinions), judge_failures=failed_iterations
        ),
        warnings=(*check_warnings, *dimension_warnings),
    )


def _final_dimension(
    name: str, policy: DimensionPolicy, sides: tuple[float | None, float | None]
) -> tuple[float | None, str]:
    judge, deterministic = sides
    if policy.source == JUDGE_ONLY:
        return judge, ""
    if policy.source == DETERMINISTIC_ONLY:
        if deterministic is None:
            return judge, f"{name}: no check covers it, the judge's score counts"
        return deterministic, ""
    if deterministic is None:
        return judge, f"{name}: no check covers it, only the judge's score counts"
    if judge is None:
        return deterministic, f"{name}: the judge gave no score, only the checks count"
    part = policy.judge_weight
    return weighted_mean((judge, deterministic), (part, 1.0 - part)), ""


def _weighted_dimensions(final: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    known = {
        name: require_weight(weight, f"dimension “{name}”")
        for name, weight in weights.items()
        if name in final
    }
    return weighted_mean([final[name] for name in known], list(known.values()))
