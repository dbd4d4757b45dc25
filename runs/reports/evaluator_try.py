"""What one evaluator of a draft can be tried on, and what is known of a try before it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Node, walk
from evaluators.templatetags.figures import age
from runs.models import (
    ACTIVE_RUN_STATUSES,
    Case,
    EvaluatorTrial,
    Result,
    ResultStatus,
    Run,
    RunStatus,
    Suite,
    VerdictChoice,
)
from runs.plan import agent_paths, judge_calls, judge_models, script_paths

MOST_RUNS = 30
MOST_CASES = 200
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class RunChoice:
    """A run whose outputs can be scored."""

    number: int
    label: str


@dataclass(frozen=True, slots=True)
class TryPage:
    """One evaluator: what it asks, what it needs, and what the form begins with.

    `calls` is how many calls of judges a try makes at most, repairs and tries after failures apart.
    `lacks` names what no output can bring, such as a judge nobody has chosen.
    """

    name: str
    path: str
    kind_label: str
    kind_icon: str
    calls: int
    models: Sequence[str]
    agents: Sequence[str]
    scripts: int
    needs: Sequence[str]
    lacks: Sequence[str]
    runs: tuple[RunChoice, ...]
    cases: Sequence[tuple[str, str]]

    @property
    def costs(self) -> bool:
        """Tell whether trying it asks or starts anything."""
        return bool(self.calls or self.scripts)


def try_page(suite: Suite, path: str, node: Mapping[str, Any], *, judge: str) -> TryPage:
    """Return the page of an evaluator of a draft whose judge has this slug; "" for none."""
    root, kinds = Node.from_json(node), all_kinds()
    kind = kinds.get(root.kind)
    models = judge_models(root, kinds, default=judge)
    cases = Case.objects.filter(suite=suite, is_current=True).values_list("key", "title")
    return TryPage(
        name=root.name,
        path=path,
        kind_label=kind.label if kind else root.kind,
        kind_icon=kind.icon if kind else "e-composite",
        calls=judge_calls(root, kinds, has_outcomes=False),
        models=sorted(models - {""}),
        agents=sorted(set(agent_paths(root, kinds).values())),
        scripts=len(script_paths(root, kinds)),
        needs=tuple(_needs(root)),
        lacks=("a judge: choose one under Settings",) if "" in models else (),
        runs=runs_offered(suite),
        cases=tuple(cases[:MOST_CASES]),
    )


def runs_offered(suite: Suite) -> tuple[RunChoice, ...]:
    """Return the runs of a suite that are over, newest first."""
    runs = Run.objects.filter(suite=suite).exclude(status__in=ACTIVE_RUN_STATUSES)
    rows = runs.order_by("-number").only("number", "target_name", "created_at")[:MOST_RUNS]
    now = timezone.now()
    return tuple(
        RunChoice(run.number, f"#{run.number}, {run.target_name}, {age(run.created_at, now)}")
        for run in rows
    )


def choice_to_begin_with(suite: Suite, last: EvaluatorTrial | None) -> dict[str, Any]:
    """Return what the form begins with: what was tried last, else the latest run's first borderline result.

    Without one that is borderline its first that was scored; without any the suite's first case.
    """
    if last is not None:
        return _again(last)
    result = _first_worth_trying(suite)
    if result is not None:
        facts = {"run": str(result.run.number), "repetition": result.repetition}
        return {"source": "stored", "case": result.case.key, **facts}
    case = Case.objects.filter(suite=suite, is_current=True).values_list("key", flat=True).first()
    return {"source": "pasted", "case": case or ""}


def _again(last: EvaluatorTrial) -> dict[str, Any]:
    found: dict[str, Any] = {"case": last.case.key}
    if last.result is not None:
        facts = {"run": str(last.result.run.number), "repetition": last.result.repetition}
        return {**found, "source": "stored", **facts}
    pasted = last.pasted or {}
    found |= {"source": "pasted", "output": pasted.get("output", "")}
    return {**found, "trace": _spelled(pasted["trace"])} if "trace" in pasted else found


def _spelled(trace: Any) -> str:
    return json.dumps(trace, ensure_ascii=False, indent=1)


def _first_worth_trying(suite: Suite) -> Result | None:
    run = (
        Run.objects.filter(suite=suite, status=RunStatus.COMPLETED)
        .order_by("-number")
        .only("pk")
        .first()
    )
    if run is None:
        return None
    results = Result.objects.filter(run=run, status=ResultStatus.SCORED, output__isnull=False)
    ordered = results.select_related("run", "case").order_by("position", "repetition", "id")
    return ordered.filter(verdict=VerdictChoice.BORDERLINE).first() or ordered.first()


def _needs(root: Node) -> Iterator[str]:
    """Yield what evaluators below need, each with who needs it."""
    kinds, by_need = all_kinds(), dict[str, list[str]]()
    for path, node in walk(root):
        for need in kinds[node.kind].needs if node.kind in kinds else ():
            by_need.setdefault(need, []).append(path or node.name)
    for need, paths in by_need.items():
        yield f"{need} ({', '.join(paths[:MOST_NAMED])}{' …' if len(paths) > MOST_NAMED else ''})"
