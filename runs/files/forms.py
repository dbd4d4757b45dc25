"""Forms to import suites, recorded outputs and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.files.importing import (
    ImportedFile,
    ImportedOutputs,
    import_recorded_outputs,
    import_suites,
)
from runs.files.importing_results import ImportedResults, import_results
from runs.formats.bundles import read_uploads
from runs.formats.finding import OTHER_SUFFIXES, SUFFIXES, FoundSuites, read_suites
from runs.formats.recorded_outputs import read_outputs
from runs.formats.tools import TOOLS_OF_RESULTS, TOOLS_OF_SUITES
from runs.models.suites import Suite, Target
from runs.requests import ManyFilesField, upload_streams
from runs.scripts import prompt_programs
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.profiles import all_profiles

# Sessions must stay small.
MAX_WARNINGS = 200


@dataclass(frozen=True, slots=True)
class ImportedSuiteRow:
    """One imported suite: `before` is its version before the import, None if it is new."""

    slug: str
    title: str
    version: int
    before: int | None
    note: str
    cases: int
    path: str

    @property
    def is_changed(self) -> bool:
        """Tell whether the import made a version."""
        return self.version != self.before


@dataclass(frozen=True, slots=True)
class ImportAnswer:
    """The result of an import; `left` counts warnings that are not shown."""

    suites: Sequence[ImportedSuiteRow]
    target: Mapping[str, Any] | None
    warnings: Sequence[Problem]
    left: int

    @property
    def new(self) -> int:
        """Return how many suites are new."""
        return sum(row.before is None for row in self.suites)

    @property
    def changed(self) -> int:
        """Return how many existing suites got a new version."""
        return sum(row.is_changed and row.before is not None for row in self.suites)

    @property
    def unchanged(self) -> int:
        """Return how many suites did not change."""
        return sum(not row.is_changed for row in self.suites)


def dump_answer(
    files: Sequence[ImportedFile], target: Target | None, warnings: Sequence[Problem]
) -> dict[str, Any]:
    """Return the result of an import as plain JSON values."""
    rows = [
        ImportedSuiteRow(
            slug=file.imported.suite.slug,
            title=file.imported.suite.title,
            version=file.imported.suite.version,
            before=file.imported.version_before,
            note=file.imported.note,
            cases=file.imported.cases,
            path=file.path,
        )
        for file in files
    ]
    outputs = target and {"pk": target.pk, "name": target.name}
    shown = warnings[:MAX_WARNINGS]
    return {
        "suites": [asdict(row) for row in rows],
        "target": outputs,
        "warnings": [asdict(warning) for warning in shown],
        "left": len(warnings) - len(shown),
    }


def load_answer(kept: Mapping[str, Any]) -> ImportAnswer:
    """Return the result from the values of kept_answer."""
    return ImportAnswer(
        suites=[ImportedSuiteRow(**row) for row in kept["suites"]],
        target=kept["target"],
        warnings=[Problem(**warning) for warning in kept["warnings"]],
        left=kept["left"],
    )


MAX_SUITE_BYTES = 50 * 1024 * 1024
MAX_PROBLEMS = 500
MAX_OUTPUT_BYTES = 200 * 1024 * 1024
ACCEPTED = (*SUFFIXES, *OTHER_SUFFIXES, ".zip", ".md", ".txt", ".py", ".sh", ".js")
ACCEPTED_RESULTS = ".jsonl,.ndjson,.json,.yaml,.yml,.csv,.tsv,.eval,.zip,application/jsonl"
FOLDER = {"webkitdirectory": True, "data-paths": "folder_paths"}


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The result of an import: the suites of its files, the target of its outputs, and warnings."""

    files: tuple[ImportedFile, ...]
    target: Target | None
    warnings: tuple[Problem, ...]


def _profiles() -> list[tuple[str, str]]:
    own = "As in the file: without evaluators, one judge scores by what each case expects."
    presets = ((profile.name, f"{profile.label}: {profile.summary}") for profile in all_profiles())
    return [("", own), *presets]


class SuiteImportForm(forms.Form):
    """Suite files with the files they refer to, and the outputs of one target.

    After a refusal `problems` lists what is wrong, each with its file, line, case and key.
    """

    # A folder can replace files, which browsers cannot know.
    use_required_attribute = False

    # Before the files, because reading them depends on it.
    profile = forms.ChoiceField(
        label="Start from",
        choices=_profiles,
        required=False,
        initial="",
        widget=forms.RadioSelect,
        help_text="Thresholds and evaluators for files without their own, a table starts from Verdicts; you can "
        "change every value later",
        error_messages={"invalid_choice": "%(value)s is not a profile: choose one of these."},
    )
    # Before the files: the two are read together.
    folder = ManyFilesField(
        label="Folder",
        required=False,
        allow_empty_file=True,
        help_text="Instead of files: every suite in it is imported; hidden files and caches are not uploaded",
    )
    folder_paths = forms.CharField(required=False, widget=forms.HiddenInput)
    suite_files = ManyFilesField(
        label="Files",
        # A module or a prompt may be empty; an empty suite file is refused by name.
        allow_empty_file=True,
        help_text="Suites as YAML, JSON or JSONL, or a zip of them, with the prompts and scripts they refer to; or "
        "one table, CSV or a JSON list, whose rows become the cases of a new suite; also the files of "
        f"{TOOLS_OF_SUITES}",
        error_messages={"required": "Choose a suite file, a zip or a folder."},
    )
    slug = forms.CharField(
        label="Short name",
        required=False,
        max_length=Suite._meta.get_field("slug").max_length,
        help_text="For a single suite, instead of the name in its file; an existing suite of this name gets a "
        "new version",
    )
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(),
        required=False,
        to_field_name="slug",
        empty_label="As in the file",
        help_text="The language model that judges if an evaluator names no other; if the file names none, an "
        "existing suite keeps its judge",
    )
    outputs = forms.FileField(
        label="Recorded outputs",
        required=False,
        help_text='JSONL, one line per case: {"id": "CS-001", "output": "…"}',
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}),
    )
    target_name = forms.CharField(
        label="Name of the target",
        required=False,
        max_length=120,
        help_text="The target that gave the recorded outputs; if empty, the file's name is used",
    )

    def __init__(self, *args: Any, read_by: User, **options: Any) -> None:
        """Start without problems; `read_by` is the member for whom programs of the files would run."""
        super().__init__(*args, **options)
        self.run = prompt_programs(read_by)
        self.problems: tuple[Problem, ...] = ()
        self.fields["suite_files"].widget.attrs["accept"] = ",".join(ACCEPTED)
        self.fields["folder"].widget.attrs |= FOLDER
        self.fields["suite_files"].required = "folder" not in self.files

    def clean_suite_files(self) -> FoundSuites:
        """Return the suites in all submitted files; collect their problems."""
        values = self.cleaned_data
        if "folder" not in values:
            # The folder has an error; without it the rest would seem to lack files.
            return FoundSuites(())
        folder, files = values["folder"], values["suite_files"]
        if sum(upload.size or 0 for upload in (*folder, *files)) > MAX_SUITE_BYTES:
            message = (
                f"The files contain more than {MAX_SUITE_BYTES // 1024**2} MB, which is the limit of an "
                "import."
            )
            self.add_error("suite_files" if files else "folder", message)
            return FoundSuites(())
        parts = [*upload_streams(folder, values.get("folder_paths", "")), *upload_streams(files)]
        try:
            return read_suites(read_uploads(parts), profile=values.get("profile", ""), run=self.run)
        except UnreadableFileError as refusal:
            name = parts[0][0] if len(parts) == 1 else "The files"
            self.add_error("suite_files" if files else "folder", self._refused(refusal, name))
            return FoundSuites(())

    def clean_outputs(self) -> bytes | None:
        """Return the lines; collect their problems."""
        upload: UploadedFile[Any] | None = self.cleaned_data["outputs"]
        if upload is None:
            return None
        if (upload.size or 0) > MAX_OUTPUT_BYTES:
            raise forms.ValidationError(
                "The file is larger than 200 MB. Split it into several targets."
            )
        content = bytes(upload.read())
        try:
            read_outputs(content, file=str(upload.name))
        except UnreadableFileError as refusal:
            raise self._refused(refusal, str(upload.name)) from None
        self.cleaned_data["outputs_name"] = str(upload.name)
        return content

    def clean_target_name(self) -> str:
        """Fall back to the name of the outputs' file."""
        file = str(self.cleaned_data.get("outputs_name", ""))
        return str(self.cleaned_data["target_name"]).strip() or PurePosixPath(file).stem

    def save(self, *, imported_by: User) -> ImportOutcome | None:
        """Store everything or nothing; None, with the reason among the errors, if that is refused."""
        values = self.cleaned_data
        judge = values["judge"].slug if values["judge"] else None
        suites: FoundSuites = values["suite_files"]
        try:
            with transaction.atomic():
                files = import_suites(
                    suites.suites, imported_by=imported_by, slug=values["slug"] or None, judge=judge
                )
                notes = (*suites.warnings, *(note for file in files for note in file.notes))
                outputs = self._save_outputs(imported_by)
                if outputs is None:
                    return ImportOutcome(files, None, notes)
                return ImportOutcome(files, outputs.target, (*notes, *outputs.notes))
        except DomainError as refusal:
            problems = getattr(refusal, "problems", ())
            self.problems += _first(problems)
            self.add_error(None, _count_text(problems) if problems else str(refusal))
            return None

    def _save_outputs(self, imported_by: User) -> ImportedOutputs | None:
        values = self.cleaned_data
        if values["outputs"] is None:
            return None
        return import_recorded_outputs(
            target_name=values["target_name"],
            lines=values["outputs"],
            imported_by=imported_by,
            file=values["outputs_name"],
        )

    def _refused(self, refusal: UnreadableFileError, name: str) -> forms.ValidationError:
        self.problems += _first(refusal.problems)
        were = "were" if name == "The files" else "was"
        return forms.ValidationError(f"{name} {were} not read: {_count_text(refusal.problems)}")


def _first(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return as many problems as a page shows, and how many more there are."""
    left = len(problems) - MAX_PROBLEMS
    more = (Problem(f"and {left} more problems"),) if left > 0 else ()
    return (*problems[:MAX_PROBLEMS], *more)


def _count_text(problems: Sequence[Problem]) -> str:
    count = len(problems)
    return f"{'1 problem is' if count == 1 else f'{count} problems are'} listed at the top."


MAX_RESULTS_BYTES = 200 * 1024 * 1024


class ResultsImportForm(forms.Form):
    """A file of results, and values that its lines may lack.

    After a refusal `problems` lists what is wrong, each with its line and case.
    """

    results = forms.FileField(
        label="Results",
        help_text=f"JSON Lines of Evalsite or AgentV, or the results of another tool: {TOOLS_OF_RESULTS}",
        widget=forms.FileInput(attrs={"accept": ACCEPTED_RESULTS}),
    )
    suite = forms.ModelChoiceField(
        Suite.objects.filter(archived_at=None),
        required=False,
        to_field_name="slug",
        empty_label="As in the file",
        help_text="If there is no suite of that name, it is created from the cases of the file",
    )
    slug = forms.CharField(
        label="New suite",
        required=False,
        max_length=Suite._meta.get_field("slug").max_length,
        help_text="Short name of a new suite with the cases of the file, instead",
    )
    target_name = forms.CharField(
        label="Name of the target",
        required=False,
        max_length=120,
        help_text="The target that answered, if the lines do not name it; if empty, the file's name is used",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        """Start without problems."""
        super().__init__(*args, **options)
        self.problems: tuple[Problem, ...] = ()

    def clean_results(self) -> UploadedFile[Any]:
        """Refuse a file that is too large."""
        upload: UploadedFile[Any] = self.cleaned_data["results"]
        if (upload.size or 0) > MAX_RESULTS_BYTES:
            raise forms.ValidationError("The file is larger than 200 MB. Split it into several.")
        return upload

    def clean_slug(self) -> str:
        """Refuse a new suite beside a chosen one."""
        slug = str(self.cleaned_data["slug"])
        if slug and self.cleaned_data.get("suite"):
            raise forms.ValidationError("Choose a suite or name a new one, not both.")
        return slug

    def save(self, *, imported_by: User) -> ImportedResults | None:
        """Store everything; None, with the reasons among the errors, if anything is wrong."""
        upload = self.cleaned_data["results"]
        try:
            return import_results(
                bytes(upload.read()),
                file=str(upload.name),
                suite=self.cleaned_data["suite"],
                imported_by=imported_by,
                target_name=self.cleaned_data["target_name"].strip(),
                slug=self.cleaned_data["slug"],
            )
        except UnreadableFileError as refusal:
            self.problems = refusal.problems
            count = len(refusal.problems)
            problems = "1 problem is" if count == 1 else f"{count} problems are"
            self.add_error("results", f"{upload.name} was not read: {problems} listed at the top.")
        except DomainError as refusal:
            self.add_error(None, str(refusal))
        return None
