"""List the results of a run at the command line, or write them to a file: all, or those that a filter finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluators.templatetags.figures import GAPS, counted, score
from runs.cli.command import FAILED, SiteCommand, get_run
from runs.cli.files import OUT, STANDARD_OUTPUT, check_writable, write_file
from runs.cli.terminal import print_line
from runs.filters.queries import ResultsQuery
from runs.formats.results_writing import ResultLine, write_results
from runs.models.runs import Run
from runs.results.files import listed_ids, result_lines, results_csv
from runs.results.report import one_line

EPILOG = """\
RUN names a run:
  SUITE#N         the run of that number, as pages show it
  SUITE:latest    the newest finished run of the suite, except rescored runs
  SUITE:baseline  the baseline run of the suite

FILTER is what the field above the results of a run takes: words, and conditions such as tone < 0.5 or
tag = billing. The page “Filters” of the site lists every field. A filter finds cases; all repetitions of
a case are listed.

exit codes:
  0  the results are listed or written, also if there are none
  2  wrong usage
  3  nothing is listed, with the reason: a run that does not exist, or a filter that cannot be read

examples:
  evalsite results support-agent:latest --filter 'verdict = fail, error'
  evalsite results support-agent#12 --filter 'tone < 0.5 and tag = billing' --out weak.csv
  evalsite results support-agent#12 --out - | jq .score
"""
CSV, LINES = ".csv", ".jsonl"


class Command(SiteCommand):
    """Find the results and print a line each, or write them."""

    help = "List the results of a run, or write them as CSV or JSON Lines: all, or those that a filter finds."
    epilog = EPILOG
    action = "The listing"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the run, the filter and the file."""
        parser.add_argument("run", metavar="RUN", help="The run: SUITE#N, SUITE:latest …")
        parser.add_argument(
            "--filter", default="", metavar="FILTER", help="Only results of cases that match this."
        )
        parser.add_argument(
            OUT,
            type=Path,
            metavar="FILE",
            help="Write them to this file: CSV with scores by evaluator for .csv, else JSON Lines; "
            "- is standard output.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """List or write the results."""
        out: Path | None = options["out"]
        if out and out != STANDARD_OUTPUT and out.suffix not in (CSV, LINES):
            raise CommandError(
                f"The ending of {out} names no format. End it in {CSV} or {LINES}.",
                returncode=FAILED,
            )
        check_writable([(OUT, out)])
        run = get_run(options["run"])
        ids = listed_ids(run, ResultsQuery(text=options["filter"].strip()))
        found = f"{counted(len(ids), 'result')} of {run.execution_count} in {run.suite.slug} {run}"
        if out is None:
            for line in _table(run, ids):
                print_line(self.stdout, line)
            print_line(self.stdout, found)
            return
        is_table = out.suffix == CSV
        write_file(
            OUT, out, results_csv(run, ids) if is_table else write_results(result_lines(run, ids))
        )
        print_line(self.stderr, found)


def _table(run: Run, ids: Sequence[int]) -> Iterator[str]:
    """Yield a line for each result: case, repetition, verdict, score and why it did not pass."""
    yield from (_line(run, line) for line in result_lines(run, ids))


def _line(run: Run, line: ResultLine) -> str:
    name = f"{line.eval_id} ({line.repetition})" if run.repetitions > 1 else line.eval_id
    figure = score(line.score, run.scale) if line.score is not None else "–"
    state = line.reviewed_verdict or line.verdict or line.status
    return f"{name:<20}  {state:<10}  {figure:>6}  {one_line(line.cause)}".rstrip().translate(GAPS)
