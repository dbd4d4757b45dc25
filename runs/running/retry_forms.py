"""The forms that retry results or resume a run, with what is repeated and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum
from django.http import QueryDict
from django.urls import reverse

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, thousands
from runs.costs import budget_words, counted_usd, is_replayed
from runs.engine.plan import case_tree, judge_calls, read_plan, retry_judge_calls
from runs.filters.selection import RunForm, SelectionForm
from runs.lists import MAX_INTEGER
from runs.models.results import (
    OPEN_RESULT_STATUSES,
    EvaluatorScore,
    Result,
    ResultStatus,
    ScoreState,
)
from runs.models.runs import Run
from runs.models.suites import Case
from runs.requests import BudgetField
from runs.running.checks import run_scripts_problem
from runs.running.retrying import (
    HAS_OUTPUT,
    BudgetSpentError,
    check_paths,
    ids_with_same_error,
    matching_results,
    results_filter,
    resume_run,
    retry_results,
    retryable_results,
)


@dataclass(frozen=True, slots=True)
class RetryOption:
    """One way to retry results, with its maximum of calls and their estimated cost.

    `reads_recorded` tells whether outputs come from what is recorded for the target by now.
    """

    reads_recorded: bool
    target_calls: int
    judge_calls: int
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """A retry of `count` of the run's `executions`.

    `with_output` of them have an output, `never_run` were cancelled before their first try. `path` is
    the only evaluator that scores again, "" for all. `whole` asks the target again, `scoring` keeps the
    outputs. `last_retry` is the newest retry.
    """

    path: str
    count: int
    executions: int
    with_output: int
    never_run: int
    whole: RetryOption
    scoring: RetryOption
    judge: str
    target: str
    budget_usd: Decimal | None
    spent_usd: Decimal
    last_retry: int

    @property
    def without_output(self) -> int:
        """Return how many ask the target even if outputs are kept."""
        return self.count - self.with_output

    @property
    def budget_words(self) -> str:
        """Return how much of the budget is spent in words."""
        if self.budget_usd is None:
            return ""
        spent = budget_words(self.spent_usd, self.budget_usd)
        return f"{spent}. Leave empty to keep the budget."


def retry_plan(run: Run, chosen: QuerySet[Result], path: str = "") -> RetryPlan:
    """Return the plan to retry the chosen results, wholly or with one evaluator only."""
    facts = chosen.order_by().aggregate(
        count=Count("pk"),
        with_output=Count("output", filter=HAS_OUTPUT),
        never_run=Count("pk", filter=Q(status=ResultStatus.CANCELLED, generation=1)),
    )
    count, calls = facts["count"], _judge_calls(run, chosen, path)
    without_output = count - facts["with_output"]
    replays = is_replayed(run.snapshot)
    run_each, evaluation_each = _mean_costs(run)
    if path:
        evaluation_each = _mean_evaluator_cost(run, path)
    evaluation = _times(evaluation_each, count) if calls else Decimal(0)

    def way(outputs: int) -> RetryOption:
        if replays:
            return RetryOption(outputs > 0, 0, calls, evaluation)
        return RetryOption(False, outputs, calls, _sum(_times(run_each, outputs), evaluation))

    return RetryPlan(
        path=path,
        count=count,
        executions=run.execution_count,
        with_output=facts["with_output"],
        never_run=facts["never_run"],
        whole=way(count),
        scoring=way(without_output),
        judge=run.judge_name,
        target=run.target_name,
        budget_usd=run.budget_usd,
        spent_usd=counted_usd(run, snapshot=run.snapshot),
        last_retry=run.retries.values_list("pk", flat=True).first() or 0,
    )


def has_score(path: str) -> Exists:
    """Return the condition for results with a score row of the evaluator."""
    return Exists(EvaluatorScore.objects.filter(result=OuterRef("pk"), path=path))


def is_unscored_by(path: str) -> Exists:
    """Return the condition for results that the evaluator could not score."""
    lines = EvaluatorScore.objects.filter(
        result=OuterRef("pk"), path=path, state=ScoreState.UNSCORED
    )
    return Exists(lines)


def _judge_calls(run: Run, chosen: QuerySet[Result], path: str) -> int:
    """Return the judge calls of the results when no gate fails and nothing is repeated."""
    plan, kinds, total = read_plan(run.snapshot), all_kinds(), 0
    count_calls = partial(retry_judge_calls, path=path) if path else judge_calls
    parts = [(chosen, False)]
    if plan.baseline is not None:
        # What the baseline did not answer is compared with nothing.
        is_compared = Q(compared_with__problem="")
        parts = [(chosen.filter(is_compared), True), (chosen.exclude(is_compared), False)]
    for results, has_baseline in parts:
        for root, has_outcomes, count in _trees(plan.root, results):
            policy = plan.policy if has_outcomes and plan.judge else None
            calls = count_calls(root, kinds, outcomes_by=policy, has_baseline=has_baseline)
            total += count * calls
    return total


def _trees(
    root: EvaluatorSpec, chosen: QuerySet[Result]
) -> Iterator[tuple[EvaluatorSpec, bool, int]]:
    """Yield each tree with whether its cases have expected outcomes, and how many results it scores."""
    rows = chosen.order_by()
    shared = rows.filter(case__evaluators__isnull=True)
    total = shared.count()
    plain = shared.filter(case__expected_outcomes=[]).count()
    yield from ((root, False, plain), (root, True, total - plain))
    own = Counter(rows.exclude(case__evaluators__isnull=True).values_list("case_id", flat=True))
    cases = Case.objects.only("evaluators", "evaluators_append", "expected_outcomes")
    for case in cases.filter(pk__in=own):
        tree = case_tree(root, case.evaluators, append=case.evaluators_append)
        yield tree, bool(case.expected_outcomes), own[case.pk]


def _mean_costs(run: Run) -> tuple[Decimal | None, Decimal | None]:
    """Return the mean target and judge cost of one execution so far; None where it is unknown."""
    scored = run.results.filter(status=ResultStatus.SCORED).order_by()
    sums = scored.aggregate(
        run=Sum("run_cost_usd"), evaluation=Sum("evaluation_cost_usd"), times=Sum("generation")
    )
    times = sums["times"]
    return _share(sums["run"], times), _share(sums["evaluation"], times)


def _mean_evaluator_cost(run: Run, path: str) -> Decimal | None:
    """Return the mean cost of a score of the evaluator, including everything below it."""
    lines = EvaluatorScore.objects.filter(result__run=run).order_by()
    at = Q(path=path)
    sums = lines.filter(at | Q(path__startswith=f"{path}/")).aggregate(
        usd=Sum("cost_usd"), times=Count("pk", filter=at & Q(state=ScoreState.SCORED))
    )
    return _share(sums["usd"], sums["times"])


def _share(usd: Decimal | None, times: int | None) -> Decimal | None:
    return usd / times if usd is not None and times else None


def _times(each: Decimal | None, count: int) -> Decimal | None:
    if not count:
        return Decimal(0)
    return None if each is None else each * count


def _sum(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else first + second


class ResumeForm(forms.Form):
    """A new cap for a run whose budget is spent, including what is spent; empty leaves the cap as it is."""

    budget = BudgetField(label="New budget")

    def __init__(self, run: Run, data: QueryDict | None = None) -> None:
        """Make the form of one run."""
        super().__init__(data)
        self.run = run

    def scripts_problem(self, user: User | AnonymousUser) -> str:
        """Return why the user may not resume the programs of the run, "" when they may."""
        return run_scripts_problem(self.run, user)

    def resume(self, resumed_by: User) -> str:
        """Resume the run and return a message; "" when refused, with the reason in the errors."""
        if not self.is_valid():
            return ""
        try:
            count = resume_run(
                self.run, resumed_by=resumed_by, budget_usd=self.cleaned_data["budget"]
            )
        except BudgetSpentError as refusal:
            self.add_error("budget", str(refusal))
            return ""
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return ""
        return f"{counted(count, 'result')} {'is' if count == 1 else 'are'} left to run."


WHICH = (("errored", "errored"), ("failed", "failed"), ("all_missing", "missing"))
ONLY = (("all", "All of them"), ("unscored", "Only where it could not score"))


class AgainForm(RunForm):
    """The fields of every retry.

    `path` is the only evaluator that scores again, "" for all. `seen` is the newest retry that the
    sender knew of, `count` the number of results that the form showed.
    """

    keep_output = forms.BooleanField(required=False)
    path = forms.CharField(required=False, strip=False)
    only = forms.ChoiceField(choices=ONLY, required=False)
    seen = forms.IntegerField(required=False, min_value=0, max_value=MAX_INTEGER)
    count = forms.IntegerField(required=False, min_value=0)
    budget = BudgetField(label="New budget")

    names: tuple[str, ...] = ("path",)
    refusal = ""

    def clean_path(self) -> str:
        """Return the path; raises ValidationError for an evaluator that the run does not have."""
        path: str = self.cleaned_data["path"]
        try:
            check_paths(self.run, [path] if path else [])
        except DomainError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal
        return path

    def named_results(self) -> QuerySet[Result]:
        """Return the results that the form names, in any state."""
        raise NotImplementedError

    @property
    def names_results(self) -> bool:
        """Tell whether the form names its results, even if other fields are wrong."""
        return set(self.errors) <= {"budget"}

    @property
    def is_only_unscored(self) -> bool:
        """Tell whether the evaluator scores again only where it could not score."""
        return self.data.get("only") == "unscored"

    @property
    def keeps_output(self) -> bool:
        """Tell whether the outputs are kept; `keeps_by_default` decides where the form does not."""
        return bool(self.data.get("keep_output", self.keeps_by_default))

    @property
    def keeps_by_default(self) -> bool:
        """Tell whether the form proposes to keep the outputs."""
        return False

    @property
    def all_chosen(self) -> QuerySet[Result]:
        """Return the named results that can be retried; none while the form is wrong."""
        if not self.names_results:
            return self.run.results.none()
        results = self.named_results().filter(pk__in=retryable_results(self.run).values("pk"))
        path = self.cleaned_data["path"]
        return results.filter(has_score(path), HAS_OUTPUT) if path else results

    def chosen(self) -> QuerySet[Result]:
        """Return the results that would be retried."""
        results = self.all_chosen
        is_part = self.is_only_unscored and self.cleaned_data["path"]
        return results.filter(self.unscored()) if is_part else results

    def unscored(self) -> Exists:
        """Return the condition for results that the evaluator could not score."""
        return is_unscored_by(self.cleaned_data["path"])

    def plan(self) -> RetryPlan:
        """Return the plan to retry all of the named results."""
        return retry_plan(self.run, self.all_chosen, self.cleaned_data.get("path", ""))

    def plan_of_unscored(self) -> RetryPlan | None:
        """Return the plan for results that the evaluator could not score; None where that is no choice."""
        if not self.names_results or not self.cleaned_data["path"]:
            return None
        results = self.all_chosen.filter(self.unscored())
        count = results.count()
        is_choice = 0 < count < self.all_chosen.count()
        return retry_plan(self.run, results, self.cleaned_data["path"]) if is_choice else None

    @property
    def is_rescore(self) -> bool:
        """Tell whether only existing outputs are scored: as asked, or because the run judges those of another."""
        return bool(self.data.get("rescore")) or self.run.is_judged_again

    def scripts_problem(self, user: User) -> str:
        """Return why the user may not run the programs of this retry, "" when they may."""
        if not self.names_results:
            return ""
        asks_target = not (self.cleaned_data["path"] or self.keeps_output)
        return run_scripts_problem(self.run, user, asks_target=asks_target)

    def named(self) -> dict[str, Any]:
        """Return the results as arguments for the service, which reports open ones."""
        named = self.chosen() or self.named_results().filter(status__in=OPEN_RESULT_STATUSES)
        return {"result_ids": list(named.values_list("pk", flat=True))}

    def retry(self, asked_by: User) -> str:
        """Queue the results and return a message; "" when refused, with the reason in errors or `refusal`."""
        if not self.is_valid():
            return ""
        path = self.cleaned_data["path"]
        try:
            count = retry_results(
                self.run,
                asked_by=asked_by,
                **self.named(),
                keep_output=self.cleaned_data["keep_output"],
                paths=[path] if path else None,
                budget_usd=self.cleaned_data["budget"],
                seen_retry=self.cleaned_data["seen"],
            )
        except BudgetSpentError as refusal:
            self.add_error("budget", str(refusal))
            return ""
        except DomainError as refusal:
            self.refusal = str(refusal)
            return ""
        return self.done(count)

    def done(self, count: int) -> str:
        """Return how many results are retried, and how many another retry reached first."""
        # With one evaluator, the form may have shown another number.
        others = 0 if self.cleaned_data["path"] else (self.cleaned_data["count"] or count) - count
        message = f"{counted(count, 'result')} {'is' if count == 1 else 'are'} queued again."
        if others > 0:
            verb = "was" if others == 1 else "were"
            message += f" {thousands(others)} more {verb} already queued by another rerun."
        return message


class RunRetryForm(SelectionForm, AgainForm):
    """A retry of results by kind, by shared error, by ticked rows, or all of a filter."""

    which = forms.ChoiceField(choices=WHICH, required=False)
    like = forms.IntegerField(required=False, min_value=1, max_value=MAX_INTEGER)
    rescore = forms.BooleanField(required=False)
    choosing = ("which", "like", "case", "everything", "path")
    names = ("which", "like", "path", "rescore", *SelectionForm.names)

    @property
    def action(self) -> str:
        """Return the address of the form."""
        return reverse("runs:run-retry", args=(self.run.suite.slug, self.run.number))

    @property
    def keeps_by_default(self) -> bool:
        """Tell whether the form proposes to keep outputs: errors after the output need no new one."""
        keeps = any(self.data.get(name) for name in ("like", "rescore"))
        return keeps or self.data.get("which") == "errored"

    def named_results(self) -> QuerySet[Result]:
        """Return the results that the form names, in any state."""
        chosen, results = self.cleaned_data, self.run.results.all()
        if chosen["everything"]:
            return matching_results(self.run, self.query)
        if chosen["case"]:
            return results.filter(case__in=chosen["case"])
        if chosen["like"]:
            return results.filter(pk__in=ids_with_same_error(self.run, chosen["like"]))
        return results.filter(results_filter(chosen["which"])) if chosen["which"] else results

    def named(self) -> dict[str, Any]:
        """Return the results as arguments for the service: their kind, where nothing narrows it."""
        chosen = self.cleaned_data
        narrower = ("everything", "case", "like", "path")
        if chosen["which"] and not any(chosen[name] for name in narrower):
            return {"which": chosen["which"]}
        return super().named()


class ResultRetryForm(AgainForm):
    """A retry of one result."""

    def __init__(self, run: Run, data: QueryDict, *, key: str, repetition: int) -> None:
        """Make the form of one result; raises Result.DoesNotExist for one that the run lacks."""
        super().__init__(run, data)
        self.result = run.results.select_related("case").get(case__key=key, repetition=repetition)

    @property
    def action(self) -> str:
        """Return the address of the form."""
        return reverse("runs:result-retry", args=self._place)

    @property
    def back(self) -> str:
        """Return the address of the page that it returns to."""
        return reverse("runs:result", args=self._place)

    @property
    def _place(self) -> tuple[str, int, str, int]:
        return self.run.suite.slug, self.run.number, self.result.case.key, self.result.repetition

    def named_results(self) -> QuerySet[Result]:
        """Return the result."""
        return self.run.results.filter(pk=self.result.pk)

    def done(self, count: int) -> str:
        """Return what is repeated."""
        if self.cleaned_data["path"]:
            return (
                f"{self.cleaned_data['path']} is queued to rescore the result. The output is kept."
            )
        if self.cleaned_data["keep_output"]:
            return "The result is queued to be rescored. The output is kept."
        return "The result is queued to be rerun."
