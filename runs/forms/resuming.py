"""Go on with a run that ended early."""

from __future__ import annotations

from decimal import Decimal

from django import forms
from django.contrib.auth.models import AnonymousUser, User
from django.http import QueryDict

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs import services
from runs.forms.money import MoneyField
from runs.models import RESUMABLE_RUN_STATUSES, Run
from runs.services.script_rights import scripts_problem_again


class NewBudgetField(MoneyField):
    """A new cap for the whole run, what it has spent included; empty leaves the cap as it is."""

    default_error_messages = {
        "invalid": "The new budget is an amount in US dollars, such as 2.50.",
    }

    def __init__(self) -> None:
        """Take any amount above zero."""
        super().__init__(label="New budget", required=False, min_value=Decimal("0.000001"))


class ResumeForm(forms.Form):
    """A new cap for a run whose budget is spent; empty leaves the cap as it is."""

    budget = NewBudgetField()

    def __init__(self, run: Run, data: QueryDict | None = None) -> None:
        """Ask about one run."""
        super().__init__(data)
        self.run = run

    def scripts_problem(self, user: User | AnonymousUser) -> str:
        """Return why the run may not go on for the user, when programs are to run; else ""."""
        is_over_early = self.run.status in RESUMABLE_RUN_STATUSES
        return scripts_problem_again(self.run, user) if is_over_early else ""

    def resume(self, resumed_by: User) -> str:
        """Let the run go on and say with how much; "" with the reason among the errors when refused."""
        if not self.is_valid():
            return ""
        try:
            count = services.resume_run(
                self.run, resumed_by=resumed_by, budget_usd=self.cleaned_data["budget"]
            )
        except services.BudgetSpentError as refusal:
            self.add_error("budget", str(refusal))
            return ""
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return ""
        return f"{counted(count, 'result')} {'is' if count == 1 else 'are'} left to run."
