"""The form that measures the judge of a run, with the price of what it asks."""

from __future__ import annotations

import secrets
from decimal import Decimal
from functools import cached_property

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict
from django.urls import reverse

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.models.runs import Run
from runs.requests import MoneyField
from runs.running.judging_estimate import JudgingEstimate, estimate_judging
from runs.running.measuring import (
    MAX_TIMES,
    USUAL_RESULTS,
    USUAL_TIMES,
    MeasuringRequest,
    measure_judge,
    plan_measuring,
)

MAX_RESULTS = 10_000
# Calls of judges differ in their tokens, and some are repeated.
CAP_TIMES = 2


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
    budget = MoneyField(
        required=False,
        min_value=0,
        help_text=f"US$. Leave empty to stop at {CAP_TIMES} times the estimate.",
    )
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
        if not self.is_valid():
            return str(next(iter(self.errors.values()))[0])
        try:
            _ = self.estimate
        except DomainError as refusal:
            return str(refusal)
        return ""

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
