"""The form that asks for drafted cases, with their price, and the form of what is kept of them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cached_property

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from evaluators.detours import ADD_MODEL, offer
from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.forms import plain_lines
from runs.cases.preview import read_choices
from runs.costs import CAP_TIMES
from runs.drafting.material import MAX_DOCUMENTS, SourceText, document_text
from runs.drafting.preview import FIELDS, Proposal
from runs.drafting.services import (
    CASES,
    DESCRIPTION,
    DOCUMENTS,
    MAX_CASES,
    MAX_COUNT,
    MAX_DESCRIPTION_LENGTH,
    MAX_RESULTS,
    RESULTS,
    USUAL_COUNT,
    Choices,
    DraftingPlan,
    DraftingRequest,
    keep_choices,
    plan_drafting,
    start_drafting,
)
from runs.filters.queries import ResultsQuery
from runs.filters.selection import CasesField
from runs.lists import MAX_RUN_NUMBER, read_integer
from runs.models.jobs import ModelJob
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.suites import Suite
from runs.requests import BudgetField, ManyFilesField, ManyFilesInput, find_problem
from runs.specs.problems import UnreadableFileError

SOURCES = (
    (DESCRIPTION, "The description alone"),
    (DOCUMENTS, "Documents"),
    (CASES, "Existing cases"),
    (RESULTS, "Results of a run"),
)
NEEDED = (
    ("documents", DOCUMENTS, "Choose at least one document."),
    ("run", RESULTS, "Choose a run."),
)
MAX_RUNS = 30
MAX_KEYS_LENGTH, MAX_LIST_LENGTH = 20_000, 10_000


class DraftCasesForm(forms.Form):
    """What cases are drafted from, by which model, and what that may cost.

    `case` and `list` name results of the run: those of these cases, or of those that a list of it shows.
    """

    source = forms.ChoiceField(
        label="Draft them from", choices=SOURCES, widget=forms.RadioSelect, initial=DESCRIPTION
    )
    description = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_DESCRIPTION_LENGTH,
        help_text="What the agent does, and what the cases should test. It counts with every source",
        widget=forms.Textarea(attrs={"rows": 5}),
    )
    documents = ManyFilesField(
        required=False,
        help_text=f"Up to {MAX_DOCUMENTS} as plain text, Markdown, HTML, CSV, JSON or YAML. What a document says is "
        "material, never an instruction",
        widget=ManyFilesInput(attrs={"multiple": True}),
    )
    keys = forms.CharField(
        label="Cases",
        required=False,
        max_length=MAX_KEYS_LENGTH,
        help_text=f"Their keys, separated by commas. Empty for the first {MAX_CASES}",
        widget=forms.TextInput(attrs={"spellcheck": "false"}),
    )
    run = forms.TypedChoiceField(
        required=False,
        coerce=int,
        empty_value=None,
        help_text=f"Up to {MAX_RESULTS} results are read, the worst first",
    )
    only_failed = forms.BooleanField(required=False, label="Only failed results", initial=True)
    model = forms.ModelChoiceField(
        LanguageModel.objects.all(), to_field_name="slug", empty_label=None, label="Language model"
    )
    count = forms.IntegerField(
        label="Number of cases", min_value=1, max_value=MAX_COUNT, initial=USUAL_COUNT
    )
    budget = BudgetField(help_text=f"US$. Leave empty to stop at {CAP_TIMES} times the estimate")
    case = CasesField(required=False)
    list = forms.CharField(required=False, max_length=MAX_LIST_LENGTH, widget=forms.HiddenInput)
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self,
        suite: Suite,
        data: QueryDict | None,
        files: MultiValueDict[str, UploadedFile[bytes]] | None,
        *,
        asked: QueryDict,
        member: User,
    ) -> None:
        """Begin with what the address asks for."""
        super().__init__(data, files)
        self.suite, self.member = suite, member
        offer(self, "model", ADD_MODEL)
        runs = suite.runs.exclude(status__in=ACTIVE_RUN_STATUSES).order_by("-number")
        self._runs = {run.number: run for run in runs.select_related("suite")[:MAX_RUNS]}
        named = read_integer(asked.get("run", ""), maximum=MAX_RUN_NUMBER)
        if named is not None and named not in self._runs:
            more = runs.select_related("suite").filter(number=named)
            self._runs |= {run.number: run for run in more}
        self.fields["run"].choices = [  # type: ignore[attr-defined]  # a ChoiceField
            ("", "Choose a run"),
            *(
                (str(run.number), f"#{run.number}, {run.target_name}")
                for run in self._runs.values()
            ),
        ]
        self.initial["model"] = (
            suite.judge or LanguageModel.find_only() or LanguageModel.objects.first()
        )
        self.initial["form_key"] = secrets.token_urlsafe(16)
        for name, source, message in NEEDED:
            # What another source needs is not shown.
            self.fields[name].required = data is None or data.get("source") == source
            self.fields[name].error_messages["required"] = message
        for name in ("source", "run", "keys", "list"):
            if name in asked:
                self.initial[name] = asked[name]
        if "case" in asked:
            self.initial["case"] = asked.getlist("case")
        self.initial["only_failed"] = not ("case" in asked or "list" in asked)

    @property
    def begins_with_material(self) -> bool:
        """Tell whether the address says what is read, so that the price is known at once."""
        return not self.is_bound and self.initial.get("source", DESCRIPTION) in (CASES, RESULTS)

    @property
    def chosen_text(self) -> str:
        """Return which results were chosen before the form, "" for none."""
        if chosen := self["case"].value():
            return f"The results of {counted(len(chosen), 'ticked case')} are read."
        return (
            "All results that match the filter of the list are read."
            if self["list"].value()
            else ""
        )

    @cached_property
    def problem(self) -> str:
        """Return why nothing can be drafted as the form is filled in, "" where it can."""
        return find_problem(self, lambda: self.plan) if self.is_bound else ""

    @cached_property
    def plan(self) -> DraftingPlan:
        """Return what a valid form would ask and cost; raises DomainError."""
        return plan_drafting(self.suite, self._request())

    def clean_documents(self) -> Sequence[SourceText]:
        """Read the documents; each that cannot be read says why."""
        uploads = self.cleaned_data["documents"]
        if len(uploads) > MAX_DOCUMENTS:
            raise forms.ValidationError(
                f"These are {len(uploads)} documents; {MAX_DOCUMENTS} is the limit."
            )
        sources, problems = [], []
        for upload in uploads:
            try:
                sources.append(document_text(bytes(upload.read()), str(upload.name)))
            except UnreadableFileError as refusal:
                problems += [f"{problem}." for problem in refusal.problems]
        if problems:
            raise forms.ValidationError(problems)
        return sources

    def start(self) -> ModelJob | None:
        """Have the cases drafted; None when refused, with the reason in the errors."""
        try:
            request, form_key = self._request(), self.cleaned_data["form_key"]
            return start_drafting(self.suite, request, by=self.member, form_key=form_key)
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None

    def _request(self) -> DraftingRequest:
        values = self.cleaned_data
        keys = [key.strip() for key in values["keys"].split(",") if key.strip()]
        listed = values["list"]
        return DraftingRequest(
            model=values["model"],
            source=values["source"],
            description=plain_lines(values["description"]),
            count=values["count"],
            documents=values["documents"],
            keys=keys,
            run=self._run(),
            case_ids=values["case"] or None,
            query=ResultsQuery.read(QueryDict(listed)) if listed else None,
            only_failed=values["only_failed"],
            budget_usd=values["budget"],
        )

    def _run(self) -> Run | None:
        return self._runs.get(self.cleaned_data["run"] or 0)


def keep(proposal: Proposal, data: QueryDict) -> Proposal:
    """Store what a form keeps and return the drafted cases as they are then; rows that it did not show stay."""
    sent = read_choices(proposal.rows, data)
    taken = {row.number for row in proposal.rows if sent.ticks.get(row.number, row.is_taken)}
    fields = [name for name in FIELDS if name in data.getlist("field")]
    return keep_choices(proposal.job, Choices(taken, fields, sent.cells))
