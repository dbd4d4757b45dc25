"""Take uploaded files apart: a zip or several files become contents by path."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from runs.formats.agentv import SUFFIXES

MOST_BYTES = 50 * 1024 * 1024
MOST_FILES = 2_000
LONGEST_PATH = 300
# Everything that taking a damaged zip apart can end in.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError,
    LookupError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip
IGNORED = ("__MACOSX", ".DS_Store")


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


def unpacked(uploads: Sequence[UploadedFile[Any]]) -> dict[str, bytes]:
    """Return the contents of the files by path, those of a zip by their path inside it.

    Raises ValidationError for a broken zip, a path that leads out of it, and too much of anything.
    """
    files: dict[str, bytes] = {}
    if sum(upload.size or 0 for upload in uploads) > MOST_BYTES:
        raise forms.ValidationError(_too_much())
    for upload in uploads:
        _add(files, _members(upload), str(upload.name))
    if len(files) > MOST_FILES:
        raise forms.ValidationError(
            f"These are {len(files)} files; an import takes up to {MOST_FILES}."
        )
    return files


def suite_path(files: Mapping[str, bytes]) -> str:
    """Return the path of the suite file: the one YAML file nearest to the top.

    Raises ValidationError when there is none or more than one could be meant.
    """
    found = [path for path in files if path.lower().endswith(SUFFIXES)]
    if not found:
        raise forms.ValidationError("There is no suite file: one must end in .yaml or .yml.")
    top = min(path.count("/") for path in found)
    nearest = sorted(path for path in found if path.count("/") == top)
    named = [path for path in nearest if PurePosixPath(path).stem == "suite"]
    if len(named or nearest) > 1:
        raise forms.ValidationError(
            f"Which one is the suite? {', '.join(nearest)} could all be; name it suite.yaml."
        )
    return (named or nearest)[0]


def _add(files: dict[str, bytes], members: Mapping[str, bytes], source: str) -> None:
    for path, content in members.items():
        if path in files:
            raise forms.ValidationError(f"{source}: {path} was uploaded twice.")
        files[path] = content
    if sum(map(len, files.values())) > MOST_BYTES:
        raise forms.ValidationError(_too_much())


def _too_much() -> str:
    return f"The files hold more than {MOST_BYTES // 1024**2} MB, the most an import takes."


def _members(upload: UploadedFile[Any]) -> Mapping[str, bytes]:
    name = str(upload.name)
    if not name.lower().endswith(".zip"):
        return {name: upload.read()}
    try:
        with zipfile.ZipFile(upload) as packed:
            return _extracted(packed, name)
    except DAMAGE as error:
        raise forms.ValidationError(f"{name} cannot be unpacked: {error}.") from None


def _extracted(packed: zipfile.ZipFile, name: str) -> Mapping[str, bytes]:
    wanted = [member for member in packed.infolist() if not _is_ignored(member)]
    # A zip can claim little and hold much: what it says is checked first, what it gives as it comes.
    if len(wanted) > MOST_FILES or sum(member.file_size for member in wanted) > MOST_BYTES:
        raise forms.ValidationError(
            f"{name} holds more than {MOST_FILES} files or {MOST_BYTES // 1024**2} MB."
        )
    contents: dict[str, bytes] = {}
    for member in wanted:
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts:
            raise forms.ValidationError(f"{name}: the path {member.filename} leads out of the zip.")
        if str(path) in contents:
            raise forms.ValidationError(f"{name} holds {path} twice.")
        if len(str(path)) > LONGEST_PATH:
            raise forms.ValidationError(
                f"{name}: the path {str(path)[:60]}… is longer than {LONGEST_PATH} characters."
            )
        with packed.open(member) as stream:
            contents[str(path)] = stream.read(member.file_size + 1)
    return contents


def _is_ignored(member: zipfile.ZipInfo) -> bool:
    return member.is_dir() or any(part in IGNORED for part in PurePosixPath(member.filename).parts)
