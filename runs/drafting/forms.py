"""The form that asks for drafted cases, with their price, and the form of what is kept of them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from evaluators.detours import ADD_MODEL, offer
from evaluators.models import LanguageModel
from evaluators.reading.json import storable
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.forms import plain_lines
from runs.costs import CAP_TIMES
from runs.drafting.material import MAX_DOCUMENTS, SourceText, document_text
from runs.drafting.preview import FIELDS, DraftedRow, Proposal
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
from runs.formats.suite_cases import MAX_KEY_LENGTH, MAX_TITLE_LENGTH
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
        named = asked.get("run", "")
        if named.isdecimal() and int(named) not in self._runs:
            more = runs.select_related("suite").filter(number=min(int(named), 2**31 - 1))
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


MAX_CELL_LENGTH = 20_000
EDITED = {
    "key": MAX_KEY_LENGTH,
    "title": MAX_TITLE_LENGTH,
    "input": MAX_CELL_LENGTH,
    "expected_output": MAX_CELL_LENGTH,
    "expected_outcomes": MAX_CELL_LENGTH,
    "tags": MAX_CELL_LENGTH,
}
SPLIT_TAGS = re.compile(r"[,\n]")


def read_choices(proposal: Proposal, data: QueryDict) -> Choices:
    """Return what a sent form keeps of drafted cases; rows that it does not have stay as they are."""
    shown = set(data.getlist("shown"))
    sent = [row for row in proposal.rows if str(row.number) in shown]
    taken = {row.number for row in proposal.rows if row.is_taken and row not in sent}
    ticked = set(data.getlist("take"))
    taken |= {row.number for row in sent if str(row.number) in ticked}
    cells = {row.number: _cells(row, data) for row in sent if not row.is_unread}
    return Choices(taken, [name for name in FIELDS if name in data.getlist("field")], cells)


def _cells(row: DraftedRow, data: QueryDict) -> Mapping[str, Any]:
    """Return the cells of a row that were changed."""
    texts = {
        name: storable(plain_lines(str(data[f"{name}-{row.number}"])))[:most]
        for name, most in EDITED.items()
        if f"{name}-{row.number}" in data
    }
    shown = {
        "key": row.key,
        "title": row.cells.get("title", ""),
        "input": row.input_text,
        "expected_output": row.cells.get("expected_output", ""),
        "expected_outcomes": row.outcomes_text,
        "tags": row.tags_text,
    }
    changed = {name: text for name, text in texts.items() if text != shown[name]}
    read: dict[str, Any] = {
        "expected_outcomes": lambda text: [
            line.strip() for line in text.split("\n") if line.strip()
        ],
        "tags": lambda text: [tag.strip() for tag in SPLIT_TAGS.split(text) if tag.strip()],
    }
    return {name: read.get(name, str.strip)(text) for name, text in changed.items()}


def keep(proposal: Proposal, data: QueryDict) -> Proposal:
    """Store what a form keeps and return the drafted cases as they are then."""
    return keep_choices(proposal.job, read_choices(proposal, data))
