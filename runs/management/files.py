"""The files a command writes: seen to be writable before the work, written after it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from django.core.management.base import CommandParser

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import pct
from runs.formats.junit import JUnitRun, write_junit
from runs.formats.results import write_results
from runs.management.concluding import Conclusion, summary_document
from runs.models import Run
from runs.models.clock import database_now
from runs.reports.case_groups import policy_of
from runs.reports.gates import cases_gate, metrics_gate
from runs.reports.result_lines import result_lines
from runs.reports.run_repetitions import repetitions_of_run

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

    def write(self, run: Run, conclusion: Conclusion, *, url: str) -> None:
        """Write the files of a run that is over; raises UnwritableFileError."""
        if self.summary:
            document = json.dumps(summary_document(run, conclusion, url=url), indent=2)
            write_file(SUMMARY, self.summary, [document, "\n"])
        if self.out:
            lines = result_lines(run)
            write_file(OUT, self.out, write_results(lines, is_camel=self.is_camel))
        if self.junit:
            about = junit_run(run, conclusion, url=url)
            write_file(JUNIT, self.junit, write_junit(about, result_lines(run)))


def junit_run(run: Run, conclusion: Conclusion, *, url: str) -> JUnitRun:
    """Return what a JUnit file says of the run as a whole."""
    policy = policy_of(run)
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
