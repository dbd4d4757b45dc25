"""Trees and outcomes in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, Score, Unscored


def leaf(name: str, weight: float = 1.0, **options: Any) -> EvaluatorSpec:
    return EvaluatorSpec(name=name, kind=options.pop("kind", "llm_judge"), weight=weight, **options)


def composite(
    name: str, *children: EvaluatorSpec, rule: str = "weighted_average", **options: Any
) -> EvaluatorSpec:
    own = ("weight", "required", "required_below", "negate")
    node = {
        key: options.pop(key)
        for key in own
        if key in options and not isinstance(options[key], tuple)
    }
    return EvaluatorSpec(
        name=name,
        kind="composite",
        config={"aggregator": {"type": rule, **options}},
        children=children,
        **node,
    )


def root(*children: EvaluatorSpec, rule: str = "weighted_average", **options: Any) -> EvaluatorSpec:
    return composite("root", *children, rule=rule, **options)


def scores(
    values: Mapping[str, float | None] | None = None, **by_name: float | None
) -> dict[str, Outcome]:
    """Return a score for every number and Unscored for every None."""
    return {
        path: Unscored(f"{path} timed out", "judge") if value is None else Score(value)
        for path, value in {**(values or {}), **by_name}.items()
    }
