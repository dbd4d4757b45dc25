"""The files a command writes, and the tables of cases it reads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from django.core.management.base import CommandError, CommandParser
from django.utils.text import slugify

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import pct
from runs.cases.services import put_cases
from runs.cases.uploads import Existing, TableReading, cases_of, check_rejected, keys_of
from runs.cases.uploads import note_of as note_of_table
from runs.cli.evaluating import ExitConclusion, summary_document
from runs.cli.names import COULD_NOT, UnknownNameError, model_named, suite_named
from runs.formats.junit import JUnitRun, write_junit
from runs.formats.results_writing import write_results
from runs.formats.table_mapping import CaseMapping, CasePart, part_named, suggest
from runs.formats.tables import Table, read_table
from runs.models.database import database_now
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.results.files import result_lines
from runs.results.runs import cases_gate, metrics_gate, repetitions_of_run
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.profiles import profile_named
from runs.suites.services import create_suite, written_titles

OUT, SUMMARY, JUNIT = "--out", "--summary", "--junit"
CAMEL_CASE = "--camel-case"
STANDARD_OUTPUT = Path("-")


class UnwritableFileError(DomainError):
    """A file cannot be written."""

    code = "unwritable_file"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Where what came of a run is to be written, None where nothing was asked for."""

    out: Path | None
    summary: Path | None
    junit: Path | None
    is_camel: bool = False

    @staticmethod
    def add_to(parser: CommandParser) -> None:
        """Offer the options."""
        for option, what in (
            (OUT, "Write one JSON line for each result: scores, verdict, costs."),
            (SUMMARY, "Write every figure of the run to this file as JSON."),
            (JUNIT, "Write a JUnit file for a build server: passed is the verdict pass."),
        ):
            parser.add_argument(
                option, type=Path, metavar="FILE", help=f"{what} - is standard output."
            )
        parser.add_argument(
            CAMEL_CASE, action="store_true", help="Write the keys of --out in camelCase."
        )

    @classmethod
    def read(cls, options: dict[str, Any]) -> Self:
        """Return what was asked for; raises UnwritableFileError while it is early enough to say so."""
        paths = (options["out"], options["summary"], options["junit"])
        found = cls(*paths, is_camel=options["camel_case"])
        check_writable(((OUT, found.out), (SUMMARY, found.summary), (JUNIT, found.junit)))
        return found

    @property
    def take_standard_output(self) -> bool:
        """Tell whether a file goes there, so that nothing else may."""
        return STANDARD_OUTPUT in (self.out, self.summary, self.junit)

    def write(self, run: Run, conclusion: ExitConclusion, *, url: str) -> None:
        """Write the files of a run that is over; raises UnwritableFileError."""
        if self.summary:
            document = summary_document(run, conclusion, url=url).model_dump_json(indent=2)
            write_file(SUMMARY, self.summary, [document, "\n"])
        if self.out:
            lines = result_lines(run)
            write_file(OUT, self.out, write_results(lines, is_camel=self.is_camel))
        if self.junit:
            about = junit_run(run, conclusion, url=url)
            write_file(JUNIT, self.junit, write_junit(about, result_lines(run)))


def junit_run(run: Run, conclusion: ExitConclusion, *, url: str) -> JUnitRun:
    """Return what a JUnit file says of the run as a whole."""
    policy = run.policy
    gates = {"metrics_gate": metrics_gate(run, policy), "cases_gate": cases_gate(run, policy)}
    return JUnitRun(
        name=f"{run.suite.slug} {run}",
        took_ms=run.worked_ms(now=database_now()),
        began_at=run.started_at.isoformat(timespec="seconds") if run.started_at else "",
        repetitions=run.repetitions,
        counts_reviews=policy.count_reviews,
        properties={
            "url": url,
            "target": run.target_name,
            "judge": run.judge_name,
            "suite_version": str(run.suite_version),
            "status": run.status,
            "conclusion": conclusion.sentence,
            **{name: f"{gate.state} {pct(gate.share)}" for name, gate in gates.items()},
            **({"reviews": str(reviews)} if (reviews := gates["cases_gate"].reviews) else {}),
            **_repeated(run),
        },
    )


def _repeated(run: Run) -> dict[str, str]:
    """Return what the repetitions of the run's cases came to; nothing where each ran once."""
    found = repetitions_of_run(run)
    if found is None:
        return {}
    parts = {"all_k_passed": found.all_passed, "any_k_passed": found.any_passed}
    spread = {} if found.spread is None else {"mean_spread": f"{found.spread:g}"}
    return {
        "repetitions": str(found.each),
        **{name: f"{part.count} of {part.total}" for name, part in parts.items()},
        "flaky": f"{found.flaky.count} of {found.flaky.total}",
        **spread,
    }


def check_writable(files: Iterable[tuple[str, Path | None]]) -> None:
    """Raise UnwritableFileError unless every file can be written: after the work it would be too late.

    `files` are options with the paths they name. Looking leaves nothing behind.
    """
    taken: dict[Path, str] = {}
    for option, path in files:
        if path is None:
            continue
        place = path.resolve()
        if place in taken:
            raise UnwritableFileError(f"{taken[place]} and {option} name one file, {path}.")
        taken[place] = option
        if path != STANDARD_OUTPUT:
            _try(option, path)


def write_file(option: str, path: Path, parts: Iterable[str]) -> None:
    """Write a text in parts to a file, or to standard output for -; raises UnwritableFileError."""
    try:
        if path == STANDARD_OUTPUT:
            sys.stdout.writelines(parts)
            sys.stdout.flush()
            return
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
    except OSError as error:
        raise UnwritableFileError(
            f"The work is done, but {option} {path} could not be written: {error.strerror}."
        ) from error


def _try(option: str, path: Path) -> None:
    is_new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise UnwritableFileError(
            f"{option} {path} cannot be written: {error.strerror}. Name a file in a folder that "
            "exists and that you may write to."
        ) from error


MAX_SLUG_LENGTH = Suite._meta.get_field("slug").max_length
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
        f"{', '.join(part for part in CasePart if part is not CasePart.IGNORED)}, or ignored; any number.",
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
    done = put_cases(suite, found.cases, by=None, note=note)
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
    slug = slugify(path.stem)[:MAX_SLUG_LENGTH].strip("-_")
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
    said: dict[int, CasePart] = {}
    for word in words:
        name, _, column = word.partition("=")
        part = part_named(name)
        if part is None:
            known = ", ".join(CasePart)
            raise CommandError(f"--map {word}: {name!r} is none of {known}.", returncode=2)
        if column not in table.columns:
            columns = ", ".join(table.columns)
            raise CommandError(
                f"--map {word}: there is no column {column!r}; there are {columns}.",
                returncode=COULD_NOT,
            )
        said[table.columns.index(column)] = part
    parts = tuple(
        said.get(n, CasePart.METADATA if part in said.values() and _is_one(part) else part)
        for n, part in enumerate(found.parts)
    )
    return replace(found, parts=parts)


def _is_one(part: CasePart) -> bool:
    """Tell whether a part that was said of one column takes it from the one that was guessed."""
    return bool(CaseMapping((CasePart.INPUT, part, part)).problems())
