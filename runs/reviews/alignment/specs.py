"""What an alignment was asked for, frozen when it starts, and what came of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.reviews.alignment.rules import PeopleDecision


class Frozen(BaseModel):
    """The base of what is stored with a job."""

    model_config = ConfigDict(frozen=True)

    def as_json(self) -> dict[str, Any]:
        """Return the form that is stored."""
        return self.model_dump(mode="json")


class AlignmentSpec(Frozen):
    """One alignment: the evaluator at `path` as version `version` of the suite has it, with its text in `setting`.

    `node` has the text itself where the suite has the name of a file, `written` what the suite has. `judge` is the slug
    of the suite's judge. The writer sees the results in `shown`, which are among those of its half; `held_out` decides,
    by `scores` of today's instructions as far as they are known.
    """

    path: str
    setting: str
    written: str
    version: int
    node: EvaluatorSpec
    policy: PolicySpec
    judge: str
    candidates: int
    seed: str
    seen: tuple[PeopleDecision, ...]
    shown: tuple[int, ...]
    held_out: tuple[PeopleDecision, ...]
    scores: dict[int, float]

    @property
    def text(self) -> str:
        """Return today's instructions."""
        return str(self.node.config.get(self.setting) or "")

    def node_with(self, text: str) -> EvaluatorSpec:
        """Return the evaluator with other instructions."""
        return self.node.replace(config={**self.node.config, self.setting: text})


class HeldOutOpinion(Frozen):
    """What instructions gave a held-out result: a score, 0 to 1, and its verdict, or why there is none."""

    score: float | None = None
    verdict: str = ""
    reason: str = ""


class Candidate(Frozen):
    """Instructions that the writer proposed, and how it explains them."""

    text: str
    reason: str = ""


class AlignmentOutcome(Frozen):
    """The candidates, why others were left out, and by number of the candidate, 0 for today, opinions by result."""

    candidates: tuple[Candidate, ...] = ()
    left_out: tuple[str, ...] = ()
    opinions: dict[int, dict[int, HeldOutOpinion]] = {}
