"""What a retry would do and cost, said before anybody asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Node
from runs.models import Case, Result, ResultStatus, Run, Score, ScoreState
from runs.plan import judge_calls, judge_calls_again, read_plan, tree_of_case
from runs.reports.purses import budget_words, counted_usd, is_replayed


@dataclass(frozen=True, slots=True)
class Way:
    """One way to try results again: how many calls it makes at most, and about what they cost."""

    target_calls: int
    judge_calls: int
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What is about to be tried again: `count` of the run's `executions`.

    `with_output` of them have an output, `never_run` were cancelled before their first try; `path`
    is the one evaluator that is to score again, "" for all. `whole` asks the target again, `scoring`
    keeps the outputs there are. `last_retry` is the newest request for retries.
    """

    path: str
    count: int
    executions: int
    with_output: int
    never_run: int
    whole: Way
    scoring: Way
    replays: bool
    judge: str
    target: str
    budget_usd: Decimal | None
    spent_usd: Decimal
    last_retry: int

    @property
    def without_output(self) -> int:
        """Return how many ask the target in any case."""
        return self.count - self.with_output

    @property
    def budget_words(self) -> str:
        """Say how much of the budget is spent."""
        if self.budget_usd is None:
            return ""
        spent = budget_words(self.spent_usd, self.budget_usd)
        return f"{spent}. Empty leaves the budget as it is."


def retry_plan(run: Run, chosen: QuerySet[Result], path: str = "") -> RetryPlan:
    """Return what trying the chosen results again would do, wholly or one evaluator alone."""
    facts = chosen.order_by().aggregate(
        count=Count("pk"),
        with_output=Count("output"),
        never_run=Count("pk", filter=Q(status=ResultStatus.CANCELLED, generation=1)),
    )
    count, calls = facts["count"], _judge_calls(run, chosen, path)
    without_output = count - facts["with_output"]
    replays = is_replayed(run.snapshot)
    run_each, evaluation_each = _mean_costs(run)
    if path:
        evaluation_each = _mean_cost_of(run, path)
    evaluation = _times(evaluation_each, count) if calls else Decimal(0)

    def way(asked: int) -> Way:
        if replays:
            return Way(0, calls, evaluation)
        return Way(asked, calls, _sum(_times(run_each, asked), evaluation))

    return RetryPlan(
        path=path,
        count=count,
        executions=run.execution_count,
        with_output=facts["with_output"],
        never_run=facts["never_run"],
        whole=way(count),
        scoring=way(without_output),
        replays=replays,
        judge=run.judge_name,
        target=run.target_name,
        budget_usd=run.budget_usd,
        spent_usd=counted_usd(run, snapshot=run.snapshot),
        last_retry=run.retries.values_list("pk", flat=True).first() or 0,
    )


def has_said(path: str) -> Exists:
    """Return what finds the results that hold a line of the evaluator."""
    return Exists(Score.objects.filter(result=OuterRef("pk"), path=path))


def could_not_score(path: str) -> Exists:
    """Return what finds the results that the evaluator could not score."""
    lines = Score.objects.filter(result=OuterRef("pk"), path=path, state=ScoreState.UNSCORED)
    return Exists(lines)


def _judge_calls(run: Run, chosen: QuerySet[Result], path: str) -> int:
    """Return how many judge calls the results make when no gate fails and nothing is repeated."""
    plan, kinds, total = read_plan(run.snapshot), all_kinds(), 0
    for root, has_outcomes, count in _trees(plan.root, chosen):
        judged = has_outcomes and bool(plan.judge)
        if path:
            calls = judge_calls_again(root, kinds, path, has_outcomes=judged)
        else:
            calls = judge_calls(root, kinds, has_outcomes=judged)
        total += calls * count
    return total


def _trees(root: Node, chosen: QuerySet[Result]) -> Iterator[tuple[Node, bool, int]]:
    """Yield each tree with whether its cases have expected outcomes, and how many results it scores."""
    rows = chosen.order_by()
    shared = rows.filter(case__evaluators__isnull=True)
    total = shared.count()
    plain = shared.filter(case__expected_outcomes=[]).count()
    yield from ((root, False, plain), (root, True, total - plain))
    own = Counter(rows.exclude(case__evaluators__isnull=True).values_list("case_id", flat=True))
    cases = Case.objects.only("evaluators", "evaluators_append", "expected_outcomes")
    for case in cases.filter(pk__in=own):
        tree = tree_of_case(root, case.evaluators, append=case.evaluators_append)
        yield tree, bool(case.expected_outcomes), own[case.pk]


def _mean_costs(run: Run) -> tuple[Decimal | None, Decimal | None]:
    """Return what one execution of the run has cost so far from each purse; None where nobody knows."""
    scored = run.results.filter(status=ResultStatus.SCORED).order_by()
    found = scored.aggregate(
        run=Sum("run_cost_usd"), evaluation=Sum("evaluation_cost_usd"), times=Sum("generation")
    )
    times = found["times"]
    return _share(found["run"], times), _share(found["evaluation"], times)


def _mean_cost_of(run: Run, path: str) -> Decimal | None:
    """Return what one score of the evaluator, with all below it, has cost so far."""
    lines = Score.objects.filter(result__run=run).order_by()
    at = Q(path=path)
    found = lines.filter(at | Q(path__startswith=f"{path}/")).aggregate(
        usd=Sum("cost_usd"), times=Count("pk", filter=at & Q(state=ScoreState.SCORED))
    )
    return _share(found["usd"], found["times"])


def _share(usd: Decimal | None, times: int | None) -> Decimal | None:
    return usd / times if usd is not None and times else None


def _times(each: Decimal | None, count: int) -> Decimal | None:
    if not count:
        return Decimal(0)
    return None if each is None else each * count


def _sum(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else first + second
