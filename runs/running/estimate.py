"""What a run would cost and how long it would take, judged by past runs, and warnings before it starts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, reduce
from operator import or_
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts
from evaluators.models import LanguageModel
from evaluators.scoring.numbers import quote_names
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.templatetags.figures import counted, money
from runs.engine.plan import agent_paths, judge_calls, planned_calls_by_judge, tree_of_case
from runs.models.results import Result, ResultStatus
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.target_kinds import target_kinds


def family_warning(judge: LanguageModel | None, targets: Iterable[Target]) -> str:
    """Point out targets of the judge's own model family; "" when there are none."""
    if judge is None:
        return ""
    family = model_family(judge.model_id)
    alike = [t.name for t in targets if t.model and model_family(t.model.model_id) == family]
    if not alike:
        return ""
    return (
        f"The judge is of the same family as target {', '.join(alike)}. "
        "Judges tend to favour their own family."
    )


def agent_warning(agents: Mapping[str, Sequence[str]], targets: Iterable[Target]) -> str:
    """Point out targets that would judge themselves or their own model family; "" when there are none.

    `agents` are the targets that judge, by name, with the evaluators that ask them.
    """
    own = [
        f"Target {t.name} would judge its own answers, asked by {quote_names(agents[t.name])}."
        for t in targets
        if t.name in agents
    ]
    if own:
        return " ".join([*own, "Agents tend to favour what they wrote."])
    named = Target.objects.filter(name__in=agents).select_related("model") if agents else ()
    judges = [one.model for one in named if one.model is not None]
    return next((said for one in judges if (said := family_warning(one, targets))), "")


def agents_that_judge(suite: Suite) -> dict[str, list[str]]:
    """Return by name the targets that judge, with the paths of the evaluators that ask them."""
    root = suite.spec.evaluators
    trees = [root]
    asking = [name for name, kind in all_kinds().items() if kind.asked_targets]
    # Trees of cases may be many and long: only those that can hold such an evaluator are read.
    written = suite.cases.annotate(written=Cast("evaluators", TextField()))
    named = reduce(or_, (Q(written__contains=name) for name in asking))
    own = written.filter(named, is_current=True, evaluators__isnull=False)
    for evaluators, append in own.values_list("evaluators", "evaluators_append"):
        trees.append(tree_of_case(root, evaluators, append=append))
    found: dict[str, list[str]] = {}
    for tree in trees:
        for path, name in agent_paths(tree, all_kinds()).items():
            if path not in found.setdefault(name, []):
                found[name].append(path)
    return found


def model_family(model_id: str) -> str:
    """Return the family a model's id begins with: `gpt` of `openai/gpt-4o-mini`."""
    name = model_id.rpartition("/")[2].lower()
    found = re.match(r"[a-z]+", name)
    return found.group() if found else name


def recorded_counts(
    suite: Suite,
    targets: Sequence[Target],
    *,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> Mapping[int, int]:
    """Return by target's id the current cases with an output; only targets that replay are in it.

    With `tags` only cases with one of them count, with `keys` only those named. A target with
    uploads has those alone, one without has what stands with the cases.
    """
    kinds = target_kinds()
    replaying = [one.pk for one in targets if one.kind in kinds and kinds[one.kind].replays]
    if not replaying:
        return {}
    wanted, with_output = _cases(suite, tags, keys)
    uploads = RecordedOutput.objects.filter(target__in=replaying)
    uploading = set(uploads.order_by().values_list("target", flat=True).distinct())
    counts = {pk: 0 if pk in uploading else with_output for pk in replaying}
    if uploading:
        current = Case.objects.filter(suite=suite, is_current=True).values("key")
        hits = uploads.filter(case_key__in=current)
        for pk, key in hits.values_list("target", "case_key").distinct():
            counts[pk] += key in wanted
    return counts


def _cases(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> tuple[set[str], int]:
    rows = (
        Case.objects.filter(suite=suite, is_current=True)
        .order_by()
        .annotate(has_output=Q(recorded_output__isnull=False))
        .values_list("key", "tags", "has_output")
    )
    named = None if keys is None else set(keys)
    found = {
        key: has_output
        for key, own, has_output in rows
        if (not tags or set(tags) & set(own)) and (named is None or key in named)
    }
    return set(found), sum(found.values())


def recorded_warning(target: str, recorded: int, cases: int) -> str:
    """Return what becomes of the cases without an output, "" where all have one or none is chosen."""
    if recorded >= cases:
        return ""
    if not recorded:
        return (
            f"Target {target} has no recorded output for any of the {cases} cases, so it cannot be "
            "started. Upload outputs whose ids are keys of these cases."
        )
    return (
        f"Target {target} has recorded outputs for {recorded} of {cases} cases. The other "
        f"{cases - recorded} will be errors; the estimate leaves them out."
    )


MAX_NAMED = 4
# What stands for a text or a list that is there: what it says does not matter here.
THERE = "there"


def unscorable_warnings(
    suite: Suite,
    root: EvaluatorSpec,
    *,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each evaluator that lacks what it scores by, with n of N cases.

    `root` is the tree the run is scored by. With `tags` the cases are those that have one of them,
    with `keys` those that are named.
    """
    lacking: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    # Cases are mostly alike in this: each sort is looked at once.
    for (written, append, *has), count in _sorts(suite, tags, keys).items():
        tree = root if written is None else tree_of_case(root, json.loads(written), append=append)
        for path, lack in _leaves(tree, _facts(*has)):
            asked[path] += count
            if lack:
                lacking[path, lack] += count
    sentences = [
        f"Evaluator {path} has nothing to score by in {count} of {asked[path]} cases: "
        f"{'they have' if count > 1 else 'it has'} no {lack}. There it will be an error."
        for (path, lack), count in lacking.most_common()
    ]
    more = len(sentences) - MAX_NAMED
    return (
        *sentences[:MAX_NAMED],
        *([f"The same holds for {more} more evaluators."] if more > 0 else ()),
    )


def _leaves(tree: EvaluatorSpec, case: CaseFacts) -> Iterator[tuple[str, str]]:
    kinds = all_kinds()
    for path, node in walk(tree):
        if node.is_composite or node.kind not in kinds:
            continue
        lacks = kinds[node.kind].lacks
        yield path or node.name, lacks(node.config, case) if lacks is not None else ""


def _facts(has_criteria: bool, has_output: bool, has_outcomes: bool) -> CaseFacts:
    return CaseFacts(
        key="",
        input=(),
        criteria=THERE if has_criteria else "",
        expected_output=THERE if has_output else "",
        expected_outcomes=(THERE,) if has_outcomes else (),
    )


def _sorts(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> Counter[tuple[Any, ...]]:
    rows = (
        suite.cases.filter(is_current=True)
        .order_by()
        .annotate(
            written=Cast("evaluators", TextField()),
            has_criteria=Q(criteria__gt=""),
            has_output=Q(expected_output__gt=""),
        )
        .values_list(
            *("key", "tags", "written", "evaluators_append"),
            *("has_criteria", "has_output", "expected_outcomes"),
        )
    )
    wanted, named = set(tags), None if keys is None else set(keys)
    return Counter(
        (written, append, has_criteria, has_output, bool(outcomes))
        for key, own, written, append, has_criteria, has_output, outcomes in rows
        if (not wanted or wanted & set(own)) and (named is None or key in named)
    )


NO_PRICE = "the model has no price"


@dataclass(frozen=True, slots=True)
class EstimatedCost:
    """What a run would cost for the target or its judges: None with the reason where past runs do not tell.

    `low` and `high` are what the cheapest and the dearest of these runs would come to.
    """

    usd: Decimal | None
    low: Decimal | None = None
    high: Decimal | None = None
    reason: str = ""


def cost(
    runs: Sequence[Run], whose: str, amounts: Mapping[int, Decimal | int], wanted: Decimal | int
) -> EstimatedCost:
    """Return what as much as is wanted costs at the price of past runs, which used these amounts."""
    known = [run for run in runs if _knows_cost(run, whose)]
    if not known:
        return EstimatedCost(None, reason=NO_PRICE)
    spent = {run.pk: getattr(run, f"{whose}_cost_usd") for run in known}
    each = [spent[run.pk] * wanted / amounts[run.pk] for run in known]
    mean = sum(spent.values(), Decimal(0)) * wanted / sum(amounts[run.pk] for run in known)
    return EstimatedCost(mean, min(each), max(each))


def _knows_cost(run: Run, whose: str) -> bool:
    """Tell whether the run's calls had a price; what is free has a price of 0."""
    first = getattr(run, f"first_{whose}_cost")
    return first is not None or getattr(run, f"{whose}_cost_usd") > 0


def expected_duration_ms(runs: Sequence[Run], executions: int, concurrency: int) -> float | None:
    """Return milliseconds: the time of one execution, shared by so many at once."""
    timed = [
        (worked_ms, run)
        for run in runs
        if run.finished_at and (worked_ms := run.worked_ms(now=run.finished_at))
    ]
    if not timed:
        return None
    busy_ms = sum(worked_ms * min(run.concurrency, run.done_count) for worked_ms, run in timed)
    each_ms = busy_ms / sum(run.done_count for _, run in timed)
    run_workers = max(min(concurrency, executions), 1)
    return each_ms * executions / run_workers


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
    _trees: dict[int, EvaluatorSpec] = field(default_factory=dict)

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
            self._trees = {pk: EvaluatorSpec.model_validate(tree) for pk, tree in rows}
        return judge_calls_per_execution(self._trees[run.pk], outcomes)


def judge_calls_per_execution(root: EvaluatorSpec, outcomes: Decimal) -> Decimal:
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


Judges = Counter[tuple[str, str]]


def planned_judge_calls(
    suite: Suite,
    root: EvaluatorSpec,
    *,
    cases: int,
    with_outcomes: int,
    tags: Collection[str] = (),
    keys: Collection[str] | None = None,
) -> Judges:
    """Return by judge, as planned_calls_by_judge names it, the calls of one repetition when no gate fails.

    `root` is the tree the run is scored by. Of so many cases `with_outcomes` have expected outcomes.
    With `tags` the cases are those that have one of them, with `keys` those that are named.
    """
    kinds, found = all_kinds(), Judges()
    # Trees of many cases are mostly the same few: each is read once.
    for (written, append, has_outcomes), count in _own_trees(suite, tags, keys).items():
        tree = tree_of_case(root, json.loads(written), append=append)
        _add(found, planned_calls_by_judge(tree, kinds, has_outcomes=has_outcomes), count)
        cases, with_outcomes = cases - count, with_outcomes - count * has_outcomes
    _add(found, planned_calls_by_judge(root, kinds, has_outcomes=True), with_outcomes)
    _add(found, planned_calls_by_judge(root, kinds, has_outcomes=False), cases - with_outcomes)
    return +found


def _add(found: Judges, planned_calls: Judges, count: int) -> None:
    for judge, calls in planned_calls.items():
        found[judge] += calls * count


def _own_trees(
    suite: Suite, tags: Collection[str], keys: Collection[str] | None
) -> Counter[tuple[str, bool, bool]]:
    """Return the cases' own trees as they are written, with how they join and whether outcomes are expected."""
    own = suite.cases.filter(is_current=True, evaluators__isnull=False)
    rows = own.annotate(written=Cast("evaluators", TextField())).values_list(
        "key", "tags", "written", "evaluators_append", "expected_outcomes"
    )
    wanted, named = set(tags), None if keys is None else set(keys)
    return Counter(
        (written, append, bool(outcomes))
        for key, has, written, append, outcomes in rows
        if (not wanted or wanted & set(has)) and (named is None or key in named)
    )


NO_RUN = "no finished run of this target or its model yet"
NO_OUTPUT = "no output recorded"
NO_JUDGE_RUN = "no finished run with this judge yet"


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """What one run would cost: target and judge cost, each None with the reason where past runs do not tell.

    `basis` says which past runs the target's cost and time rest on, "" for none.
    """

    name: str
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None
    duration_ms: float | None
    basis: str
    reason: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the form as it stands would start; sums are None when a part is unknown.

    `judges` are the names of the judges with the most calls they may get; `target_calls` the
    executions that ask a target, recorded outputs ask none. `low_usd` and `high_usd` are None where
    all past runs cost the same to a cent.
    """

    runs: int
    cases: int
    repetitions: int
    executions: int
    target_calls: int
    judge_calls: int
    judges: tuple[tuple[str, int], ...]
    targets: tuple[TargetEstimate, ...]
    run_usd: Decimal | None
    evaluation_usd: Decimal | None
    total_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None
    duration_ms: float | None
    done_at: datetime | None
    basis: str
    judge_basis: str
    warnings: tuple[str, ...]
    over_budget: str
    button: str


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What the form asks to start, as far as it is filled in; `root` is the tree the run is scored by.

    With `tags` the cases are those that have one of them, with `keys` those that are named.
    """

    suite: Suite
    root: EvaluatorSpec
    targets: Sequence[Target]
    cases: int
    with_outcomes: int
    repetitions: int
    concurrency: int
    judge: LanguageModel | None
    budget_usd: Decimal | None
    tags: Collection[str] = ()
    keys: Collection[str] | None = None

    @property
    def executions(self) -> int:
        """Return the executions of one run."""
        return self.cases * self.repetitions

    @property
    def outcomes(self) -> Decimal:
        """Return the share of the cases that have expected outcomes."""
        return Decimal(self.with_outcomes) / max(self.cases, 1)


def estimate(request: EstimateRequest) -> Estimate:
    """Return what the order would start, cost and take, with the runs that this rests on."""
    agents = agents_that_judge(request.suite)
    planned_calls = planned_judge_calls(
        request.suite,
        request.root,
        cases=request.cases,
        with_outcomes=request.with_outcomes,
        tags=request.tags,
        keys=request.keys,
    )
    past = PastRuns(request.suite, request.targets, _judge_names(request, list(agents)))
    recorded = recorded_counts(request.suite, request.targets, tags=request.tags, keys=request.keys)
    parts = tuple(
        _estimate_target(
            request, target, past, recorded.get(target.pk), is_judged=bool(planned_calls)
        )
        for target in request.targets
    )
    run_usd, evaluation_usd = (
        _sum([getattr(part, name) for part in parts]) for name in ("run_usd", "evaluation_usd")
    )
    total = _sum([run_usd, evaluation_usd])
    low, high = (_sum([getattr(part, name) for part in parts]) for name in ("low_usd", "high_usd"))
    is_range = money(low) != money(high)
    # Runs started together share the judge's and the machine's time; they go on side by side.
    spans = [part.duration_ms for part in parts]
    duration_ms = max(span for span in spans if span) if spans and all(spans) else None
    judges = _named_judges(request, planned_calls, request.repetitions * len(parts))
    return Estimate(
        runs=len(parts),
        cases=request.cases,
        repetitions=request.repetitions,
        executions=request.executions * len(parts),
        target_calls=request.executions * sum(_asks_target(target) for target in request.targets),
        judge_calls=sum(calls for _, calls in judges),
        judges=judges,
        targets=parts,
        run_usd=run_usd,
        evaluation_usd=evaluation_usd,
        total_usd=total,
        low_usd=low if is_range else None,
        high_usd=high if is_range else None,
        duration_ms=duration_ms,
        done_at=None
        if duration_ms is None
        else timezone.localtime() + timedelta(milliseconds=duration_ms),
        basis=_basis(parts),
        judge_basis=past.judged.basis if planned_calls and parts else "",
        warnings=tuple(
            warning
            for warning in (
                *(
                    recorded_warning(one.name, recorded[one.pk], request.cases)
                    for one in request.targets
                    if one.pk in recorded
                ),
                *unscorable_warnings(
                    request.suite, request.root, tags=request.tags, keys=request.keys
                ),
                family_warning(request.judge, request.targets),
                agent_warning(agents, request.targets),
            )
            if warning
        ),
        over_budget=_over_budget(request, parts),
        button=_button(len(parts), total),
    )


def _judge_names(request: EstimateRequest, agents: Sequence[str]) -> set[str]:
    names = {request.judge.name, request.judge.slug} if request.judge else set()
    # A run that asks no judge besides is named after them.
    return names | ({", ".join(sorted(agents))} if agents else set())


def _named_judges(
    request: EstimateRequest, planned_calls: Judges, times: int
) -> tuple[tuple[str, int], ...]:
    """Return the names of the judges with all their calls, the one with the most calls first."""
    named = [slug for kind, slug in planned_calls if kind == "model" and slug]
    names = dict(LanguageModel.objects.filter(slug__in=named).values_list("slug", "name"))
    found: dict[str, int] = {}
    for (kind, who), calls in planned_calls.items():
        usual = request.judge.name if request.judge else "no judge chosen yet"
        name = who if kind == "agent" else names.get(who, who or usual)
        found[name] = found.get(name, 0) + calls * times
    return tuple(sorted(found.items(), key=lambda one: -one[1])) if times else ()


def _asks_target(target: Target) -> bool:
    kind = target_kinds().get(target.kind)
    return kind is None or not kind.replays


def _estimate_target(
    request: EstimateRequest,
    target: Target,
    past: PastRuns,
    recorded: int | None,
    *,
    is_judged: bool,
) -> TargetEstimate:
    """Return what one run would cost; cases that a recorded target has no output for cost nothing."""
    own = past.of_target(target)
    executions = request.executions if recorded is None else recorded * request.repetitions
    run = cost(own.runs, "run", {run.pk: run.done_count for run in own.runs}, executions)
    evaluation = EstimatedCost(Decimal(0), Decimal(0), Decimal(0))
    if request.executions and not executions:
        run = evaluation = EstimatedCost(None, reason=NO_OUTPUT)
    elif is_judged:
        evaluation = _evaluation(request, past, executions)
    if not own.runs and executions:
        run = EstimatedCost(None, reason=NO_RUN)
    return TargetEstimate(
        name=target.name,
        run_usd=run.usd,
        evaluation_usd=evaluation.usd,
        total_usd=_sum([run.usd, evaluation.usd]),
        low_usd=_sum([run.low, evaluation.low]),
        high_usd=_sum([run.high, evaluation.high]),
        duration_ms=expected_duration_ms(own.runs, executions, request.concurrency)
        if executions
        else None,
        basis=own.basis,
        reason="; ".join(dict.fromkeys(filter(None, (run.reason, evaluation.reason)))),
    )


def _evaluation(request: EstimateRequest, past: PastRuns, executions: int) -> EstimatedCost:
    """Return what judging so many executions would cost: past runs tell what a planned call comes to."""
    planned = {
        run.pk: run.done_count * past.calls_an_execution(run, outcomes=request.outcomes)
        for run in past.judged.runs
    }
    runs = [run for run in past.judged.runs if planned[run.pk]]
    if not runs:
        return EstimatedCost(None, reason=NO_JUDGE_RUN)
    wanted = judge_calls_per_execution(request.root, request.outcomes) * executions
    return cost(runs, "evaluation", planned, wanted)


def _basis(parts: Sequence[TargetEstimate]) -> str:
    """Say what the whole rests on; of several targets each says its own."""
    if len(parts) == 1:
        return parts[0].basis
    return "from past runs, named below" if any(part.basis for part in parts) else ""


def _over_budget(request: EstimateRequest, parts: Sequence[TargetEstimate]) -> str:
    # Recorded outputs were paid before the run: its budget counts the cost of judges alone.
    counted = (
        part.total_usd if _asks_target(target) else part.evaluation_usd
        for target, part in zip(request.targets, parts, strict=True)
    )
    known = [usd for usd in counted if usd is not None]
    if request.budget_usd is None or not known or max(known) <= request.budget_usd:
        return ""
    return (
        f"The budget is below the estimate of {money(max(known))} a run. The run would stop early."
    )


def _button(runs: int, total: Decimal | None) -> str:
    start = f"Start {runs} runs" if runs > 1 else "Start run"
    return start if total is None or not runs else f"{start}, about {money(total)}"


def _sum(parts: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum, None when a part is unknown or there is none."""
    known = list(parts)
    if not known or any(part is None for part in known):
        return None
    return sum((part for part in known if part is not None), Decimal(0))
