"""The names and paths of files that a browser sends."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.forms import ValidationError

from runs.requests import ManyFilesField, upload_streams


def uploads(*names: str) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, name.encode()) for name in names]


def names(paths: str) -> list[str]:
    return [name for name, _ in upload_streams(uploads("a.md", "b.md"), paths)]


def test_several_files_are_cleaned_one_by_one() -> None:
    field = ManyFilesField()
    assert [upload.name for upload in field.clean(uploads("a.md", "b.md"))] == ["a.md", "b.md"]
    with pytest.raises(ValidationError, match="required"):
        field.clean([])
    with pytest.raises(ValidationError, match="empty"):
        field.clean([SimpleUploadedFile("a.md", b"")])
    assert ManyFilesField(required=False).clean(None) == []


def test_the_files_of_a_folder_keep_their_paths() -> None:
    assert names('["evals/a.md", "evals/in/b.md"]') == ["evals/a.md", "evals/in/b.md"]
    assert [stream.read() for _, stream in upload_streams(uploads("a.md"))] == [b"a.md"]


@pytest.mark.parametrize(
    "paths", ["", "[", "{}", "3", '["one"]', "[1, null]", '["", ""]', "[" * 9_999]
)
def test_paths_that_do_not_fit_are_ignored(paths: str) -> None:
    assert names(paths) == ["a.md", "b.md"]
