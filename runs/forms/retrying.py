"""Ask for results to be tried again: which ones, what of them, and what that will take."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Exists, QuerySet
from django.http import QueryDict
from django.urls import reverse

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted, thousands
from runs import services
from runs.forms.resuming import NewBudgetField
from runs.models import OPEN_RESULT_STATUSES, Result, Run
from runs.reports.matching import matching_results, retryable_results
from runs.reports.results_query import LARGEST, ResultsQuery
from runs.reports.retry_plan import RetryPlan, could_not_score, has_said, retry_plan
from runs.reports.run_errors import ids_with_error_of
from runs.services.script_rights import scripts_problem_again

WHICH = (("errored", "errored"), ("failed", "failed"), ("all_missing", "missing"))
ONLY = (("all", "All of them"), ("unscored", "Only where it could not score"))
LONGEST_NAMED = 40


class CasesField(forms.Field):
    """The cases whose rows were ticked, by number."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[int]:
        """Read the numbers; raises ValidationError for what is none."""
        for text in value or ():
            if not text.isdecimal() or int(text) >= LARGEST:
                raise forms.ValidationError(f"“{text[:LONGEST_NAMED]}” is no case of this run.")
        return sorted({int(text) for text in value or ()})


class AgainForm(forms.Form):
    """What every retry is asked with.

    `path` is the one evaluator that is to score again. `seen` is the newest request for retries
    that whoever asks knew of, `count` how many results they were told of.
    """

    keep_output = forms.BooleanField(required=False)
    path = forms.CharField(required=False, strip=False)
    only = forms.ChoiceField(choices=ONLY, required=False)
    seen = forms.IntegerField(required=False, min_value=0, max_value=LARGEST - 1)
    count = forms.IntegerField(required=False, min_value=0)
    budget = NewBudgetField()

    names: tuple[str, ...] = ("path",)
    refusal = ""
    data: QueryDict

    def __init__(self, run: Run, data: QueryDict) -> None:
        """Ask about one run."""
        super().__init__(data)
        self.run = run

    def clean_path(self) -> str:
        """Return the path of an evaluator that the run has."""
        path: str = self.cleaned_data["path"]
        try:
            services.check_paths(self.run, [path] if path else [])
        except DomainError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal
        return path

    def meant(self) -> QuerySet[Result]:
        """Return the results that are named, whatever their state."""
        raise NotImplementedError

    @property
    def names_results(self) -> bool:
        """Tell whether the form says which results it means, whatever else is wrong with it."""
        return set(self.errors) <= {"budget"}

    @property
    def is_only_unscored(self) -> bool:
        """Tell whether the one evaluator scores again only where it could not."""
        return self.data.get("only") == "unscored"

    @property
    def keeps_output(self) -> bool:
        """Tell whether the outputs stay; where nobody said so, they do for errors alone."""
        return bool(self.data.get("keep_output", self.keeps_by_default))

    @property
    def keeps_by_default(self) -> bool:
        """Tell what is proposed."""
        return False

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Return what names the results, as the fields of the form that asks for them at last."""
        return [(name, value) for name in self.names for value in self.data.getlist(name) if value]

    @property
    def all_chosen(self) -> QuerySet[Result]:
        """Return the results that can be tried again of those named; none while the form is wrong."""
        if not self.names_results:
            return self.run.results.none()
        found = self.meant().filter(pk__in=retryable_results(self.run).values("pk"))
        path = self.cleaned_data["path"]
        return found.filter(has_said(path), output__isnull=False) if path else found

    def chosen(self) -> QuerySet[Result]:
        """Return the results that would be tried again."""
        found = self.all_chosen
        is_part = self.is_only_unscored and self.cleaned_data["path"]
        return found.filter(self.unscored()) if is_part else found

    def unscored(self) -> Exists:
        """Return what finds the results that the one evaluator could not score."""
        return could_not_score(self.cleaned_data["path"])

    def plan(self) -> RetryPlan:
        """Return what trying all of the named results again would do."""
        found = self.all_chosen
        return retry_plan(self.run, found, self.cleaned_data.get("path", ""))

    def plan_of_unscored(self) -> RetryPlan | None:
        """Return what it would do only where one evaluator could not score; None where that is no choice."""
        if not self.names_results or not self.cleaned_data["path"]:
            return None
        found = self.all_chosen.filter(self.unscored())
        count = found.count()
        is_choice = 0 < count < self.all_chosen.count()
        return retry_plan(self.run, found, self.cleaned_data["path"]) if is_choice else None

    def scripts_problem(self, user: User) -> str:
        """Return why the site would not do it for the user as proposed, when programs are to run; else ""."""
        if not self.names_results:
            return ""
        asks_target = not (self.cleaned_data["path"] or self.keeps_output)
        return scripts_problem_again(self.run, user, asks_target=asks_target)

    def named(self) -> dict[str, Any]:
        """Return what names the results to the service, which says of open ones that they are."""
        named = self.chosen() or self.meant().filter(status__in=OPEN_RESULT_STATUSES)
        return {"result_ids": list(named.values_list("pk", flat=True))}

    def retry(self, asked_by: User) -> str:
        """Queue the results and say how many; "" with the reason in errors or `refusal` when refused."""
        if not self.is_valid():
            return ""
        path = self.cleaned_data["path"]
        try:
            count = services.retry_results(
                self.run,
                asked_by=asked_by,
                **self.named(),
                keep_output=self.cleaned_data["keep_output"],
                paths=[path] if path else None,
                budget_usd=self.cleaned_data["budget"],
                seen_retry=self.cleaned_data["seen"],
            )
        except services.BudgetSpentError as refusal:
            self.add_error("budget", str(refusal))
            return ""
        except DomainError as refusal:
            self.refusal = str(refusal)
            return ""
        return self.done(count)

    def done(self, count: int) -> str:
        """Say how many results are tried again, and how many are not that were counted on."""
        # Of the results where one evaluator could not score, another number was said.
        others = 0 if self.cleaned_data["path"] else (self.cleaned_data["count"] or count) - count
        said = f"{counted(count, 'result')} {'is' if count == 1 else 'are'} tried again."
        if others > 0:
            said += f" {thousands(others)} more had been reached by another retry meanwhile."
        return said


class RunRetryForm(AgainForm):
    """Results of a run by their kind, by an error they share, by ticked rows, or all of a filter."""

    which = forms.ChoiceField(choices=WHICH, required=False)
    like = forms.IntegerField(required=False, min_value=1, max_value=LARGEST - 1)
    case = CasesField(required=False)
    everything = forms.BooleanField(required=False)
    names = ("which", "like", "everything", "case", "path", "verdict", "tag", "q", "sort")

    def __init__(self, run: Run, data: QueryDict) -> None:
        """Ask about one run; the filter stands in the data as in an address."""
        super().__init__(run, data)
        self.query = ResultsQuery.read(data)

    @property
    def action(self) -> str:
        """Return where the form is sent."""
        return reverse("runs:run-retry", args=(self.run.suite.slug, self.run.number))

    @property
    def back(self) -> str:
        """Return where it was asked."""
        page = reverse("runs:run", args=(self.run.suite.slug, self.run.number))
        return page + self.query.address().rstrip("?")

    @property
    def keeps_by_default(self) -> bool:
        """Tell what is proposed: an error after the output needs no new one."""
        return bool(self.data.get("like")) or self.data.get("which") == "errored"

    def clean_case(self) -> list[int]:
        """Return the ticked cases; raises ValidationError for one that the run does not have."""
        cases: list[int] = self.cleaned_data["case"]
        known = self.run.results.filter(case__in=cases).values_list("case_id", flat=True)
        strangers = set(cases) - set(known)
        if strangers:
            raise forms.ValidationError(f"Case {min(strangers)} is not in run {self.run}.")
        return cases

    def clean(self) -> dict[str, Any]:
        """Refuse to guess what is meant."""
        named = ("which", "like", "case", "everything", "path")
        if not self.errors and not any(self.cleaned_data.get(name) for name in named):
            raise forms.ValidationError("Nothing is chosen. Tick at least one result to retry.")
        return self.cleaned_data

    def meant(self) -> QuerySet[Result]:
        """Return the results that are named, whatever their state."""
        asked, results = self.cleaned_data, self.run.results.all()
        if asked["everything"]:
            return matching_results(self.run, self.query)
        if asked["case"]:
            return results.filter(case__in=asked["case"])
        if asked["like"]:
            return results.filter(pk__in=ids_with_error_of(self.run, asked["like"]))
        return results.filter(services.of_kind(asked["which"])) if asked["which"] else results

    def named(self) -> dict[str, Any]:
        """Return what names the results to the service: their kind, where nothing else narrows it."""
        asked = self.cleaned_data
        narrower = ("everything", "case", "like", "path")
        if asked["which"] and not any(asked[name] for name in narrower):
            return {"which": asked["which"]}
        return super().named()


class ResultRetryForm(AgainForm):
    """One result."""

    def __init__(self, run: Run, data: QueryDict, *, key: str, repetition: int) -> None:
        """Ask about one execution; raises Result.DoesNotExist for one the run does not have."""
        super().__init__(run, data)
        self.result = run.results.select_related("case").get(case__key=key, repetition=repetition)

    @property
    def action(self) -> str:
        """Return where the form is sent."""
        return reverse("runs:result-retry", args=self._place)

    @property
    def back(self) -> str:
        """Return where it was asked."""
        return reverse("runs:result", args=self._place)

    @property
    def _place(self) -> tuple[str, int, str, int]:
        found = self.result
        return self.run.suite.slug, self.run.number, found.case.key, found.repetition

    def meant(self) -> QuerySet[Result]:
        """Return the result."""
        return self.run.results.filter(pk=self.result.pk)

    def done(self, count: int) -> str:
        """Say what is repeated."""
        if self.cleaned_data["path"]:
            return f"{self.cleaned_data['path']} scores again; the output stays."
        if self.cleaned_data["keep_output"]:
            return "The output is scored again."
        return "The result is tried again."
