"""What was decided on one output, why, and what would have changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.scoring.types import OutcomeResult, Verdict

FORCING_RULES = ("required", "safety_gate", "all_or_nothing", "threshold")


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What one evaluator of the tree came to.

    `state` is scored, unscored or skipped; `score` is after negation, 0 to 1; `verdict` is the
    node's own, by the bands or by its own rule. `weight` is what it weighs in its parent, `share`
    the part of the final score it decides (0 to 1). `forced_fail` says in words why its own rule
    or its being required failed it. `note` tells why there is no score.
    """

    path: str
    name: str
    kind: str
    state: str
    score: float | None = None
    verdict: Verdict | None = None
    weight: float = 1.0
    share: float = 0.0
    forced_fail: str | None = None
    arithmetic: str = ""
    note: str = ""
    on_deciding_path: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "path": self.path,
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "score": self.score,
            "verdict": None if self.verdict is None else self.verdict.value,
            "weight": self.weight,
            "share": self.share,
            "forced_fail": self.forced_fail,
            "arithmetic": self.arithmetic,
            "note": self.note,
            "on_deciding_path": self.on_deciding_path,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> NodeResult:
        """Return what as_json wrote."""
        return cls(**{**values, "verdict": _verdict(values["verdict"])})


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step on the way to the verdict; `passed` is None where nothing was tested."""

    text: str
    path: str | None = None
    passed: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"text": self.text, "path": self.path, "passed": self.passed}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TraceStep:
        """Return what as_json wrote."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Flip:
    """The smallest change that reaches the next verdict (SCORING §4.5).

    With a `path`: that evaluator's score would have to rise from `from_score` to `to_score`, all
    else kept. With `outcomes`: those expected outcomes are still missed. With neither no single
    score can do it. `verdict` is the one reached.
    """

    text: str
    path: str | None = None
    from_score: float | None = None
    to_score: float | None = None
    verdict: Verdict | None = None
    outcomes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "text": self.text,
            "path": self.path,
            "from_score": self.from_score,
            "to_score": self.to_score,
            "verdict": None if self.verdict is None else self.verdict.value,
            "outcomes": list(self.outcomes),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Flip:
        """Return what as_json wrote."""
        changed = {
            "verdict": _verdict(values["verdict"]),
            "outcomes": tuple(values["outcomes"]),
        }
        return cls(**{**values, **changed})


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict of one result with everything that led to it (SCORING §4).

    `status` is scored or error; an error has neither verdict nor score. `score` is the final
    score, 0 to 1, to 9 decimals; None beside a verdict when only the outcomes could be judged.
    `decided_by` fits a table cell, `rule` is the machine's word for it, `evaluator` the path of
    the node that decided. `nodes` holds every node by path in tree order.
    """

    status: str
    verdict: Verdict | None = None
    score: float | None = None
    decided_by: str = ""
    rule: str = ""
    evaluator: str | None = None
    trace: tuple[TraceStep, ...] = ()
    flip: Flip | None = None
    nodes: Mapping[str, NodeResult] = field(default_factory=dict)
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    outcomes: tuple[OutcomeResult, ...] = ()

    @property
    def passed(self) -> bool:
        """Tell whether the verdict is pass; there is no second pass."""
        return self.verdict is Verdict.PASS

    @property
    def is_forced(self) -> bool:
        """Tell whether a rule forced the fail whatever the score was (SCORING §8)."""
        return self.verdict is Verdict.FAIL and self.rule in FORCING_RULES

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "status": self.status,
            "verdict": None if self.verdict is None else self.verdict.value,
            "score": self.score,
            "decided_by": self.decided_by,
            "rule": self.rule,
            "evaluator": self.evaluator,
            "trace": [step.as_json() for step in self.trace],
            "flip": None if self.flip is None else self.flip.as_json(),
            "nodes": [node.as_json() for node in self.nodes.values()],
            "hits": list(self.hits),
            "misses": list(self.misses),
            "warnings": list(self.warnings),
            "error": self.error,
            "outcomes": [
                {"text": o.text, "passed": o.passed, "justification": o.justification}
                for o in self.outcomes
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Decision:
        """Return what as_json wrote."""
        nodes = (NodeResult.from_json(node) for node in values["nodes"])
        changed = {
            "verdict": _verdict(values["verdict"]),
            "trace": tuple(TraceStep.from_json(step) for step in values["trace"]),
            "flip": None if values["flip"] is None else Flip.from_json(values["flip"]),
            "nodes": {node.path: node for node in nodes},
            "hits": tuple(values["hits"]),
            "misses": tuple(values["misses"]),
            "warnings": tuple(values["warnings"]),
            "outcomes": tuple(OutcomeResult(**outcome) for outcome in values["outcomes"]),
        }
        return cls(**{**values, **changed})


def _verdict(word: str | None) -> Verdict | None:
    return None if word is None else Verdict(word)
