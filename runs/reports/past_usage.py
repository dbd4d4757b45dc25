"""What past runs used, from the nearest that tell: those of this suite, of the target, of its model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from django.db.models import OuterRef, QuerySet, Subquery

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Node
from evaluators.templatetags.figures import counted
from runs.models import Result, ResultStatus, Run, RunStatus, Suite, Target
from runs.plan import judge_calls

RUNS_LOOKED_AT = 5
ENDED = (RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.BUDGET_REACHED)


@dataclass(frozen=True, slots=True)
class PastUse:
    """Runs that tell what the next one would use, newest first, and what they are of in words."""

    runs: tuple[Run, ...] = ()
    whose: str = ""

    @property
    def basis(self) -> str:
        """Say what it rests on: "from the last 3 runs of this target, 90 executions"."""
        if not self.runs:
            return ""
        which = f"{len(self.runs)} runs" if len(self.runs) > 1 else "run"
        done = counted(sum(run.done_count for run in self.runs), "execution")
        return f"from the last {which} {self.whose}, {done}"


@dataclass
class PastRuns:
    """The ended runs that can tell something of targets and judges; a handful of queries at most."""

    suite: Suite
    targets: Sequence[Target]
    judges: Collection[str]
    _trees: dict[int, Node] = field(default_factory=dict)

    def of_target(self, target: Target) -> PastUse:
        """Return the last runs of the target in this suite, else in others, else of its model."""
        model = target.model

        def is_alike(run: Run) -> bool:
            other = run.target
            return model is not None and other is not None and other.model_id == model.pk

        steps: tuple[tuple[Sequence[Run], Callable[[Run], bool], str], ...] = (
            (self.here, lambda run: run.target_id == target.pk, "of this target"),
            (self.there, lambda run: run.target_id == target.pk, "of this target in other suites"),
            ((*self.here, *self.there), is_alike, f"with the model {model.name if model else ''}"),
        )
        return _first(steps)

    @cached_property
    def judged(self) -> PastUse:
        """Return the last runs that the judges judged in this suite, else in others."""
        steps = (
            (self.here, self._is_judged, "with this judge"),
            (self._judged_there, self._is_judged, "with this judge in other suites"),
        )
        return _first(steps)

    @cached_property
    def here(self) -> Sequence[Run]:
        """Return the last ended runs of the suite."""
        return _ended(self.suite.runs.all())

    @cached_property
    def there(self) -> Sequence[Run]:
        """Return the last ended runs of other suites with one of the targets or their models."""
        ids = [target.pk for target in self.targets]
        models = [target.model_id for target in self.targets if target.model_id]
        others = Run.objects.exclude(suite=self.suite)
        return _ended(others.filter(target__in=ids) | others.filter(target__model__in=models))

    @cached_property
    def _judged_there(self) -> Sequence[Run]:
        return _ended(Run.objects.exclude(suite=self.suite).filter(judge_name__in=self.judges))

    def _is_judged(self, run: Run) -> bool:
        return run.judge_name in self.judges

    def calls_an_execution(self, run: Run, *, outcomes: Decimal) -> Decimal:
        """Return the judge calls that an execution of a run planned, with that share of cases with outcomes."""
        if not self._trees:
            kept = Run.objects.filter(pk__in=[one.pk for one in self.judged.runs])
            rows = kept.values_list("pk", "snapshot__evaluators")
            self._trees = {pk: Node.from_json(tree) for pk, tree in rows}
        return calls_of(self._trees[run.pk], outcomes)


def calls_of(root: Node, outcomes: Decimal) -> Decimal:
    """Return the judge calls of one execution, when that share of 0 to 1 has expected outcomes."""
    kinds = all_kinds()
    with_them, without = (judge_calls(root, kinds, has_outcomes=one) for one in (True, False))
    return outcomes * with_them + (1 - outcomes) * without


def _first(steps: Sequence[tuple[Sequence[Run], Callable[[Run], bool], str]]) -> PastUse:
    for runs, fits, whose in steps:
        if found := tuple(run for run in runs if fits(run))[:RUNS_LOOKED_AT]:
            return PastUse(found, whose)
    return PastUse()


def _ended(runs: QuerySet[Run]) -> Sequence[Run]:
    """Return the last ended runs, with what their first scored result cost."""
    scored = Result.objects.filter(run=OuterRef("pk"), status=ResultStatus.SCORED)
    first = scored.order_by("position", "repetition")
    return list(
        runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
        .select_related("target")
        .defer("snapshot", "summary", "leaf_scores")
        .annotate(
            first_run_cost=Subquery(first.values("run_cost_usd")[:1]),
            first_evaluation_cost=Subquery(first.values("evaluation_cost_usd")[:1]),
        )
        .order_by("-created_at", "-id")[: 10 * RUNS_LOOKED_AT]
    )
