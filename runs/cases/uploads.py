"""Uploaded tables of cases: keep the file, read it by a column mapping, store its cases in one version."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import counted, thousands
from runs.cases.checks import CaseChecks
from runs.cases.duplicates import compared_text
from runs.cases.preview import (
    KnownCases,
    PreviewRow,
    RowChoices,
    case_cells,
    check_unchanged,
    edit_case,
    known_cases,
    with_findings,
)
from runs.cases.services import put_cases
from runs.formats.table_cases import (
    Existing,
    NoCasesError,
    ReadCases,
    RefusedRowError,
    Rejected,
    RowReader,
    RowsRejectedError,
    TableReading,
    check_rejected,
    upload_note,
)
from runs.formats.table_mapping import CaseMapping, CasePart, Split, suggest
from runs.formats.tables import Table, read_table
from runs.formats.tools import refuse_results
from runs.models.runs import RecentValues
from runs.models.suites import Suite
from runs.models.temporary import CaseUpload
from runs.specs.profiles import get_profile
from runs.specs.suites import CaseSpec
from runs.suites.services import create_suite, lock_editable_suite, written_titles

MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class TableIndex:
    """What a table holds as it was read, without its texts, so that a preview need not read it again.

    `keys` are those of its cases by their places among its rows. Cases with the same one of `marks` say the same, 0 for
    nothing. `known` are the places of cases that repeat one of the suite exactly, `titles` those that people wrote for
    its cases, by key.
    """

    keys: Mapping[int, str]
    marks: Mapping[int, int]
    known: frozenset[int]
    titles: Mapping[str, str]
    rejected: Sequence[Rejected]
    skipped: int
    unused: Mapping[str, int]


# This process keeps those of the tables that were looked at last.
_kept: RecentValues[TableIndex] = RecentValues(size=3)


@dataclass(frozen=True, slots=True)
class Edits:
    """The cases that a person changed, by their places, and why some of them cannot be stored."""

    cases: Mapping[int, CaseSpec]
    problems: Mapping[int, str]


class Shown(StrEnum):
    """Which cases of a table are shown."""

    REPEATS = "repeats"
    PROBLEMS = "problems"
    UNTICKED = "unticked"


class UploadedTable:
    """An upload and its table, which is read once."""

    def __init__(self, upload: CaseUpload, table: Table | None = None) -> None:
        """Take the upload without reading its table, or with its table."""
        self.upload = upload
        if table is not None:
            self.table = table

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
    def known(self) -> KnownCases:
        """The suite's current cases; none for a new suite."""
        return known_cases(self.upload.suite)

    @property
    def left(self) -> frozenset[int]:
        """The places of the cases that are not ticked."""
        return frozenset(self.upload.choices.get("left", ()))

    @property
    def edited(self) -> Mapping[int, Mapping[str, Any]]:
        """The cells that a person changed, by the place of their case."""
        return {int(place): cells for place, cells in self.upload.choices.get("cells", {}).items()}

    def cases(self, reading: TableReading) -> ReadCases:
        """Return the cases and the rejected rows; raises ValueError for a mapping with problems."""
        return reading.cases(self.table, self.known.keys, written_titles(self.upload.suite))

    def index(self, reading: TableReading) -> TableIndex:
        """Return what the table holds, read once; raises ValueError for a mapping with problems."""
        state = (self.upload.pk, self.known.state, json.dumps(reading.as_json()))
        return _kept.get(state, lambda: self._index(reading))

    def _index(self, reading: TableReading) -> TableIndex:
        titles = written_titles(self.upload.suite)
        found = reading.cases(self.table, self.known.keys, titles)
        texts = [compared_text(case.input) for case in found.cases]
        known = self.known.texts
        rows = list(zip(found.places, found.cases, texts, strict=True))
        return TableIndex(
            keys={place: case.key for place, case, _ in rows},
            marks={place: hash(text) for place, _, text in rows},
            known=frozenset(place for place, case, text in rows if known.has_other(text, case.key)),
            titles={case.key: titles[case.key] for case in found.cases if case.key in titles},
            rejected=[replace(row, cells=()) for row in found.rejected],
            skipped=found.skipped_rows,
            unused=found.unused,
        )

    def read_cases(
        self, reading: TableReading, places: Iterable[int], titles: Mapping[str, str]
    ) -> dict[int, CaseSpec]:
        """Return the cases of some rows by their places, as all of them are read."""
        reader = RowReader(self.table.columns, reading.mapping)
        kept = {} if reader.column(CasePart.TITLE) else titles
        cases = {}
        for place in places:
            try:
                case = reader.case(self.table.rows[place])
            except (RefusedRowError, IndexError):
                continue
            cases[place] = case.replace(title=kept[case.key]) if case.key in kept else case
        return cases

    def edits(
        self, reading: TableReading, keys: Mapping[int, str], read: Mapping[int, CaseSpec]
    ) -> Edits:
        """Return what a person changed in the cases with these keys by place; `read` has at least those as read."""
        edited = self.edited
        cases, problems = {}, {}
        for place in edited.keys() & keys.keys():
            cases[place] = read[place]
            try:
                cases[place] = edit_case(read[place], edited[place])
            except RefusedRowError as refusal:
                problems[place] = f"{refusal.column} {refusal.reason}."
        changed = {**keys, **{place: case.key for place, case in cases.items()}}
        left = self.left
        counts = Counter(key for place, key in changed.items() if place not in left)
        for place, case in cases.items():
            if counts[case.key] > 1:
                problems[place] = f"Another row has the key {case.key!r} too."
            elif case.key in self.known.keys and reading.existing is not Existing.UPDATE:
                problems[place] = f"The suite already has a case {case.key!r}."
        return Edits(cases, problems)

    def rows(
        self, cases: Mapping[int, CaseSpec], problems: Mapping[int, str] | None = None
    ) -> list[PreviewRow]:
        """Return cases by place as a person edits them."""
        left, edited = self.left, self.edited
        return [
            PreviewRow(
                number=place,
                key=edited.get(place, {}).get("key", case.key),
                cells={**case_cells(case), **edited.get(place, {})},
                case=case,
                choice=place not in left,
                part=f"line {thousands(self.table.rows[place].line)}",
                is_update=case.key in self.known.keys,
                problems=[problems[place]] if problems and place in problems else [],
            )
            for place, case in cases.items()
        ]

    def keep_choices(self, choices: RowChoices) -> None:
        """Store what a person ticked and changed in the rows that a form showed; nothing once they are stored.

        What another form of the same upload stored meanwhile stays.
        """
        with transaction.atomic():
            upload = CaseUpload.objects.select_for_update(of=("self",)).filter(pk=self.upload.pk)
            self.upload.refresh_from_db(fields=["choices", "stored_at"], from_queryset=upload)
            if self.upload.stored_at is not None:
                return
            left = {*self.left - choices.ticks.keys()}
            left |= {place for place, is_ticked in choices.ticks.items() if not is_ticked}
            cells = {str(place): changed for place, changed in self.edited.items()}
            for place, changed in choices.cells.items():
                cells[str(place)] = {**cells.get(str(place), {}), **changed}
            self.upload.choices = {"left": sorted(left), "cells": cells}
            self.upload.save(update_fields=["choices"])


class TableView:
    """The cases of a table as a person edited them, from its index: counts, and which to show."""

    def __init__(self, table: UploadedTable, reading: TableReading) -> None:
        """Read the table where it was not read before; raises ValueError for a mapping with problems."""
        self.table, self.reading = table, reading
        self.index = table.index(reading)
        read = table.read_cases(reading, table.edited, self.index.titles)
        self.edits = table.edits(reading, self.index.keys, read)

    @cached_property
    def keys(self) -> Mapping[int, str]:
        """The key of each case by its place."""
        edited = {place: case.key for place, case in self.edits.cases.items()}
        return {**self.index.keys, **edited}

    @cached_property
    def first(self) -> Mapping[int, int]:
        """The place of the first case that says the same, by the place of each later one."""
        edited = {place: hash(compared_text(c.input)) for place, c in self.edits.cases.items()}
        first: dict[int, int] = {}
        found = {}
        for place, mark in {**self.index.marks, **edited}.items():
            if mark and first.setdefault(mark, place) != place:
                found[place] = first[mark]
        return found

    @cached_property
    def places(self) -> Mapping[Shown, Sequence[int]]:
        """The places of the cases for each choice of what to show."""
        known, cases = self.table.known.texts, self.edits.cases
        checks = CaseChecks(self.table.upload.suite or Suite())
        repeats = {*self.index.known - cases.keys(), *self.first}
        repeats |= {n for n, c in cases.items() if known.has_other(compared_text(c.input), c.key)}
        problems = {place for place, case in cases.items() if checks.problems(case)}
        problems |= self.edits.problems.keys()
        left = self.table.left & self.index.keys.keys()
        return {
            Shown.REPEATS: sorted(repeats),
            Shown.PROBLEMS: sorted(problems),
            Shown.UNTICKED: sorted(left),
        }

    def shown(self, which: str) -> Sequence[int]:
        """Return the places of the cases to show, in the order of the table; "" for all."""
        return self.places[Shown(which)] if which else [*self.index.keys]

    def rows(self, places: Sequence[int]) -> list[PreviewRow]:
        """Return cases at some places with what speaks against each."""
        cases = self.table.read_cases(self.reading, places, self.index.titles)
        cases |= {place: self.edits.cases[place] for place in places if place in self.edits.cases}
        first = {place: self.keys[self.first[place]] for place in places if place in self.first}
        rows = self.table.rows(cases, self.edits.problems)
        return with_findings(rows, self.table.upload.suite, first=first)


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
    table = read_table(content, file=name)
    with transaction.atomic():
        upload = CaseUpload.objects.create(
            owner=owner,
            suite=suite,
            begins=None if begins is None else dict(begins),
            name=name,
            content=content,
        )
        CaseUpload.objects.make_room(owner)
    uploaded = UploadedTable(upload, table)
    if not uploaded.reading.mapping.problems():
        # Its preview comes next and finds it read.
        uploaded.index(uploaded.reading)
    return upload


def store_upload(
    table: UploadedTable, reading: TableReading, *, leaves_out: bool, by: User, seen: str = ""
) -> CaseUpload:
    """Store the ticked cases of an upload in one version, the first of a new suite; a second call does nothing.

    `leaves_out` allows rejected rows, which are left out. `seen` is the `version_stamp` of the suite for which the
    preview was shown, "" for any. Raises RowsRejectedError, NoCasesError, SuiteArchivedError, SuiteChangedError,
    SlugTakenError, and ValueError for a mapping with problems.
    """
    with transaction.atomic():
        held = CaseUpload.objects.select_for_update(of=("self",)).get(pk=table.upload.pk)
        if held.stored_at is not None:
            return held
        if held.suite is not None:
            held.suite = lock_editable_suite(held.suite)
            check_unchanged(held.suite, seen)
        table = UploadedTable(held, table.table)
        found = table.cases(reading)
        check_rejected(found, leaves_out=leaves_out)
        cases = _ticked_cases(table, reading, found)
        if held.suite is None:
            held.suite = _create_suite(held.begins or {}, by)
        done = put_cases(
            held.suite,
            cases,
            by=by,
            note=upload_note(cases, held.name),
            are_from_table=True,
        )
        held.stored = {
            "added": done.added,
            "changed": done.changed,
            "unchanged": done.unchanged,
            "skipped": found.skipped_rows,
            "rejected": len(found.rejected),
            "unticked": len(found.cases) - len(cases),
            "version": done.version,
        }
        held.stored_at, held.content, held.choices = timezone.now(), b"", {}
        held.save(update_fields=["suite", "stored", "stored_at", "content", "choices"])
    return held


def _ticked_cases(
    table: UploadedTable, reading: TableReading, found: ReadCases
) -> tuple[CaseSpec, ...]:
    """Return the ticked cases as they were edited; raises RowsRejectedError, and NoCasesError where none is ticked."""
    read = dict(zip(found.places, found.cases, strict=True))
    edits = table.edits(reading, {place: case.key for place, case in read.items()}, read)
    left = table.left
    if wrong := sorted(edits.problems.keys() - left):
        rows, line = counted(len(wrong), "ticked case"), table.table.rows[wrong[0]].line
        raise RowsRejectedError(
            f"{rows} cannot be stored. Line {line}: {edits.problems[wrong[0]]} Correct or untick them."
        )
    cases = {**read, **edits.cases}
    ticked = tuple(case for place, case in cases.items() if place not in left)
    if cases and not ticked:
        raise NoCasesError("Tick at least one case.")
    return ticked


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
