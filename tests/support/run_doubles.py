"""Kinds, ports and trees for tests of the engine: no database, no network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts, Context, Judge, Kind, KindConfig, Output
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome
from runs.engine.ports import Execution, TargetFailure

ANSWER = Output("an answer")
Behaviour = Callable[[Context], Awaitable[Outcome]]


class AnyConfig(KindConfig):
    """A setting that may be invalid, and the settings of composites."""

    limit: int = 1
    aggregator: Any = None


def make_kind(name: str, behave: Behaviour, **facts: Any) -> Kind:
    async def score(config: AnyConfig, context: Context) -> Outcome:
        return await behave(context)

    shown = {"label": name, "icon": "e-text", "manual": name, **facts}
    return Kind(name=name, config=AnyConfig, score=score, **shown)


@dataclass
class FakePorts:
    """Ports that answer at once and record the calls in order."""

    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    output: Output | TargetFailure | Exception = ANSWER
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    asked: int = 0
    sandbox: None = None

    @property
    def kinds(self) -> Mapping[str, Kind]:
        fakes = {
            name: make_kind(name, self._noting(behave), **self.facts.get(name, {}))
            for name, behave in self.behaviours.items()
        }
        return {"composite": all_kinds()["composite"], **fakes}

    def _noting(self, behave: Behaviour) -> Behaviour:
        async def noted(context: Context) -> Outcome:
            self.ran.append(context.path)
            return await behave(context)

        return noted

    async def answer(self) -> Output | TargetFailure:
        self.asked += 1
        if isinstance(self.output, Exception):
            raise self.output
        return self.output

    def judge(self, path: str) -> Judge | None:
        return None

    def target_as_judge(self, path: str, name: str) -> Judge | None:
        return None


def leaf(name: str, kind: str = "", **facts: Any) -> EvaluatorSpec:
    return EvaluatorSpec(name=name, kind=kind or name, **facts)


def composite(name: str, *children: EvaluatorSpec, **aggregator: Any) -> EvaluatorSpec:
    return EvaluatorSpec(
        name=name, kind="composite", config={"aggregator": aggregator}, children=children
    )


def make_execution(
    root: EvaluatorSpec, *, policy: PolicySpec | None = None, **facts: Any
) -> Execution:
    case = CaseFacts(key="C-1", input=(), expected_outcomes=facts.pop("expected_outcomes", ()))
    return Execution(case=case, root=root, rules=Rules(root, policy or PolicySpec()), **facts)


class Failing:
    """A function that raises these errors, one for each call, then returns; `heard` are its arguments."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.heard: list[bool] = []

    def __call__(self, is_repeated: bool = False, **kwargs: Any) -> str:
        self.heard.append(is_repeated)
        if self.errors:
            raise self.errors.pop(0)
        return "done"
