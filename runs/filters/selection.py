"""The results that a form is about: ticked cases of a run, or all that its list shows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.urls import reverse

from runs.filters.language import FilterError
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.lists import read_integer
from runs.models.results import OPEN_RESULT_STATUSES, Result
from runs.models.run_cases import LiveCases
from runs.models.runs import Run

MAX_NAMED_LENGTH = 40


class CasesField(forms.Field):
    """The ids of cases whose rows were ticked."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[int]:
        """Read the ids; raises ValidationError for anything but a number."""
        numbers = set()
        for text in value or ():
            if (number := read_integer(text)) is None:
                raise forms.ValidationError(
                    f"“{text[:MAX_NAMED_LENGTH]}” is not a case of this run."
                )
            numbers.add(number)
        return sorted(numbers)


class RunForm(forms.Form):
    """A form about results of one run; `names` are the fields that name them."""

    names: tuple[str, ...] = ()
    data: QueryDict

    def __init__(self, run: Run, data: QueryDict) -> None:
        """Make the form of one run."""
        super().__init__(data)
        self.run = run

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Return the fields that name the results, for the form that confirms what is done with them."""
        return [(name, value) for name in self.names for value in self.data.getlist(name) if value]


class SelectionForm(RunForm):
    """Cases of a run by ticked rows, or all of a filter, which the data has as an address has it."""

    case = CasesField(required=False)
    everything = forms.BooleanField(required=False)
    choosing: tuple[str, ...] = ("case", "everything")
    names: tuple[str, ...] = (
        *("everything", "case"),
        *(param.name for param in ResultsQuery.params().values() if not param.is_page),
    )

    @cached_property
    def query(self) -> ResultsQuery:
        """Return the list that the form was sent from."""
        return ResultsQuery.read(self.data)

    @property
    def back(self) -> str:
        """Return the address of the page that it returns to."""
        page = reverse("runs:run", args=(self.run.suite.slug, self.run.number))
        return self.query.at(page)

    def clean_case(self) -> list[int]:
        """Return the ticked cases; raises ValidationError for one that the run does not have."""
        cases: list[int] = self.cleaned_data["case"]
        known = self.run.results.filter(case__in=cases).values_list("case_id", flat=True)
        unknown = set(cases) - set(known)
        if unknown:
            raise forms.ValidationError(f"Case {min(unknown)} is not in run {self.run}.")
        return cases

    def clean(self) -> dict[str, Any]:
        """Refuse a form that names no results, or a filter that nothing matches."""
        if not self.errors and not any(self.cleaned_data.get(name) for name in self.choosing):
            raise forms.ValidationError("Nothing is chosen. Tick at least one result.")
        if self.cleaned_data.get("everything"):
            try:
                is_empty = not self.cases().exists()
            except FilterError as error:
                raise forms.ValidationError(f"The filter cannot be read. {error}") from error
            if is_empty:
                raise forms.ValidationError("Nothing is chosen. No result matches the filter.")
        return self.cleaned_data

    def cases(self) -> LiveCases:
        """Return the chosen cases of a valid form."""
        if self.cleaned_data["everything"]:
            return in_state(matching_cases(self.run, self.query), self.query)
        return self.run.cases.live(self.run).filter(case__in=self.cleaned_data["case"])

    def results(self) -> QuerySet[Result]:
        """Return the results of the chosen cases that have ended."""
        chosen = self.run.results.filter(case__in=self.cases().order_by().values("case_id"))
        return chosen.exclude(status__in=OPEN_RESULT_STATUSES)
