"""The form that starts an alignment, with what it can prove and its price."""

from __future__ import annotations

import secrets
from decimal import Decimal
from functools import cached_property

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict
from django.urls import reverse

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.costs import CAP_TIMES
from runs.models.jobs import ModelJob
from runs.models.suites import Suite
from runs.requests import BudgetField, find_problem
from runs.reviews.alignment.page import power_text
from runs.reviews.alignment.planning import (
    MAX_CANDIDATES,
    USUAL_CANDIDATES,
    AlignableEvaluator,
    AlignmentPlan,
    AlignmentRequest,
    alignable_evaluators,
    plan_alignment,
)
from runs.reviews.alignment.services import cap_usd, price_text, start_alignment


class AlignForm(forms.Form):
    """Which evaluator is aligned, which model writes how many candidates, and what it may cost."""

    evaluator = forms.ChoiceField(
        help_text="Reviews are about whole results: choose an evaluator that has to say the same."
    )
    writer = forms.ModelChoiceField(
        LanguageModel.objects.order_by("name"),
        label="Model that writes",
        to_field_name="slug",
        empty_label=None,
        help_text="It sees one half of the decisions, never the other.",
    )
    candidates = forms.IntegerField(
        min_value=1,
        max_value=MAX_CANDIDATES,
        help_text="Each is judged on the other half. More candidates need clearer evidence.",
    )
    budget = BudgetField(help_text=f"US$. Leave empty to stop at {CAP_TIMES} times the estimate.")
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, suite: Suite, data: QueryDict | None, *, member: User, path: str) -> None:
        """Choose the evaluator of the address where nothing was sent."""
        self.suite, self.member = suite, member
        self.evaluators: list[AlignableEvaluator] = alignable_evaluators(suite)
        possible = [entry.path for entry in self.evaluators if not entry.problem]
        usual = {
            "evaluator": path if path in possible else next(iter(possible), ""),
            "writer": suite.judge.slug if suite.judge else "",
            "candidates": USUAL_CANDIDATES,
            "form_key": secrets.token_urlsafe(16),
        }
        super().__init__(usual if data is None else data)
        self.fields["evaluator"].choices = [(path, path) for path in possible]  # type: ignore[attr-defined]  # a ChoiceField

    @property
    def action(self) -> str:
        """Return the address of the form."""
        return reverse("runs:alignments", args=(self.suite.slug,))

    @property
    def shown(self) -> list[forms.BoundField]:
        """Return the fields to fill in."""
        return [self[name] for name in ("evaluator", "writer", "candidates", "budget")]

    @property
    def impossible(self) -> list[AlignableEvaluator]:
        """Return the evaluators that cannot be aligned."""
        return [entry for entry in self.evaluators if entry.problem]

    @cached_property
    def problem(self) -> str:
        """Return why nothing can be started as the form is filled in, "" where it can."""
        return find_problem(self, lambda: self.cap)

    @cached_property
    def plan(self) -> AlignmentPlan:
        """Return the plan of a valid form; raises DomainError."""
        return plan_alignment(self.suite, self._request())

    @cached_property
    def cap(self) -> Decimal:
        """Return the budget; raises DomainError."""
        return cap_usd(self.plan.estimate, self.cleaned_data["budget"])

    @property
    def price(self) -> str:
        """Return the price in words."""
        return price_text(self.plan.estimate, self.cap)

    @property
    def power(self) -> str:
        """Say what the held-out half can prove."""
        return power_text(self.plan.spec, self.cleaned_data["candidates"])

    def start(self) -> ModelJob | None:
        """Start the alignment of a valid form; None when refused, with the reason in the errors."""
        try:
            return start_alignment(
                self.suite,
                self._request(),
                by=self.member,
                form_key=self.cleaned_data["form_key"],
            )
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None

    def _request(self) -> AlignmentRequest:
        values = self.cleaned_data
        return AlignmentRequest(
            path=values["evaluator"],
            writer=values["writer"],
            candidates=values["candidates"],
            budget_usd=values["budget"],
            # The form splits the decisions as its estimate did.
            seed=values["form_key"] or secrets.token_urlsafe(16),
        )


class ResumeAlignmentForm(forms.Form):
    """A new budget for an alignment that ended early."""

    budget = BudgetField()
