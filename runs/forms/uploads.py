"""Uploaded files: several in one field, and folders with the paths their files had in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any, cast

from django import forms
from django.core.files.uploadedfile import UploadedFile


class ManyFilesInput(forms.ClearableFileInput):
    """A file input that takes several files."""

    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    """Several uploaded files, cleaned one by one."""

    widget = ManyFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        """Return the uploaded files; refuse an empty list where one is required."""
        uploads = [upload for upload in data or [] if upload]
        if not uploads:
            found = super().clean(None, initial)
            return [found] if found else []
        return [super(ManyFilesField, self).clean(upload, initial) for upload in uploads]


def named_parts(
    uploads: Sequence[UploadedFile[Any]], paths: str = ""
) -> list[tuple[str, IO[bytes]]]:
    """Return uploads as streams by name.

    `paths` is a JSON list of their paths, in their order: of a name that browsers send, only the last
    part is kept. A list that does not fit is passed over.
    """
    try:
        given = json.loads(paths) if paths else []
    except (ValueError, RecursionError):
        given = []
    names = [str(upload.name) for upload in uploads]
    if isinstance(given, list) and len(given) == len(names):
        pairs = zip(given, names, strict=True)
        names = [path if isinstance(path, str) and path else name for path, name in pairs]
    # An upload reads like a file, which its types do not tell.
    return [(name, cast("IO[bytes]", upload)) for name, upload in zip(names, uploads, strict=True)]
