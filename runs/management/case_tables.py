"""A table of cases named at a command line: how its columns are read, and what came of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.text import slugify

from runs import services
from runs.formats import Problem, UnreadableFileError
from runs.formats.csv_cases import CaseMapping, Part, Table, part_named, read_table, suggest
from runs.management.answering import COULD_NOT
from runs.management.names import UnknownNameError, model_named, suite_named
from runs.models import Suite
from runs.profiles import profile_named
from runs.services.case_tables import Existing, TableReading, cases_of, check_rejected, keys_of
from runs.services.case_tables import note_of as note_of_table
from runs.services.suites import create_suite
from runs.services.written_titles import written_titles

LONGEST_SLUG = Suite._meta.get_field("slug").max_length
SLUG = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
SUFFIXES = (".csv", ".tsv")
ONLY_OF_SUITES = ("slug", "outputs", "target")
ONLY_OF_NEW_SUITES = ("judge", "profile")
WAY_OUT = "Give --profile NAME to begin it with the cases of the table"


def add_table_arguments(parser: CommandParser) -> None:
    """Take what the pages of a table take."""
    parser.add_argument(
        "--suite",
        metavar="SLUG",
        help="Suite that gets the cases of a table: CSV, JSON Lines or a JSON list. With --profile one "
        "that is not there begins; default then: as the file is named.",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="PART=COLUMN",
        help="What a column of the table holds, where its name does not tell: "
        f"{', '.join(part for part in Part if part is not Part.IGNORED)}, or ignored; any number.",
    )
    parser.add_argument(
        "--existing",
        choices=[one.value for one in Existing],
        default=Existing.UPDATE,
        help="What becomes of a row whose key the suite has: update (default), skip or refuse.",
    )
    parser.add_argument(
        "--leave-out-rejected",
        action="store_true",
        help="Store the other rows of a table when some are rejected.",
    )


def check_table_options(options: dict[str, Any]) -> None:
    """Raise CommandError for options that do not go together."""
    paths: Sequence[Path] = options["paths"]
    table = next((path for path in paths if path.suffix.lower() in SUFFIXES), None)
    if options["suite"] is None and options["profile"] and table and len(paths) == 1:
        options["suite"] = options["slug"] or _slug_of(table)
        options["slug"] = None
    if options["suite"] is None:
        if options["map"]:
            raise CommandError("--map is of a table; name its suite with --suite.", returncode=2)
        if table:
            said = (
                f"{table} is a table of cases; name the suite that gets them with --suite, or begin "
                "one with --profile NAME."
            )
            raise CommandError(said, returncode=2)
        return
    if odd := next((name for name in ONLY_OF_SUITES if options[name]), None):
        raise CommandError(f"--{odd} does not go with --suite.", returncode=2)
    if len(paths) != 1:
        raise CommandError("--suite gets the cases of one table; name it.", returncode=2)


def import_table(options: dict[str, Any]) -> tuple[list[str], list[Problem]]:
    """Store the cases of a table and return what is to be told, and the rows that were left out.

    Raises UnreadableFileError with every rejected row unless they are left out, and DomainError.
    """
    [path] = options["paths"]
    try:
        table = read_table(path.read_bytes(), file=str(path))
    except OSError as error:
        said = f"{path} cannot be read: {error.strerror}."
        raise CommandError(said, returncode=COULD_NOT) from error
    there = _suite_there(options)
    mapping = _mapping(table, options["map"])
    if problems := mapping.problems():
        columns = ", ".join(table.columns)
        raise UnreadableFileError(
            [Problem(f"{said} with --map; columns are {columns}", str(path)) for said in problems]
        )
    reading = TableReading(mapping, Existing(options["existing"]))
    found = cases_of(table, reading, keys_of(there), written_titles(there))
    rejected = [Problem(one.reason, str(path), one.line, key=one.column) for one in found.rejected]
    if rejected and not options["leave_out_rejected"]:
        raise UnreadableFileError(rejected)
    check_rejected(found, leaves_out=True)
    note = options["note"] or note_of_table(found.cases, path.name)
    suite = there or _begun(options)
    done = services.put_cases(suite, found.cases, by=None, note=note)
    pairs = zip(table.columns, mapping.parts, strict=True)
    held = ", ".join(f"{part}={column}" for column, part in pairs)
    counts = f"{done.added} added, {done.changed} changed, {done.unchanged} as they were"
    skipped = f", {found.passed_over} passed over" if found.passed_over else ""
    left = f", {len(rejected)} rejected" if rejected else ""
    return [
        f"{suite.slug}: version {done.version}. {counts}{skipped}{left}. From {path}",
        f"Read as {held}",
    ], rejected


def _slug_of(path: Path) -> str:
    slug = slugify(path.stem)[:LONGEST_SLUG].strip("-_")
    if not slug:
        said = f"{path} names no suite; name the one that begins with --suite."
        raise CommandError(said, returncode=2)
    return slug


def _suite_there(options: dict[str, Any]) -> Suite | None:
    """Return the suite that gets the cases, None for one that begins; raises what tells the way out."""
    slug, is_new = options["suite"], bool(options["profile"])
    suite = Suite.objects.select_related("judge").filter(slug=slug).first()
    if suite is None and not is_new:
        try:
            suite_named(slug)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error} {WAY_OUT}.") from error
    if suite is None:
        if not SLUG.fullmatch(slug):
            said = f"{slug!r} is no short name; write lower-case letters, digits and hyphens."
            raise CommandError(said, returncode=2)
        profile_named(options["profile"])
    elif odd := next((name for name in ONLY_OF_NEW_SUITES if options[name]), None):
        said = (
            f"There is a suite {slug!r} already, and --{odd} is of one that begins. Leave --{odd} out "
            f"and write --suite {slug} to add the cases to it, or name another with --suite."
        )
        raise CommandError(said, returncode=2)
    return suite


def _begun(options: dict[str, Any]) -> Suite:
    slug = options["suite"]
    return create_suite(
        slug=slug,
        title=slug.replace("-", " ").replace("_", " ").strip().capitalize(),
        by=None,
        judge=model_named(options["judge"]) if options["judge"] else None,
        profile=profile_named(options["profile"]),
        is_kept=False,
    )


def _mapping(table: Table, words: Sequence[str]) -> CaseMapping:
    """Return the suggested mapping with what was said instead; raises CommandError."""
    found = suggest(table)
    said: dict[int, Part] = {}
    for word in words:
        name, _, column = word.partition("=")
        part = part_named(name)
        if part is None:
            known = ", ".join(Part)
            raise CommandError(f"--map {word}: {name!r} is none of {known}.", returncode=2)
        if column not in table.columns:
            columns = ", ".join(table.columns)
            raise CommandError(
                f"--map {word}: there is no column {column!r}; there are {columns}.",
                returncode=COULD_NOT,
            )
        said[table.columns.index(column)] = part
    parts = tuple(
        said.get(n, Part.METADATA if part in said.values() and _is_one(part) else part)
        for n, part in enumerate(found.parts)
    )
    return replace(found, parts=parts)


def _is_one(part: Part) -> bool:
    """Tell whether a part that was said of one column takes it from the one that was guessed."""
    return bool(CaseMapping((Part.INPUT, part, part)).problems())
