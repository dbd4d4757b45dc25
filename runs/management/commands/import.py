"""Import suites, tables of cases and recorded outputs from files."""  # noqa: N999 - the name of the command

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.text import slugify

from evaluators.templatetags.figures import GAPS, counted
from runs.cases.services import put_cases
from runs.cli.command import (
    MISUSED,
    SiteCommand,
    UnknownNameError,
    get_model,
    get_suite,
    read_file,
)
from runs.cli.options import add_suite_file_options
from runs.cli.table_in import TableIn, UnknownPartError, add_table_options
from runs.cli.terminal import import_message, printable
from runs.files.importing import ImportedOutputs, import_recorded_outputs, import_suites
from runs.formats.bundles import bundles_at
from runs.formats.finding import FoundSuites, read_suites
from runs.formats.table_cases import upload_note
from runs.models.suites import Case, Suite
from runs.scripts import prompt_programs
from runs.specs.problems import Problem
from runs.specs.profiles import get_profile
from runs.suites.services import create_suite, written_titles

MAX_SLUG_LENGTH = Suite._meta.get_field("slug").max_length
SLUG = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
SUFFIXES = (".csv", ".tsv")
ONLY_FOR_SUITE_FILES = ("slug", "outputs", "target")
ONLY_FOR_NEW_SUITES = ("judge", "profile")

EPILOG = """\
PATH is a folder, a zip or a suite file; a suite file may refer to others in its folder. It is YAML
(.yaml, .yml) with its cases under tests, in the file or in one named there, or JSON Lines (.jsonl)
with one case on each line and everything else in a YAML file of the same name. Every suite in a
folder or zip is imported. Other YAML and JSON Lines files are skipped with a note; hidden files and
caches (.git, node_modules) are ignored. Suites and datasets of other tools, such as promptfoo or
Inspect, are recognised by what they hold; the README says which.

A line such as profile: metrics gives a suite the policy and evaluators that it does not define:
verdicts, metrics, tasks or hybrid. --profile does the same for files without such a line, including
files with only cases. If both name a profile, the file's wins, with a note. The resulting values are
stored and exported.

With --suite, PATH is a table whose rows are cases of that suite: CSV, JSON Lines or a JSON list with
any fields. The names of the columns say what they contain, or --map does. Each rejected row is
printed with line and column, and nothing is stored unless --leave-out-rejected is given. With
--profile a missing suite is created from the table; without --suite it is named after the file (.csv
or .tsv).

A suite of the same name gets a new version; runs keep the version they ran with. A file that shares
no case with it is refused: --slug gives it another name, or confirms this one. Either everything is
stored or nothing.

exit codes:
  0  everything is stored; ignored content is printed on standard error
  2  wrong usage
  3  nothing is stored: every problem is printed with its file, line, case and key

examples:
  evalsite import evals/
  evalsite import refunds.yaml --slug refunds-2 --judge gpt-4.1-mini --note "stricter tone"
  evalsite import cases.jsonl --profile metrics --judge gpt-4.1-mini
  evalsite import support.zip --outputs answers.jsonl --target "agent 1.5.0"
  evalsite import --outputs answers.jsonl --target "agent 1.6.0"
  evalsite import questions.csv --profile verdicts --judge gpt-4.1-mini
  evalsite import cases.csv --suite refunds --map input=question --map expected_output=answer
"""


class Command(SiteCommand):
    """Read everything first, then store it in one transaction."""

    help = "Import suites from folders, zips or files, tables of cases, and recorded outputs of a target."
    epilog = EPILOG
    action = "The import"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options of the import page."""
        parser.add_argument(
            "paths", nargs="*", type=Path, metavar="PATH", help="A folder, a zip or a suite file."
        )
        parser.add_argument(
            "--judge",
            metavar="SLUG",
            help='Language model that judges, "" for none; default: the one in the file, else the '
            "suite's.",
        )
        add_suite_file_options(parser)
        parser.add_argument("--note", default="", metavar="TEXT", help="Note for the new versions.")
        parser.add_argument(
            "--outputs",
            type=Path,
            metavar="FILE",
            help='Recorded outputs, one on each line: {"id": "CS-001", "output": "…"}.',
        )
        parser.add_argument(
            "--target",
            metavar="NAME",
            help="Name of the target of these outputs; default: the file's name.",
        )
        add_table_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Import everything and print a line about each part."""
        check_table_options(options)
        if options["suite"] is not None:
            self._import_table(options)
            return
        paths, outputs = options["paths"], options["outputs"]
        if not paths and outputs is None:
            raise _misuse("Name a folder, a zip or a suite file, or --outputs.")
        if options["target"] and outputs is None:
            raise _misuse(
                "--target is the target of recorded outputs; name their file with --outputs."
            )
        if options["profile"] and not paths:
            raise _misuse("--profile is for suite files; name them.")
        profile = options["profile"]
        reading = (
            read_suites(bundles_at(paths), profile=profile, run=prompt_programs(None))
            if paths
            else FoundSuites(())
        )
        # Read before the transaction: a pipe may be slow, and on SQLite nobody else could write meanwhile.
        lines = read_file(outputs, option="--outputs") if outputs else b""
        with transaction.atomic():
            stored = _import_suites(reading, options)
            recorded = _import_outputs(outputs, lines, options["target"]) if outputs else None
        notes = (note for suite in stored for note in suite.notes)
        for warning in (*reading.warnings, *notes, *(recorded.notes if recorded else ())):
            self._warn(warning)
        for suite in stored:
            stored_suite, before = suite.imported.suite, suite.imported.version_before
            message = import_message(
                stored_suite.slug, stored_suite.version, before, suite.imported.note
            )
            self._print(f"{message} From {suite.path}")
        if recorded:
            target = recorded.target
            count = counted(target.recorded_outputs.count(), "recorded output").translate(GAPS)
            self._print(f"Target {target.name}: {count}, from {outputs}")

    def _import_table(self, options: dict[str, Any]) -> None:
        [path] = options["paths"]
        content = read_file(path)
        with transaction.atomic():
            sentences, rejected = import_table(path, content, options)
        for problem in rejected:
            self._warn(problem)
        for sentence in sentences:
            self._print(sentence)

    def _print(self, sentence: str) -> None:
        self.stdout.write(printable(sys.stdout, sentence))

    def _warn(self, warning: Problem) -> None:
        self.stderr.write(printable(sys.stderr, f"Note: {warning}"), self.style.WARNING)


def _misuse(reason: str) -> CommandError:
    return CommandError(reason, returncode=MISUSED)


def _import_suites(reading: FoundSuites, options: dict[str, Any]) -> tuple[Any, ...]:
    if not reading.suites:
        return ()
    judge = get_model(options["judge"]).slug if options["judge"] else options["judge"]
    return import_suites(
        reading.suites, imported_by=None, slug=options["slug"], judge=judge, note=options["note"]
    )


def _import_outputs(path: Path, lines: bytes, name: str | None) -> ImportedOutputs:
    return import_recorded_outputs(
        target_name=name or path.stem, lines=lines, imported_by=None, file=str(path)
    )


def check_table_options(options: dict[str, Any]) -> None:
    """Raise CommandError for options that do not go together."""
    paths: Sequence[Path] = options["paths"]
    table = next((path for path in paths if path.suffix.lower() in SUFFIXES), None)
    if options["suite"] is None and options["profile"] and table and len(paths) == 1:
        options["suite"] = options["slug"] or _file_slug(table)
        options["slug"] = None
    if options["suite"] is None:
        if options["map"]:
            raise _misuse("--map is for tables; name the suite of the table with --suite.")
        if table:
            raise _misuse(
                f"{table} is a table of cases; name the suite that gets them with --suite, or create "
                "one with --profile NAME."
            )
        return
    if wrong := next((name for name in ONLY_FOR_SUITE_FILES if options[name]), None):
        raise _misuse(f"--{wrong} does not work with --suite.")
    if len(paths) != 1:
        raise _misuse("--suite gets the cases of one table; name exactly one.")


def import_table(
    path: Path, content: bytes, options: dict[str, Any]
) -> tuple[list[str], list[Problem]]:
    """Store the cases of a table; returns messages, and the rejected rows that were left out.

    Raises UnreadableFileError with every rejected row unless they are left out, and DomainError.
    """
    existing = _existing_suite(options)
    try:
        table = TableIn.read(path, content, options)
    except UnknownPartError as error:
        raise _misuse(str(error)) from error
    current = existing.cases.filter(is_current=True) if existing else Case.objects.none()
    keys = frozenset(current.values_list("key", flat=True))
    found = table.cases(keys, written_titles(existing))
    note = options["note"] or upload_note(found.cases, path.name)
    suite = existing or _create_suite(options)
    done = put_cases(suite, found.cases, by=None, note=note, are_from_table=True)
    stored = asdict(done)
    return list(table.sentences(suite.slug, stored, found)), table.problems(found)


def _file_slug(path: Path) -> str:
    slug = slugify(path.stem)[:MAX_SLUG_LENGTH].strip("-_")
    if not slug:
        raise _misuse(f"The name of {path} gives no short name; name the new suite with --suite.")
    return slug


def _existing_suite(options: dict[str, Any]) -> Suite | None:
    """Return the suite that gets the cases, None for a new one; raises DomainError, CommandError."""
    slug, is_new = options["suite"], bool(options["profile"])
    suite = Suite.objects.select_related("judge").filter(slug=slug).first()
    if suite is None and not is_new:
        try:
            get_suite(slug)
        except UnknownNameError as error:
            remedy = "Use --profile NAME to create it from the table."
            raise UnknownNameError(f"{error} {remedy}") from error
    if suite is None:
        if not SLUG.fullmatch(slug):
            raise _misuse(
                f"{slug!r} is not a short name; use lower-case letters, digits and hyphens."
            )
        get_profile(options["profile"])
    elif wrong := next((name for name in ONLY_FOR_NEW_SUITES if options[name]), None):
        raise _misuse(
            f"There is already a suite {slug!r}, and --{wrong} is for new suites. Leave --{wrong} out "
            f"and write --suite {slug} to add the cases to it, or name another with --suite."
        )
    return suite


def _create_suite(options: dict[str, Any]) -> Suite:
    slug = options["suite"]
    return create_suite(
        slug=slug,
        title=slug.replace("-", " ").replace("_", " ").strip().capitalize(),
        by=None,
        judge=get_model(options["judge"]) if options["judge"] else None,
        profile=get_profile(options["profile"]),
        is_kept=False,
    )
