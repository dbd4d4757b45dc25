"""Suites between this machine and a site elsewhere: from files into the site, and back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from evalsite.client import Evalsite, EvalsiteError
from evalsite.remote import DONE
from runs.cli.options import add_suite_file_options
from runs.cli.terminal import import_message, print_line
from runs.specs.problems import UnreadableFileError

if TYPE_CHECKING:
    from runs.formats.finding import FoundSuite
    from runs.specs.suites import SuiteWithCases

NOT_FOUND = 404
# Options of import that a table of cases does not have.
OF_SUITE_FILES = ("slug", "profile", "judge")


def add_suite_options(parser: ArgumentParser) -> None:
    """Add the options of a suite that is stored at the site."""
    add_suite_file_options(parser)
    parser.add_argument("--judge", metavar="SLUG", help="Language model that judges.")


def import_files(site: Evalsite, options: Namespace, parser: ArgumentParser) -> int:
    """Store the suites of the paths at the site, or with --suite the cases of a table, and return the exit code."""
    if options.suite is not None:
        return _import_table(site, options, parser)
    if options.map:
        parser.error("--map is for tables; name the suite of the table with --suite.")
    for _slug, message in store_suites(site, read_suites_at(options.paths, options), options):
        print_line(sys.stdout, message)
    return DONE


def _import_table(site: Evalsite, options: Namespace, parser: ArgumentParser) -> int:
    from runs.cli.table_in import TableIn, UnknownPartError
    from runs.formats.table_cases import title_from_input, upload_note

    if wrong := next((name for name in OF_SUITE_FILES if vars(options)[name]), None):
        parser.error(f"--{wrong} is for suite files; leave it out, or leave out --suite.")
    if len(options.paths) != 1:
        parser.error("--suite gets the cases of one table; name exactly one.")
    [path] = options.paths
    try:
        table = TableIn.read(path, path.read_bytes(), vars(options))
    except UnknownPartError as error:
        parser.error(str(error))
    with _name_missing(site, f"suite {options.suite!r}"):
        suite = site.get(f"suites/{options.suite}")
    current = _stored_suite(site, options.suite).cases if suite["case_count"] else ()
    titles = {
        case.key: case.title
        for case in current
        if case.title not in ("", title_from_input(case.input))
    }
    found = table.cases({case.key for case in current}, titles)
    stored = {"added": 0, "changed": 0, "unchanged": 0, "version": suite["version"]}
    if found.cases:
        cases = [case.model_dump(mode="json") for case in found.cases]
        body = {"cases": cases, "note": upload_note(found.cases, path.name)}
        stored = site.post(f"suites/{options.suite}/cases", body)
    for problem in table.problems(found):
        print_line(sys.stderr, f"Note: {problem}")
    for sentence in table.sentences(options.suite, stored, found):
        print_line(sys.stdout, sentence)
    return DONE


def read_suites_at(paths: Sequence[Path], options: Namespace) -> Sequence[FoundSuite]:
    """Return the suites at the paths; raises UnreadableFileError."""
    # Imported here: reading files takes longer to load than a run of the site to start.
    from runs.formats.bundles import bundles_at
    from runs.formats.finding import read_suites

    reading = read_suites(bundles_at(paths), profile=options.profile)
    for warning in reading.warnings:
        print_line(sys.stderr, f"Note: {warning}")
    return reading.suites


def store_suites(
    site: Evalsite, suites: Sequence[FoundSuite], options: Namespace
) -> Iterator[tuple[str, str]]:
    """Store the suites, and yield the short name of each with a message about it, once it is stored."""
    from runs.formats.suite_files import pack_suite

    if options.slug and len(suites) > 1:
        raise EvalsiteError("--slug is for a single suite; name its file.")
    if not options.slug:
        problems = [suite.unrelated_problem(_keys(site, suite.content.slug)) for suite in suites]
        if unrelated := [problem for problem in problems if problem is not None]:
            raise UnreadableFileError(unrelated)
    for suite in suites:
        slug = options.slug or suite.content.slug
        content = suite.content.replace(slug=slug, judge=options.judge or suite.content.judge)
        packed = pack_suite(content, slug)
        media_type = "application/zip" if packed.name.endswith(".zip") else "application/yaml"
        stored = site.put_file(f"suites/{slug}", b"".join(packed.parts), media_type)
        for warning in stored["warnings"]:
            print_line(sys.stderr, f"Note: {warning}")
        message = import_message(slug, stored["version"], stored["version_before"], stored["note"])
        yield slug, f"{message} From {suite.path}"


def _keys(site: Evalsite, slug: str) -> set[str]:
    """Return the keys of the cases that the site has under a name, none where it has no such suite."""
    try:
        return {row["key"] for row in site.rows(f"suites/{slug}/cases")}
    except EvalsiteError as error:
        if error.status == NOT_FOUND:
            return set()
        raise


def export_suite(site: Evalsite, options: Namespace, _: ArgumentParser) -> int:
    """Write a suite of the site to the path of the options, and return the exit code."""
    from runs.cli.suite_out import write_out

    written = write_out(
        _stored_suite(site, options.suite, options.version),
        options.suite,
        options.out,
        options.format,
        note=lambda text: print_line(sys.stderr, text),
    )
    if written:
        print_line(sys.stderr, f"{options.suite} is written to {', '.join(map(str, written))}")
    return DONE


def _stored_suite(site: Evalsite, slug: str, version: int | None = None) -> SuiteWithCases:
    """Return a suite of the site with its cases, at its current version unless another is named."""
    from runs.formats.bundles import read_uploads
    from runs.formats.finding import read_suites

    of_version = f" with a version {version}" if version else ""
    with _name_missing(site, f"suite {slug!r}{of_version}"):
        content = site.file(f"suites/{slug}/file", **({"version": version} if version else {}))
    name = "suite.zip" if content.startswith(b"PK") else "suite.yaml"
    [found] = read_suites(read_uploads([(name, BytesIO(content))])).suites
    return found.content.replace(slug=slug)


@contextmanager
def _name_missing(site: Evalsite, name: str) -> Iterator[None]:
    """Say that the site has no such suite, where its answer is only that there is nothing at the address."""
    try:
        yield
    except EvalsiteError as error:
        if error.status != NOT_FOUND:
            raise
        raise EvalsiteError(f"There is no {name} at {site.server}.", status=NOT_FOUND) from error
