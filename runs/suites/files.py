"""A suite at a version as it goes into a file, and the contents of the files that it refers to."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from django.db.models import Sum
from django.http import Http404

from evaluators.scoring.types import DomainError
from runs.exports.specs import ExportSpec, file_kind
from runs.formats.suite_files import pack_suite
from runs.models.suites import FileContent, Suite, SuiteVersion
from runs.requests import get_suite_or_404
from runs.specs.suites import CaseSpec, SuiteWithCases, VersionSpec

BATCH = 500


class UnknownVersionError(DomainError):
    """A suite has no such version."""

    code = "unknown_version"


def suite_with_cases(
    suite: Suite, *, version: int | None = None, only: Container[str] | None = None
) -> SuiteWithCases:
    """Return the suite as it was at a version, by default the current one.

    Importing it again changes nothing. With `only`, it has just the cases with these keys. Raises
    UnknownVersionError listing the versions there are.
    """
    spec = find_version(suite, version).spec
    cases, files = tuple(_version_cases(suite, spec, only)), _file_contents(spec.files)
    return SuiteWithCases(**{**dict(spec), "slug": suite.slug, "cases": cases, "files": files})


# What a case takes in a file of the demo: 200 to 1,100 bytes.
CASE_BYTES = 600


@file_kind("suite")
def suite_file(*, slug: str, version: int | None = None) -> ExportSpec:
    """Describe the file of a suite at a version, by default the current one; raises Http404."""
    suite = get_suite_or_404(slug=slug)
    try:
        row = find_version(suite, version)
    except UnknownVersionError as error:
        raise Http404(str(error)) from error
    name = f"{slug}-v{row.number}"
    return version_file(
        row,
        name=f"{name}.{packed_ending(row)}",
        rows=len(row.content.get("cases") or ()),
        write=lambda: pack_suite(suite_with_cases(suite, version=row.number), name).parts,
    )


def packed_ending(row: SuiteVersion) -> str:
    """Return how the name of a file of a version ends: as a zip if the suite refers to files."""
    return "zip" if row.content.get("files") else "yaml"


def version_file(row: SuiteVersion, *, name: str, rows: int, **facts: Any) -> ExportSpec:
    """Describe a file of cases of a version, with the files that the suite refers to if it is a zip."""
    files = (row.content.get("files") or {}).values() if name.endswith(".zip") else ()
    contents = FileContent.objects.filter(pk__in=files)
    size = contents.aggregate(total=Sum("size", default=0))["total"]
    return ExportSpec(
        name=name,
        rows=rows,
        row_bytes=CASE_BYTES + size // max(1, rows),
        fingerprint=(row.pk, row.content_hash),
        suites=(row.suite_id,),
        **facts,
    )


def find_version(suite: Suite, version: int | None = None) -> SuiteVersion:
    """Return a version of a suite, by default the current one; raises UnknownVersionError listing them."""
    number = suite.version if version is None else version
    row = suite.versions.filter(number=number).first()
    if row is None:
        kept = [str(n) for n in suite.versions.order_by("number").values_list("number", flat=True)]
        if not kept:
            text = f"{suite.slug} has no stored version, so there is nothing to export."
            raise UnknownVersionError(text)
        there_are = f"there is {kept[0]}" if len(kept) == 1 else f"there are {', '.join(kept)}"
        raise UnknownVersionError(f"{suite.slug} has no version {number}; {there_are}.")
    return row


def _version_cases(
    suite: Suite, spec: VersionSpec, only: Container[str] | None
) -> Iterator[CaseSpec]:
    """Yield the cases in the version's order, each in the revision it had."""
    wanted = [
        (case["key"], case["revision"])
        for case in spec.cases
        if only is None or case["key"] in only
    ]
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        rows = suite.cases.filter(key__in={key for key, _ in batch})
        stored = {(row.key, row.revision): row for row in rows}
        yield from (stored[revision].spec for revision in batch)


def suite_files(suite: Suite) -> dict[str, bytes]:
    """Return the suite's current files by path."""
    return _file_contents(dict(suite.files.values_list("path", "content_id")))


def _file_contents(hashes: Mapping[str, str]) -> dict[str, bytes]:
    rows: Any = FileContent.objects.filter(pk__in=set(hashes.values()))
    contents = {row.sha256: bytes(row.content) for row in rows}
    return {path: contents[digest] for path, digest in sorted(hashes.items())}
