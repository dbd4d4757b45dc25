"""The forms that have outputs judged again: to score a run anew, and to measure its judge, each with its price."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict
from django.urls import reverse

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import MAX_SAMPLES
from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.costs import CAP_TIMES
from runs.engine.plan import BASELINE, baseline_paths, read_plan
from runs.filters.selection import SelectionForm
from runs.models.runs import Run
from runs.models.suites import SuiteDraft
from runs.requests import BudgetField, find_problem
from runs.running.baselines import baseline_choices, baseline_run
from runs.running.judging_again import judge_again
from runs.running.judging_estimate import JudgingEstimate, combine_estimates, estimate_judging
from runs.running.judging_plan import CannotJudgeAgainError, JudgingRequest, plan_judging
from runs.running.measuring import (
    MAX_TIMES,
    USUAL_RESULTS,
    USUAL_TIMES,
    MeasuringRequest,
    measure_judge,
    plan_measuring,
)
from runs.running.rules import RunRules
from runs.running.services import MAX_CONCURRENCY

DRAFT = "draft"
MAX_VERSIONS = 20
MAX_NOTE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class SourceEstimate:
    """One of the runs whose outputs are judged again, with its estimate, or the reason why it cannot be judged."""

    run: Run
    estimate: JudgingEstimate | None
    problem: str = ""


class JudgeAgainForm(SelectionForm):
    """All results of runs of one suite, or the ticked rows of a run or those of a filter, and what judges them."""

    rules = forms.ChoiceField(label="Judge by", help_text="Evaluators, thresholds and cases")
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(),
        required=False,
        empty_label="As before",
        help_text="An evaluator that names its own judge keeps it.",
    )
    samples = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_SAMPLES,
        help_text="Judge calls per score. Leave empty to use the suite's setting. Evaluators that cases define "
        "keep their own.",
    )
    ask_again = forms.BooleanField(
        label="Ask judges again",
        required=False,
        help_text="Also where their question is the same, to see whether they changed.",
    )
    concurrency = forms.IntegerField(
        label="Parallel results",
        required=False,
        min_value=1,
        max_value=MAX_CONCURRENCY,
        help_text="Leave empty for what the judge allows.",
    )
    budget = BudgetField(help_text="US$, judge only. Leave empty for no limit.")
    baseline = forms.ChoiceField(
        required=False,
        help_text="The run whose outputs pairwise evaluators compare these with",
    )
    note = forms.CharField(required=False, max_length=MAX_NOTE_LENGTH)
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    whole = forms.BooleanField(required=False)
    choosing: tuple[str, ...] = ("whole", "case", "everything")
    names: tuple[str, ...] = ("whole", *SelectionForm.names)

    def __init__(self, runs: Sequence[Run], data: QueryDict, *, member: User) -> None:
        """Offer the suite as it is, the member's draft and earlier versions."""
        run, filled = runs[0], data.copy()
        filled.setdefault("rules", f"v{run.suite.version}")
        filled.setdefault("form_key", secrets.token_urlsafe(16))
        super().__init__(run, filled)
        self.runs, self.member = runs, member
        suite = run.suite
        self.draft = SuiteDraft.objects.filter(suite=suite, author=member).first()
        now = f"v{suite.version}"
        choices = [(now, f"{now}, the suite as it is")]
        if self.draft is not None:
            choices.append((DRAFT, f"My draft of v{self.draft.base_version}"))
        earlier = suite.versions.filter(number__lt=suite.version).order_by("-number")
        numbers = earlier.values_list("number", flat=True)[:MAX_VERSIONS]
        choices += [(f"v{number}", f"v{number}") for number in numbers]
        if self.needs_baseline:
            usual = run.snapshot.get(BASELINE)
            baselines = baseline_choices(suite, usual)
            if any(one.snapshot.get(BASELINE) != usual for one in runs):
                baselines[0] = ("", "As before, each its own")
            self.fields["baseline"].choices = baselines  # type: ignore[attr-defined]  # as below
        self.fields["rules"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField
        if len(runs) > 1:
            self.fields["budget"].label = "Budget per run"
            self.fields["note"].help_text = "Of each run, and the name of their campaign"

    @cached_property
    def needs_baseline(self) -> bool:
        """Tell whether an evaluator that could judge compares outputs with a baseline's."""
        trees = [read_plan(run.snapshot).root for run in self.runs]
        trees.append(self.run.suite.spec.evaluators)
        if self.draft is not None:
            trees.append(EvaluatorSpec.model_validate(self.draft.content["evaluators"]))
        return any(baseline_paths(tree, all_kinds()) for tree in trees)

    @property
    def action(self) -> str:
        """Return the address of the form."""
        if len(self.runs) > 1:
            return reverse("runs:runs-judge-again")
        return reverse("runs:run-judge-again", args=(self.run.suite.slug, self.run.number))

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Return the fields that name the results, and the runs where there are several."""
        names = [("run", f"{self.run.suite.slug}:{run.number}") for run in self.runs]
        return [*super().carried, *(names if len(names) > 1 else ())]

    @property
    def submit_label(self) -> str:
        """Return the label of the button."""
        what = "" if self.problem else f" {counted(self.estimate.results, 'result')}"
        return f"Judge{what} again"

    @property
    def shown(self) -> list[forms.BoundField]:
        """Return the fields to fill in."""
        names = ["rules", "judge", "samples", "ask_again", "concurrency", "budget", "note"]
        if self.needs_baseline:
            names.insert(2, "baseline")
        return [self[name] for name in names]

    @property
    def chosen_text(self) -> str:
        """Say which results were chosen, "" for all of the run."""
        if not self.is_valid():
            return ""
        if self.cleaned_data["everything"]:
            return "the results that the filter lists"
        cases = self.cleaned_data["case"]
        return f"the results of {counted(len(cases), 'chosen case')}" if cases else ""

    @cached_property
    def problem(self) -> str:
        """Return why nothing can be judged as the form is filled in, "" where it can."""
        return find_problem(self, lambda: self.estimate)

    @cached_property
    def sources(self) -> list[SourceEstimate]:
        """Return what a valid form would do with each run and cost, or why it cannot be judged."""
        sources = []
        for run in self.runs:
            try:
                plan = plan_judging(run, self._request(), self.member)
                sources.append(SourceEstimate(run, estimate_judging(plan)))
            except DomainError as refusal:
                sources.append(SourceEstimate(run, None, str(refusal)))
        return sources

    @cached_property
    def estimate(self) -> JudgingEstimate:
        """Return what a valid form would do and cost in all; raises CannotJudgeAgainError."""
        if problems := dict.fromkeys(one.problem for one in self.sources if one.problem):
            raise CannotJudgeAgainError(" ".join(problems))
        found = [(one.run, one.estimate) for one in self.sources if one.estimate]
        return found[0][1] if len(found) == 1 else combine_estimates(found)

    def start(self) -> list[Run]:
        """Start a run for each of a valid form; none when refused, with the reason in the errors."""
        try:
            return judge_again(
                self.runs,
                self._request(),
                by=self.member,
                form_key=self.cleaned_data["form_key"],
            )
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return []

    def _request(self) -> JudgingRequest:
        chosen: dict[str, Any] = self.cleaned_data
        rules = chosen["rules"]
        keys = None
        if chosen["case"] and not chosen["everything"]:
            cases = self.run.results.filter(case__in=chosen["case"])
            keys = list(cases.values_list("case__key", flat=True).distinct().order_by())
        return JudgingRequest(
            version=None if rules == DRAFT else int(rules.removeprefix("v")),
            draft=self.draft if rules == DRAFT else None,
            judge=chosen["judge"],
            baseline=baseline_run(self.run.suite, chosen["baseline"]),
            keys=keys,
            query=self.query if chosen["everything"] else None,
            rules=RunRules(samples=chosen["samples"]),
            asks_again=chosen["ask_again"],
            concurrency=chosen["concurrency"],
            budget_usd=chosen["budget"],
            note=chosen["note"],
        )


MAX_RESULTS = 10_000


class MeasureJudgeForm(forms.Form):
    """How many results are drawn, and how often the judge is asked about each again."""

    results = forms.IntegerField(
        label="Results drawn",
        min_value=1,
        max_value=MAX_RESULTS,
        help_text="At random, each with the same probability",
    )
    times = forms.IntegerField(
        label="Times judged again",
        min_value=1,
        max_value=MAX_TIMES,
        help_text="More times tell more about each result, more results about the run.",
    )
    budget = BudgetField(help_text=f"US$. Leave empty to stop at {CAP_TIMES} times the estimate.")
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, run: Run, data: QueryDict | None, *, member: User) -> None:
        """Fill in the usual numbers where nothing was sent."""
        usual = {
            "results": min(USUAL_RESULTS, max(1, run.done_count)),
            "times": USUAL_TIMES,
            "form_key": secrets.token_urlsafe(16),
        }
        super().__init__(usual if data is None else data)
        self.run, self.member = run, member

    @property
    def action(self) -> str:
        """Return the address of the form."""
        return reverse("runs:run-measure-judge", args=(self.run.suite.slug, self.run.number))

    @property
    def submit_label(self) -> str:
        """Return the label of the button."""
        if self.problem:
            return "Measure the judge"
        times = counted(self.cleaned_data["times"], "more time")
        return f"Judge {counted(self.estimate.results, 'result')} {times}"

    @property
    def shown(self) -> list[forms.BoundField]:
        """Return the fields to fill in."""
        return [self[name] for name in ("results", "times", "budget")]

    @cached_property
    def problem(self) -> str:
        """Return why nothing can be measured as the form is filled in, "" where it can."""
        return find_problem(self, lambda: self.estimate)

    @cached_property
    def estimate(self) -> JudgingEstimate:
        """Return what a valid form would ask and cost; raises DomainError."""
        return estimate_judging(plan_measuring(self.run, self._request(), self.member))

    def start(self) -> Run | None:
        """Start the measurement of a valid form; None when refused, with the reason in the errors."""
        try:
            cost = self.estimate.cost_usd
            cap = self.cleaned_data["budget"] or (CAP_TIMES * cost if cost else None)
            return measure_judge(
                self.run,
                self._request(cap),
                by=self.member,
                form_key=self.cleaned_data["form_key"],
            )
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None

    def _request(self, budget_usd: Decimal | None = None) -> MeasuringRequest:
        # The form draws the results that its estimate is about.
        return MeasuringRequest(
            results=self.cleaned_data["results"],
            times=self.cleaned_data["times"],
            budget_usd=budget_usd,
            seed=self.cleaned_data["form_key"],
        )
