"""Estimate the cost and time of a run from past runs, and warn before it starts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any

from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._base import CaseFacts
from evaluators.kinds._judging import named_agents
from evaluators.models import LanguageModel
from evaluators.scoring.numbers import quote_names
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.templatetags.figures import counted, money, thousands
from runs.engine.plan import (
    BASELINE,
    baseline_paths,
    case_tree,
    judge_calls,
    planned_calls_by_judge,
)
from runs.models.database import among
from runs.models.results import ComparedOutput, Result, ResultStatus
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.running.baselines import NO_BASELINE, BaselineOutputs, no_baseline_text
from runs.target_kinds import target_kinds


def family_warning(judge: LanguageModel | None, targets: Iterable[Target]) -> str:
    """Return a warning about targets of the judge's model family, "" without any."""
    if judge is None:
        return ""
    family = model_family(judge.model_id)
    alike = [t.name for t in targets if t.model and model_family(t.model.model_id) == family]
    if not alike:
        return ""
    return (
        f"The judge uses the same model family as target {', '.join(alike)}. "
        "Judges tend to favour their own family."
    )


def agent_warning(agents: Mapping[str, Sequence[str]], targets: Iterable[Target]) -> str:
    """Return a warning about targets that would judge themselves or their model family, "" without any.

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
    warnings = (family_warning(agent.model, targets) for agent in named)
    return next((warning for warning in warnings if warning), "")


def agents_that_judge(suite: Suite) -> dict[str, list[str]]:
    """Return the targets that judge by name, with the paths of the evaluators that ask them."""
    root = suite.spec.evaluators
    trees = [root]
    asking = [name for name, kind in all_kinds().items() if kind.list_targets]
    # Cases may have many long trees: only those that can contain such an evaluator are read.
    written = suite.cases.annotate(written=Cast("evaluators", TextField()))
    named = reduce(or_, (Q(written__contains=name) for name in asking))
    own = written.filter(named, is_current=True, evaluators__isnull=False)
    for evaluators, append in own.values_list("evaluators", "evaluators_append"):
        trees.append(case_tree(root, evaluators, append=append))
    paths_by_name: dict[str, list[str]] = {}
    for tree in trees:
        for agent in named_agents(tree, all_kinds()):
            if agent.path not in paths_by_name.setdefault(agent.name, []):
                paths_by_name[agent.name].append(agent.path)
    return paths_by_name


def model_family(model_id: str) -> str:
    """Return the family that a model's id begins with: `gpt` for `openai/gpt-4o-mini`."""
    name = model_id.rpartition("/")[2].lower()
    match = re.match(r"[a-z]+", name)
    return match.group() if match else name


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """The cases of a run: those with one of the `tags`, or those named by `keys`; all without both."""

    tags: Collection[str] = ()
    keys: Collection[str] | None = None

    def of(self, cases: QuerySet[Case]) -> QuerySet[Case]:
        """Return the chosen ones of cases."""
        if self.keys is not None:
            cases = cases.filter(key__in=among(self.keys, "text"))
        if self.tags:
            wanted = set(self.tags)
            rows = cases.values_list("pk", "tags")
            cases = cases.filter(pk__in=among(pk for pk, tags in rows if wanted & set(tags)))
        return cases


ALL_CASES = CaseChoice()


def _current_cases(suite: Suite) -> QuerySet[Case]:
    return suite.cases.filter(is_current=True).order_by()


def recorded_counts(
    suite: Suite,
    targets: Sequence[Target],
    choice: CaseChoice = ALL_CASES,
) -> Mapping[int, int]:
    """Return how many chosen cases have a recorded output, by id of the targets that replay.

    A target with uploads replays only those; one without replays the outputs stored with the cases.
    """
    kinds = target_kinds()
    replaying = [
        target.pk for target in targets if target.kind in kinds and kinds[target.kind].replays
    ]
    if not replaying:
        return {}
    cases = choice.of(_current_cases(suite))
    with_output = cases.filter(recorded_output__isnull=False).count()
    uploads = RecordedOutput.objects.filter(target__in=replaying)
    uploading = set(uploads.order_by().values_list("target", flat=True).distinct())
    counts = {pk: 0 if pk in uploading else with_output for pk in replaying}
    if uploading:
        hits = uploads.filter(case_key__in=cases.values("key")).order_by().values_list("target")
        counts |= dict(hits.annotate(Count("case_key", distinct=True)))
    return counts


def recorded_warning(target: str, recorded: int, cases: int) -> str:
    """Return a warning about cases without an output, "" where all have one or none has."""
    if recorded >= cases or not recorded:
        return ""
    return (
        f"Target {target} has recorded outputs for {recorded} of {cases} cases. The other "
        f"{cases - recorded} will be errors; the estimate leaves them out."
    )


MAX_NAMED = 4
# Stands for any text or list of a case whose content does not matter here.
PRESENT = "present"


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """The cases that are alike in what their evaluators score by; `key` is that of the first of them."""

    key: str
    count: int
    evaluators: Any
    appends: bool
    facts: CaseFacts

    def tree(self, root: EvaluatorSpec) -> EvaluatorSpec:
        """Return the tree that scores them."""
        if self.evaluators is None:
            return root
        return case_tree(root, self.evaluators, append=self.appends)

    def sample(self) -> Case:
        """Return one of them, not saved, with what a start checks."""
        return Case(
            key=self.key,
            evaluators=self.evaluators,
            evaluators_append=self.appends,
            expected_outcomes=list(self.facts.expected_outcomes),
        )


def case_groups(suite: Suite, choice: CaseChoice = ALL_CASES) -> tuple[CaseGroup, ...]:
    """Return the chosen cases in groups: of thousands most are alike, so each kind is checked once."""
    facts = choice.of(_current_cases(suite)).annotate(
        written=Cast("evaluators", TextField()),
        has_criteria=Q(criteria__gt=""),
        has_output=Q(expected_output__gt=""),
        has_outcomes=~Q(expected_outcomes=[]),
    )
    groups = facts.values_list(
        *("written", "evaluators_append", "has_criteria", "has_output", "has_outcomes")
    ).annotate(count=Count("pk"), first=Min("key"))
    return tuple(
        CaseGroup(
            first,
            count,
            None if written is None else json.loads(written),
            appends,
            _facts(*has),
        )
        for written, appends, *has, count, first in groups
    )


def unscorable_warnings(root: EvaluatorSpec, groups: Iterable[CaseGroup]) -> tuple[str, ...]:
    """Return a sentence for each evaluator of `root` that lacks what it scores by in some cases."""
    lacking: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    for group in groups:
        for path, lack in _leaves(group.tree(root), group.facts):
            totals[path] += group.count
            if lack:
                lacking[path, lack] += group.count
    sentences = [
        f"Evaluator {path} has nothing to score by in {count} of {totals[path]} cases: "
        f"{'they have' if count > 1 else 'it has'} no {lack}. In these cases it will be an error."
        for (path, lack), count in lacking.most_common()
    ]
    more = len(sentences) - MAX_NAMED
    return (
        *sentences[:MAX_NAMED],
        *([f"The same applies to {more} more evaluators."] if more > 0 else ()),
    )


def uncompared_cases(request: EstimateRequest) -> Mapping[str, str]:
    """Return why outputs of chosen cases cannot be compared with a baseline's, by key; other cases are left out."""
    cases = dict(request.choice.of(_current_cases(request.suite)).values_list("key", "pk"))
    number = request.baseline.number if request.baseline else request.suite.baseline_number
    if number is None:
        return dict.fromkeys(cases, NO_BASELINE)
    files = dict(request.suite.files.values_list("path", "content_id"))
    keys = {pk: key for key, pk in cases.items()}
    outputs = BaselineOutputs(request.suite.pk, number, keys, files)
    return {key: problem for pk, key in keys.items() if (problem := outputs.problem(pk))}


def baseline_warnings(
    comparing: Sequence[str], uncompared: Mapping[str, str], cases: int
) -> Iterator[str]:
    """Yield warnings about evaluators, by path, that compare outputs with a baseline's and lack these."""
    verb = "gets" if len(comparing) == 1 else "get"
    for why, count in Counter(uncompared.values()).most_common():
        if why == NO_BASELINE:
            yield no_baseline_text(comparing)
        else:
            some = f"{thousands(count)} of {counted(cases, 'case')}"
            yield f"{', '.join(comparing)} {verb} no score in {some}: {why}."


def _leaves(tree: EvaluatorSpec, case: CaseFacts) -> Iterator[tuple[str, str]]:
    kinds = all_kinds()
    for path, node in walk(tree):
        if node.is_composite or node.kind not in kinds:
            continue
        find_missing = kinds[node.kind].find_missing
        yield path or node.name, find_missing(node.config, case) if find_missing is not None else ""


def _facts(has_criteria: bool, has_output: bool, has_outcomes: bool) -> CaseFacts:
    return CaseFacts(
        key="",
        input=(),
        criteria=PRESENT if has_criteria else "",
        expected_output=PRESENT if has_output else "",
        expected_outcomes=(PRESENT,) if has_outcomes else (),
    )


NO_PRICE = "the model has no price"


@dataclass(frozen=True, slots=True)
class EstimatedCost:
    """The estimated cost of a target or of judges; None with a reason where past runs do not tell.

    `low` and `high` are by the cheapest and the most expensive of these runs.
    """

    usd: Decimal | None
    low: Decimal | None = None
    high: Decimal | None = None
    reason: str = ""


def cost(
    runs: Sequence[Run], whose: str, amounts: Mapping[int, Decimal | int], wanted: Decimal | int
) -> EstimatedCost:
    """Return the cost of a wanted amount at the price of past runs, which used these amounts."""
    known = [run for run in runs if _knows_cost(run, whose)]
    if not known:
        return EstimatedCost(None, reason=NO_PRICE)
    spent = {run.pk: getattr(run, f"{whose}_cost_usd") for run in known}
    each = [spent[run.pk] * wanted / amounts[run.pk] for run in known]
    mean = sum(spent.values(), Decimal(0)) * wanted / sum(amounts[run.pk] for run in known)
    return EstimatedCost(mean, min(each), max(each))


def _knows_cost(run: Run, whose: str) -> bool:
    """Tell whether the run's calls had a price; free calls have the price 0."""
    first = getattr(run, f"first_{whose}_cost")
    return first is not None or getattr(run, f"{whose}_cost_usd") > 0


def expected_duration_ms(runs: Sequence[Run], executions: int, concurrency: int) -> float | None:
    """Return the milliseconds that the executions take, so many at once."""
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
    """Past runs that an estimate rests on, newest first, and in words what they share."""

    runs: tuple[Run, ...] = ()
    whose: str = ""

    @property
    def basis(self) -> str:
        """Return its basis in words: "from the last 3 runs of this target, 90 results"."""
        if not self.runs:
            return ""
        which = f"{len(self.runs)} runs" if len(self.runs) > 1 else "run"
        done = counted(sum(run.done_count for run in self.runs), "result")
        return f"from the last {which} {self.whose}, {done}"


@dataclass
class PastRuns:
    """The ended runs that inform about targets and judges; a handful of queries at most."""

    suite: Suite
    targets: Sequence[Target]
    judges: Collection[str]
    _trees: dict[int, tuple[EvaluatorSpec, PolicySpec, Decimal]] = field(default_factory=dict)

    def of_target(self, target: Target) -> PastUse:
        """Return the last runs of the target in this suite, else in others, else with its model."""
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
        """Return the last runs with these judges in this suite, else in others."""
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
        """Return the planned judge calls of one execution of a run, for that share of cases with outcomes."""
        if not self._trees:
            ids = [judged.pk for judged in self.judged.runs]
            kept = Run.objects.filter(pk__in=ids)
            parts = ("evaluators", "policy", BASELINE)
            rows = list(kept.values_list("pk", *(f"snapshot__{part}" for part in parts)))
            # The shares of the outputs that could be compared with the baseline's.
            shares: dict[int, Decimal] = {}
            if any(baseline for *_, baseline in rows):
                copies = ComparedOutput.objects.filter(result__run__in=ids)
                of_runs = copies.order_by().values_list("result__run")
                counts = of_runs.annotate(all=Count("pk"), some=Count("pk", filter=Q(problem="")))
                shares = {pk: Decimal(some) / total for pk, total, some in counts}
            self._trees = {
                pk: (
                    EvaluatorSpec.model_validate(tree),
                    PolicySpec.model_validate(policy),
                    shares.get(pk, Decimal(0)),
                )
                for pk, tree, policy, _ in rows
            }
        root, policy, compared = self._trees[run.pk]
        return judge_calls_per_execution(root, policy, outcomes, compared)


def judge_calls_per_execution(
    root: EvaluatorSpec, policy: PolicySpec, outcomes: Decimal, compared: Decimal
) -> Decimal:
    """Return the mean judge calls of one execution.

    `outcomes` is the share (0 to 1) of the cases with expected outcomes, `compared` that of the cases whose output can
    be compared with a baseline's.
    """

    def mean(*, has_baseline: bool) -> Decimal:
        with_them, without = (
            judge_calls(root, all_kinds(), outcomes_by=outcomes_by, has_baseline=has_baseline)
            for outcomes_by in (policy, None)
        )
        return outcomes * with_them + (1 - outcomes) * without

    return compared * mean(has_baseline=True) + (1 - compared) * mean(has_baseline=False)


def _first(steps: Sequence[tuple[Sequence[Run], Callable[[Run], bool], str]]) -> PastUse:
    for runs, fits, whose in steps:
        if fitting := tuple(run for run in runs if fits(run))[:RUNS_LOOKED_AT]:
            return PastUse(fitting, whose)
    return PastUse()


def _ended(runs: QuerySet[Run]) -> Sequence[Run]:
    """Return the last ended runs with the costs of their first scored result."""
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


def planned_judge_calls(request: EstimateRequest, uncompared: Collection[str]) -> Judges:
    """Return the calls of one repetition by judge when no gate fails.

    `planned_calls_by_judge` names the judges. The outputs of the `uncompared` cases, by key, are compared with none.
    """
    calls = Judges()
    count_calls = partial(planned_calls_by_judge, kinds=all_kinds())
    cases, with_outcomes = request.cases, request.with_outcomes
    own = request.choice.of(_current_cases(request.suite).filter(evaluators__isnull=False))
    rows = own.annotate(
        written=Cast("evaluators", TextField()), has_outcomes=~Q(expected_outcomes=[])
    ).values_list("key", "written", "evaluators_append", "has_outcomes")
    # Trees of many cases are mostly the same few, so each is read once.
    groups = Counter((*facts, key not in uncompared) for key, *facts in rows)
    shared_uncompared = len(uncompared)
    for (written, append, has_outcomes, is_compared), count in groups.items():
        tree = case_tree(request.root, json.loads(written), append=append)
        policy = request.policy if has_outcomes else None
        _add(calls, count_calls(tree, outcomes_by=policy, has_baseline=is_compared), count)
        cases, with_outcomes = cases - count, with_outcomes - count * has_outcomes
        shared_uncompared -= count * (not is_compared)
    for policy, count in ((request.policy, with_outcomes), (None, cases - with_outcomes)):
        _add(calls, count_calls(request.root, outcomes_by=policy), count)
    if shared_uncompared:
        comparing = count_calls(request.root) - count_calls(request.root, has_baseline=False)
        _add(calls, comparing, -shared_uncompared)
    return +calls


def _add(total: Judges, planned_calls: Judges, count: int) -> None:
    for judge, calls in planned_calls.items():
        total[judge] += calls * count


NO_RUN = "no finished run of this target or its model yet"
NO_OUTPUT = "no output recorded"
NO_JUDGE_RUN = "no finished run with this judge yet"


@dataclass(frozen=True, slots=True)
class TargetEstimate:
    """The estimate for one run; a cost is None, with the reason, where past runs do not tell.

    `basis` names the past runs behind the target's cost and time, "" for none.
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
    """What the form would start, and its cost and time; sums are None when a part is unknown.

    `judges` are names of judges with their maximum of calls. `target_calls` counts the executions that
    ask a target; recorded outputs ask none. `low_usd` and `high_usd` are None where all past runs cost
    the same to a cent. `samples` has one case of each kind, and `unrecorded` the targets that have an
    output for none of the cases.
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
    samples: tuple[Case, ...]
    unrecorded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What the form would start, as far as it is filled in; tree and policy are those that score the run."""

    suite: Suite
    root: EvaluatorSpec
    policy: PolicySpec
    targets: Sequence[Target]
    cases: int
    with_outcomes: int
    repetitions: int
    concurrency: int
    judge: LanguageModel | None
    budget_usd: Decimal | None
    choice: CaseChoice = ALL_CASES
    baseline: Run | None = None

    @property
    def executions(self) -> int:
        """Return the executions of one run."""
        return self.cases * self.repetitions

    @property
    def outcomes(self) -> Decimal:
        """Return the share of the cases that have expected outcomes."""
        return Decimal(self.with_outcomes) / max(self.cases, 1)


def estimate(request: EstimateRequest) -> Estimate:
    """Return what the request would start, its cost and time, and the past runs behind them."""
    agents = agents_that_judge(request.suite)
    groups = case_groups(request.suite, request.choice)
    trees = (group.tree(request.root) for group in groups)
    comparing = list(
        dict.fromkeys(path for tree in trees for path in baseline_paths(tree, all_kinds()))
    )
    uncompared = uncompared_cases(request) if comparing else {}
    planned_calls = planned_judge_calls(request, uncompared)
    past = PastRuns(request.suite, request.targets, _judge_names(request, list(agents)))
    recorded = recorded_counts(request.suite, request.targets, request.choice)
    compared = 1 - Decimal(len(uncompared)) / max(request.cases, 1)
    judging = None
    if planned_calls:
        judging = judge_calls_per_execution(
            request.root, request.policy, request.outcomes, compared
        )
    parts = tuple(
        _estimate_target(request, target, past, recorded.get(target.pk), judging)
        for target in request.targets
    )
    run_usd, evaluation_usd = (
        _sum([getattr(part, name) for part in parts]) for name in ("run_usd", "evaluation_usd")
    )
    total = _sum([run_usd, evaluation_usd])
    low, high = (_sum([getattr(part, name) for part in parts]) for name in ("low_usd", "high_usd"))
    is_range = money(low) != money(high)
    # Runs that start together run side by side.
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
                    recorded_warning(target.name, recorded[target.pk], request.cases)
                    for target in request.targets
                    if target.pk in recorded
                ),
                *unscorable_warnings(request.root, groups),
                *baseline_warnings(comparing, uncompared, request.cases),
                family_warning(request.judge if planned_calls else None, request.targets),
                agent_warning(agents, request.targets),
            )
            if warning
        ),
        over_budget=_over_budget(request, parts),
        button=_button(len(parts), total),
        samples=tuple(group.sample() for group in groups),
        unrecorded=tuple(target.name for target in request.targets if recorded.get(target.pk) == 0),
    )


def _judge_names(request: EstimateRequest, agents: Sequence[str]) -> set[str]:
    names = {request.judge.name, request.judge.slug} if request.judge else set()
    # A run without a language model as judge has the names of its agents as judge name.
    return names | ({", ".join(sorted(agents))} if agents else set())


def _named_judges(
    request: EstimateRequest, planned_calls: Judges, times: int
) -> tuple[tuple[str, int], ...]:
    """Return the names of the judges with their calls, most calls first."""
    named = [slug for kind, slug in planned_calls if kind == "model" and slug]
    names = dict(LanguageModel.objects.filter(slug__in=named).values_list("slug", "name"))
    calls_by_name: dict[str, int] = {}
    for (kind, judge), calls in planned_calls.items():
        default = request.judge.name if request.judge else "no judge chosen yet"
        name = judge if kind == "agent" else names.get(judge, judge or default)
        calls_by_name[name] = calls_by_name.get(name, 0) + calls * times
    return tuple(sorted(calls_by_name.items(), key=lambda pair: -pair[1])) if times else ()


def _asks_target(target: Target) -> bool:
    kind = target_kinds().get(target.kind)
    return kind is None or kind.can_judge


def _estimate_target(
    request: EstimateRequest,
    target: Target,
    past: PastRuns,
    recorded: int | None,
    judging: Decimal | None,
) -> TargetEstimate:
    """Return the estimate for one run; cases without a recorded output cost nothing.

    `judging` is the number of judge calls of one execution, None where none is asked.
    """
    own = past.of_target(target)
    executions = request.executions if recorded is None else recorded * request.repetitions
    run = cost(own.runs, "run", {run.pk: run.done_count for run in own.runs}, executions)
    evaluation = EstimatedCost(Decimal(0), Decimal(0), Decimal(0))
    if request.executions and not executions:
        run = evaluation = EstimatedCost(None, reason=NO_OUTPUT)
    elif judging is not None:
        evaluation = _evaluation(request, past, judging * executions)
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


def _evaluation(request: EstimateRequest, past: PastRuns, calls: Decimal) -> EstimatedCost:
    """Return the judge cost of so many calls by the price of a planned call in past runs."""
    planned = {
        run.pk: run.done_count * past.calls_an_execution(run, outcomes=request.outcomes)
        for run in past.judged.runs
    }
    runs = [run for run in past.judged.runs if planned[run.pk]]
    if not runs:
        return EstimatedCost(None, reason=NO_JUDGE_RUN)
    return cost(runs, "evaluation", planned, calls)


def _basis(parts: Sequence[TargetEstimate]) -> str:
    """Return the basis of the whole estimate; with several targets each has its own."""
    if len(parts) == 1:
        return parts[0].basis
    return "from past runs, named below" if any(part.basis for part in parts) else ""


def _over_budget(request: EstimateRequest, parts: Sequence[TargetEstimate]) -> str:
    # Recorded outputs were paid before, so the budget counts only the cost of judges.
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
