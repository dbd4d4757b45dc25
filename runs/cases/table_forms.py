"""Import a table of cases: choose a file, map its columns, preview the cases, store them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.files.uploadedfile import UploadedFile
from django.forms.boundfield import BoundField
from django.http import QueryDict
from django.utils.text import Truncator

from evaluators.detours import ADD_MODEL, offer
from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs import lists
from runs.cases.preview import PreviewRow, RowChoices, read_choices
from runs.cases.uploads import Shown, TableView, UploadedTable, keep_upload, store_upload
from runs.files.forms import MAX_SUITE_BYTES, SuiteImportForm
from runs.files.importing import check_slug
from runs.formats.finding import FoundSuites
from runs.formats.lines import LINES_SUFFIXES, Form, detect_form
from runs.formats.suite_files import make_slug
from runs.formats.table_cases import Existing, Rejected, TableReading, rejected_csv
from runs.formats.table_mapping import LABELS, CaseMapping, CasePart, Split
from runs.formats.tables import Table
from runs.formats.tools import recognise
from runs.formats.tools._base import TABLE_SUFFIXES, open_file
from runs.lists import Chip, ListQuery, NumberedPage, numbered_page, read_integer
from runs.models.suites import Suite
from runs.models.temporary import CaseUpload
from runs.specs.problems import UnreadableFileError
from runs.specs.profiles import get_profile
from runs.suites.edits import MAX_TITLE_LENGTH
from runs.suites.forms import EMPTY, NewSuiteForm

CASES_A_PAGE = 20
ROWS_A_PAGE = 50
MAX_SAMPLE_LENGTH = 120
# What may precede a JSON list: white space and a byte order mark.
BLANK = b" \t\r\n\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TablePreview:
    """The result of a mapping: counts, a page of the cases, a page of the rejected rows."""

    cases: int
    ticked: int
    updates: int
    repeats: int
    rejected: int
    skipped: int
    blank: int
    unused: tuple[tuple[str, int], ...]
    chips: Sequence[Chip]
    cases_page: NumberedPage[int]
    rows: Sequence[PreviewRow]
    rejected_page: NumberedPage[Rejected]
    makes_keys: bool


SHOWN: Mapping[str, str] = {
    "": "All",
    Shown.REPEATS: "Repetitions",
    Shown.PROBLEMS: "With problems",
    Shown.UNTICKED: "Not ticked",
}


@dataclass(frozen=True, slots=True)
class PreviewQuery(ListQuery):
    """Which cases to show, their page, and the page of the rejected rows."""

    show: str = lists.choice(list(Shown))
    cases: int = lists.page_number()
    page: int = lists.page_number()


def preview(table: UploadedTable, reading: TableReading, query: PreviewQuery) -> TablePreview:
    """Return the preview with a page of the cases and one of the rejected rows."""
    view = TableView(table, reading)
    counts = {name: len(view.shown(name)) for name in SHOWN}
    cases_page = numbered_page(view.shown(query.show), query, CASES_A_PAGE, name="cases")
    return TablePreview(
        cases=counts[""],
        ticked=counts[""] - counts[Shown.UNTICKED],
        updates=sum(key in table.known.keys for key in view.keys.values()),
        repeats=counts[Shown.REPEATS],
        rejected=len(view.index.rejected),
        skipped=view.index.skipped,
        blank=table.table.blank,
        unused=tuple(view.index.unused.items()),
        chips=[
            Chip(label, query.address(show=name, page=query.page), name == query.show, counts[name])
            for name, label in SHOWN.items()
            if counts[name] or name in ("", query.show)
        ],
        cases_page=cases_page,
        rows=view.rows(cases_page.rows),
        rejected_page=numbered_page(view.index.rejected, query, ROWS_A_PAGE),
        makes_keys=CasePart.KEY not in reading.mapping.parts,
    )


def new_suite_text(upload: CaseUpload) -> str:
    """Return a sentence with profile and judge of the new suite an upload makes, "" if it makes none."""
    begins = upload.begins
    if not begins:
        return ""
    profile = get_profile(begins["profile"]).label if begins["profile"] else ""
    judge = LanguageModel.objects.filter(slug=begins["judge"]).first() if begins["judge"] else None
    start = f"It starts from the profile {profile}" if profile else "It starts without evaluators"
    return f"{start}, {f'judged by {judge.name}' if judge else 'without a judge'}."


def column_samples(table: Table) -> list[str]:
    """Return the first filled cell of each column."""
    return [_sample(table, place) for place in range(len(table.columns))]


def rejected_file(upload: CaseUpload) -> Iterable[str]:
    """Yield the rejected rows of an upload as CSV, read by its last mapping."""
    table = UploadedTable(upload)
    return rejected_csv(table.table, table.cases(table.reading).rejected)


def stored_page(upload: CaseUpload) -> dict[str, Any]:
    """Return the context of the page of a stored upload."""
    has_runs = upload.suite is not None and upload.suite.runs.exists()
    return {"upload": upload, "table": None, "has_runs": has_runs}


def _sample(table: Table, place: int) -> str:
    cells = (row.cells[place] for row in table.rows if not row.unread)
    first = next((cell for cell in cells if cell not in ("", None) and str(cell).strip()), "")
    text = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False)
    return Truncator(text.replace("\x00", "\N{REPLACEMENT CHARACTER}")).chars(MAX_SAMPLE_LENGTH)


ACCEPTED = ".csv,.tsv,.txt,.jsonl,.ndjson,.json,text/csv,application/json"
MAX_PASTE_LENGTH = 2_000_000
PASTED = "pasted rows"
SPLITS = (
    (Split.LINES, "One per line"),
    (Split.SEMICOLON, "Separated by semicolons"),
    (Split.BAR, "Separated by bars |"),
    (Split.NONE, "One outcome per cell"),
)
EXISTING = (
    (Existing.UPDATE, "Update the case: a new revision if the row differs"),
    (Existing.SKIP, "Keep the case and skip the row"),
    (Existing.REFUSE, "Reject the row"),
)


class CaseFileForm(forms.Form):
    """A table of cases: a file, or rows pasted from a spreadsheet."""

    file = forms.FileField(
        required=False,
        allow_empty_file=True,
        help_text="CSV from any spreadsheet, JSON Lines or a JSON list; up to 50 MB, with column names "
        "in the first row",
        widget=forms.FileInput(attrs={"accept": ACCEPTED}),
    )
    pasted = forms.CharField(
        label="Or paste rows",
        required=False,
        strip=False,
        max_length=MAX_PASTE_LENGTH,
        help_text="Including the row of column names; cells copied from a spreadsheet are separated by tabs",
        widget=forms.Textarea(attrs={"rows": 5, "data-code": True, "spellcheck": "false"}),
    )

    def clean(self) -> dict[str, Any]:
        """Require a file or rows, not both."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        file, pasted = values.get("file"), (values.get("pasted") or "").strip()
        if file and pasted:
            self.add_error("pasted", "Choose a file or paste rows, not both.")
        elif not file and not pasted and not self.errors:
            self.add_error("file", "Choose a file, or paste rows below.")
        return values

    def keep(
        self, by: User, *, suite: Suite | None = None, begins: dict[str, Any] | None = None
    ) -> CaseUpload | None:
        """Keep the table for the next step; None, with the reason among the errors, if it is not a table."""
        file = self.cleaned_data.get("file")
        content = file.read() if file else self.cleaned_data["pasted"].encode()
        name = str(file.name) if file else PASTED
        try:
            return keep_upload(bytes(content), name=name, owner=by, suite=suite, begins=begins)
        except UnreadableFileError as refusal:
            for problem in refusal.problems:
                line = f"line {problem.line}: " if problem.line else ""
                message = f"{line}{problem.message}."
                self.add_error("file" if file else "pasted", message[:1].upper() + message[1:])
            return None


class NewSuiteFromTableForm(NewSuiteForm, CaseFileForm):
    """A new suite with the cases of a table."""

    field_order = ("title", "slug", "file", "pasted", "start", "judge", "description", "tags")

    def clean(self) -> dict[str, Any]:
        """Check the suite and the table."""
        NewSuiteForm.clean(self)
        return CaseFileForm.clean(self)

    def keep_with_suite(self, by: User) -> CaseUpload | None:
        """Keep the table and the new suite's settings; None if the file is not a table."""
        values = self.cleaned_data
        begins = {name: values[name] for name in ("title", "slug", "tags")}
        begins["description"] = values["description"].strip()
        begins["judge"] = values["judge"].slug if values["judge"] else ""
        begins["profile"] = "" if values["start"] == EMPTY else values["start"]
        return self.keep(by, begins=begins)


USUAL_PROFILE = "verdicts"


class ImportForm(SuiteImportForm):
    """Files of any form: suites, or one table whose rows become the cases of a new suite.

    `table` is the table, None where the files are suites.
    """

    table: UploadedFile[Any] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take tables too, and offer to add a judge."""
        super().__init__(*args, **options)
        self.fields["suite_files"].widget.attrs["accept"] += f",{','.join(TABLE_SUFFIXES)}"
        offer(self, "judge", ADD_MODEL)

    def clean_suite_files(self) -> FoundSuites:
        """Return the suites; none where the only file is a table."""
        files = self.cleaned_data["suite_files"]
        is_alone = len(files) == 1 and not self.cleaned_data.get("folder")
        if is_alone and (files[0].size or 0) <= MAX_SUITE_BYTES and _is_table(files[0]):
            self.table = files[0]
            return FoundSuites(())
        return super().clean_suite_files()

    def keep_table(self, table: UploadedFile[Any], by: User) -> CaseUpload | None:
        """Keep the table for its preview; None, with the reason among the errors, if that is refused."""
        values, name = self.cleaned_data, str(table.name)
        title = re.sub(r"[-_\s]+", " ", PurePosixPath(name).stem).strip()
        title = f"{title[:1].upper()}{title[1:]}" or "Cases"
        judge = values["judge"] or LanguageModel.find_only()
        begins: dict[str, Any] = {
            "title": title[:MAX_TITLE_LENGTH],
            "slug": values["slug"] or make_slug(title) or "cases",
            "tags": [],
            "description": "",
            "judge": judge.slug if judge else "",
            "profile": values["profile"] or USUAL_PROFILE,
        }
        if Suite.objects.filter(slug=begins["slug"]).exists():
            message = (
                f"There is already a suite “{begins['slug']}”. Give the new one another short name, or "
                "import the table on the Cases page of that suite."
            )
            self.add_error("slug", message)
            return None
        try:
            check_slug(begins["slug"])
            table.seek(0)
            return keep_upload(bytes(table.read()), name=name, owner=by, begins=begins)
        except UnreadableFileError as refusal:
            self.add_error("suite_files", self._refused(refusal, name))
        except DomainError as refusal:
            self.add_error("slug", str(refusal))
        return None


def _is_table(file: UploadedFile[Any]) -> bool:
    """Tell whether a file is a table of cases, neither a suite nor the file of another tool."""
    name = str(file.name).lower()
    if not name.endswith((*TABLE_SUFFIXES, *LINES_SUFFIXES, ".json")):
        return False
    content = bytes(file.read())
    file.seek(0)
    if name.endswith(LINES_SUFFIXES):
        is_table = detect_form(content) is Form.OTHER
    else:
        is_table = not name.endswith(".json") or content.lstrip(BLANK)[:1] == b"["
    if not is_table:
        return False
    opened = open_file(name, content)
    return not (opened and recognise(opened))


class CaseColumnsForm(forms.Form):
    """What each column of a table is, and how its rows become cases."""

    split = forms.ChoiceField(
        label="Several outcomes in a cell",
        choices=SPLITS,
        help_text="A JSON list is always read as a list",
    )
    existing = forms.ChoiceField(label="A key that the suite already has", choices=EXISTING)
    last_answer = forms.BooleanField(
        required=False,
        label="Use the answer that ends a conversation as the expected output",
    )
    leave_out = forms.BooleanField(required=False, label="Leave out rejected rows")

    def __init__(self, table: UploadedTable, data: QueryDict | None, query: PreviewQuery) -> None:
        """Add a field for every column, with the last choice or a suggestion."""
        reading = table.reading
        initial: dict[str, Any] = {f"column-{n}": p for n, p in enumerate(reading.mapping.parts)}
        initial |= {"split": reading.mapping.split, "last_answer": reading.mapping.last_answer}
        initial["existing"] = reading.existing
        super().__init__(data, initial=initial)
        self.table, self.query, self._sent = table, query, data or QueryDict()
        choices = [(part.value, LABELS[part]) for part in CasePart]
        for place, name in enumerate(table.table.columns):
            self.fields[f"column-{place}"] = forms.ChoiceField(
                label=f"What {name} is", choices=choices
            )
        if not table.known.keys:
            del self.fields["existing"]

    def columns(self) -> list[BoundField]:
        """Return the field of each column."""
        return [self[f"column-{place}"] for place in range(len(self.table.table.columns))]

    def clean(self) -> dict[str, Any]:
        """Refuse a mapping that makes no cases."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            for problem in self.chosen().mapping.problems():
                self.add_error(None, f"{problem[:1].upper()}{problem[1:]}.")
        return values

    def chosen(self) -> TableReading:
        """Return the chosen way to read the table."""
        values = self.cleaned_data
        parts = tuple(CasePart(values[f"column-{n}"]) for n in range(len(self.table.table.columns)))
        mapping = CaseMapping(parts, Split(values["split"]), values["last_answer"])
        return TableReading(mapping, Existing(values.get("existing", Existing.UPDATE)))

    def page(self) -> dict[str, Any]:
        """Return the context of the page: the columns with samples, and the preview."""
        names, cells = self.table.table.columns, column_samples(self.table.table)
        reading, suite = self._readable(), self.table.upload.suite
        return {
            "form": self,
            "upload": self.table.upload,
            "new_suite_text": new_suite_text(self.table.upload),
            "table": self.table.table,
            "columns": list(zip(self.columns(), names, cells, strict=True)),
            "preview": preview(self.table, reading, self.query) if reading else None,
            "query": self.query,
            "is_alone": False,
            "suite": suite,
            "seen": suite.version_stamp if suite else "",
            "problems": () if self.is_bound else self.table.reading.mapping.problems(),
        }

    def _readable(self) -> TableReading | None:
        """Return how the preview reads the table, None if that makes no cases."""
        if self.is_bound and self.errors.keys() - {NON_FIELD_ERRORS}:
            return None
        reading = self.chosen() if self.is_bound else self.table.reading
        return None if reading.mapping.problems() else reading

    def keep(self) -> bool:
        """Store with the upload what was changed in its rows, and how to read it; False if that is refused."""
        reading = self.table.reading
        if "shown" in self._sent and not reading.mapping.problems():
            self._keep_choices(reading)
        if not self.is_valid():
            return False
        self.table.keep(self.chosen())
        return True

    def _keep_choices(self, reading: TableReading) -> None:
        """Keep what the rows say, which were shown as they were read before this form, then tick all or none."""
        sent = map(read_integer, self._sent.getlist("shown"))
        places = {place for place in sent if place is not None}
        read = self.table.read_cases(reading, places, self.table.index(reading).titles)
        self.table.keep_choices(read_choices(self.table.rows(read), self._sent))
        if (every := self._sent.get("all")) in ("tick", "untick"):
            shown = TableView(self.table, reading).shown(self.query.show)
            self.table.keep_choices(RowChoices(dict.fromkeys(shown, every == "tick"), {}))

    def store(self, by: User) -> CaseUpload | None:
        """Store the cases; None, with the reason among the errors, if that is refused."""
        if not self.keep():
            return None
        leaves_out = self.cleaned_data["leave_out"]
        try:
            seen = str(self._sent.get("seen", ""))
            return store_upload(self.table, self.chosen(), leaves_out=leaves_out, by=by, seen=seen)
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None
