"""Uploaded tables of cases: keep the file, read it by a column mapping, store its cases in one version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from evaluators.models import LanguageModel
from runs.cases.services import PutCases, put_cases
from runs.formats.table_cases import (
    Existing,
    ReadCases,
    TableReading,
    check_rejected,
    upload_note,
)
from runs.formats.table_mapping import CaseMapping, CasePart, Split, suggest
from runs.formats.tables import Table, read_table
from runs.formats.tools import refuse_results
from runs.models.suites import Suite
from runs.models.temporary import CaseUpload
from runs.specs.profiles import get_profile
from runs.suites.services import create_suite, written_titles

MAX_NAME_LENGTH = 200


class UploadedTable:
    """An upload and its table, which is read once."""

    def __init__(self, upload: CaseUpload) -> None:
        """Take the upload without reading its table."""
        self.upload = upload

    @cached_property
    def table(self) -> Table:
        """The rows of the file."""
        return read_table(bytes(self.upload.content), file=self.upload.name)

    @cached_property
    def reading(self) -> TableReading:
        """The reading chosen last, else the one its columns suggest."""
        kept: Mapping[str, Any] | None = self.upload.reading
        if kept is None:
            return TableReading(suggest(self.table))
        mapping = CaseMapping(
            tuple(CasePart(part) for part in kept["parts"]),
            Split(kept["split"]),
            kept["last_answer"],
        )
        return TableReading(mapping, Existing(kept["existing"]))

    def keep(self, reading: TableReading) -> None:
        """Store how to read the table, for its page and the files made from it."""
        CaseUpload.objects.filter(pk=self.upload.pk).update(reading=reading.as_json())
        self.upload.reading, self.reading = reading.as_json(), reading

    @cached_property
    def keys(self) -> frozenset[str]:
        """The suite's current keys; none for a new suite."""
        return current_keys(self.upload.suite)

    def cases(self, reading: TableReading) -> ReadCases:
        """Return the cases and the rejected rows; raises ValueError for a mapping with problems."""
        return reading.cases(self.table, self.keys, written_titles(self.upload.suite))


def current_keys(suite: Suite | None) -> frozenset[str]:
    """Return the keys of a suite's current cases; none without a suite."""
    if suite is None:
        return frozenset()
    return frozenset(suite.cases.filter(is_current=True).values_list("key", flat=True))


def keep_upload(
    content: bytes,
    *,
    name: str,
    owner: User,
    suite: Suite | None = None,
    begins: Mapping[str, Any] | None = None,
) -> CaseUpload:
    """Keep a table until its cases are stored; raises UnreadableFileError if it is not a table.

    It belongs to a suite, or `begins` a new one with these arguments of `create_suite`: title, slug,
    description, tags, judge (its slug) and profile (its name, "" for none).
    """
    short = PurePosixPath(name.replace("\\", "/")).name.replace("\x00", "")[:MAX_NAME_LENGTH]
    name = short or "cases.csv"
    refuse_results(content, name)
    read_table(content, file=name)
    with transaction.atomic():
        upload = CaseUpload.objects.create(
            owner=owner,
            suite=suite,
            begins=None if begins is None else dict(begins),
            name=name,
            content=content,
        )
        CaseUpload.objects.make_room(owner)
    return upload


def store_upload(
    upload: CaseUpload, reading: TableReading, *, leaves_out: bool, by: User
) -> CaseUpload:
    """Store the cases of an upload in one version, the first version of a new suite; a second call does nothing.

    `leaves_out` allows rejected rows, which are left out. Raises RowsRejectedError, NoCasesError,
    SuiteArchivedError, SlugTakenError, and ValueError for a mapping with problems.
    """
    with transaction.atomic():
        held = CaseUpload.objects.select_for_update(of=("self",)).get(pk=upload.pk)
        if held.stored_at is not None:
            return held
        table = UploadedTable(held)
        found = table.cases(reading)
        check_rejected(found, leaves_out=leaves_out)
        if held.suite is None:
            held.suite = _create_suite(held.begins or {}, by)
        done = put_cases(held.suite, found.cases, by=by, note=upload_note(found.cases, held.name))
        held.stored = stored_counts(done, found)
        held.stored_at, held.content = timezone.now(), b""
        held.save(update_fields=["suite", "stored", "stored_at", "content"])
    return held


def stored_counts(done: PutCases, found: ReadCases) -> dict[str, int]:
    """Return what happened to the rows of a table, in counts."""
    return {
        "added": done.added,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "skipped": found.skipped_rows,
        "rejected": len(found.rejected),
        "version": done.version,
    }


def _create_suite(begins: Mapping[str, Any], by: User) -> Suite:
    judge = LanguageModel.objects.filter(slug=begins["judge"]).first() if begins["judge"] else None
    return create_suite(
        slug=begins["slug"],
        title=begins["title"],
        by=by,
        description=begins["description"],
        tags=begins["tags"],
        judge=judge,
        profile=get_profile(begins["profile"]) if begins["profile"] else None,
        is_kept=False,
    )
