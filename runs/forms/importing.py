"""Bring a suite in from the browser, with outputs that were recorded before."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from evaluators.models import LanguageModel
from runs import services
from runs.formats import Problem, SuiteContent, UnreadableFileError, agentv
from runs.formats.jsonl import read_outputs
from runs.forms.uploads import ManyFilesField, suite_path, unpacked
from runs.models import Suite, Target

MOST_OUTPUT_BYTES = 200 * 1024 * 1024


class SuiteImportForm(forms.Form):
    """A suite file with what it refers to, and the outputs of one target.

    After a refusal `problems` holds what is wrong, each with its file, line, case and key.
    """

    suite_files = ManyFilesField(
        label="Suite file",
        help_text="A YAML file, or a zip of it with the prompts and scripts it refers to",
    )
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(),
        required=False,
        to_field_name="slug",
        empty_label="As the file says",
        help_text="The language model that judges, where an evaluator names no other",
    )
    outputs = forms.FileField(
        label="Recorded outputs",
        required=False,
        help_text='JSONL, one line a case: {"id": "CS-001", "output": "…"}',
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}),
    )
    target_name = forms.CharField(
        label="Name of the target",
        required=False,
        max_length=120,
        help_text="What gave the recorded outputs; the file's name serves when it is left empty",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin without problems."""
        super().__init__(*args, **options)
        self.problems: tuple[Problem, ...] = ()
        accept = ",".join((*agentv.SUFFIXES, ".zip", ".md", ".txt", ".json", ".py"))
        self.fields["suite_files"].widget.attrs["accept"] = accept

    def clean_suite_files(self) -> SuiteContent:
        """Return what the suite file says; gather what is wrong with it."""
        files = unpacked(self.cleaned_data["suite_files"])
        path = suite_path(files)
        others = {name: content for name, content in files.items() if name != path}
        try:
            return agentv.read(files[path], file=path, files=others)
        except UnreadableFileError as refusal:
            raise self._refused(refusal, path) from None

    def clean_outputs(self) -> bytes | None:
        """Return the lines; gather what is wrong with them."""
        upload: UploadedFile[Any] | None = self.cleaned_data["outputs"]
        if upload is None:
            return None
        if (upload.size or 0) > MOST_OUTPUT_BYTES:
            raise forms.ValidationError(
                "The file is larger than 200 MB. Split it in several targets."
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

    def save(self, *, imported_by: User) -> tuple[Suite, Target | None]:
        """Store both or neither; raises DomainError when the suite does not fit this installation."""
        found = self.cleaned_data
        judge = found["judge"].slug if found["judge"] else None
        with transaction.atomic():
            suite = services.import_suite(
                found["suite_files"], imported_by=imported_by, judge=judge
            )
            if found["outputs"] is None:
                return suite, None
            target = services.import_recorded_outputs(
                target_name=found["target_name"],
                lines=found["outputs"],
                imported_by=imported_by,
                file=found["outputs_name"],
            )
        return suite, target

    def _refused(self, refusal: UnreadableFileError, path: str) -> forms.ValidationError:
        self.problems += refusal.problems
        count = len(refusal.problems)
        told = "1 problem is" if count == 1 else f"{count} problems are"
        return forms.ValidationError(f"{path} was not read: {told} listed below.")
