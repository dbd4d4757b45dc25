from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.forms import ValidationError

from runs.forms import uploads


def zipped(files: dict[str, bytes], name: str = "all.zip") -> SimpleUploadedFile:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as packed:
        for path, content in files.items():
            packed.writestr(path, content)
    return SimpleUploadedFile(name, buffer.getvalue())


def test_files_and_zips_become_contents_by_path() -> None:
    packed = zipped({"a/suite.yaml": b"1", "a/prompts/x.md": b"2", "__MACOSX/a/x": b"", "b/": b""})
    found = uploads.unpacked([packed, SimpleUploadedFile("notes.txt", b"3")])
    assert found == {"a/suite.yaml": b"1", "a/prompts/x.md": b"2", "notes.txt": b"3"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([SimpleUploadedFile("a.zip", b"no zip")], r"a\.zip cannot be unpacked"),
        ([zipped({"../up.yaml": b""})], "leads out of the zip"),
        ([zipped({"/etc/up.yaml": b""})], "leads out of the zip"),
        ([zipped({"a.md": b""}), SimpleUploadedFile("a.md", b"")], "uploaded twice"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(
    given: list[SimpleUploadedFile], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        uploads.unpacked(given)


@pytest.mark.parametrize("method", [ZIP_STORED, ZIP_DEFLATED, ZIP_BZIP2, ZIP_LZMA])
def test_a_damaged_zip_is_refused_wherever_the_damage_is(method: int) -> None:
    buffer = BytesIO()
    with ZipFile(buffer, "w", method) as packed:
        packed.writestr("prompts/é.md", "hello " * 50)
    whole = buffer.getvalue()
    for place in range(len(whole)):
        broken = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        with suppress(ValidationError):
            uploads.unpacked([SimpleUploadedFile("a.zip", broken)])


def test_a_path_that_stands_twice_or_is_endless_is_refused() -> None:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as packed:
        packed.writestr("a.md", "1")
        packed.writestr("./a.md", "2")
    with pytest.raises(ValidationError, match=r"holds a\.md twice"):
        uploads.unpacked([SimpleUploadedFile("a.zip", buffer.getvalue())])
    with pytest.raises(ValidationError, match="longer than 300 characters"):
        uploads.unpacked([zipped({"x" * 301: b""})])


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    with pytest.raises(ValidationError, match="more than"):
        uploads.unpacked([zipped({"a": b"x" * 11})])
    with pytest.raises(ValidationError, match="more than"):
        uploads.unpacked([SimpleUploadedFile("a", b"x" * 11)])
    monkeypatch.setattr(uploads, "MOST_FILES", 1)
    with pytest.raises(ValidationError, match="2 files"):
        uploads.unpacked([SimpleUploadedFile("a", b""), SimpleUploadedFile("b", b"")])


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (["mine.yml"], "mine.yml"),
        (["a/suite.yaml", "a/b/other.yaml"], "a/suite.yaml"),
        (["suite.yaml", "other.yaml", "x.md"], "suite.yaml"),
    ],
)
def test_the_suite_is_the_yaml_file_nearest_to_the_top(paths: list[str], chosen: str) -> None:
    assert uploads.suite_path(dict.fromkeys(paths, b"")) == chosen


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (["x.md"], "There is no suite file"),
        (["a.yaml", "b.yaml"], r"a\.yaml, b\.yaml could all be"),
    ],
)
def test_a_suite_that_cannot_be_told_is_asked_for(paths: list[str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        uploads.suite_path(dict.fromkeys(paths, b""))
