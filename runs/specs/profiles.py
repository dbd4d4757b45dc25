"""What a suite can start from: a policy and evaluators for each scoring system (SCORING §10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import read_config
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from evaluators.scoring.types import DomainError


class UnknownProfileError(DomainError):
    """No profile has the name."""

    code = "unknown_profile"


@dataclass(frozen=True, slots=True)
class Profile:
    """A preset. Every value can be changed later; a suite does not remember its profile.

    `summary` is one sentence that helps to choose.
    """

    name: str
    label: str
    summary: str
    policy: PolicySpec
    evaluators: tuple[EvaluatorSpec, ...]

    @property
    def root(self) -> EvaluatorSpec:
        """Return the evaluators under the outermost composite, a weighted average."""
        root = EvaluatorSpec(name="suite", kind=COMPOSITE, children=self.evaluators)
        return EvaluatorSpec.model_validate(root.as_json())


def all_profiles() -> tuple[Profile, ...]:
    """Return the profiles in the order in which forms offer them."""
    return (
        Profile(
            name="verdicts",
            label="Verdicts",
            summary="A case passes at a weighted score of 0.8, and is borderline at 0.6.",
            policy=PolicySpec(),
            evaluators=(_evaluator("llm_judge"),),
        ),
        Profile(
            name="metrics",
            label="Metrics",
            summary="A judge scores eight metrics from 0 to 5. A case passes when all its expected outcomes "
            "are met.",
            policy=PolicySpec(case_gate="expected_outcomes", scale=100),
            evaluators=(_evaluator("metrics_judge", name="metrics"),),
        ),
        Profile(
            name="tasks",
            label="Tasks",
            summary="Comparisons with the expected output count three times as much as judges. Scores from 0 "
            "to 100.",
            policy=PolicySpec(scale=100),
            evaluators=(
                _evaluator("expected_output", weight=3.0, config={"match": "contains"}),
                _evaluator("llm_judge"),
            ),
        ),
        Profile(
            name="hybrid",
            label="Hybrid",
            summary="Programs check, and a judge reads their findings. Its overall score from 0 to 10 is the "
            "score.",
            policy=PolicySpec(final_score="judge_overall", scale=10),
            evaluators=(_evaluator("hybrid_judge", config={"checks": [ANSWERED]}),),
        ),
    )


def get_profile(name: str) -> Profile:
    """Return the profile; raises UnknownProfileError listing the profiles there are."""
    profiles = {profile.name: profile for profile in all_profiles()}
    if name not in profiles:
        raise UnknownProfileError(f"{name!r} is not one of {', '.join(profiles)}")
    return profiles[name]


ANSWERED = {"type": "final_response_present", "name": "answered", "dimensions": ["task"]}


def _evaluator(
    kind: str, *, name: str = "", weight: float = 1.0, config: Mapping[str, Any] | None = None
) -> EvaluatorSpec:
    settings = read_config(kind, dict(config or {})).model_dump(mode="json")
    return EvaluatorSpec(name=name or kind, kind=kind, weight=weight, config=settings)
