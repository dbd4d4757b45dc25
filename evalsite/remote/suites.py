"""Suites between this machine and a site elsewhere: from files into the site, and back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
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

NOT_FOUND = 404


def add_suite_options(parser: ArgumentParser) -> None:
    """Add the options of a suite that is stored at the site."""
    add_suite_file_options(parser)
    parser.add_argument("--judge", metavar="SLUG", help="Language model that judges.")


def import_suites(site: Evalsite, options: Namespace, _: ArgumentParser) -> int:
    """Store the suites of the paths at the site, and return the exit code."""
    for _slug, message in store_suites(site, read_suites_at(options.paths, options), options):
        print_line(sys.stdout, message)
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
    from runs.formats.bundles import read_uploads
    from runs.formats.finding import read_suites

    version = {"version": options.version} if options.version else {}
    content = site.file(f"suites/{options.suite}/file", **version)
    name = "suite.zip" if content.startswith(b"PK") else "suite.yaml"
    [found] = read_suites(read_uploads([(name, BytesIO(content))])).suites
    suite = found.content.replace(slug=options.suite)
    written = write_out(
        suite,
        options.suite,
        options.out,
        options.format,
        note=lambda text: print_line(sys.stderr, text),
    )
    if written:
        print_line(sys.stderr, f"{options.suite} is written to {', '.join(map(str, written))}")
    return DONE
